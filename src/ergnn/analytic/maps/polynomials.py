"""Feature maps: neighborhoods concatenated, personalized PageRank, and the better of several."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ergnn.analytic.maps import FEATURE_MAPS
from ergnn.analytic.maps.base import FeatureMap, Operator
from ergnn.config.errors import InputError, check_at_least


@FEATURE_MAPS.register("hops", help="X, SX, S²X and S³X, concatenated")
class Hops(FeatureMap):
    """``[X, SX, …, S^K X]`` (SIGN; Frasca et al., 2020, without the network).

    Args:
        num_hops: K.
    """

    name = "hops"
    starts_with_x = True

    def __init__(self, num_hops: int = 3) -> None:
        check_at_least(0, num_hops=num_hops)
        self.num_hops, self.num_blocks = num_hops, num_hops + 1

    def blocks(self, operator: Operator, x: Tensor) -> Iterator[Tensor]:
        yield x
        for _ in range(self.num_hops):
            x = operator.matmul(x)
            yield x


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


@FEATURE_MAPS.register("auto", help="the map with the smallest leave-one-out error on the training nodes")
class Auto(FeatureMap):
    """Chooses among maps by exact leave-one-out error, each time the head is solved.

    In large graphs a map of many hops is slow to compute, and each new edge changes it for most nodes.

    Args:
        maps: names of the candidate maps, separated by commas; if errors are equal, the first is chosen.
        max_edges: graphs with more directed edges have one candidate only, the map with the fewest hops.
    """

    name = "auto"

    def __init__(self, maps: str = "ppr,hops", max_edges: int = 2_000_000) -> None:
        names = [FEATURE_MAPS.resolve(name.strip()) for name in maps.split(",")]
        if "auto" in names or len(set(names)) < len(names):
            raise InputError(f"maps is {maps!r}; list each map once, without 'auto'")
        check_at_least(0, max_edges=max_edges)
        self.max_edges = max_edges
        self._maps: tuple[FeatureMap, ...] = tuple(FEATURE_MAPS.create(name) for name in names)
        self.num_blocks = sum(each.num_blocks for each in self._maps)
        self.num_hops = max(each.num_hops for each in self._maps)

    def candidates(self, num_edges: int = 0) -> tuple[FeatureMap, ...]:
        return self._maps if num_edges <= self.max_edges else (min(self._maps, key=lambda each: each.num_hops),)

    def blocks(self, operator: Operator, x: Tensor) -> Iterator[Tensor]:
        """Yield the blocks of all candidates."""
        for each in self._maps:
            yield from each.blocks(operator, x)
