"""Selectors that need no model: they compare nodes by propagated features S^K X."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.data.graph import Graph
from ergnn.engine.propagation import propagate
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext, Selector
from ergnn.replay.selectors.ridge import Ridge

HOPS = 2


def smoothed(graph: Graph, nodes: Tensor, hops: int = HOPS) -> Tensor:
    """Compute ``(S^K X)_u / ‖(S^K X)_u‖`` with ``S = D̃^-½ (A + I) D̃^-½``, for the given nodes, as float64.

    Rows of zeros stay zeros.
    """
    return F.normalize(propagate(graph, hops, nodes=nodes).double(), dim=1)


@SELECTORS.register("s2-ridge", help="nodes from which ridge regression on S²X best predicts the task's labels")
class SmoothedRidge(Ridge):
    """The best set for ``k(u, v) = ⟨g_u, g_v⟩``, ``g_u = (S²X)_u / ‖·‖``.

    Args:
        hops: number of times S is applied.
    """

    @inherit_options(Ridge)
    def __init__(self, *, hops: int = HOPS, **options: Any) -> None:
        check_at_least(0, hops=hops)
        super().__init__(**options)
        self.hops = hops

    def kernel(self, context: SelectionContext, candidates: Tensor, others: Tensor) -> Tensor:
        vectors = smoothed(context.graph, torch.cat([candidates, others]), self.hops)
        return (vectors[: candidates.numel()] @ vectors.T).unsqueeze(0)


@SELECTORS.register("mf-s2", help="closest to the class mean of normalized S²X over train and val nodes (model-free)")
class SmoothedMean(Selector):
    """Nodes closest to ``c_l = 1/|T_l| Σ_{u∈T_l} g_u``, ``g_u = (S²X)_u / ‖·‖``, T the task's train and val nodes.

    An ablation that separates the effect of the space of ``s2-ridge`` from that of its choice of a set.

    Args:
        hops: number of times S is applied.
    """

    def __init__(self, hops: int = HOPS) -> None:
        check_at_least(0, hops=hops)
        self.hops = hops

    def score(self, context: SelectionContext) -> Tensor:
        nodes, classes = context.labeled, context.labels
        vectors, labels = smoothed(context.graph, nodes, self.hops), context.graph.y[nodes]
        candidates = vectors[: context.nodes.numel()]
        scores = candidates.new_empty(candidates.size(0))
        for c in context.task.classes:
            scores[classes == c] = -(candidates[classes == c] - vectors[labels == c].mean(0)).norm(dim=1)
        return scores
