"""A version of a growing graph with its updates and its learner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ergnn import __version__
from ergnn.data.formats.limits import truncate
from ergnn.data.formats.tables import SPLITS, EdgeTable, NodeTable
from ergnn.data.partial import Array, ExtendedGraph, LabeledGraph, PartialGraph
from ergnn.data.update import Update, prepare_update
from ergnn.errors import FolderError, InputError
from ergnn.evaluation import Record
from ergnn.incremental.settings import Settings
from ergnn.replay.buffer import ExperienceBuffer


class IncrementalLearner(Protocol):
    """A model that learns updates of a growing graph; its nodes are numbers of the whole graph.

    Attributes:
        exact: whether the model depends on the present graph only, so that nothing of a forgotten node is left in it.
        all_at_once: whether many nodes are scored together rather than in chunks.
    """

    exact: bool
    all_at_once: bool

    @property
    def num_tasks(self) -> int:
        """0 until something has been learned."""
        ...

    @property
    def buffer(self) -> ExperienceBuffer:
        """Remembered nodes."""
        ...

    def classes(self) -> list[int]:
        """Classes that were learned."""
        ...

    def learn(self, snapshot: Any, updates: Sequence[int], checkpoints: Any = None) -> dict[str, Any]:
        """Learn updates that are in the graph as one task; returns ``task``, ``classes``, ``drift`` and ``touched``."""
        ...

    def forget(self, snapshot: Any, nodes: Array) -> list[list[Any]]:
        """Remove nodes that have left the graph; returns their replacements, ``[id, class, update]``."""
        ...

    def probabilities(
        self, graph: PartialGraph, nodes: Array, num_classes: int, chunk: int = ...
    ) -> Iterator[tuple[Array, Array]]:
        """Indices into ``nodes`` and their probabilities ``[n, num_classes]``, in chunks."""
        ...

    def describe(self, classes: list[str]) -> dict[str, Any]:
        """Description of the exported weights."""
        ...


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
    """A learner and its graph in one version.

    Args:
        root: where it is stored.
        settings: settings.
        version: sizes.
        classes: names of the classes.
        records: records of the updates.
        graph: the graph.
        learner: the learner.
    """

    root: Path
    settings: Settings
    version: Version
    classes: list[str]
    records: list[Record]
    graph: LabeledGraph
    learner: IncrementalLearner

    def prepare(self, nodes: NodeTable | None, edges: EdgeTable | None) -> Update:
        """Check tables against the graph, and number what they add."""
        settings = self.settings
        return prepare_update(
            *(self.graph, nodes, edges),
            classes=self.classes,
            layout=self.version.state,
            relabel=settings.closed_form,
            **{name: getattr(settings, name) for name in ("limits", "directed", "val", "test", "seed")},
        )

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
            raise InputError(
                f"node {truncate(unknown[0])} is not in the graph and has no features here ({len(unknown)} such id(s))"
            )
        if not len(unknown) and edges is None:
            return self.graph
        bare = NodeTable(nodes.ids, features=nodes.features, feature_names=nodes.feature_names)
        update = self.prepare(bare, edges)
        return ExtendedGraph(self.graph, update.ids, update.features, update.edges)

    def probabilities(self, graph: PartialGraph, nodes: Array, chunk: int | None = None) -> Array:
        """Probabilities ``[n, classes]`` of some nodes."""
        out = np.zeros((len(nodes), len(self.classes)))
        options = {} if chunk is None else {"chunk": chunk}
        for places, found in self.learner.probabilities(graph, nodes, len(self.classes), **options):
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
