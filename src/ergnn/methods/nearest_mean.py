"""Nearest class mean in S²X: a baseline without training and without forgetting."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import check_at_least, check_choice
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.propagation import propagate
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView, Method, Scorer
from ergnn.nn.examples import Examples

Distance = Literal["euclidean", "cosine"]


@METHODS.register("nearest-mean", aliases=("ncm",), help="predict the nearest class mean in S²X, without training")
class NearestMean(Method):
    """Predict the class whose mean is nearest.

    ``z_v`` is v's row of ``S^K X`` with ``S = D̃^−½ (A + I) D̃^−½``, and ``μ_c`` the mean of z over the training nodes of
    class c, computed in the graph of c's task (over all its tasks, if a class occurs in several). The score of c is
    ``−‖z_v − μ_c‖²``, or ``cos(z_v, μ_c)``. The head determines which classes compete: those of the task, or all so
    far. The backbone is not used.

    Args:
        hops: K, number of propagation steps; 0 compares raw features.
        distance: distance between a node and a class mean.
    """

    trains_network = False
    backbone = "sgc"
    comparison = Comparison(search={"hops": (1, 2, 3), "distance": ("euclidean", "cosine")})

    def __init__(self, hops: int = 2, distance: Distance = "euclidean") -> None:
        check_at_least(0, hops=hops)
        check_choice("distance", distance, Distance)
        self.hops, self.distance = hops, distance
        self._sums: dict[int, Tensor] = {}
        self._counts: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """Size of the sums and counts of the classes so far, in bytes."""
        return sum(total.numel() * total.element_size() + 8 for total in self._sums.values())

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        z, labels = self._embed(task.graph, task.train), task.graph.y[task.train]
        for c in task.classes:
            rows = z[labels == c]
            self._sums[c] = rows.sum(0) + self._sums.get(c, 0.0)
            self._counts[c] = rows.size(0) + self._counts.get(c, 0)
        return {}

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        return partial(self.scores, graph, classes=learner.classes(task))

    def scores(self, graph: Graph, nodes: Tensor, classes: Tensor) -> Tensor:
        z = self._embed(graph, nodes)
        means = torch.stack([self._sums[c].to(z.device) / self._counts[c] for c in classes.tolist()])
        if self.distance == "cosine":
            return F.normalize(z, dim=1) @ F.normalize(means, dim=1).T
        return -torch.cdist(z, means, compute_mode="donot_use_mm_for_euclid_dist").square()

    def _embed(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Compute rows of ``S^K X``, in float64 because means are compared."""
        return propagate(graph, self.hops, nodes=nodes).double()

    def state_dict(self) -> dict[str, Any]:
        sums = [value.clone() for value in self._sums.values()]
        return {"classes": list(self._sums), "sums": sums, "counts": list(self._counts.values())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sums = dict(zip(state["classes"], state["sums"], strict=True))
        self._counts = dict(zip(state["classes"], state["counts"], strict=True))
