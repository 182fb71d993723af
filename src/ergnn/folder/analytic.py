"""The closed form on a growing graph: the head is a function of the graph and the labels, so it is always exact."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.analytic import FEATURE_MAPS, FeatureMap, Features, Inputs, NormalizedAdjacency, RidgeSolution
from ergnn.analytic.inputs import working_dtype
from ergnn.analytic.state import choose
from ergnn.config.errors import InputError
from ergnn.data.partial import Array, LabeledGraph, LocalGraph, PartialGraph, read_subgraph
from ergnn.folder.base_snapshot import Snapshot
from ergnn.folder.plan import CachedRows, make_plan
from ergnn.folder.settings import Settings
from ergnn.learning.learner import Learner
from ergnn.methods.analytic import Analytic
from ergnn.replay.buffer import Experience, ExperienceBuffer


class AnalyticLearner(ABC):
    """Ridge regression on propagated features, solved from all training labels of the graph as it is now.

    After any updates, corrections and removals, the head is the one that the final graph gives at once. See
    :class:`ergnn.methods.analytic.Analytic`.
    """

    exact = True
    all_at_once = True

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        learner = Learner(settings.config)
        assert isinstance(learner.method, Analytic)
        self.method, self.device = learner.method, learner.device
        if self.method.memory != "nodes":
            raise InputError(f"memory is {self.method.memory!r}; in a folder it must be 'nodes'")
        if self.method.student:
            raise InputError("student is true; a folder does not train one")
        self.solution: RidgeSolution | None = None
        self.chosen = 0
        self.sketch: int | None = None
        self._graph: LabeledGraph | None = None
        self._cache: CachedRows | None = None
        self._scored: tuple[Array, Tensor] = np.empty(0, np.int64), torch.empty(0)

    @property
    def num_tasks(self) -> int:
        """0 until something has been learned; the head knows no tasks."""
        return int(self.solution is not None)

    @property
    def buffer(self) -> ExperienceBuffer:
        """The training nodes of each update: all labels count."""
        buffer = ExperienceBuffer()
        if self._graph is not None:
            nodes, labels, updates = map(torch.from_numpy, self._graph.split("train"))
            (found, counts), order = updates.unique(return_counts=True), torch.argsort(updates, stable=True)
            parts = (part[order].split(counts.tolist()) for part in (nodes, labels))
            for update, mine, classes in zip(found.tolist(), *parts, strict=True):
                score = torch.full((mine.numel(),), torch.nan)
                buffer.experiences.append(Experience(update, mine, classes, score))
        return buffer

    def classes(self) -> list[int]:
        """The classes that were learned."""
        return [] if self.solution is None else self.solution.classes.tolist()

    def learn(self, snapshot: Snapshot, updates: Sequence[int], checkpoints: object = None) -> dict[str, Any]:
        """Solve the head in a graph that holds more updates; only their own classes go into the record."""
        touched = self.solve(snapshot)
        classes = [snapshot.classes[c] for c in np.unique(snapshot.pooled_members(updates, "train")[1])]
        return {"task": updates[0] if classes else None, "classes": classes, "drift": None, "touched": touched}

    def forget(self, snapshot: Snapshot, nodes: Array) -> list[list[Any]]:
        """Solve the head in a graph that some nodes have left; no node takes their place."""
        self.solve(snapshot)
        return []

    def solve(self, snapshot: Snapshot) -> int:
        """Solve the head from all training labels in a graph; returns the number of nodes that were read.

        Rows of φ are also computed of the held-out nodes that are scored next, so that those are cached as well.
        """
        graph, maps = snapshot.graph, self.method.maps_of(snapshot.graph.num_edges)
        train, labels, _ = graph.split("train")
        self._graph, self._cache, self.solution = graph, None, None
        if not len(train):
            return 0
        nodes = np.union1d(train, snapshot.held_out(self.settings.eval_samples)[0])
        self.sketch = self.method.sketch_size(graph.num_features, len(train))
        dtype = working_dtype(graph.num_nodes, graph.num_features)
        cache = self.cached_rows(graph, nodes, f"{self.sketch} {dtype}", maps)
        width = self.sketch or graph.num_features
        label = np.full(len(nodes), -1)
        label[np.isin(nodes, train)] = labels
        plans = [make_plan(cache, each, each.num_blocks * width + 1, dtype, label) for each in maps]
        roots = nodes[np.logical_or.reduce([plan.compute for plan in plans])]
        local, features = self._features(graph, roots, maps)
        scored, solutions = [], []
        for each, plan in zip(features, plans, strict=True):
            new = each.rows(local.places(nodes[plan.compute]).to(self.device))
            solution, rows = plan.solve(new, self.method.lambdas)
            solutions.append(solution)
            scored.append(rows)
        best, self.solution = choose(solutions)
        self.chosen = self.method.maps.index(maps[best])
        self._cache, self._scored = cache, (nodes[label < 0], scored[best])
        return len(local.nodes)

    @abstractmethod
    def cached_rows(self, graph: Any, nodes: Array, layout: str, maps: Sequence[FeatureMap]) -> CachedRows:
        """Rows of φ of some nodes as they were in the version before, if they have the same layout."""

    def probabilities(
        self, graph: PartialGraph, nodes: Array, num_classes: int, chunk: int = 0
    ) -> Iterator[tuple[Array, Array]]:
        """Places in ``nodes`` and probabilities ``[n, num_classes]``, all at once: their neighborhoods overlap."""
        assert self.solution is not None
        scores = self._scores(graph, nodes, self.solution.weight).double()
        out = np.zeros((len(nodes), num_classes))
        out[:, self.classes()] = torch.softmax(self.solution.temperature * scores, 1).cpu().numpy()
        yield np.arange(len(nodes)), out

    def _scores(self, graph: PartialGraph, nodes: Array, weight: Tensor) -> Tensor:
        """``φ W``, from the rows of the solve if they are there."""
        known, rows = self._scored
        if graph is self._graph and np.isin(nodes, known).all():
            return rows[torch.from_numpy(np.searchsorted(known, nodes)).to(self.device)].double() @ weight
        local, (features,) = self._features(graph, nodes, (self.method.maps[self.chosen],))
        places = local.places(nodes).to(self.device)
        if len(nodes) < features.inputs.width:
            return features.rows(places).double() @ weight
        return features.scores(weight)[places]

    def _features(
        self, graph: PartialGraph, nodes: Array, maps: Sequence[FeatureMap]
    ) -> tuple[LocalGraph, list[Features]]:
        """A part of the graph in which φ of some nodes is exact, and φ under each map."""
        local = read_subgraph(graph, nodes, max(each.num_hops for each in maps), self.settings.limits)
        part, dtype = local.graph.to(self.device), working_dtype(graph.num_nodes, graph.num_features)
        operator, inputs = NormalizedAdjacency(part), Inputs(part, self.sketch, dtype)
        return local, [Features(each, operator, inputs) for each in maps]

    def state(self) -> dict[str, Any]:
        """What is not stored as tensors, as JSON."""
        if self.solution is None:
            return {}
        numbers = {name: getattr(self.solution, name) for name in ("lam", "temperature", "loo_error")}
        return {"map": self.method.maps[self.chosen].name, "sketch": self.sketch, **numbers}

    def describe(self, classes: list[str]) -> dict[str, Any]:
        """What the exported weights mean."""
        outputs = [[i, classes[c]] for i, c in enumerate(self.classes())]
        chosen, given = self.method.maps[self.chosen], self.settings.config.method_options
        own = FEATURE_MAPS.resolve(given.get("feature_map", "auto")) == chosen.name
        options = given.get("map_options") or {} if own else {}
        return {"method": "analytic", **self.state(), "map_options": options, "outputs": outputs}
