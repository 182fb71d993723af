"""Personalized PageRank of the features."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ergnn.analytic.maps import FEATURE_MAPS
from ergnn.analytic.maps.base import FeatureMap, Operator
from ergnn.config.errors import InputError, check_at_least


@FEATURE_MAPS.register("ppr", help="personalized PageRank: Z ← (1 − α) S Z + α X")
class PersonalizedPageRank(FeatureMap):
    """``Z ← (1 − α) S Z + α X`` from ``Z = X`` (APPNP; Gasteiger et al., 2019, without the network).

    Args:
        alpha: α, the teleport probability.
        num_steps: number of iterations.
    """

    name = "ppr"
    num_blocks = 1

    def __init__(self, alpha: float = 0.1, num_steps: int = 10) -> None:
        if not 0 < alpha <= 1:
            raise InputError(f"alpha is {alpha}; it must be above 0 and at most 1")
        check_at_least(0, num_steps=num_steps)
        self.alpha, self.num_hops = alpha, num_steps

    def blocks(self, operator: Operator, x: Tensor) -> Iterator[Tensor]:
        z = x
        for _ in range(self.num_hops):
            z = operator.matmul(z).mul_(1 - self.alpha).add_(x, alpha=self.alpha)
        yield z
