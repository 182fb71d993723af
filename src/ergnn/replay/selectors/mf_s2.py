"""MF in the space of S²X: an ablation that separates the effect of s2-ridge's space from that of its choice."""

from __future__ import annotations

from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext, Selector
from ergnn.replay.selectors.smoothed import HOPS, labeled, smoothed


@SELECTORS.register("mf-s2", help="closest to the class mean of normalized S²X over train and val nodes (model-free)")
class SmoothedMean(Selector):
    """Nodes closest to ``c_l = 1/|T_l| Σ_{u∈T_l} g_u``, ``g_u = (S²X)_u / ‖·‖``, T the task's train and val nodes.

    Args:
        hops: number of times S is applied.
    """

    def __init__(self, hops: int = HOPS) -> None:
        check_at_least(0, hops=hops)
        self.hops = hops

    def score(self, context: SelectionContext) -> Tensor:
        nodes = labeled(context)
        vectors, labels = smoothed(context.graph, nodes, self.hops), context.graph.y[nodes]
        own, classes = vectors[: context.nodes.numel()], context.labels
        scores = own.new_empty(own.size(0))
        for c in context.task.classes:
            scores[classes == c] = -(own[classes == c] - vectors[labels == c].mean(0)).norm(dim=1)
        return scores
