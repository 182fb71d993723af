"""The undirected edges (links) of a Reddit-like graph, block by block, without self-loops and duplicates.

The parity of u + v decides which end of a link {u, v} is its first node, and the weight of a node determines the number
of links of which it is the first node. So only one node can draw a link twice, and blocks of nodes are independent.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from benchmarks.reddit_like.lanes import LANE, arange
from benchmarks.reddit_like.spec import BLOCK, CLASSES, EDGES, RedditLike
from ergnn.data.hashing import hashes

ATTEMPTS = 256
"""Maximum number of draws of a link's second node (a draw may have the wrong parity or be a duplicate)."""
COUNTED = (8, 16, 32, 64, *range(80, ATTEMPTS + 1, 16))
"""Attempts after which duplicate links are dropped and drawn again."""
OWN_ATTEMPTS = 16
"""From this attempt on, nodes are drawn from all communities: a small one may be exhausted."""
WEIGHED_ATTEMPTS = 64
"""From this attempt on, nodes are drawn uniformly: those of large weight may be exhausted."""
RANGE = 2**32
"""Weights are scaled so that their sum is below this value."""
MAX_DEGREE_FRACTION = 8
"""The maximum degree is the number of nodes divided by this value."""


class Ends:
    """Draws the second nodes of links in proportion to weight, from one community or from all."""

    def __init__(self, spec: RedditLike, device: torch.device | str) -> None:
        self.spec, self.key = spec, spec.key(EDGES)
        n = spec.nodes
        blocks = [(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]
        self.community = torch.cat([spec.communities(a, b, device) for a, b in blocks])
        weight = torch.cat([spec.weights(a, b, device) for a, b in blocks])
        weight = weight.clamp_(max=max(int(weight.sum()) * n // (2 * MAX_DEGREE_FRACTION * spec.links), 1))
        shift = max(int(weight.sum()).bit_length() - RANGE.bit_length() + 1, 0)
        weight = (weight >> shift).clamp_(min=1)
        self.order = torch.argsort(self.community, stable=True)
        self.upto = weight[self.order].cumsum(0)
        total = torch.zeros(CLASSES, dtype=torch.int64, device=device).index_add_(0, self.community, weight)
        self.span, self.total = total, int(total.sum())
        self.start = total.cumsum(0) - total
        cut = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
        self.begun = (cut * spec.links // self.total).diff()
        """Number of links of which each node is the first: proportional to weight, rounded to the exact total."""

    def draw(self, node: Tensor, link: Tensor, attempt: int) -> Tensor:
        """Draw the second node of a link whose first is ``node``."""
        bits = hashes(self.key, link * ATTEMPTS + attempt)
        if attempt >= WEIGHED_ATTEMPTS:
            return bits.bitwise_and_(2**63 - 1).remainder_(self.spec.nodes)
        near = (bits & (LANE - 1)) < (round(self.spec.homophily * LANE) if attempt < OWN_ATTEMPTS else 0)
        own = self.community[node]
        span = torch.where(near, self.span[own], self.total)
        place = ((bits >> 16) & (2**47 - 1)).remainder_(span).add_(torch.where(near, self.start[own], 0))
        return self.order[torch.searchsorted(self.upto, place, right=True)]


def link_blocks(ends: Ends, links: int) -> Iterator[Tensor]:
    """Yield all links as sorted keys ``first · n + second``, about ``links`` per block."""
    upto = ends.begun.cumsum(0)
    first, done, last = 0, 0, int(upto.numel())
    while first < last:
        until = int(torch.searchsorted(upto, torch.tensor(done + links, device=upto.device), right=True))
        until = min(max(until, first + 1), last)
        yield _links(ends, first, until, done)
        first, done = until, int(upto[until - 1])


def _links(ends: Ends, first: int, until: int, done: int) -> Tensor:
    """Return the links whose first node is ``first`` … ``until`` − 1; ``done`` links precede them."""
    n, wanted = ends.spec.nodes, ends.begun[first:until]
    device = wanted.device
    node = torch.repeat_interleave(arange(first, until, device), wanted)
    link = arange(done, done + node.numel(), device)
    start = done + wanted.cumsum(0) - wanted
    found = [node[:0]]
    for attempt in range(ATTEMPTS):
        if node.numel():
            end = ends.draw(node, link, attempt)
            may = (((node ^ end) & 1) == (node < end)) & (node != end)
            found.append((node * n + end)[may])
            node, link = node[~may], link[~may]
        if attempt + 1 in COUNTED:  # at fixed attempts, not when all are found, which would depend on the block
            found = [distinct(torch.cat(found))]
            missing = wanted - torch.bincount(found[0] // n - first, minlength=until - first)
            node = torch.repeat_interleave(arange(first, until, device), missing)
            if not node.numel():
                break
            link = (start - missing.cumsum(0) + missing)[node - first] + arange(0, node.numel(), device)
    return found[0]


def distinct(keys: Tensor) -> Tensor:
    keys = ascending(keys)
    return torch.unique_consecutive(keys)


def ascending(keys: Tensor) -> Tensor:
    """Sort; on a CPU, numpy sorts integers several times faster than torch."""
    return torch.from_numpy(np.sort(keys.numpy())) if keys.device.type == "cpu" else keys.sort().values
