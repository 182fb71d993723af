"""The interface of a feature map."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

from torch import Tensor


class Operator(Protocol):
    """A square matrix over the nodes."""

    def matmul(self, x: Tensor) -> Tensor: ...


class FeatureMap(ABC):
    """Polynomials ``p_k`` of the normalized adjacency matrix; the blocks of φ are ``p_k(S) X``.

    Since each block is a polynomial of S times X, columns of X can be propagated in any grouping, a sketch of the
    columns commutes with the map, and ``p_k(S) X W = p_k(S) (X W)``.

    Attributes:
        name: name in results.
        num_blocks: number of polynomials.
        num_hops: their highest degree; an edge affects φ only within this many hops.
        starts_with_x: whether the first block is X itself.
    """

    name: str
    num_blocks: int
    num_hops: int
    starts_with_x: bool = False

    @abstractmethod
    def blocks(self, operator: Operator, x: Tensor) -> Iterator[Tensor]:
        """Yield ``p_k(S) x`` for each k, so that only one is in memory at a time; ``x`` is ``[nodes, columns]``."""

    def candidates(self, num_edges: int = 0) -> tuple[FeatureMap, ...]:
        """Return the maps to compare by leave-one-out error in a graph of this size; by default only this one."""
        return (self,)
