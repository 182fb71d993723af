"""The closed-form head: labels of all training nodes so far, feature maps, and the ridge regression between them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from ergnn.analytic.explain import LabelEffects
from ergnn.analytic.features import Features
from ergnn.analytic.inputs import ColumnScales, Inputs, working_dtype
from ergnn.analytic.kernels import GAUSSIAN, KERNELS, products
from ergnn.analytic.maps import FEATURE_MAPS, FeatureMap
from ergnn.analytic.ridge import CLASS_WEIGHTS, DEFAULT_LAMBDA, EXACT_ROWS, LAMBDAS, RidgeSolution, choose, loo_rows
from ergnn.analytic.state import AnalyticState, ClassStatistics
from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.cache import Cache, version_of
from ergnn.engine.hardware import use_threads
from ergnn.engine.propagation import NormalizedAdjacency

Memory = Literal["nodes", "statistics"]
Scaling = Literal["auto", "rows", "columns"]
KernelName = Literal["auto", "linear", "rbf"]
ClassWeight = Literal["none", "sqrt", "balanced"]

SKETCH_SIZE = 2048
"""Columns of an automatic sketch, for features with more columns."""

SCORED_ROWS = 1 << 12
"""Rows to score at a time with a Gaussian kernel."""

STANDARDIZED_ENTRIES = 1 << 24
"""Columns of features with at most this many entries (nodes × features) are standardized as an alternative."""

NO_SCORE = -1e9
"""Score of a class without a labeled node."""

_SHARED: Cache[WeakValueDictionary[bytes, Features]] = Cache()
"""φ on graphs on a GPU, by all that it depends on: learners on the same graph share it."""


class AnalyticHead:
    """A ridge head on propagated features, solved from all labels so far.

    Args:
        feature_map: name of a feature map, e.g. ``auto``, ``ppr`` or ``hops``.
        map_options: options of the feature map.
        lam: fixed λ; by default that with the lowest leave-one-out error (0.3 with statistics).
        memory: what to store: ``nodes`` stores ids and labels, and is exact; ``statistics`` stores the mean and a
            low-rank approximation of the scatter of φ per class. For tasks with own graphs, ``nodes`` stores rows of φ.
        per_class: size of the statistics of a class in rows of φ: mean, rest of the scatter's diagonal, and
            ``per_class − 2`` directions.
        sketch: number of columns to sketch the features to; ``auto`` sketches more than 2,048 columns to 2,048 with at
            least 9,000 training nodes, and as many as columns; None disables sketching.
        scale: ``rows`` divides each row by its sum; ``columns`` standardizes columns; ``auto`` standardizes those that
            :func:`~ergnn.analytic.inputs.number_columns` finds, and divides rows if there are none; unless the kernel
            is ``linear``, then small features are also tried with all columns standardized.
        kernel: ``linear``, ``rbf`` or the better one by leave-one-out (``auto``; with statistics: ``linear``).
        class_weight: weights of labels by the number n of labels of their class: ``sqrt`` (``n^-½``), ``balanced``
            (``1/n``) or ``none``, which favors large classes and accuracy over the mean accuracy of classes.

    Attributes:
        feature_map: the feature map, which may compare several.
        maps: those whose heads are compared.
        lambdas, kernels: candidates for λ and for the kernel.
        power: p of the class weights ``n^-p``.
        state: the labeled nodes, or the rows or statistics stored instead.
        solution: the head; None before the first label, and after labels were removed until the next prediction.
        chosen: index of its feature map in ``maps``.
        sketched: number of columns that the features are sketched to; None without a sketch.
        scales: columns that are standardized; None if rows are divided by their sums.
    """

    def __init__(
        self,
        feature_map: str = "auto",
        map_options: dict[str, Any] | None = None,
        lam: float | None = None,
        memory: Memory = "nodes",
        per_class: int = 5,
        sketch: int | str | None = "auto",
        scale: Scaling = "auto",
        kernel: KernelName = "auto",
        class_weight: ClassWeight = "sqrt",
    ) -> None:
        check_choice("memory", memory, Memory)
        check_choice("scale", scale, Scaling)
        check_choice("kernel", kernel, KernelName)
        check_choice("class_weight", class_weight, ClassWeight)
        if kernel == "rbf" and memory == "statistics":
            raise InputError("kernel is 'rbf'; statistics are those of the linear kernel: use memory='nodes'")
        if lam is not None and not 0 < lam < float("inf"):
            raise InputError(f"lam is {lam}; it must be above 0, or None for the best by leave-one-out")
        check_at_least(1, per_class=per_class)
        if sketch is not None and sketch != "auto" and (isinstance(sketch, str) or sketch < 1):
            raise InputError(f"sketch is {sketch!r}; it must be 'auto', a number of columns (1 or more), or None")
        self._map_options = dict(map_options or {})
        self.feature_map: FeatureMap = FEATURE_MAPS.create(feature_map, **self._map_options)
        self._candidates = self.maps = self.feature_map.candidates()
        self.lam, self.memory, self.per_class, self.sketch, self.scale = lam, memory, per_class, sketch, scale
        self.lambdas = (lam,) if lam is not None else (DEFAULT_LAMBDA,) if memory == "statistics" else LAMBDAS
        self.kernels = KERNELS["linear" if memory == "statistics" else kernel]
        self.power = CLASS_WEIGHTS[class_weight]
        self.state = AnalyticState()
        self.solution: RidgeSolution | None = None
        self.chosen = 0
        self.sketched: int | None = None
        self.scales: ColumnScales | None = None
        self._graph: Graph | None = None
        self._version: Any = None
        self._layout: tuple[Any, ...] = None, None
        self._features: Cache[dict[str, Features]] = Cache()
        self._scores: Cache[Tensor] = Cache()
        self._column_scales: Cache[tuple[ColumnScales | None, ...]] = Cache()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the graph; copies of caches are empty."""
        return {**vars(self), "_graph": None}

    @property
    def needs_earlier_graph(self) -> bool:
        return self.memory == "nodes"

    def remembered_labels(self) -> list[tuple[Tensor, Tensor]]:
        return [(self.state.nodes, self.state.labels)]

    @property
    def nbytes(self) -> int:
        """Size of the stored ids and labels; or of what is stored instead, and of its scales of columns, in bytes."""
        scales = self.scales if self.state.without_nodes else None  # else those of the graph at hand
        return self.state.nbytes + (0 if scales is None else scales.to_tensor().nbytes)

    def learn_task(self, task: Task) -> None:
        """Learn the training nodes of a task, as ids where the graph of the next task contains them."""
        stores_nodes = self.memory == "nodes" and not task.own_graph and not self.state.kept
        (self.learn if stores_nodes else self.keep)(task.graph, task.train, task.graph.y[task.train])

    def learn(self, graph: Graph, nodes: Tensor, labels: Tensor) -> None:
        """Add or replace labels, and solve the head in ``graph``."""
        self.state.update(nodes, labels)
        self.refresh(graph)

    def forget_nodes(self, nodes: Tensor) -> int:
        """Remove labels and the head; the next prediction solves the head as if the labels had never existed.

        The features of a node still contribute to φ of its neighbors as long as the graph contains its edges.
        """
        if self.state.without_nodes:
            raise InputError("single nodes cannot be removed from stored rows and statistics; use memory='nodes'")
        removed = self.state.remove(nodes)
        if removed:
            self.solution = None
        return removed

    def remap_nodes(self, mapping: Callable[[Tensor], Tensor]) -> None:
        state = AnalyticState()
        state.kept, state.statistics = self.state.kept, self.state.statistics
        state.update(mapping(self.state.nodes), self.state.labels)
        self.state, self._graph = state, None

    def refresh(self, graph: Graph) -> None:
        """Solve the head in ``graph``, and recompute only the rows of φ affected by changed edges or features."""
        nodes = self.state.nodes
        if nodes.numel() and int(nodes[-1]) >= graph.num_nodes:
            raise InputError(f"{graph.name}: node {int(nodes[-1])} has a label; the graph has {graph.num_nodes} nodes")
        if self.state.statistics:  # they do not depend on the graph
            return
        self.sketched = self.sketch_size(graph.num_features, nodes.numel())
        layout = self.sketched, self._scales_of(graph), self._version
        if self._graph is None or layout != (*self._layout, version_of(self._graph)):
            self.state.forget_rows()  # also if the graph was modified in place
        elif graph is not self._graph:
            self._features.clear()  # a stream may keep its graphs for a long time
            self.state.move(
                self._graph, graph, [self._features_of(graph, *each) for each in self._candidates_in(graph)]
            )
        self._graph, self._version, self._layout = graph, version_of(graph), layout[:2]
        self._solve(graph)

    def head_scores(self, graph: Graph, nodes: Tensor, classes: Tensor) -> Tensor:
        """Return ``τ φW``, whose softmax over all classes is calibrated by leave-one-out (not with statistics)."""
        if self.solution is None and self.state.nodes.numel():
            self.refresh(graph)
        if self.solution is None:
            return torch.full((nodes.numel(), classes.numel()), NO_SCORE, dtype=torch.float64, device=nodes.device)
        features = self._features_of(graph, self.maps[self.chosen], self.scales)
        solution, known = self._with_anchors(features), self.solution.classes
        if solution.anchors is None:
            scores = self._scores.get([graph, solution], lambda: features.scores(solution.weight))
        else:  # the rows of nodes that are asked for the first time are compared with the anchors
            shape = graph.num_nodes, known.numel()
            scores = self._scores.get([graph, solution], lambda: solution.weight.new_full(shape, torch.nan))
            new = nodes[scores[nodes, 0].isnan()].unique()
            with use_threads(None, entries=new.numel() * solution.anchors.size(0)):
                for some in new.split(SCORED_ROWS):
                    scores[some] = solution.scores(features.rows(some))
        columns = torch.searchsorted(known, classes.contiguous()).clamp(max=known.numel() - 1)
        return torch.where(known[columns] == classes, scores[nodes][:, columns] * solution.temperature, NO_SCORE)

    def _with_anchors(self, features: Features) -> RidgeSolution:
        """Return the solution; the anchors of a restored one are rows of the labeled nodes, here in the given graph."""
        assert self.solution is not None
        if self.solution.kernel.s and self.solution.anchors is None:
            ids, _ = self.state.labeled()
            anchors = self.state.rows(features, ids)[loo_rows(ids, self.solution.weight.size(0))]
            self.solution = replace(self.solution, anchors=anchors)
        return self.solution

    def label_effects(self, graph: Graph) -> LabelEffects:
        """Return what the labels of the head do in a graph."""
        if self.state.without_nodes:
            raise InputError("labels are stored without their nodes; use memory='nodes'")
        if self.solution is None and self.state.nodes.numel():
            self.refresh(graph)
        if self.solution is None:
            raise InputError("nothing has been learned yet")
        rows = self.rows(graph, self.state.nodes)
        return LabelEffects.of(self.solution, self.state.nodes, self.state.labels, rows)

    def rows(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return rows of nodes in a graph, for the kernel of :meth:`label_effects`: φ, or Nyström features of φ."""
        features = self._features_of(graph, self.maps[self.chosen], self.scales)
        return self._with_anchors(features).lift(features.rows(nodes), self.state.nodes.numel())

    def _solve(self, graph: Graph) -> None:
        """Solve the head for each feature map and choose the best."""
        candidates = self._candidates_in(graph)
        features = [self._features_of(graph, *each) for each in candidates]
        plain = len(candidates) // len(self._scales_of(graph))
        count = self.state.labeled()[0].numel()
        with use_threads(None, entries=count * (count + max(each.width for each in features))):
            found = self.state.solve(features, self.lambdas, self.kernels, plain, self.power)
        self.solution = None
        if found is not None:
            (chosen, self.scales), best = candidates[found[0]], found[1]
            self.chosen, self.solution = self.maps.index(chosen), replace(best, loo=best.loo[:0])

    def _candidates_in(self, graph: Graph) -> list[tuple[FeatureMap, ColumnScales | None]]:
        """Return the maps and scales to compare, those that are preferred first."""
        maps = self.maps if self.state.kept else self.feature_map.candidates(graph.num_edges)
        return [(each, scales) for scales in self._scales_of(graph) for each in maps]

    def keep(self, graph: Graph, nodes: Tensor, labels: Tensor) -> None:
        """Store rows of φ, or their statistics, instead of ids, and solve the head."""
        if self.state.nodes.numel():
            raise InputError(f"{graph.name}: this task has a graph of its own, and earlier ones have not; use one kind")
        if self._graph is None and not self.state.without_nodes:
            self.sketched, self.scales = self.sketch_size(graph.num_features, nodes.numel()), self._scales_of(graph)[0]
            self.maps = self.feature_map.candidates(graph.num_edges)  # of all tasks: their rows must have the same
        found = [self._features_of(graph, each, self.scales).rows(nodes) for each in self.maps]
        self._graph, self._version = graph, version_of(graph)
        if self.memory == "nodes":
            for each, rows in zip(self.maps, found, strict=True):
                self.state.keep(each.name, rows, labels)
            self._solve(graph)
            return
        if len(self.maps) > 1:  # choose one map for all tasks: only its statistics are stored
            chosen = loo_rows(torch.arange(labels.numel(), device=labels.device))
            grams = [products(some, some) for some in (rows[chosen] for rows in found)]
            best, _ = choose(grams, labels[chosen], power=self.power)
            self.maps, found, self.chosen = self.maps[best : best + 1], found[best : best + 1], 0
        self.state.statistics.add(found[0], labels, self.per_class)
        self.solution = self.state.statistics.solve(self.lambdas[0], nodes.device, self.power)

    def sketch_size(self, num_features: int, count: int) -> int | None:
        """Return the number of columns to sketch to, or None.

        With fewer rows than columns, the dual system is small without a sketch.
        """
        if self.state.without_nodes:
            return self.sketched
        if self.sketch == "auto":
            return SKETCH_SIZE if num_features > SKETCH_SIZE and count >= max(num_features, EXACT_ROWS) else None
        return None if self.sketch is None or int(self.sketch) >= num_features else int(self.sketch)

    def _scales_of(self, graph: Graph) -> tuple[ColumnScales | None, ...]:
        """Return the columns of a graph to standardize; stored rows and statistics keep those of their first graph.

        If no column needs it, all are standardized as an alternative to a kernel between rows of raw features.
        """
        if self.state.without_nodes or self.scale == "rows":
            return (self.scales,)

        def compute() -> tuple[ColumnScales | None, ...]:
            every = range(graph.num_features)
            first = ColumnScales.fit(graph.x, every if self.scale == "columns" else None)
            small = graph.num_nodes * graph.num_features <= STANDARDIZED_ENTRIES
            if self.scale == "auto" and first is None and small and GAUSSIAN[0] in self.kernels and len(every):
                return first, ColumnScales.fit(graph.x, every, words=True)
            return (first,)

        return self._column_scales.get([graph.x], compute)

    def _features_of(self, graph: Graph, feature_map: FeatureMap, scales: ColumnScales | None = None) -> Features:
        """Return φ of a map on a graph, cached as long as the graph exists and is unchanged."""
        return self._features.get([graph], lambda: self._make_features(graph, scales), (self.sketched, scales))[
            feature_map.name
        ]

    def _make_features(self, graph: Graph, scales: ColumnScales | None) -> dict[str, Features]:
        shared = WeakValueDictionary[bytes, Features]()
        if graph.device.type != "cpu":  # on a CPU, rounding would depend on what others have cached
            shared = _SHARED.get([graph], WeakValueDictionary)
        keys = {each.name: pickle.dumps((each, self.sketched, scales)) for each in self._candidates}
        found = {name: shared[key] for name, key in keys.items() if key in shared}
        if len(found) < len(keys):
            dtype = working_dtype(graph.num_nodes, graph.num_features)
            operator = NormalizedAdjacency(graph, graph.edge_weight)
            inputs = Inputs(graph, self.sketched, dtype, scales)
            found = {each.name: Features(each, operator, inputs) for each in self._candidates}
            shared.update((keys[name], features) for name, features in found.items())
        return found

    def map_options(self) -> dict[str, Any]:
        """Return the options of the chosen map; those of a map that compares several are its own."""
        return self._map_options if self.maps[self.chosen] is self.feature_map else {}

    def summary(self) -> dict[str, Any]:
        """Return the chosen map and the numbers of the solution; empty without a solution."""
        solution = self.solution
        if solution is None:
            return {}
        return {
            "map": self.maps[self.chosen].name,
            "scale": "rows" if self.scales is None else "columns",
            "kernel": solution.kernel.name,
            "sketch": self.sketched,
            **solution.numbers(),
        }

    def state_dict(self) -> dict[str, Any]:
        solution = self.solution
        return {
            "nodes": self.state.nodes.clone(),
            "labels": self.state.labels.clone(),
            "kept": {name: [value.clone() for value in stored] for name, stored in self.state.kept.items()},
            "statistics": self.state.statistics.state_dict(),
            "maps": [each.name for each in self.maps],
            "chosen": self.chosen,
            "sketch": self.sketched,
            "scales": None if self.scales is None else self.scales.to_tensor(),
            "solution": solution
            and {"weight": solution.weight.clone(), "classes": solution.classes.clone(), **solution.numbers()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        statistics = state.get("statistics", {})  # states of earlier versions have none
        stored = {"statistics": bool(statistics), "nodes": bool(state["kept"] or state["nodes"].numel())}
        other = next((memory for memory, found in stored.items() if found and memory != self.memory), None)
        if other is not None:
            raise InputError(f"the state is of memory {other!r}; this method has memory {self.memory!r}")
        names = state["maps"]
        unknown = sorted(set(names) - {each.name for each in self._candidates})
        if unknown:
            choices = ", ".join(each.name for each in self._candidates)
            raise InputError(f"the state has feature map {unknown[0]!r}; this method has: {choices}")
        self.maps = tuple(each for each in self._candidates if each.name in names)
        self.state = AnalyticState()
        self.state.nodes, self.state.labels = state["nodes"].clone(), state["labels"].clone()
        self.state.kept = {name: (stored[0], stored[1]) for name, stored in state["kept"].items()}  # or counts, too
        self.state.statistics = ClassStatistics.restored(statistics)
        self.chosen, self.sketched, self._graph = state["chosen"], state["sketch"], None
        scales, solution = state.get("scales"), state["solution"]
        self.scales = None if scales is None else ColumnScales.from_tensor(scales)
        self.solution = solution and RidgeSolution.restored(**solution)
        self._features.clear()
