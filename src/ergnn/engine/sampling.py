"""Neighbor sampling: estimate a sum over a node's neighbors from some of them, to keep batches small.

A sample is a hash of (key, layer, node, position), so it is the same on a CPU and a GPU, in a resumed run, and for any
order of batches. From k of the d neighbors of a node, a mean is estimated as ``1/k Σ_sampled h_j``, and a sum as
``d/k Σ_sampled h_j``, with degrees of the whole graph; self-loops are always included. These estimates are unbiased for
one layer given its inputs, but not after a nonlinear activation. Attention is a softmax over the sampled neighbors and
the node itself, as in PyG: a ratio of two sums with a bias of O(1/k). Without replacement, a fan-out of the largest
degree gives the exact field.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.data.hashing import below
from ergnn.engine.adjacency import Adjacency
from ergnn.nn.backbones import Backbone

ALL = -1
"""The fan-out that keeps all neighbors."""


@dataclass(frozen=True)
class Sampling:
    """Number of neighbors to sample.

    Args:
        fanout: number of neighbors to sample per node, for the scored nodes, then for their sampled neighbors, and so
            on: one number per layer that aggregates neighbors; -1 for all.
        replace: whether a neighbor may be sampled more than once.
    """

    fanout: tuple[int, ...]
    replace: bool = False

    def __post_init__(self) -> None:
        for count in self.fanout:
            if not isinstance(count, int) or isinstance(count, bool) or (count < 1 and count != ALL):
                raise InputError(f"fanout is {self.fanout}; its numbers must be 1 or more, or -1 for all")
        if self.replace and ALL in self.fanout:
            raise InputError(f"fanout is {self.fanout}; all neighbors (-1) cannot be sampled with replacement")

    def check(self, model: nn.Module) -> None:
        """Raise an error if the model cannot use this sampling."""
        name = type(model).__name__
        if not isinstance(model, Backbone) or not model.runs_on_fields:
            raise InputError(f"{name} cannot be computed on sampled neighbors; omit fanout")
        hops = model.num_hops
        if hops != len(self.fanout):
            raise InputError(
                f"fanout is {self.fanout}; {name} aggregates neighbors in {hops} layer(s): use {hops} number(s)"
            )


def sample_neighbors(
    adj: Adjacency, nodes: Tensor, fanout: int, replace: bool = False, key: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample in-neighbors of ``nodes``.

    With replacement, sample ``fanout`` neighbors, each uniformly. Without, sample a uniform subset of that size, or use
    all neighbors if there are fewer (Floyd's algorithm: the t-th of k samples is uniform over the first d − k + t + 1
    neighbors; if it was sampled before, the last of these replaces it).

    Returns:
        position in ``nodes`` (ascending) and source node of each sampled edge, and the number of edges per node.
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
        position = below(key, counter, degree.clamp(min=1).unsqueeze(1))
    else:
        count = degree.clamp(max=fanout)
        position = column.expand(nodes.numel(), -1).clone()
        many = (degree > fanout).nonzero().flatten()
        position[many] = _floyd(key, counter[many], degree[many], fanout)
    row = torch.repeat_interleave(torch.arange(nodes.numel(), device=nodes.device), count)
    sampled = position[column < count.unsqueeze(1)]
    return row, adj.col.index_select(0, start.index_select(0, row) + sampled).long(), count


def _floyd(key: int, counter: Tensor, degree: Tensor, count: int) -> Tensor:
    """Sample ``count`` distinct numbers below ``degree`` (larger than ``count``) in each row."""
    last = degree.unsqueeze(1) - count + torch.arange(count, device=degree.device)
    sample = below(key, counter, last + 1).T.contiguous()
    last = last.T.contiguous()
    for t in range(1, count):
        repeated = (sample[:t] == sample[t]).any(0)
        sample[t] = torch.where(repeated, last[t], sample[t])
    return sample.T
