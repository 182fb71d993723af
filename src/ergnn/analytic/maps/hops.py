"""Features of a node and its neighborhoods, concatenated."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ergnn.analytic.maps import FEATURE_MAPS
from ergnn.analytic.maps.base import FeatureMap, Operator
from ergnn.config.errors import check_at_least


@FEATURE_MAPS.register("hops", help="X, SX, S²X and S³X, concatenated")
class Hops(FeatureMap):
    """``[X, SX, …, S^K X]`` (SIGN; Frasca et al., 2020, without the network).

    Args:
        num_hops: K.
    """

    name = "hops"

    def __init__(self, num_hops: int = 3) -> None:
        check_at_least(0, num_hops=num_hops)
        self.num_hops, self.num_blocks = num_hops, num_hops + 1

    def blocks(self, operator: Operator, x: Tensor) -> Iterator[Tensor]:
        yield x
        for _ in range(self.num_hops):
            x = operator.matmul(x)
            yield x
