"""A head that is solved from rows of the labeled nodes of a growing graph, and is stored in the database.

Rows of φ that an update cannot have changed are cached, those of one version. Where there are none for a version, all
are computed: nothing depends on the cache.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from ergnn.analytic import AnalyticHead, FeatureMap, Features, Inputs, NormalizedAdjacency
from ergnn.analytic.explain import LabelEffects, split_by_feature
from ergnn.analytic.head import SCORED_ROWS
from ergnn.analytic.inputs import AS_THEY_ARE, working_dtype
from ergnn.analytic.kernels import products
from ergnn.analytic.ridge import RidgeSolution, choose, loo_rows, solve
from ergnn.config.errors import FolderError
from ergnn.data.partial import Array, LocalGraph, PartialGraph, read_subgraph
from ergnn.data.structure import HOPS
from ergnn.engine.hardware import find_device, use_threads
from ergnn.folder.database import VISIBLE, drop_cache, get_tensors, insert, reading_values, select
from ergnn.folder.graph import AMONG, StoredGraph, json_list
from ergnn.folder.settings import Settings
from ergnn.replay.buffer import Experience, ExperienceBuffer

if TYPE_CHECKING:
    from ergnn.folder.snapshot import Snapshot


class SolvedLearner:
    """Ridge regression on propagated features, solved from all training labels of the graph as it is now.

    After any updates, corrections and removals, the head is the one that the final graph gives at once. It has the
    interface of :class:`ergnn.folder.network.NetworkLearner`.

    Args:
        settings: of the folder.
        head: the head of the method.
    """

    exact = True
    epochs = None

    def __init__(self, settings: Settings, head: AnalyticHead) -> None:
        self.settings, self.head, self.device = settings, head, find_device(settings.learner.device)
        self._version = 0
        self._graph: StoredGraph | None = None
        self._cached: tuple[str, Array, Array, Tensor] | None = None
        self._square = 0.0
        self._scored: tuple[Array, Tensor] = np.empty(0, np.int64), torch.empty(0, 0)

    @property
    def scales_columns(self) -> bool:
        """Whether a few dense features without names are columns of a table, whose scales differ."""
        return self.head.scale != "rows"

    @property
    def num_tasks(self) -> int:
        """0 until something has been learned; the head knows no tasks."""
        return int(self.head.solution is not None)

    @property
    def buffer(self) -> ExperienceBuffer:
        """The training nodes of each update: all labels count."""
        buffer = ExperienceBuffer()
        if self._graph is not None:
            nodes, labels, updates = map(torch.from_numpy, self._graph.split("train"))
            for update in updates.unique().tolist():
                chosen = updates == update
                scores = torch.full((int(chosen.sum()),), torch.nan)
                buffer.experiences.append(Experience(update, nodes[chosen], labels[chosen], scores))
        return buffer

    def classes(self) -> list[int]:
        """The classes that were learned."""
        return [] if self.head.solution is None else self.head.solution.classes.tolist()

    def learn(self, snapshot: Snapshot, updates: Sequence[int], checkpoints: object = None) -> dict[str, Any]:
        """Solve the head in a graph that holds more updates; only their own classes go into the record."""
        touched = self.solve(snapshot)
        classes = [snapshot.classes[c] for c in np.unique(snapshot.members(updates, "train")[1])]
        return {"task": updates[0] if classes else None, "classes": classes, "touched": touched}

    def forget(self, snapshot: Snapshot, nodes: Array) -> None:
        """Solve the head in a graph that some nodes have left."""
        self.solve(snapshot)

    def solve(self, snapshot: Snapshot) -> int:
        """Solve the head from all training labels in a graph; returns the number of nodes that were read.

        Rows of φ are also computed of the held-out nodes that are scored next, so that those are cached as well.
        """
        graph, head = snapshot.graph, self.head
        maps = head.feature_map.candidates(graph.num_edges)
        train, labels, _ = graph.split("train")
        self._graph, self._cached, head.solution = graph, None, None
        if not len(train):
            return 0
        held_out = np.setdiff1d(snapshot.held_out(self.settings.eval_samples)[0], train)
        nodes, count = np.concatenate([train, held_out]), len(train)
        head.sketched = head.sketch_size(graph.num_features, count)
        self._square = 0.0 if graph.encoder is None else graph.encoder.square
        layout = f"{head.sketched} {working_dtype(graph.num_nodes, graph.num_features)} {graph.encoding}"
        changed, known = None, np.zeros(len(nodes), bool)
        if len(maps) == 1 and not self.settings.directed:  # compared with another map, ppr reaches most nodes
            changed = changed_within(graph, self._version, maps[0].num_hops + graph.structural * HOPS)
        if changed is not None and select(graph.connection, "row_cache") == [(1, self._version, layout)]:
            query = "SELECT node FROM phi WHERE map = ?"  # by the index alone, without reading the rows
            stored = np.array(graph.connection.execute(query, (maps[0].name,)).fetchall(), np.int64)
            known = np.isin(nodes, np.setdiff1d(stored, changed))
        local, features = self._features(graph, nodes[~known], maps)

        def fetch(each: Features, mask: Array) -> Tensor:
            """Return the rows of some nodes under a map, read or computed."""
            fresh = each.rows(local.local_ids(nodes[mask & ~known]).to(self.device))
            stored = read_rows(graph, each, nodes[mask & known]) if (mask & known).any() else fresh[:0]
            return join_rows(known[mask], stored, fresh)

        with use_threads(None, entries=count * (count + max(each.width for each in features))):
            ids, classes = name_hashes(graph, train).to(self.device), torch.from_numpy(labels).to(self.device)
            chosen, decide = loo_rows(ids), np.ones(len(nodes), bool)
            if len(chosen) < count:
                decide = np.isin(nodes, train[chosen.cpu().numpy()])
            for each in features:
                each.keeps = len(chosen) < count  # else all rows are computed at once
            found = [fetch(each, decide) for each in features]
            grams = [products(rows, rows) for rows in (rows[: len(chosen)] for rows in found)]
            options = head.kernels, head.lambdas, None, ids[chosen], count, head.power
            best, trial = choose(grams, classes[chosen], *options)
            phi, gram = found[best], grams[best]
            if len(chosen) < count:
                phi = join_rows(decide, phi, fetch(features[best], ~decide))
            head.chosen = head.maps.index(maps[best])
            gram_of = None if len(chosen) < count else lambda _: gram
            head.solution = solve(phi[:count], classes, trial, chosen, ids=ids, gram=gram_of)
            self._cached = None if changed is None else (layout, nodes, known, phi)
            self._scored = held_out, head.solution.scores(phi[count:])
        return len(local.nodes)

    def probabilities(self, graph: PartialGraph, nodes: Array, num_classes: int) -> Array:
        """Probabilities ``[n, num_classes]`` of some nodes, all at once: their neighborhoods overlap."""
        solution, out = self._with_anchors(), np.zeros((len(nodes), num_classes))
        scores = self._scores(graph, nodes, solution)
        out[:, self.classes()] = torch.softmax(solution.temperature * scores, 1).cpu().numpy()
        return out

    def _with_anchors(self) -> RidgeSolution:
        """The solution; anchors, which are not stored, are rows of training nodes of the version that was read."""
        head = self.head
        assert head.solution is not None
        if head.solution.kernel.s and head.solution.anchors is None:
            assert self._graph is not None
            train = self._graph.split("train")[0]
            chosen = loo_rows(name_hashes(self._graph, train), head.solution.weight.size(0)).numpy()
            head.solution = replace(head.solution, anchors=self._rows(self._graph, train[chosen]))
        return head.solution

    def _rows(self, graph: PartialGraph, nodes: Array) -> Tensor:
        """φ of nodes (ascending) under the chosen map."""
        features, index = self._chosen_features(graph, nodes)
        features.keeps = False  # they are asked for once
        return features.rows(index)

    def _scores(self, graph: PartialGraph, nodes: Array, solution: RidgeSolution) -> Tensor:
        """Scores of nodes; those of the nodes of the learned graph that were asked for last are known."""
        known, scores = self._scored
        if graph is self._graph and np.isin(nodes, known).all():
            return scores[torch.from_numpy(np.searchsorted(known, nodes)).to(self.device)]
        features, index = self._chosen_features(graph, nodes)
        parts = index.split(SCORED_ROWS)
        features.keeps = len(parts) > 1
        with use_threads(None, entries=len(nodes) * features.width):
            if solution.anchors is None and not features.is_few(len(nodes)):
                scores = features.scores(solution.weight)[index]
            else:
                scores = torch.cat([solution.scores(features.rows(part)) for part in parts])
        if graph is self._graph:
            order = np.argsort(nodes)
            self._scored = nodes[order], scores[torch.from_numpy(order).to(self.device)]
        return scores

    def _features(
        self, graph: PartialGraph, nodes: Array, maps: Sequence[FeatureMap]
    ) -> tuple[LocalGraph, list[Features]]:
        """A part of the graph in which φ of some nodes is exact, and φ under each map."""
        local = read_subgraph(graph, nodes, max(each.num_hops for each in maps), self.settings.limits)
        part, dtype = local.graph.to(self.device), working_dtype(graph.num_nodes, graph.num_features)
        scales = replace(AS_THEY_ARE, square=self._square) if graph.encoding else None
        operator, inputs = NormalizedAdjacency(part, part.edge_weight), Inputs(part, self.head.sketched, dtype, scales)
        return local, [Features(each, operator, inputs) for each in maps]

    def _chosen_features(self, graph: PartialGraph, nodes: Array) -> tuple[Features, Tensor]:
        """φ under the chosen map in a part of the graph, and the places of some nodes in it."""
        local, (features,) = self._features(graph, nodes, (self.head.maps[self.head.chosen],))
        return features, local.local_ids(nodes).to(self.device)

    def label_effects(self, graph: StoredGraph) -> LabelEffects:
        """What the training labels of a graph do."""
        train, classes, _ = graph.split("train")
        nodes, labels = torch.from_numpy(train), torch.from_numpy(classes).to(self.device)
        return LabelEffects.of(self._with_anchors(), nodes, labels, self.rows(graph, train))

    def rows(self, graph: StoredGraph, nodes: Array) -> Tensor:
        """Rows of nodes (ascending), for the kernel of :meth:`label_effects`: φ, or Nyström features of φ."""
        return self._with_anchors().lift(self._rows(graph, nodes), len(graph.split("train")[0]))

    def split_scores(self, graph: PartialGraph, node: int) -> tuple[Tensor, Tensor] | None:
        """The scores of a node by distance and column, see :func:`split_by_feature`; None unless the head is linear."""
        solution = self.head.solution
        if solution is None or solution.kernel.s:
            return None
        features, index = self._chosen_features(graph, np.array([node]))
        return split_by_feature(features, int(index), solution.weight)

    def state(self) -> dict[str, Any]:
        """What is not stored as tensors, as JSON."""
        summary = self.head.summary()
        return summary and {**summary, "square": self._square}

    def write(self, connection: sqlite3.Connection, version: int) -> None:
        """Store the head with a version: W and the class of each column, as safetensors."""
        if self._cached is None:
            drop_cache(connection)
        else:
            write_rows(connection, self.head.maps[self.head.chosen].name, version, *self._cached)
        if (solution := self.head.solution) is not None:
            tensors = {"weight": solution.weight.cpu().contiguous(), "classes": solution.classes.cpu()}
            data = save(tensors, {k: str(v) for k, v in self.state().items()})
            insert(connection, "blobs", [(version, "weights", data)], "REPLACE")

    def read(self, connection: sqlite3.Connection, graph: StoredGraph) -> None:
        """Restore the state of the version of a graph in a new learner."""
        self._version, self._graph, head = graph.version.number, graph, self.head
        state = graph.version.state["learner"]
        if not state:
            return
        tensors = get_tensors(connection, self._version, "weights")
        weight, classes = tensors["weight"].double().to(self.device), tensors["classes"].to(self.device)
        head.chosen, head.sketched = [each.name for each in head.maps].index(state["map"]), state["sketch"]
        head.solution, self._square = RidgeSolution.restored(weight, classes, **state), float(state.get("square", 0.0))
        width = head.maps[head.chosen].num_blocks * (head.sketched or graph.num_features) + 1
        if state.get("s"):
            width = min(len(graph.split("train")[0]), weight.size(0))  # a weight per anchor
        if weight.shape != (width, classes.numel()) or not bool(torch.isfinite(weight).all()):
            raise FolderError(f"the head of version {self._version} does not fit its features: it is damaged")

    def describe(self, classes: list[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What the exported weights mean, and tensors that are not stored: the rows of a Gaussian kernel."""
        outputs, anchors = [[i, classes[c]] for i, c in enumerate(self.classes())], self._with_anchors().anchors
        method = {"method": self.settings.learner.method, **self.state(), "map_options": self.head.map_options()}
        return {**method, "outputs": outputs}, {} if anchors is None else {"anchors": anchors.cpu().contiguous()}


