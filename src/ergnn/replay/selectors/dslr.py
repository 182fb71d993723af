"""DSLR's coverage-based diversity: nodes whose neighborhoods in embedding space cover their class."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.greedy import GreedySelector, Values
from ergnn.replay.selectors.spaces import SpaceName


@SELECTORS.register("dslr", help="greedy cover of the class in embedding space (coverage-based diversity)")
class CoverageDiversity(GreedySelector):
    """Coverage-based diversity of DSLR (Choi et al., 2024).

    A node covers the nodes of its class nearer than d, ``C(v) = {u : ‖h_u − h_v‖ < d}``, where d is ``ratio``
    times the mean distance between two nodes of the class. The k-th node is the one that covers most nodes
    not covered yet: ``argmax_v |C(v) \\ ∪_{j<k} C(v_j)|``.

    Args:
        ratio: d as a fraction of the mean distance.
        space: ``feature`` or ``embedding``.
        normalize: divide each vector by its length first.
    """

    def __init__(self, ratio: float = 0.1, space: SpaceName = "embedding", normalize: bool = False) -> None:
        if not 0.0 < ratio < float("inf"):
            raise InputError(f"ratio is {ratio}; it must be above 0")
        super().__init__(space, normalize)
        self.ratio = ratio

    def values(self, vectors: Tensor, sizes: Tensor) -> Values:
        width = vectors.size(1)
        pairs = [self._covered(each[:n]) + i * width for i, (each, n) in enumerate(zip(vectors, sizes, strict=True))]
        center, covered = torch.cat(pairs, dim=1)  # positions in all classes together
        first = torch.arange(sizes.numel(), device=sizes.device) * width
        open_nodes = torch.ones(vectors[..., 0].numel(), dtype=torch.float64, device=vectors.device)

        def value(chosen: Tensor) -> Tensor:
            nonlocal open_nodes
            if chosen.size(1):
                new = torch.zeros_like(open_nodes).index_fill_(0, chosen[:, -1] + first, 1.0)
                closed = torch.zeros_like(open_nodes).index_add_(0, covered, new[center])
                open_nodes = open_nodes.masked_fill(closed > 0, 0.0)
            return torch.zeros_like(open_nodes).index_add_(0, center, open_nodes[covered]).view(vectors.shape[:2])

        return value

    def _covered(self, vectors: Tensor) -> Tensor:
        """Return the pairs of a node and one that it covers, ``[2, pairs]``."""
        n = vectors.size(0)
        total = sum(float(distances.sum()) for _, distances in self.space.chunks(vectors, vectors))
        d = self.ratio * total / max(n * (n - 1), 1)
        found = []
        for rows, distances in self.space.chunks(vectors, vectors):
            i, j = (distances < d).nonzero().unbind(1)
            found.append(torch.stack([rows[i], j]))
        return torch.cat(found, dim=1)
