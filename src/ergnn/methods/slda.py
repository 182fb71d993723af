"""Streaming linear discriminant analysis on a random graph encoder: closed form, independent of task order."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_at_least
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.propagation import propagate
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView, Method, Scorer, random_encoder
from ergnn.nn.examples import Examples


@METHODS.register("slda", help="streaming linear discriminant analysis on a random graph encoder, without training")
class StreamingLDA(Method):
    """Streaming LDA (Hayes and Kanan, 2020) on random features (as in Prabhu et al., 2024), without training.

    ``z_v = ReLU(W h_v)``, where ``h_v`` is v's row of ``S^K X`` divided by its norm, and W is Gaussian, drawn by seed
    and never changed. The running statistics are the mean μ_c and the count n_c of each class, and the scatter M
    within classes. A batch of n' rows of class c with mean μ' and scatter M' is added exactly, with ``δ = μ' − μ_c``:

        M ← M + M' + n_c n' / (n_c + n') δδᵀ,   μ_c ← μ_c + n' / (n_c + n') δ,   n_c ← n_c + n' .

    The score of class c is ``μ_cᵀ Σ⁻¹ z − ½ μ_cᵀ Σ⁻¹ μ_c`` (equal priors) with ``Σ = (1 − ε) M/n + ε tr(M/n)/d I``: as
    of LDA on all rows at once, in any order. The head decides which classes compete. The backbone is not used.

    Args:
        hops: K, number of propagation steps; 0 encodes raw features.
        width: d, number of random features.
        shrinkage: ε, weight of the identity in the covariance, above 0; 1 predicts the nearest class mean.
    """

    trains_network = False
    backbone = "sgc"
    comparison = Comparison(search={"hops": (1, 2, 3), "shrinkage": (0.1, 0.5, 0.9)}, size_option="width")

    def __init__(self, hops: int = 2, width: int = 512, shrinkage: float = 0.9) -> None:
        check_at_least(0, hops=hops)
        check_at_least(1, width=width)
        if not 0.0 < shrinkage <= 1.0:
            raise InputError(f"shrinkage is {shrinkage}; it must be above 0 and at most 1")
        self.hops, self.width, self.shrinkage = hops, width, shrinkage
        self.seed = 0
        self.means: dict[int, Tensor] = {}
        self.counts: dict[int, int] = {}
        self.scatter = torch.zeros(width, width, dtype=torch.float64)

    @property
    def nbytes(self) -> int:
        """Means and counts of the classes so far, and the scatter; W follows from the seed."""
        return 8 * (len(self.means) * (self.width + 1) + self.scatter.numel()) if self.means else 0

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        self.seed = learner.seed
        z, labels = self.encode(task.graph, task.train), task.graph.y[task.train]
        for c in task.classes:
            if bool((labels == c).any()):
                self.add(c, z[labels == c])
        return {}

    def add(self, c: int, z: Tensor) -> None:
        """Add encoded rows ``[n', d]`` of class c to the statistics."""
        mean, count, old = z.mean(0), z.size(0), self.counts.get(c, 0)
        delta = mean - self.means.get(c, mean)
        apart = z - mean
        self.scatter = self.scatter.to(z.device) + apart.T @ apart
        self.scatter += old * count / (old + count) * torch.outer(delta, delta)
        self.means[c] = self.means.get(c, mean) + count / (old + count) * delta
        self.counts[c] = old + count

    def encode(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return z of some nodes, ``[n, d]``, in float64."""
        h = torch.nn.functional.normalize(propagate(graph, self.hops, nodes=nodes).double(), dim=1)
        shape = graph.num_features, self.width
        return torch.relu(h @ random_encoder(self.seed * 1_000_003 + 61, shape, torch.float64, h.device))

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        return partial(self.scores, graph, classes=learner.classes(task))

    def scores(self, graph: Graph, nodes: Tensor, classes: Tensor) -> Tensor:
        z = self.encode(graph, nodes)
        means = torch.stack([self.means[c].to(z.device) for c in classes.tolist()])
        covariance = self.scatter.to(z.device) / sum(self.counts.values())
        scale = float(covariance.diagonal().mean()) or 1.0  # 0 if every class has a single row
        eye = torch.eye(self.width, dtype=z.dtype, device=z.device)
        weight = torch.linalg.solve((1.0 - self.shrinkage) * covariance + self.shrinkage * scale * eye, means.T)
        return z @ weight - 0.5 * (means.T * weight).sum(0)

    def state_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "classes": list(self.means),
            "means": [mean.clone() for mean in self.means.values()],
            "counts": list(self.counts.values()),
            "scatter": self.scatter.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed, self.scatter = state["seed"], state["scatter"].clone()
        self.means = dict(zip(state["classes"], state["means"], strict=True))
        self.counts = dict(zip(state["classes"], state["counts"], strict=True))
