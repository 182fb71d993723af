"""Sums of the four 16-bit numbers of a hash: integers with a bell-shaped distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.data.hashing import hashes

LANE = 65536
"""Number of values of each of the four 16-bit numbers in a hash."""


def lane_sums(key: int, counter: Tensor) -> Tensor:
    """Sum of a hash's four 16-bit numbers minus its mean: bell-shaped, −131,070 … 131,070, mean 0."""
    bits = hashes(key, counter)
    total = bits & (LANE - 1)
    for shift in (16, 32, 48):
        total += (bits >> shift).bitwise_and_(LANE - 1)
    return total.sub_(2 * (LANE - 1))


LANE_SUM_DEVIATION = (4 * (LANE**2 - 1) / 12) ** 0.5
"""Standard deviation of :func:`lane_sums`."""


def arange(start: int, end: int, device: torch.device | str) -> Tensor:
    return torch.arange(start, end, dtype=torch.int64, device=device)
