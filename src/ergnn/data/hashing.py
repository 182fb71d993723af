"""Counter-based random numbers: the n-th number of a stream is a hash of n.

SplitMix64 (Steele, Lea and Flood 2014) multiplies a counter by a constant, then mixes its bits. It is integer
arithmetic modulo 2⁶⁴, so CPU and GPU give the same bits, in blocks of any size and in any order.
"""

from __future__ import annotations

import torch
from torch import Tensor

LANE = 65536
"""Number of values of each of the four 16-bit numbers in a hash."""

_GOLDEN, _M1, _M2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1


def stream_key(*parts: int) -> int:
    """Return the key of the stream identified by numbers, e.g. (seed, purpose)."""
    key = 0
    for part in parts:
        key = _mix_int(key + _GOLDEN * ((part & _MASK) + 1))
    return key


def hashes(key: int, counter: Tensor) -> Tensor:
    """Return 64 random bits of stream ``key`` at each int64 ``counter``, which is not modified."""
    x = (counter * _signed(_GOLDEN)).add_(_signed(key))
    x = x.bitwise_xor_(_shifted(x, 30)).mul_(_signed(_M1))
    x = x.bitwise_xor_(_shifted(x, 27)).mul_(_signed(_M2))
    return x.bitwise_xor_(_shifted(x, 31))


def below(key: int, counter: Tensor, bound: Tensor | int) -> Tensor:
    """Return uniform integers from 0 to ``bound`` − 1, with a bias below bound / 2⁶³."""
    return hashes(key, counter).bitwise_and_(2**63 - 1).remainder_(bound)


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


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shift right logically (``>>`` on int64 copies the sign)."""
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _mix_int(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * _M1) & _MASK
    x = ((x ^ (x >> 27)) * _M2) & _MASK
    return x ^ (x >> 31)


def _signed(value: int) -> int:
    value &= _MASK
    return value - 2**64 if value >= 2**63 else value
