"""S2-ridge: ridge regression on S²X, without a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext
from ergnn.replay.selectors.ridge import Ridge
from ergnn.replay.selectors.smoothed import HOPS, smoothed


@SELECTORS.register("s2-ridge", help="nodes from which ridge regression on S²X best predicts the task's labels")
class SmoothedRidge(Ridge):
    """The best set for ``k(u, v) = ⟨g_u, g_v⟩``, ``g_u = (S²X)_u / ‖·‖``, ``S = D̃^-½ (A + I) D̃^-½``.

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
