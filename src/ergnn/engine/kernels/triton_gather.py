# mypy: ignore-errors
# ruff: noqa: SIM108
"""What the Triton kernels share: rows gathered by lanes of their own, and how wide to make them."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

CACHE = 40 * 2**20
"""Gathered rows of more bytes than this are read in two halves; a GPU's L2 cache holds about as much."""
IN_FLIGHT = 512
"""Numbers that a program asks for before it looks at its loop's condition again."""


@dataclass(frozen=True)
class Shape:
    """How a program reads rows of ``heads`` × ``width`` numbers: ``lanes`` rows at a time, ``steps`` times in a row.

    Args:
        numbers: read at a time; 128 are four for each of a warp's threads. What is best was measured.
    """

    heads: int
    width: int
    numbers: int = 128

    @property
    def padded(self) -> tuple[int, int]:
        return triton.next_power_of_2(self.heads), triton.next_power_of_2(self.width)

    @property
    def lanes(self) -> int:
        heads, width = self.padded
        return max(1, self.numbers // (heads * width))

    @property
    def steps(self) -> int:
        return max(1, IN_FLIGHT // self.numbers)

    @property
    def warps(self) -> int:
        heads, width = self.padded
        return min(8, max(1, heads * width // 512))

    def parts(self, rows: int) -> int:
        """Into how many parts to divide the gathered rows (see :meth:`Links.segments`)."""
        return 2 if rows * self.heads * self.width * 4 > CACHE else 1


@triton.jit
def leaky(x, SLOPE: tl.constexpr):
    return tl.where(x > 0, x, SLOPE * x)


@triton.jit
def gather(X, rows, h, c, H: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr):
    """Rows ``[V, HP, CP]`` of a matrix of H heads of W numbers."""
    at = rows.to(tl.int64)[:, None, None] * (H * W) + (h[:, None] * W + c[None, :])[None, :, :]
    if HP == H and CP == W:
        x = tl.load(X + at)
    else:
        x = tl.load(X + at, mask=((h < H)[:, None] & (c < W)[None, :])[None, :, :], other=0.0)
    return x


@triton.jit
def gather_kept(X, rows, kept, h, c, H: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr):
    """As :func:`gather`, 0 where ``kept``, ``[V, HP]``, is False: what dropout removes is never read."""
    at = rows.to(tl.int64)[:, None, None] * (H * W) + (h[:, None] * W + c[None, :])[None, :, :]
    valid = kept[:, :, None] & ((h < H)[:, None] & (c < W)[None, :])[None, :, :]
    return tl.load(X + at, mask=valid, other=0.0)


@triton.jit
def gather_heads(X, rows, h, H: tl.constexpr, HP: tl.constexpr, STRIDE: tl.constexpr):
    """Numbers ``[V, HP]`` at the start of rows of STRIDE."""
    at = rows.to(tl.int64)[:, None] * STRIDE + h[None, :]
    if HP == H:
        x = tl.load(X + at)
    else:
        x = tl.load(X + at, mask=(h < H)[None, :], other=0.0)
    return x


@triton.jit
def column(x, c, C: tl.constexpr):
    """Column C of records ``[V, HP, CP]``."""
    return tl.sum(tl.where((c == C)[None, None, :], x, 0.0), 2)
