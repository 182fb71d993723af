"""Random walks along a graph's edges, all walks in parallel, step by step.

A walk goes from the source to the target of an edge and ends early at a node without outgoing edges; missing nodes are
filled with :data:`ENDED`.
"""

from __future__ import annotations

import torch
from torch import Tensor

ENDED = -1
"""Placeholder for nodes after the end of a walk."""


class Neighbors:
    """The targets of every node's edges in CSR form; duplicate edges count once.

    Args:
        edge_index: ``[2, m]``, sources in row 0.
        num_nodes: nodes are 0 to ``num_nodes − 1``.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self._keys = torch.unique(edge_index[0] * num_nodes + edge_index[1])  # sorted by source, then target
        self.targets = self._keys % max(num_nodes, 1)
        self.degree = torch.bincount(self._keys // max(num_nodes, 1), minlength=num_nodes)
        self.start = self.degree.cumsum(0) - self.degree

    def pick(self, nodes: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one neighbor of each node uniformly; every node must have one."""
        degree = self.degree[nodes]
        at = (_uniform(nodes, generator) * degree).long()
        return self.targets[self.start[nodes] + torch.minimum(at, degree - 1)]  # the product may be rounded up

    def linked(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Return whether each pair is connected by an edge."""
        if not self._keys.numel():
            return torch.zeros_like(sources, dtype=torch.bool)
        key = sources * self.num_nodes + targets
        at = torch.searchsorted(self._keys, key).clamp(max=self._keys.numel() - 1)
        return self._keys[at] == key


def random_walks(
    neighbors: Neighbors,
    starts: Tensor,
    length: int,
    generator: torch.Generator,
    p: float = 1.0,
    q: float = 1.0,
) -> Tensor:
    """Sample one walk of up to ``length`` nodes from each start, ``[starts, length]``.

    From ``v``, having come from ``t``, the next node ``x`` is drawn among v's neighbors with probability
    proportional to (Node2Vec, Eq. 2)::

        1/p  if x = t
        1    if t → x is an edge
        1/q  otherwise

    The first step is uniform. With ``p = q = 1`` all steps are (DeepWalk).

    The biased step uses rejection sampling: it draws a uniform neighbor and accepts it with probability
    ``weight / max(1, 1/p, 1/q)``. This is exact, needs no table per edge, and is as fast at hubs as elsewhere.

    Args:
        generator: generator of all draws, on the same device as the graph.
        p: return parameter.
        q: in-out parameter.
    """
    walks = torch.full((starts.numel(), length), ENDED, dtype=torch.long, device=starts.device)
    walks[:, 0] = starts
    for step in range(1, length):
        here = walks[:, step - 1]
        going = ((here != ENDED) & (neighbors.degree[here] > 0)).nonzero().flatten()
        if not going.numel():
            break
        if step == 1 or p == q == 1.0:
            walks[going, step] = neighbors.pick(here[going], generator)
        else:
            walks[going, step] = _biased_step(neighbors, walks[going, step - 2], here[going], p, q, generator)
    return walks


def _biased_step(
    neighbors: Neighbors, before: Tensor, here: Tensor, p: float, q: float, generator: torch.Generator
) -> Tensor:
    largest = max(1.0, 1.0 / p, 1.0 / q)
    chosen = torch.empty_like(here)
    left = torch.arange(here.numel(), device=here.device)
    while left.numel():
        x, t = neighbors.pick(here[left], generator), before[left]
        near = torch.where(neighbors.linked(t, x), 1.0, 1.0 / q)
        weight = torch.where(x == t, 1.0 / p, near)
        accepted = _uniform(x, generator) * largest < weight
        chosen[left[accepted]] = x[accepted]
        left = left[~accepted]
    return chosen


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, generator=generator, dtype=torch.float64, device=like.device)
