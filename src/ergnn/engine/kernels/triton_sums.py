# mypy: ignore-errors
"""Triton kernels for sums over neighbors; imported on GPUs only."""

from __future__ import annotations

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from ergnn.engine.kernels import Links
from ergnn.engine.kernels.triton_common import STEPS, Shape

SHORT = 16
"""Rows of at most this number of entries are summed several per program, if most have only a few."""
ROWS = 16
"""Number of short rows per program."""
WIDEST = 64
"""Number of columns summed at a time; these columns of all rows about fit into a GPU's L2 cache."""


@triton.jit
def _sum(
    ROW, BEGIN, END, SLOT, ROWPTR, COL, X, OUT, PART, width,
    B: tl.constexpr, U: tl.constexpr, V: tl.constexpr, LOOPS: tl.constexpr,
):  # fmt: skip
    s = tl.program_id(0)
    row, begin, end, slot = tl.load(ROW + s), tl.load(BEGIN + s), tl.load(END + s), tl.load(SLOT + s)
    f, v = tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, V)
    acc = tl.zeros([V, B], tl.float32)
    for e in range(begin, end, U * V):
        for u in tl.static_range(U):
            ok = e + u * V + v < end
            j = tl.load(COL + e + u * V + v, mask=ok, other=0)
            if LOOPS:
                ok = ok & (j != row)
            at = j.to(tl.int64)[:, None] * width + f[None, :]
            acc += tl.load(X + at, mask=ok[:, None] & (f < width)[None, :], other=0.0)
    total = tl.sum(acc, 0)
    at = row.to(tl.int64)
    if LOOPS:
        loop = tl.load(X + at * width + f, mask=f < width, other=0.0)
        total += tl.where(tl.load(ROWPTR + at) == begin, loop, 0.0)
    if slot < 0:
        tl.store(OUT + at * width + f, total, mask=f < width)
    else:
        tl.store(PART + slot.to(tl.int64) * width + f, total, mask=f < width)


@triton.jit(do_not_specialize=["rows"])
def _sum_short(ROWPTR, COL, X, OUT, rows, width, R: tl.constexpr, B: tl.constexpr, LOOPS: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    f = tl.program_id(1) * B + tl.arange(0, B)
    inside, valid = r < rows, (f < width)[None, :]
    begin = tl.load(ROWPTR + r, mask=inside, other=0)
    size = tl.load(ROWPTR + r + 1, mask=inside, other=0) - begin
    place = r.to(tl.int64)[:, None] * width + f[None, :]
    total = tl.zeros([R, B], tl.float32)
    for e in range(0, tl.max(size, 0)):
        j = tl.load(COL + begin + e, mask=e < size, other=0)
        ok = e < size
        if LOOPS:
            ok = ok & (j != r)
        at = j.to(tl.int64)[:, None] * width + f[None, :]
        total += tl.load(X + at, mask=ok[:, None] & valid, other=0.0)
    if LOOPS:
        total += tl.load(X + place, mask=inside[:, None] & valid, other=0.0)
    tl.store(OUT + place, total, mask=inside[:, None] & valid)


@triton.jit
def _merge(ROW, POINTER, PART, OUT, width, B: tl.constexpr):
    s = tl.program_id(0)
    row, first = tl.load(ROW + s).to(tl.int64), tl.load(POINTER + s).to(tl.int64)
    pieces = tl.load(POINTER + s + 1) - tl.load(POINTER + s)
    f = tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for t in range(0, pieces):
        total += tl.load(PART + (first + t) * width + f, mask=f < width, other=0.0)
    tl.store(OUT + row * width + f, total, mask=f < width)


def neighbor_sum(h: Tensor, links: Links) -> Tensor:
    width = h.size(1)
    if width < WIDEST and width & (width - 1):  # align rows for wide loads
        padded = F.pad(h, (0, triton.next_power_of_2(width) - width))
        return neighbor_sum(padded, links)[:, :width].contiguous()
    block = min(WIDEST, triton.next_power_of_2(width))
    columns = triton.cdiv(width, block)
    if links.col.numel() <= 2 * links.targets and links.longest <= SHORT:
        out = h.new_empty(links.targets, width)
        grid = (triton.cdiv(links.targets, ROWS), columns)
        _sum_short[grid](
            links.rowptr, links.col, h.contiguous(), out, links.targets, width, ROWS, block, links.loops, num_warps=4
        )
        return out
    shape, segments = Shape(1, block), links.segments
    out, pieces = h.new_empty(links.targets, width), h.new_empty(segments.slots, width)
    _sum[(segments.row.numel(), columns)](
        segments.row, segments.begin, segments.end, segments.slot, links.rowptr, links.col, h.contiguous(), out, pieces,
        width, block, STEPS, shape.lanes, links.loops, num_warps=1,
    )  # fmt: skip
    if segments.slots:
        grid = (segments.merged.numel(), columns)
        _merge[grid](segments.merged, segments.pointer, pieces, out, width, block, num_warps=1)
    return out
