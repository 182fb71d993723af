# mypy: ignore-errors
# ruff: noqa: SIM108
"""Functions shared by the Triton kernels: hashed dropout, and rows gathered in lanes; imported on GPUs only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ergnn.engine.dropout import threshold

NUMBERS = 128
"""Number of values that a warp loads at a time, four per thread; chosen by measurement."""
STEPS = 4
"""Number of times that a program loads as many values per loop iteration."""
LOAD = 4
"""Number of values that a thread loads at a time."""
MASK_BLOCK = 1024
"""Number of entries that a program drops at a time."""
LOG2E = tl.constexpr(1.4426950408889634)


@dataclass(frozen=True)
class Shape:
    """Load pattern for rows of ``heads`` × ``width`` values: ``lanes`` rows at a time, ``STEPS`` times per iteration.

    Args:
        halves: load heads that take two loads (e.g. the eight channels of GAT) in two halves. One thread then has a
            whole head of an edge, so values per edge and head, e.g. ``exp``, are computed once instead of twice.
    """

    heads: int
    width: int
    halves: bool = True

    @property
    def padded(self) -> tuple[int, int]:
        return triton.next_power_of_2(self.heads), triton.next_power_of_2(self.width)

    @property
    def chunk(self) -> int:
        """Number of values of a head that are loaded at a time."""
        return LOAD if self.halves and self.heads > 1 and self.padded[1] == 2 * LOAD else self.padded[1]

    @property
    def lanes(self) -> int:
        return max(1, NUMBERS // (self.padded[0] * self.chunk))

    @property
    def warps(self) -> int:
        heads, width = self.padded
        return min(8, max(1, heads * width // 512))

    def big(self, rows: int) -> bool:
        """Return whether positions in ``rows`` rows need 64 bits."""
        return rows * self.heads * max(self.width, 3) >= 2**31


@triton.jit
def power(x):
    """Return ``exp(x)``; results below the smallest normal number are 0, which saves instructions."""
    return tl.exp2(x * LOG2E)


@triton.jit
def leaky(x, SLOPE: tl.constexpr):
    return tl.where(x > 0, x, SLOPE * x)


@triton.jit
def leaky_slope(x, SLOPE: tl.constexpr):
    return tl.where(x > 0, 1.0, SLOPE)


@triton.jit
def bound(LOW, HIGH, h, H: tl.constexpr, NARROW: tl.constexpr):
    """Return the maximum of ``a_src`` over all rows, and whether it can replace the maximum of each row."""
    low, high = tl.load(LOW + h, mask=h < H, other=0.0), tl.load(HIGH + h, mask=h < H, other=0.0)
    return high, tl.max(high - low, 0) <= NARROW


@triton.jit
def lanes(V: tl.constexpr, HP: tl.constexpr):
    """Return the lane of each edge and head, ``[V, HP]``.

    Indices of edges have this shape throughout: Triton loads a shorter vector again for every layout that it needs.
    The reshape hides that lanes are consecutive; otherwise, Triton would assign them to other threads than rows.
    """
    return tl.reshape(tl.arange(0, V * HP) // HP, [V, HP])


@triton.jit
def following(COL, at, end):
    """Load entries of ``COL`` one step before they are needed."""
    return tl.load(COL + at, mask=at < end, other=0)


@triton.jit
def gather(
    X, rows, kept, h, c,
    H: tl.constexpr, W: tl.constexpr, EVEN: tl.constexpr, DROP: tl.constexpr, BIG: tl.constexpr,
):  # fmt: skip
    """Load values ``c`` of ``rows``, ``[V, HP]``, with H heads of W values: ``[V, HP, …]``.

    With DROP, heads that dropout removes from an edge (``kept``, ``[V, HP]``, is False) are 0 and are not loaded. EVEN
    means that there is no padding, BIG that positions need 64 bits.
    """
    rows = rows.to(tl.int64) if BIG else rows
    at = (rows * (H * W) + (h * W)[None, :])[:, :, None] + c[None, None, :]
    valid = ((h < H)[:, None] & (c < W)[None, :])[None, :, :]
    if DROP:
        x = tl.load(X + at, mask=kept[:, :, None] if EVEN else kept[:, :, None] & valid, other=0.0)
    elif EVEN:
        x = tl.load(X + at)
    else:
        x = tl.load(X + at, mask=valid, other=0.0)
    return x


@triton.jit
def store(X, row, x, x2, h, c, H: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, N: tl.constexpr):
    """Store one row with H heads of C values: ``x`` are values ``c``, and ``x2`` the second half, if there are two."""
    at = X + row * (H * C) + h[:, None] * C + c[None, :]
    tl.store(at, x, mask=(h < H)[:, None] & (c < C)[None, :])
    if N < CP:
        tl.store(at + N, x2, mask=(h < H)[:, None] & (c + N < C)[None, :])


@triton.jit
def gather_heads(X, rows, h, H: tl.constexpr, HP: tl.constexpr, STRIDE: tl.constexpr, BIG: tl.constexpr):
    """Load the values ``[V, HP]`` at the start of ``rows``, ``[V, HP]``, with stride STRIDE."""
    rows = rows.to(tl.int64) if BIG else rows
    at = rows * STRIDE + h[None, :]
    if HP == H:
        x = tl.load(X + at)
    else:
        x = tl.load(X + at, mask=(h < H)[None, :], other=0.0)
    return x


@triton.jit
def column(x, c, C: tl.constexpr):
    """Return column C of records ``[V, HP, CP]``."""
    return tl.sum(tl.where((c == C)[None, None, :], x, 0.0), 2)


@triton.jit
def keeps(target, source, head, key, limit):
    """Return whether the attention weight of an edge is kept; bitwise equal to ``attention_keep`` in ``dropout``."""
    x = target.to(tl.uint32) * 0x9E3779B1 + source.to(tl.uint32) * 0x85EBCA77
    x = x + head.to(tl.uint32) * 0xC2B2AE3D + key.to(tl.uint32, bitcast=True)
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0x735A2D97
    return x.to(tl.int32, bitcast=True) >= limit


@triton.jit
def keeps_entry(position, key, limit):
    """Return whether entries are kept; bitwise equal to :func:`ergnn.engine.dropout.keep_scale`."""
    key = key.to(tl.uint32, bitcast=True)
    x = (position.to(tl.uint32) * 0x9E3779B9) ^ key
    x = (x ^ (x >> 16)) * 0x7FEB352D + key
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    return x.to(tl.int32, bitcast=True) >= limit


class Dropped(torch.autograd.Function):
    """Drop entries of a matrix by :func:`~ergnn.engine.dropout.keep_scale` at position ``row · width + column``.

    The operation is linear, so the gradient is the same operation.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, key: Tensor, p: float) -> Tensor:
        ctx.p = p
        ctx.save_for_backward(key)
        h, out = h.contiguous(), torch.empty_like(h, memory_format=torch.contiguous_format)
        grid = (triton.cdiv(h.numel(), MASK_BLOCK),)
        _dropped[grid](h, key, out, h.numel(), threshold(p), 1.0 / (1.0 - p), MASK_BLOCK, num_warps=4)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (key,) = ctx.saved_tensors
        return Dropped.apply(grad, key, ctx.p), None, None


@triton.jit
def _dropped(H, KEY, OUT, size, limit, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    kept = keeps_entry(at, tl.load(KEY), limit)
    h = tl.load(H + at, mask=at < size, other=0.0)
    tl.store(OUT + at, tl.where(kept, h * scale, 0.0), mask=at < size)
