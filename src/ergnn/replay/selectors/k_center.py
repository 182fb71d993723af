"""k-center: nodes that leave no node of their class far from a chosen one."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.greedy import GreedySelector, Values, row_of


@SELECTORS.register("k-center", help="each next node is farthest from the chosen ones of its class (k-center, coreset)")
class KCenter(GreedySelector):
    """Greedy k-center (Gonzalez, 1985; Sener and Savarese, 2018).

    The first node of a class is the one nearest to the class mean, the k-th is ``argmax_v min_{j<k} ‖h_v − h_{v_j}‖``.
    The largest distance of a node to the nearest chosen one is at most twice the smallest possible for e nodes.

    Args:
        space: ``feature`` or ``embedding``.
        normalize: divide each vector by its length first.
    """

    def values(self, vectors: Tensor, sizes: Tensor) -> Values:
        nearest = torch.full_like(vectors[..., 0], float("inf"))

        def value(chosen: Tensor) -> Tensor:
            nonlocal nearest
            if not chosen.size(1):
                return -(vectors - vectors.sum(1, keepdim=True) / sizes.view(-1, 1, 1)).norm(dim=2)
            nearest = torch.minimum(nearest, (vectors - row_of(vectors, chosen)).norm(dim=2))
            return nearest

        return value
