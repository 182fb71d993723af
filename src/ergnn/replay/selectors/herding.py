"""Herding: nodes whose mean follows the class mean."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.greedy import GreedySelector, Values, row_of


@SELECTORS.register("herding", help="the mean of the chosen nodes stays closest to the class mean (iCaRL)")
class Herding(GreedySelector):
    """Herding (Welling, 2009) as in iCaRL (Rebuffi et al., 2017).

    The k-th node of a class is ``argmin_v ‖μ − 1/k (h_v + Σ_{j<k} h_{v_j})‖`` with the class mean μ of the vectors h,
    so that the first is the node nearest to μ. iCaRL scales h to length 1 (``normalize``).

    Args:
        space: ``feature`` or ``embedding``.
        normalize: divide each vector by its length first.
    """

    def values(self, vectors: Tensor, sizes: Tensor) -> Values:
        mean = vectors.sum(1, keepdim=True) / sizes.view(-1, 1, 1)
        total = torch.zeros_like(mean)

        def value(chosen: Tensor) -> Tensor:
            nonlocal total
            total = total + row_of(vectors, chosen) if chosen.size(1) else total
            return -(mean - (vectors + total) / (chosen.size(1) + 1)).norm(dim=2)

        return value
