"""A ridge head on propagated features, solved in closed form: nothing is trained, and no order of tasks matters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ergnn.analytic import (
    FEATURE_MAPS,
    AnalyticState,
    FeatureMap,
    Features,
    Inputs,
    NormalizedAdjacency,
    RidgeSolution,
    fit_ridge,
)
from ergnn.analytic.ridge import DEFAULT_LAMBDA, LAMBDAS
from ergnn.analytic.state import choose
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.errors import InputError, UnknownNameError
from ergnn.methods import METHODS
from ergnn.methods.base import Method
from ergnn.nn.examples import Examples

if TYPE_CHECKING:
    from ergnn.learner import Learner

MEMORIES = ("nodes", "centroids")

SKETCH_SIZE = 2048
"""Columns of a sketch that is chosen automatically, for features that are wider."""

FLOAT64_ENTRIES = 1 << 25
"""Graphs with more feature entries (nodes × features) are propagated in float32."""

NO_SCORE = -1e9
"""Score of a class without a labeled node."""


@METHODS.register("analytic", aliases=("ridge",), help="a closed-form ridge head on propagated features, no training")
class Analytic(Method):
    """Ridge regression on propagated features, from all labels seen so far.

    After each task the head is solved from the ids and labels of all training nodes so far, in the graph of that task.
    It is the head that all labels at once would give, in whatever order they came. λ and the feature map have the
    least leave-one-out error on the training nodes; no validation label is used. Which classes compete (the task's
    own, or all so far) is decided by the learner's head. The backbone is not used.

    Args:
        feature_map: a name in :data:`ergnn.analytic.FEATURE_MAPS`, e.g. ``auto``, ``ppr`` or ``hops``.
        map_options: options of the feature map.
        lam: a fixed λ; by default the best of ``LAMBDAS`` by leave-one-out (0.3 with centroids).
        memory: ``nodes`` keeps ids and labels, and is exact; ``centroids`` keeps ``per_class`` k-means centroids of φ
            for each class, and needs no earlier node. Of a task with a graph of its own, rows of φ are kept in place
            of ids.
        per_class: centroids per class.
        sketch: number of columns to sketch the features to; ``auto`` sketches features of more than 2,048 columns
            to 2,048 once there are as many training nodes as columns; None never does.
    """

    trains = False

    def __init__(
        self,
        feature_map: str = "auto",
        map_options: dict[str, Any] | None = None,
        lam: float | None = None,
        memory: str = "nodes",
        per_class: int = 5,
        sketch: int | str | None = "auto",
    ) -> None:
        if memory not in MEMORIES:
            raise UnknownNameError("memory", memory, MEMORIES)
        if lam is not None and not 0 < lam < float("inf"):
            raise InputError(f"lam is {lam}; it must be above 0, or None for the best by leave-one-out")
        if per_class < 1:
            raise InputError(f"per_class is {per_class}; at least 1 centroid per class is needed")
        if sketch is not None and sketch != "auto" and (isinstance(sketch, str) or sketch < 1):
            raise InputError(f"sketch is {sketch!r}; it must be 'auto', a number of columns (1 or more), or None")
        self._candidates = self.maps = FEATURE_MAPS.create(feature_map, **(map_options or {})).candidates()
        self.lam, self.memory, self.per_class, self.sketch = lam, memory, per_class, sketch
        self.state = AnalyticState()
        self.solution: RidgeSolution | None = None
        self._chosen = 0
        self._sketched: int | None = None
        self._graph: Graph | None = None
        self._features: WeakKeyDictionary[Graph, tuple[int | None, dict[str, Features]]] = WeakKeyDictionary()
        self._scores: WeakKeyDictionary[Graph, Tensor] = WeakKeyDictionary()

    @property
    def nbytes(self) -> int:
        """Ids and labels, or the rows that stand for them."""
        return self.state.nbytes

    def examples(self, learner: Learner, task: Task, number: int) -> Examples:
        own = learner.examples(task.graph, task.train, number)
        return own.weighted(1.0 / len(own))

    def after_task(self, learner: Learner, task: Task, number: int, trained_on: Examples) -> dict[str, Any]:
        nodes, labels = task.train, task.graph.y[task.train]
        if self.memory == "nodes" and not task.own_graph:
            self.learn(task.graph, nodes, labels)
        else:
            self._keep(task.graph, nodes, labels, learner.seed)
        assert self.solution is not None
        solution = self.solution
        return {
            "map": self.maps[self._chosen].name,
            "lam": solution.lam,
            "temperature": solution.temperature,
            "loo_error": solution.loo_error,
            "sketch": self._sketched,
        }

    def learn(self, graph: Graph, nodes: Tensor, labels: Tensor) -> None:
        """Add or correct labels, and solve the head in ``graph``."""
        self.state.update(nodes, labels)
        self.refresh(graph)

    def forget(self, graph: Graph, nodes: Tensor) -> None:
        """Remove labels, and solve the head as if they had never been there.

        The features of a node stay in the φ of its neighbors as long as ``graph`` has its edges.
        """
        self.state.remove(nodes)
        self.refresh(graph)

    def refresh(self, graph: Graph) -> None:
        """Solve the head in ``graph``; of one with other edges or features, only rows in their reach are recomputed."""
        nodes = self.state.nodes
        if nodes.numel() and int(nodes[-1]) >= graph.num_nodes:
            raise InputError(f"{graph.name}: node {int(nodes[-1])} has a label; the graph has {graph.num_nodes} nodes")
        sketched = self._sketch_size(graph, nodes.numel())
        if self._graph is None or sketched != self._sketched:
            self.state.forget_rows()
        elif graph is not self._graph:
            self.state.move(self._graph, graph, self.maps)
            self._features = WeakKeyDictionary()  # a stream may hold its graphs for long
        self._graph, self._sketched = graph, sketched
        self._solve(graph)

    def scores(self, graph: Graph, nodes: Tensor, classes: Tensor) -> Tensor:
        """``τ φW``, whose softmax over all classes is calibrated by leave-one-out."""
        if self.solution is None:
            return torch.full((nodes.numel(), classes.numel()), NO_SCORE, dtype=torch.float64, device=nodes.device)
        if graph not in self._scores:
            features = self._features_of(graph, self.maps[self._chosen])
            self._scores[graph] = features.scores(self.solution.weight).mul_(self.solution.temperature)
        all_scores, known = self._scores[graph], self.solution.classes
        place = torch.searchsorted(known, classes.contiguous()).clamp(max=known.numel() - 1)
        return torch.where(known[place] == classes, all_scores[nodes][:, place], NO_SCORE)

    def _solve(self, graph: Graph) -> None:
        """Solve the head for each map and take the best."""
        lambdas: tuple[float, ...] = LAMBDAS if self.lam is None else (self.lam,)
        if self.memory == "centroids" and self.lam is None:
            lambdas = (DEFAULT_LAMBDA,)
        found = self.state.solve([self._features_of(graph, each) for each in self.maps], lambdas)
        self._scores, self.solution = WeakKeyDictionary(), None
        if found is not None:
            self._chosen, best = found
            self.solution = replace(best, loo=best.loo[:0])

    def _keep(self, graph: Graph, nodes: Tensor, labels: Tensor, seed: int) -> None:
        """Keep rows of φ, or their centroids, in place of ids, and solve the head."""
        kept = self.state.kept
        if self._graph is None and not kept:
            self._sketched = self._sketch_size(graph, nodes.numel())
        if self.memory == "centroids" and not kept:  # one map from here on, as its centroids are all that is kept
            best, _ = choose([fit_ridge(self._features_of(graph, each).rows(nodes), labels) for each in self.maps])
            self.maps = self.maps[best : best + 1]
        for each in self.maps:
            kept.add(each.name, self._features_of(graph, each).rows(nodes), labels)
        if self.memory == "centroids":
            kept.compress(self.per_class, seed)
        self._graph = graph
        self._solve(graph)

    def _sketch_size(self, graph: Graph, count: int) -> int | None:
        """Columns to sketch to; while there are fewer rows than columns the dual system is small without it."""
        if self.state.kept:
            return self._sketched
        if self.sketch == "auto":
            return SKETCH_SIZE if graph.num_features > SKETCH_SIZE and count >= graph.num_features else None
        return None if self.sketch is None or int(self.sketch) >= graph.num_features else int(self.sketch)

    def _features_of(self, graph: Graph, feature_map: FeatureMap) -> Features:
        """φ under a map in a graph; kept as long as the graph is."""
        sketched, made = self._features.get(graph, (self._sketched, {}))
        if not made or sketched != self._sketched:
            dtype = torch.float32 if graph.num_nodes * graph.num_features > FLOAT64_ENTRIES else torch.float64
            operator, inputs = NormalizedAdjacency(graph), Inputs(graph, self._sketched, dtype)
            made = {each.name: Features(each, operator, inputs) for each in self._candidates}
            self._features[graph] = self._sketched, made
        return made[feature_map.name]

    def state_dict(self) -> dict[str, Any]:
        solution = self.solution
        return {
            "nodes": self.state.nodes.clone(),
            "labels": self.state.labels.clone(),
            "kept": self.state.kept.state_dict(),
            "maps": [each.name for each in self.maps],
            "chosen": self._chosen,
            "sketch": self._sketched,
            "solution": None
            if solution is None
            else {
                "weight": solution.weight.clone(),
                "classes": solution.classes.clone(),
                "lam": solution.lam,
                "temperature": solution.temperature,
                "loo_error": solution.loo_error,
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        names = state["maps"]
        unknown = sorted(set(names) - {each.name for each in self._candidates})
        if unknown:
            raise InputError(f"the state's feature map {unknown[0]!r} is not one of this method's")
        self.maps = tuple(each for each in self._candidates if each.name in names)
        self.state = AnalyticState()
        self.state.nodes, self.state.labels = state["nodes"].clone(), state["labels"].clone()
        self.state.kept.load_state_dict(state["kept"])
        self._chosen, self._sketched, self._graph = state["chosen"], state["sketch"], None
        solution = state["solution"]
        self.solution = None
        if solution is not None:
            self.solution = RidgeSolution(**solution, loo=solution["weight"][:0])
        self._features, self._scores = WeakKeyDictionary(), WeakKeyDictionary()
