# mypy: ignore-errors
"""Attention as Triton kernels, with one pass over the edges in each direction; imported on GPUs only.

A program sums one piece of a row (see :class:`Segments`). A separate kernel first bounds the ``a_src`` of each piece,
so the softmax needs no rescaling (LeakyReLU is monotone). Then rows ``z_j`` of several edges are gathered at a time, in
separate lanes, which are summed once after the loop. A head with eight channels is one 32-byte memory sector; heads
that dropout removes from an edge are not loaded.

The gradient of ``a_dst`` needs no pass over edges. With ``P_i = Σ_{s_ij>0} α̃_ij z_j`` and ``q_i = Σ_{s_ij>0} α_ij``
from the forward pass, ``D_i = ⟨g_i, o_i⟩`` and LeakyReLU's slope σ below zero,

    ∂a_dst[i] = ⟨g_i, σ o_i + (1 − σ) P_i⟩ − D_i (σ + (1 − σ) q_i).

With one head, all values of a row are packed into one record, so an edge needs one gather.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from ergnn.engine.dropout import threshold
from ergnn.engine.kernels import Links, Segments, triton_kernels
from ergnn.engine.kernels.torch_attention import Edges, Values
from ergnn.engine.kernels.triton_common import STEPS, Shape

PEAKS = 256
"""Number of values that a program compares at a time."""
PIECES = 8
"""Number of pieces per program of the kernel that finds maxima."""
NARROW = 64.0
"""Up to this range of ``a_src``, its maximum bounds the scores of every row: ``exp(-64)`` does not underflow."""


def _record_width(heads: int, width: int, more: int) -> int:
    """Return the number of gathered values per head; with one head, ``more`` values are appended to each row."""
    return width if heads > 1 else triton.next_power_of_2(width + more)


def _packed(z: Tensor, a: Tensor, record: int) -> Tensor:
    if record == z.size(2):
        return z.contiguous()
    out = z.new_zeros(z.size(0), record)
    out[:, : z.size(2)], out[:, z.size(2)] = z.squeeze(1), a.squeeze(1)
    return out


def _range(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest value of each head."""
    low, high = a.aminmax(dim=0) if a.size(0) else (a.new_zeros(a.size(1)),) * 2
    return low, high


def _pieces(segments: Segments, links: Links) -> tuple[Tensor, ...]:
    return segments.row, segments.begin, segments.end, segments.slot, links.rowptr, links.col


def _dropout(key: Tensor | None, links: Links, p: float) -> tuple[Tensor, int, float]:
    if key is None:
        return links.rowptr, 0, 1.0  # any valid pointer: nothing is dropped
    return key, threshold(p), 1.0 / (1.0 - p)


