"""A head that is solved from rows of the labeled nodes of a growing graph, and is stored in the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from ergnn.analytic import AnalyticHead, FeatureMap, Features, Inputs, NormalizedAdjacency
from ergnn.analytic.explain import split_by_feature
from ergnn.analytic.head import SCORED_ROWS, LabeledRows
from ergnn.analytic.inputs import working_dtype
from ergnn.analytic.kernels import LINEAR
from ergnn.analytic.ridge import RidgeSolution, choose, class_weights, loo_rows, solve
from ergnn.analytic.scaling import AS_THEY_ARE
from ergnn.config.errors import FolderError, InputError
from ergnn.data.partial import Array, LabeledGraph, LocalGraph, PartialGraph, read_subgraph
from ergnn.data.structure import HOPS
from ergnn.engine.hardware import find_device
from ergnn.folder.graph import StoredGraph
from ergnn.folder.row_cache import CachedRows, changed_within, name_hashes, write_rows
from ergnn.folder.settings import Settings
from ergnn.folder.versions import drop_cache, get_tensors, put_blob
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
    all_at_once = True
    epochs = None

    def __init__(self, settings: Settings, head: AnalyticHead) -> None:
        self.settings, self.head, self.device = settings, head, find_device(settings.learner.device)
        self.method_name = settings.learner.method
        self._version = 0
        self._graph: LabeledGraph | None = None
        self._cached: list[CachedRows] = []
        self._scored: tuple[Array, Tensor] = np.empty(0, np.int64), torch.empty(0)

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
            (numbers, counts), order = updates.unique(return_counts=True), torch.argsort(updates, stable=True)
            columns = (column[order].split(counts.tolist()) for column in (nodes, labels))
            for update, trained, classes in zip(numbers.tolist(), *columns, strict=True):
                buffer.experiences.append(
                    Experience(update, trained, classes, torch.full((trained.numel(),), torch.nan))
                )
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
        assert isinstance(graph, StoredGraph)
        maps = head.maps_of(graph.num_edges)
        train, labels, _ = graph.split("train")
        self._graph, self._cached, head.solution = graph, [], None
        if not len(train):
            return 0
        nodes = np.union1d(train, snapshot.held_out(self.settings.eval_samples)[0])
        trained = np.isin(nodes, train)
        head.sketched = head.sketch_size(graph.num_features, len(train))
        dtype = working_dtype(graph.num_nodes, graph.num_features)
        hops = max(each.num_hops for each in maps) + graph.structural * HOPS
        changed = [] if self.settings.directed else changed_within(graph, self._version, hops)
        layout = f"{head.sketched} {dtype} {graph.encoding}".strip()
        width, given = head.sketched or graph.num_features, (graph, self._version, changed, layout, nodes)
        cached = [CachedRows(*given, each, each.num_blocks * width + 1, dtype) for each in maps]
        local, features = self._features(graph, nodes[~np.logical_and.reduce([each.loadable for each in cached])], maps)
        rows = [lambda asked, f=each: f.rows(local.local_ids(asked).to(self.device)) for each in features]
        ids, classes = name_hashes(graph, train).to(self.device), torch.from_numpy(labels).to(self.device)
        chosen = loo_rows(ids)
        decide = np.isin(nodes, train[chosen.cpu().numpy()])
        found = [each.fetch(decide, compute) for each, compute in zip(cached, rows, strict=True)]
        best, trial = choose(found, classes[chosen], head.kernels, head.lambdas)
        phi, is_train = cached[best].fetch(np.ones_like(trained), rows[best]), torch.from_numpy(trained).to(self.device)
        head.chosen, head.solution = head.maps.index(maps[best]), solve(phi[is_train], classes, trial, chosen, ids=ids)
        self._cached, self._scored = cached, (nodes[~trained], phi[~is_train])
        return len(local.nodes)

    def probabilities(self, graph: PartialGraph, nodes: Array, num_classes: int, chunk: int = 0) -> Array:
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
        local, (features,) = self._features(graph, nodes, (self.head.maps[self.head.chosen],))
        return features.rows(local.local_ids(nodes).to(self.device))

    def _scores(self, graph: PartialGraph, nodes: Array, solution: RidgeSolution) -> Tensor:
        """Scores of nodes, from the rows of the solve if they are there."""
        known, rows = self._scored
        if graph is self._graph and np.isin(nodes, known).all():
            return solution.scores(rows[torch.from_numpy(np.searchsorted(known, nodes)).to(self.device)])
        local, (features,) = self._features(graph, nodes, (self.head.maps[self.head.chosen],))
        index = local.local_ids(nodes).to(self.device)
        if solution.anchors is None and len(nodes) >= features.inputs.width:
            return features.scores(solution.weight)[index]
        return torch.cat([solution.scores(features.rows(part)) for part in index.split(SCORED_ROWS)])

    def _features(
        self, graph: PartialGraph, nodes: Array, maps: Sequence[FeatureMap]
    ) -> tuple[LocalGraph, list[Features]]:
        """A part of the graph in which φ of some nodes is exact, and φ under each map."""
        local = read_subgraph(graph, nodes, max(each.num_hops for each in maps), self.settings.limits)
        part, dtype = local.graph.to(self.device), working_dtype(graph.num_nodes, graph.num_features)
        scales = AS_THEY_ARE if graph.encoding else None
        operator, inputs = NormalizedAdjacency(part, part.edge_weight), Inputs(part, self.head.sketched, dtype, scales)
        return local, [Features(each, operator, inputs) for each in maps]

    def labeled_rows(self, graph: LabeledGraph) -> LabeledRows:
        """The training nodes of a graph, their rows, and what the head solves with them."""
        solution = self.head.solution
        if solution is None:
            raise InputError("nothing has been learned yet; observe labeled nodes first")
        train, classes, _ = graph.split("train")
        nodes, labels = torch.from_numpy(train), torch.from_numpy(classes).to(self.device)
        rows, weights = self.rows(graph, train), class_weights(labels)
        kernel = LINEAR if self._with_anchors().is_nystrom(len(train)) else solution.kernel
        return LabeledRows(nodes, labels, rows, weights, solution.classes, kernel, solution.lam)

    def rows(self, graph: PartialGraph, nodes: Array) -> Tensor:
        """Rows of nodes (ascending), for the kernel of :meth:`labeled_rows`: φ, or Nyström features of φ."""
        assert self._graph is not None
        return self._with_anchors().lift(self._rows(graph, nodes), len(self._graph.split("train")[0]))

    def split_scores(self, graph: PartialGraph, node: int) -> tuple[Tensor, Tensor] | None:
        """The scores of a node by distance and column, see :func:`split_by_feature`; None unless the head is linear."""
        solution = self.head.solution
        if solution is None or solution.kernel.s:
            return None
        local, (features,) = self._features(graph, np.array([node]), (self.head.maps[self.head.chosen],))
        return split_by_feature(features, int(local.local_ids(np.array([node]))), solution.weight)

    def state(self) -> dict[str, Any]:
        """What is not stored as tensors, as JSON."""
        return self.head.summary()

    def write(self, connection: sqlite3.Connection, version: int) -> None:
        """Store the head with a version: W and the class of each column, as safetensors."""
        if self._cached:
            write_rows(connection, self._cached, version)
        else:
            drop_cache(connection)
        if self.head.solution is not None:
            solution = self.head.solution
            tensors = {"weight": solution.weight.cpu().contiguous(), "classes": solution.classes.cpu()}
            put_blob(connection, version, "weights", save(tensors, {k: str(v) for k, v in self.state().items()}))

    def read(self, connection: sqlite3.Connection, graph: StoredGraph) -> None:
        """Restore the state of the version of a graph in a new learner."""
        self._version, self._graph, head = graph.version.number, graph, self.head
        state = graph.version.state["learner"]
        if not state:
            return
        tensors = get_tensors(connection, self._version, "weights")
        weight, classes = tensors["weight"].double().to(self.device), tensors["classes"].to(self.device)
        head.load_solution(weight, classes, **state)
        width = head.maps[head.chosen].num_blocks * (head.sketched or graph.num_features) + 1
        if state.get("s"):
            width = min(len(graph.split("train")[0]), weight.size(0))  # a weight per anchor
        if weight.shape != (width, classes.numel()) or not bool(torch.isfinite(weight).all()):
            raise FolderError(f"the head of version {self._version} does not fit its features: it is damaged")

    def more_tensors(self) -> dict[str, Tensor]:
        """Tensors to export that are not stored: the rows of a Gaussian kernel."""
        anchors = None if self.head.solution is None else self._with_anchors().anchors
        return {} if anchors is None else {"anchors": anchors.cpu().contiguous()}

    def describe(self, classes: list[str]) -> dict[str, Any]:
        """What the exported weights mean."""
        outputs = [[i, classes[c]] for i, c in enumerate(self.classes())]
        return {"method": self.method_name, **self.state(), "map_options": self.head.map_options(), "outputs": outputs}
