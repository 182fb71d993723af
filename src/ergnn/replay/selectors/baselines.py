"""Selectors that read neither features nor the model: random nodes, most neighbors, highest PageRank."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.features import SparsePattern, spmm
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext, Selector

TOLERANCE = 1e-12
"""Power iteration stops when the L1 norm of a change is below this."""
DECIMALS = 9
"""Digits of ``n · p`` that are compared: nodes in equal positions tie, however their sums are rounded."""


@SELECTORS.register("random", help="e training nodes of each class, drawn by seed")
class Random(Selector):
    """e training nodes of each class, drawn by seed."""

    def score(self, context: SelectionContext) -> Tensor:
        return torch.rand(context.nodes.numel(), generator=context.generator())


@SELECTORS.register("degree", help="most edges in the task's graph")
class Degree(Selector):
    """Nodes with the largest in-degree, self-loops not counted."""

    def score(self, context: SelectionContext) -> Tensor:
        return adjacency_of(context.graph).without_loops().degrees(context.nodes)


@SELECTORS.register("pagerank", help="highest PageRank in the task's graph")
class PageRank(Selector):
    """Nodes with the highest PageRank (Page et al., 1999), the solution of

        p_v = (1 − d) / n + d (Σ_{u→v} p_u / out(u) + Σ_{u: out(u)=0} p_u / n) ,

    found by power iteration over the whole graph. Scores are ``n · p``.

    Args:
        damping: d, the probability of following an edge.
    """

    def __init__(self, damping: float = 0.85) -> None:
        if not 0.0 <= damping < 1.0:
            raise InputError(f"damping is {damping}; it must be 0 or more and below 1")
        self.damping = damping

    def score(self, context: SelectionContext) -> Tensor:
        adj = adjacency_of(context.graph)
        n, device = adj.num_nodes, context.graph.device
        out = torch.bincount(adj.col, minlength=n).double()
        share = torch.where(out > 0, 1.0 / out.clamp(min=1.0), 0.0)
        pattern = SparsePattern(adj.rowptr, adj.col.long(), (n, n))
        ones = torch.ones(adj.num_edges, dtype=torch.float64, device=device)
        p, change = torch.ones(n, 1, dtype=torch.float64, device=device), float("inf")
        while change > TOLERANCE * n:
            lost = p[out == 0].sum() / n
            new = (1.0 - self.damping) + self.damping * (spmm(pattern, ones, p * share.unsqueeze(1)) + lost)
            p, change = new, float((new - p).abs().sum())
        return p[context.nodes, 0].round(decimals=DECIMALS)
