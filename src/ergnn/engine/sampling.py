"""Neighbor sampling: some of a node's neighbors stand for all of them, so that a batch of any graph fits a step.

What is drawn is a hash of (key, layer, node, place): the same on a CPU and a GPU, in a run that was resumed, and in
whatever order batches are made. The *estimator* of a sum over the d neighbors of a node, from k of them drawn:

``mean``
    ``1/k Σ_drawn h_j``; its expectation over draws is the mean, with and without replacement.
``sum``
    ``d/k Σ_drawn h_j``, unbiased likewise.
``gcn``
    ``h_i / d̃_i + d/k Σ_drawn h_j / √(d̃_i d̃_j)`` with degrees d̃ (self-loops counted) of the whole graph: the node
    itself is always there, and the rest is unbiased.
``attention``
    the softmax over the drawn neighbors and the node itself, as PyG's layer gives on a sampled graph. A ratio of two
    sums, so that it is biased, by O(1/k); and the node itself counts as much as one *drawn* neighbor.

Each is unbiased for one layer given what it reads; behind a non-linear activation nothing is. A node with k neighbors
or fewer keeps them all where draws are without replacement, so that a fan-out of the largest degree is the exact field.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ergnn.data.hashing import below
from ergnn.engine.adjacency import Adjacency
from ergnn.errors import InputError
from ergnn.nn.backbones import Backbone

ALL = -1
"""The fan-out that takes every neighbor."""


@dataclass(frozen=True)
class Sampling:
    """How many neighbors are drawn.

    Args:
        fanout: of a node to be scored first, then of those drawn for it, and so on: one number per layer that reads
            neighbors; -1 is all.
        replace: whether a neighbor may be drawn more than once.
    """

    fanout: tuple[int, ...]
    replace: bool = False

    def __post_init__(self) -> None:
        for count in self.fanout:
            if not isinstance(count, int) or isinstance(count, bool) or (count < 1 and count != ALL):
                raise InputError(f"fanout is {self.fanout}; it takes whole numbers of 1 or more, or -1 for all")
        if self.replace and ALL in self.fanout:
            raise InputError(f"fanout is {self.fanout}; all neighbors cannot be drawn with replacement")

    def check(self, model: nn.Module) -> None:
        """Refuse a model that does not fit."""
        name = type(model).__name__
        if not isinstance(model, Backbone) or not model.runs_on_fields:
            raise InputError(f"{name} has no form on sampled neighbors; leave fanout out")
        hops = model.num_hops
        if hops != len(self.fanout):
            raise InputError(
                f"fanout is {self.fanout}; {name} reads neighbors in {hops} layer(s): give {hops} number(s)"
            )


def sample_neighbors(
    adj: Adjacency, nodes: Tensor, fanout: int, replace: bool = False, key: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw in-neighbors of ``nodes``.

    With replacement, ``fanout`` times one of the neighbors. Without, a set of that size, all sets alike (Floyd's
    algorithm: the t-th of k draws is from the first d − k + t + 1, or their last where it is taken), or all of them.

    Returns:
        of each drawn edge the position in ``nodes`` (ascending) and the source node, and how many each node has.
    """
    degree = adj.degrees(nodes)
    if fanout == ALL or (not replace and (not nodes.numel() or fanout >= int(degree.max()))):
        row, source = adj.incoming(nodes)
        return row, source, degree
    start = adj.rowptr[nodes]
    column = torch.arange(fanout, device=nodes.device)
    counter = nodes.unsqueeze(1) * fanout + column
    if replace:
        count = torch.where(degree > 0, fanout, 0)
        place = below(key, counter, degree.clamp(min=1).unsqueeze(1))
    else:
        count = degree.clamp(max=fanout)
        place = column.expand(nodes.numel(), -1).clone()
        many = (degree > fanout).nonzero().flatten()
        place[many] = _floyd(key, counter[many], degree[many], fanout)
    row = torch.repeat_interleave(torch.arange(nodes.numel(), device=nodes.device), count)
    taken = place[column < count.unsqueeze(1)]
    return row, adj.col.index_select(0, start.index_select(0, row) + taken).long(), count


def _floyd(key: int, counter: Tensor, degree: Tensor, count: int) -> Tensor:
    """``count`` different numbers below ``degree`` (larger than it) in each row."""
    last = degree.unsqueeze(1) - count + torch.arange(count, device=degree.device)
    drawn = below(key, counter, last + 1).T.contiguous()
    last = last.T.contiguous()
    for t in range(1, count):
        taken = (drawn[:t] == drawn[t]).any(0)
        drawn[t] = torch.where(taken, last[t], drawn[t])
    return drawn.T
