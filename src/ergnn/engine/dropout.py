"""Stateless dropout: the mask is a hash of (seed, task, epoch, site, position).

The same seed drops the same entries for a single model and for stacked models, on a CPU and on a GPU, and in an
uninterrupted and in a resumed run. The mixer is a keyed 32-bit avalanche hash (two multiply-xorshift rounds, as in the
public-domain "lowbias32").
"""

from __future__ import annotations

import torch
from torch import Tensor

_M0, _M1, _M2 = 0x9E3779B9 - 2**32, 0x7FEB352D, 0x846CA68B - 2**32


def _mix(x: Tensor, key: Tensor) -> Tensor:
    """Hash int32 ``x`` with int32 ``key`` in place; masks turn arithmetic shifts into logical ones."""
    x = x.mul_(_M0).bitwise_xor_(key)
    x = x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(_M1).add_(key)
    x = x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF)).mul_(_M2)
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF))


def dropout_keys(seeds: list[int], task: int, epochs: int, sites: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the keys ``[epochs, sites, models]`` of a whole task, so that no epoch waits for the host."""
    bases = [(seed * 1_000_003 + task * 7919 + 12345) & 0x7FFFFFFF for seed in seeds]
    base, last = (torch.tensor(values, dtype=torch.int32, device=device) for values in (bases, 0x5BD1E995))
    place = torch.arange(epochs * sites, dtype=torch.int32, device=device).view(epochs, sites, 1)
    return _mix(_mix(place.expand(epochs, sites, len(seeds)).clone(), base), last)


def keep_scale(position: Tensor, key: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """Return ``1 / (1 - p)`` for entries that are kept, and 0 for dropped ones.

    Args:
        position: int32 position of each entry within its model; not modified.
        key: int32 key of the model of each entry, broadcastable to ``position``.
        p: dropout probability.
    """
    threshold = min(int(p * 2**32) - 2**31, 2**31 - 1)
    kept = _mix(position.clone(), key) >= threshold
    return kept.to(dtype).mul_(1.0 / (1.0 - p))
