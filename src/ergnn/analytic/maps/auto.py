"""The feature map with the least leave-one-out error."""

from __future__ import annotations

from torch import Tensor

from ergnn.analytic.maps import FEATURE_MAPS
from ergnn.analytic.maps.base import FeatureMap, Operator
from ergnn.errors import InputError


@FEATURE_MAPS.register("auto", help="the map with the least leave-one-out error on the training nodes")
class Auto(FeatureMap):
    """Choose among maps by exact leave-one-out error, anew whenever the head is solved.

    Args:
        maps: names of the maps that compete, separated by commas; of equal ones the first is chosen.
    """

    name = "auto"

    def __init__(self, maps: str = "ppr,hops") -> None:
        names = [FEATURE_MAPS.resolve(name.strip()) for name in maps.split(",")]
        if "auto" in names or len(set(names)) < len(names):
            raise InputError(f"maps is {maps!r}; name each map once, and not 'auto'")
        self._maps: tuple[FeatureMap, ...] = tuple(FEATURE_MAPS.create(name) for name in names)
        self.num_blocks = sum(each.num_blocks for each in self._maps)
        self.num_hops = max(each.num_hops for each in self._maps)

    def candidates(self) -> tuple[FeatureMap, ...]:
        return self._maps

    def blocks(self, operator: Operator, x: Tensor) -> list[Tensor]:
        """The blocks of all candidates."""
        return [block for each in self._maps for block in each.blocks(operator, x)]