def read_rows(graph: StoredGraph, features: Features, nodes: Array) -> Tensor:
    """Read rows as they were in the version before."""
    values = {"map": features.feature_map.name, "nodes": json_list(nodes)}
    rows = {row[1]: row[2] for row in select(graph.connection, "phi", f"map = :map AND node {AMONG}", **values)}
    with reading_values("the table phi"):
        data = bytearray().join([rows[node] for node in nodes.tolist()])
        return torch.frombuffer(data, dtype=features.inputs.dtype).view(len(nodes), features.width)


def write_rows(
    connection: sqlite3.Connection, name: str, version: int, layout: str, nodes: Array, known: Array, phi: Tensor
) -> None:
    """Make the rows of some nodes under a map, of which some are known, those of a version."""
    values = {"map": name, "nodes": json_list(nodes[known])}
    connection.execute(f"DELETE FROM phi WHERE map != :map OR node NOT {AMONG}", values)
    rows = zip(nodes[~known].tolist(), phi.cpu().numpy()[~known], strict=True)
    insert(connection, "phi", ((name, node, row.tobytes()) for node, row in rows), "REPLACE")
    insert(connection, "row_cache", [(1, version, layout)], "REPLACE")


def join_rows(mask: Array, inside: Tensor, outside: Tensor) -> Tensor:
    """Rows in the order of a mask, on the device of those outside of it."""
    if not len(inside):
        return outside
    out, chosen = outside.new_empty(len(mask), outside.size(1)), torch.from_numpy(mask).to(outside.device)
    out[chosen], out[~chosen] = inside.to(out.device), outside
    return out


def name_hashes(graph: StoredGraph, nodes: Array) -> Tensor:
    """64-bit hashes of the ids of nodes, which do not depend on the order in which nodes arrived."""
    names = graph.names(nodes)
    hashes = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return torch.from_numpy(np.frombuffer(hashes, np.int64).copy())


def changed_within(graph: StoredGraph, base: int, hops: int) -> Array | None:
    """Nodes within some hops of what changed since a version; None if they are more than half of the graph."""
    query = f"SELECT node FROM adjacency WHERE added > :base AND {VISIBLE} ORDER BY node"
    rows = graph.connection.execute(query, {"base": base, "v": graph.version.number})
    nodes = frontier = np.array([row[0] for row in rows], np.int64)
    for _ in range(hops):
        if 2 * len(nodes) > graph.num_nodes:
            break
        frontier = np.setdiff1d(graph.neighbors(frontier)[1], nodes)
        nodes = np.union1d(nodes, frontier)
    return nodes if 2 * len(nodes) <= graph.num_nodes else None