def forward(values: Values, key: Tensor | None, edges: Edges, train: bool) -> tuple[Tensor, ...]:
    """Return the output, log-denominators, and, if ``train``, P and q for the gradient of ``a_dst``."""
    (z, a_src, a_dst), (links, slope, p) = values, edges
    heads, width = z.shape[1:]
    record = _record_width(heads, width, 1)
    shape = Shape(heads, record)
    segments = links.segments
    out, lse = z.new_empty(links.targets, heads, width), z.new_empty(links.targets, heads)
    positive_out, positive_share = (
        (torch.empty_like(out), torch.empty_like(lse)) if train else (out.new_empty(0), out.new_empty(0))
    )
    count = segments.slots
    part_m, part_l, part_q = (z.new_empty(count, heads) for _ in range(3))
    part_o, part_p = z.new_empty(count, heads, width), z.new_empty(count if train else 0, heads, width)
    drop, limit, scale = _dropout(key, links, p)
    saved = (out, lse, positive_out, positive_share, part_m, part_l, part_q, part_o, part_p)
    padded, pieces = shape.padded, segments.row.numel()
    a_src, largest = a_src.contiguous(), z.new_empty(pieces, heads)
    low, high = _range(a_src)
    triton_kernels.peaks[(triton.cdiv(pieces, PIECES),)](
        segments.row, segments.begin, segments.end, links.col, a_src, low, high, largest, pieces, heads, padded[0],
        max(1, PEAKS // padded[0]), PIECES, links.loops, NARROW, num_warps=1,
    )  # fmt: skip
    triton_kernels.output[(pieces,)](
        *_pieces(segments, links), _packed(z, a_src, record), a_src, a_dst.contiguous(), low, high, largest, drop,
        *saved, limit, scale, heads, width, record, *padded, shape.chunk, STEPS, shape.lanes, slope,
        key is not None, train, links.loops, NARROW, shape.big(links.sources), num_warps=shape.warps,
    )  # fmt: skip
    if count:
        triton_kernels.merge_output[(segments.merged.numel(),)](
            segments.merged, segments.pointer, *saved, scale, heads, width, *padded, train, num_warps=shape.warps
        )
    return out, lse, positive_out, positive_share


def backward(g: Tensor, values: Values, key: Tensor | None, saved: tuple[Tensor, ...], edges: Edges) -> Values:
    """Return the gradients of ``z``, ``a_src`` and ``a_dst``."""
    (z, a_src, a_dst), (links, slope, p) = values, edges
    out, lse, positive_out, positive_share = saved
    heads, width = z.shape[1:]
    record = _record_width(heads, width, 3)
    shape, back = Shape(heads, record, halves=key is not None), links.transposed()
    g, (drop, limit, scale) = g.contiguous(), _dropout(key, links, p)
    d_dst = torch.empty_like(lse)
    records = g.new_empty(links.targets, record if heads == 1 else 3 * heads)
    scaled, (low, high) = g if heads == 1 else torch.empty_like(g), _range(a_src)
    rows = max(1, 1024 // (shape.padded[0] * shape.padded[1]))
    triton_kernels.targets[(triton.cdiv(max(links.targets, 1), rows),)](
        g, out, positive_out, a_dst.contiguous(), lse, positive_share, low, high, d_dst, records, scaled,
        links.targets, scale, heads, width, record, *shape.padded, rows, slope, NARROW, num_warps=4,
    )  # fmt: skip
    segments = back.segments
    d_z, d_src = torch.empty_like(z, memory_format=torch.contiguous_format), z.new_empty(links.sources, heads)
    count = segments.slots
    part_z, part_a = z.new_empty(count, heads, width), z.new_empty(count, heads)
    triton_kernels.sources[(segments.row.numel(),)](
        *_pieces(segments, back), z.contiguous(), a_src.contiguous(), scaled, records, low, high, drop, d_z, d_src,
        part_z, part_a, limit, scale, heads, width, record, *shape.padded, shape.chunk, STEPS, shape.lanes, slope,
        key is not None, links.loops, NARROW, shape.big(links.targets), num_warps=shape.warps,
    )  # fmt: skip
    if count:
        triton_kernels.merge[(segments.merged.numel(),)](
            segments.merged, segments.pointer, part_z, part_a, d_z, d_src, part_z, heads, width, *shape.padded, False,
            num_warps=shape.warps,
        )  # fmt: skip
    return d_z, d_src, d_dst


def derivative(tangents: Values, values: Values, key: Tensor | None, saved: tuple[Tensor, ...], edges: Edges) -> Tensor:
    """Return the derivative of the output along ``(ż, ȧ_src, ȧ_dst)``; see :func:`.triton_kernels.derivative`.

    The part of ``ȧ_dst`` needs no pass over edges: it is ``(1 − σ) ȧ_dst[i] (P_i − q_i o_i)``.
    """
    (z, a_src, a_dst), (links, slope, p) = values, edges
    z_dot, src_dot, dst_dot = tangents
    out, lse, positive_out, positive_share = saved
    if not positive_out.numel():  # not computed outside of training
        positive_out, positive_share = forward(values, key, edges, True)[2:]
    heads, width = z.shape[1:]
    record = _record_width(heads, width, 0)
    shape = Shape(heads, record)
    segments = links.segments
    change = torch.empty_like(out)
    count = segments.slots
    part_m, part_o = z.new_empty(count, heads), z.new_empty(count, heads, width)
    drop, limit, scale = _dropout(key, links, p)
    src_dot = src_dot.contiguous()
    rows = z.new_empty(links.sources, 2, heads, record)  # ż_j + c ȧ_src[j] z_j for c = σ and 1
    for i, factor in enumerate((slope, 1.0)):
        torch.addcmul(z_dot, src_dot.unsqueeze(-1), z, value=factor, out=rows[:, i, :, :width])
    triton_kernels.derivative[(segments.row.numel(),)](
        *_pieces(segments, links), rows, a_src.contiguous(), src_dot, a_dst.contiguous(), lse, out, drop, change,
        part_m, part_o, limit, scale, heads, width, record, *shape.padded, shape.chunk, STEPS, shape.lanes,
        slope, key is not None, links.loops, shape.big(2 * links.sources), num_warps=shape.warps,
    )  # fmt: skip
    if count:
        triton_kernels.merge[(segments.merged.numel(),)](
            segments.merged, segments.pointer, part_o, part_m, change, part_o, out, heads, width, *shape.padded, True,
            num_warps=shape.warps,
        )  # fmt: skip
    above = torch.addcmul(positive_out, positive_share.unsqueeze(-1), out, value=-1.0)
    return change.addcmul_(dst_dot.unsqueeze(-1), above, value=1.0 - slope)
