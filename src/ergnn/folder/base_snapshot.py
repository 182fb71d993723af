"""A version of a growing graph with its updates and its learner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from ergnn import __version__
from ergnn.config.errors import FolderError, InputError, truncate
from ergnn.data.partial import Array, ExtendedGraph, LabeledGraph, PartialGraph, find_all
from ergnn.data.tables.node_tables import SPLITS, EdgeTable, NodeTable
from ergnn.folder.settings import Settings
from ergnn.folder.update import Update, prepare_update
from ergnn.learning.evaluation import HeldOut, Record
from ergnn.replay.buffer import ExperienceBuffer

S = TypeVar("S", bound="Snapshot")
CHUNK = 2048
"""Nodes per chunk of predictions."""


class IncrementalLearner(Protocol):
    """A model that learns updates of a growing graph; its nodes are numbers of the whole graph.

    ``learn`` learns updates that are in the graph as one task; it returns ``task``, ``classes``, ``drift`` and
    ``touched``. ``forget`` removes nodes that have left the graph; it returns ``[id, class, update]`` of nodes that
    replace them. ``probabilities`` yields indices into ``nodes`` and rows ``[n, num_classes]``.

    Attributes:
        exact: whether the model depends on the present graph only, so that nothing of a forgotten node is left in it.
        all_at_once: whether many nodes are scored together rather than in chunks.
    """

    exact: bool
    all_at_once: bool

    @property
    def num_tasks(self) -> int: ...
    @property
    def buffer(self) -> ExperienceBuffer: ...
    def classes(self) -> list[int]: ...
    def learn(self, snapshot: Any, updates: Sequence[int], checkpoints: Any = None) -> dict[str, Any]: ...
    def forget(self, snapshot: Any, nodes: Array) -> list[list[Any]]: ...
    def probabilities(
        self, graph: PartialGraph, nodes: Array, num_classes: int, chunk: int = ...
    ) -> Iterator[tuple[Array, Array]]: ...
    def describe(self, classes: list[str]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Version:
    """Sizes of a version, and its ``state``: number and names of features, and what the learner stores as JSON."""

    number: int
    time: str
    nodes: int
    next_node: int
    edges: int
    labeled: int
    remembered: int
    classes: int
    updates: int
    state: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A learner in one version, with its graph, the names of its classes, and the records of its updates."""

    root: Path
    settings: Settings
    version: Version
    classes: list[str]
    records: list[Record]
    graph: LabeledGraph
    learner: IncrementalLearner

    def grown(self, update: Update, name: str) -> tuple[Record, dict[str, Any]]:
        """The record of an update, and the fields of the version that contains it."""
        old, counts, names = self.version, update.counts, [*self.classes, *update.classes]
        alone = [c for c, count in Counter(update.labels[1].tolist()).items() if count == 1 and c >= len(self.classes)]
        sizes = {"nodes": old.nodes + counts["nodes"], "edges": old.edges + counts["edges"]}
        record: Record = {
            "update": old.updates,
            "name": name or f"update {old.updates + 1}",
            "counts": counts,
            "members": {split: counts[split] for split in SPLITS},
            "notes": [f"class {truncate(names[c])} has one labeled node and cannot be scored" for c in alone],
            "graph": sizes,
        }
        return record, {
            **sizes,
            "next_node": old.next_node + counts["nodes"],
            "labeled": old.labeled + len(update.labels[0]),
            "classes": len(names),
            "updates": old.updates + 1,
            "state": update.layout,
        }

    def extended(self, nodes: NodeTable, edges: EdgeTable | None) -> PartialGraph:
        """The graph with nodes and edges of one prediction only; their labels are ignored."""
        unknown = nodes.ids[self.graph.find(list(nodes.ids)) < 0]
        if len(unknown) and not nodes.num_features and not nodes.is_sparse:
            first, count = truncate(unknown[0]), f"{len(unknown)} such id(s)"
            raise InputError(f"node {first} is not in the graph and has no features here ({count})")
        if not len(unknown) and edges is None:
            return self.graph
        bare = NodeTable(nodes.ids, features=nodes.features, feature_names=nodes.feature_names)
        update = prepare_update(self, bare, edges)
        return ExtendedGraph(self.graph, update.ids, update.features, update.edges)

    def predict(
        self,
        ids: Sequence[str] | None,
        nodes: NodeTable | None = None,
        edges: EdgeTable | None = None,
        classes: Sequence[str] | None = None,
        chunk: int = CHUNK,
    ) -> Iterator[tuple[list[str], list[str], Array]]:
        """Predict in chunks; see :meth:`ergnn.folder.LearnerFolder.predict`."""
        if not self.learner.num_tasks:
            raise InputError(f"{self.root}: nothing has been learned yet; observe labeled nodes first")
        graph = self.graph if nodes is None else self.extended(nodes, edges)
        wanted = [str(text) for text in (nodes.ids if ids is None and nodes is not None else ids or ())]
        numbers = find_all(graph, wanted)
        known = {self.classes[c]: c for c in self.learner.classes()}
        names = list(dict.fromkeys(known if classes is None else classes))
        for name in names:
            if name not in known:
                raise InputError(f"class {truncate(name)} has not been learned; these have: {', '.join(known)[:300]}")
        columns = [known[name] for name in names]
        step = len(wanted) if self.learner.all_at_once else chunk
        for start in range(0, len(wanted), max(step, 1)):
            out = self.probabilities(graph, numbers[start : start + step], chunk)[:, columns]
            total = out.sum(1, keepdims=True)
            out = np.divide(out, total, out=np.full_like(out, 1 / len(columns)), where=total > 0)
            for first in range(0, len(out), chunk):
                yield wanted[start + first : start + first + chunk], names, out[first : first + chunk]

    def predict_held_out(self, samples: int | None = None, *, task_known: bool = False) -> HeldOut:
        """Predict the held-out nodes of every update.

        Args:
            samples: maximum number of nodes; see :meth:`held_out`.
            task_known: whether only the classes of a node's own update compete.
        """
        nodes, truth, updates = self.held_out(samples) if self.learner.num_tasks else np.empty((3, 0), np.int64)
        found = self.probabilities(self.graph, nodes) if len(nodes) else np.empty((0, len(self.classes) + 1))
        if task_known:
            competing = np.zeros((len(self.records), found.shape[1]))
            for record in self.records:
                competing[record["update"], [self.classes.index(name) for name in record["classes"]]] = 1
            found *= competing[updates]
        return HeldOut(self.records, self.classes, updates, truth, found.argmax(1))

    def probabilities(self, graph: PartialGraph, nodes: Array, chunk: int = CHUNK) -> Array:
        """Probabilities ``[n, classes]`` of some nodes."""
        out = np.zeros((len(nodes), len(self.classes)))
        for places, found in self.learner.probabilities(graph, nodes, len(self.classes), chunk):
            out[places] = found
        return out

    def describe(self) -> dict[str, Any]:
        """Description of the exported weights."""
        return {
            "ergnn": __version__,
            **self.learner.describe(self.classes),
            **{name: self.version.state[name] for name in ("num_features", "feature_names")},
            "classes": self.classes,
            "version": self.version.number,
            "directed": self.settings.directed,
        }

    def members(self, update: int, split: str) -> tuple[Array, Array]:
        """Labeled nodes of a split of an update, and their classes."""
        nodes, classes = self.graph.members(update, split)
        if len(nodes) != self.records[update]["members"][split]:
            raise FolderError(f"the {split} nodes of update {update + 1} are not as recorded: the database is damaged")
        return nodes, classes

    def pooled_members(self, updates: Iterable[int], split: str) -> tuple[Array, Array]:
        """Labeled nodes of a split of several updates, and their classes."""
        nodes, classes = (np.concatenate(part) for part in zip(*(self.members(u, split) for u in updates), strict=True))
        return nodes, classes

    def classes_of(self, update: int) -> list[str]:
        """Classes that were learned in an update."""
        if not 0 <= update < len(self.records):
            raise InputError(f"update {update + 1} has not been observed; {len(self.records)} have, from 1")
        classes: list[str] = self.records[update]["classes"]
        if not classes:
            raise InputError(f"no class was learned in update {update + 1}; it had no labeled nodes")
        return classes

    def held_out(self, samples: int | None = None) -> tuple[Array, Array, Array]:
        """The test nodes of all updates, their classes and updates.

        Args:
            samples: maximum number of nodes; if there are more, each update contributes its share in an order drawn by
                seed and update, so that a smaller sample is part of a larger one.
        """
        nodes, classes, updates = self.graph.split("test")
        counts = np.bincount(updates, minlength=len(self.records))
        if counts.tolist() != [record["members"]["test"] for record in self.records]:
            raise FolderError("the test nodes are not as recorded: the database is damaged")
        share = len(nodes) if samples is None else max(1, samples // max(1, int((counts > 0).sum())))
        parts = [np.empty(0, np.int64)]
        for number in np.flatnonzero(counts):
            mine = np.flatnonzero(updates == number)
            if len(mine) > share:
                mine = mine[np.random.default_rng([self.settings.seed, int(number)]).permutation(len(mine))[:share]]
            parts.append(mine)
        order = np.concatenate(parts)
        return nodes[order], classes[order], updates[order]

    def forget(
        self: S, nodes: Array, graph: LabeledGraph, new: IncrementalLearner | None = None
    ) -> tuple[S, dict[str, Any]]:
        """Forget nodes; returns the snapshot without them, and a report of what was replaced and still depends on them.

        Args:
            nodes: the nodes.
            graph: the graph without them.
            new: a new learner that learns all updates again; by default the learner forgets the nodes.
        """
        label, split, update = self.graph.labels(nodes)
        trained = (label >= 0) & (split == SPLITS.index("train"))
        remembered = int(np.isin(self.learner.buffer.nodes.cpu().numpy(), nodes).sum())
        records, replaced, learner = [], list[list[Any]](), new or self.learner
        for number, record in enumerate(self.records):
            lost = split[update == number]
            members = {name: record["members"][name] - int((lost == i).sum()) for i, name in enumerate(SPLITS)}
            records.append({**record, "members": members})
        after = replace(self, graph=graph, records=records, learner=learner)
        if new is None:
            replaced = learner.forget(after, nodes)
        else:
            records[:] = [{**record, **new.learn(after, [number])} for number, record in enumerate(records)]
        scores = after.predict_held_out(self.settings.eval_samples).scores()
        if records:
            records[-1] = {**records[-1], "scores": scores, "remembered": len(learner.buffer)}
        return after, {
            "nodes": len(nodes),
            "trained_in": sorted({int(u) + 1 for u in update[trained]}),
            "held_out": int(((label >= 0) & ~trained).sum()),
            "remembered": remembered,
            "replaced": replaced,
            "retrained": new is not None,
            "exact": learner.exact,
            "parameters_depend": bool(trained.any()) and new is None and not learner.exact,
            "scores": scores,
        }
