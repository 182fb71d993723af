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
NUMBERS = 128
"""Numbers that a warp loads at a time, four for each of its threads. What is best was measured."""
LOAD = 4
"""Numbers that a thread loads at a time."""


@dataclass(frozen=True)
class Shape:
    """How a program reads rows of ``heads`` × ``width`` numbers: ``lanes`` rows at a time, ``steps`` times in a row.

    Args:
        halves: read heads of two loads each (GAT's eight numbers) half by half. A thread then has a whole head of an
            edge, and what is computed per edge and head, e.g. ``exp``, is computed once instead of by two threads.
    """

    heads: int
    width: int
    halves: bool = True

    @property
    def padded(self) -> tuple[int, int]:
        return triton.next_power_of_2(self.heads), triton.next_power_of_2(self.width)

    @property
    def chunk(self) -> int:
        """Numbers of a head that are read at a time."""
        return LOAD if self.halves and self.heads > 1 and self.padded[1] == 2 * LOAD else self.padded[1]

    @property
    def lanes(self) -> int:
        return max(1, NUMBERS // (self.padded[0] * self.chunk))

    @property
    def steps(self) -> int:
        return IN_FLIGHT // NUMBERS

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
def following(COL, at, end):
    """Entries of ``COL``, loaded one step before they are needed."""
    return tl.load(COL + at, mask=at < end, other=0)


@triton.jit
def gather(X, rows, kept, h, c, H: tl.constexpr, W: tl.constexpr, EVEN: tl.constexpr, DROP: tl.constexpr):
    """Numbers ``c`` of rows of H heads of W numbers: ``[V, HP, …]``.

    With DROP, heads that dropout removes from an edge (``kept``, ``[V, HP]``, is False) are 0 and are not read. EVEN:
    no head or number is padding.
    """
    at = rows.to(tl.int64)[:, None, None] * (H * W) + (h[:, None] * W + c[None, :])[None, :, :]
    valid = ((h < H)[:, None] & (c < W)[None, :])[None, :, :]
    if DROP:
        if EVEN:
            x = tl.load(X + at, mask=kept[:, :, None], other=0.0)
        else:
            x = tl.load(X + at, mask=kept[:, :, None] & valid, other=0.0)
    elif EVEN:
        x = tl.load(X + at)
    else:
        x = tl.load(X + at, mask=valid, other=0.0)
    return x


@triton.jit
def store(X, row, x, h, c, H: tl.constexpr, C: tl.constexpr):
    """Write numbers ``c`` of one row of H heads of C numbers."""
    tl.store(X + row * (H * C) + h[:, None] * C + c[None, :], x, mask=(h < H)[:, None] & (c < C)[None, :])


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
