"""Counter-based random numbers: the n-th number of a stream is a hash of n; and seeds for code that draws others.

SplitMix64 (Steele, Lea and Flood 2014) multiplies a counter by a constant, then mixes its bits. It is integer
arithmetic modulo 2⁶⁴, so CPU and GPU give the same bits, in blocks of any size and in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_GOLDEN, _M1, _M2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1


def stream_key(*parts: int) -> int:
    """Return the key of the stream identified by numbers, e.g. (seed, purpose)."""
    key = 0
    for part in parts:
        key = int(mix(torch.tensor(_signed(key + _GOLDEN * ((part & _MASK) + 1))))) & _MASK
    return key


def hashes(key: int, counter: Tensor) -> Tensor:
    """Return 64 random bits of stream ``key`` at each int64 ``counter``, which is not modified."""
    return mix((counter * _signed(_GOLDEN)).add_(_signed(key)))


def mix(x: Tensor) -> Tensor:
    """Mix the bits of int64 numbers, in place: the finalizer of SplitMix64."""
    x = x.bitwise_xor_(_shifted(x, 30)).mul_(_signed(_M1))
    x = x.bitwise_xor_(_shifted(x, 27)).mul_(_signed(_M2))
    return x.bitwise_xor_(_shifted(x, 31))


def below(key: int, counter: Tensor, bound: Tensor | int) -> Tensor:
    """Return uniform integers from 0 to ``bound`` − 1, with a bias below bound / 2⁶³."""
    return hashes(key, counter).bitwise_and_(2**63 - 1).remainder_(bound)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shift right logically (``>>`` on int64 copies the sign)."""
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _signed(value: int) -> int:
    value &= _MASK
    return value - 2**64 if value >= 2**63 else value


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generators of the CPU and of one GPU, and restore both afterwards.

    For code that does not accept a generator, such as modules. Other devices are not used, so that a learner on the CPU
    never initializes CUDA.
    """
    cuda = device is not None and device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
