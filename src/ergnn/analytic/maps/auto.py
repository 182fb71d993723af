"""The feature map with the smallest leave-one-out error."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ergnn.analytic.maps import FEATURE_MAPS
from ergnn.analytic.maps.base import FeatureMap, Operator
from ergnn.errors import InputError


@FEATURE_MAPS.register("auto", help="the map with the smallest leave-one-out error on the training nodes")
class Auto(FeatureMap):
    """Chooses among maps by exact leave-one-out error, each time the head is solved.

    Args:
        maps: names of the candidate maps, separated by commas; if errors are equal, the first is chosen.
    """

    name = "auto"

    def __init__(self, maps: str = "ppr,hops") -> None:
        names = [FEATURE_MAPS.resolve(name.strip()) for name in maps.split(",")]
        if "auto" in names or len(set(names)) < len(names):
            raise InputError(f"maps is {maps!r}; list each map once, without 'auto'")
        self._maps: tuple[FeatureMap, ...] = tuple(FEATURE_MAPS.create(name) for name in names)
        self.num_blocks = sum(each.num_blocks for each in self._maps)
        self.num_hops = max(each.num_hops for each in self._maps)

    def candidates(self) -> tuple[FeatureMap, ...]:
        return self._maps

    def blocks(self, operator: Operator, x: Tensor) -> Iterator[Tensor]:
        """Yield the blocks of all candidates."""
        for each in self._maps:
            yield from each.blocks(operator, x)
