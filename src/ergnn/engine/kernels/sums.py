"""Sums over the neighbors of each row; a linear operation, so the gradient is again such a sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ergnn.data.csr import row_chunks
from ergnn.engine.kernels import runs_on_triton
from ergnn.engine.kernels.links import Links

CHUNK_EDGES = 1 << 22
"""Number of edges per chunk on a CPU."""


def neighbor_sum(h: Tensor, links: Links) -> Tensor:
    """Compute ``Σ_j h_j`` over the source rows of each target row, ``[targets, width]``."""
    out: Tensor = _Sum.apply(h, links)
    return out


class _Sum(Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, links: Links) -> Tensor:
        ctx.links = links
        if runs_on_triton(h):
            from ergnn.engine.kernels import triton_sums

            return triton_sums.neighbor_sum(h, links)
        return _plain(h, links)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return neighbor_sum(grad.contiguous(), ctx.links.transposed()), None


def _plain(h: Tensor, links: Links) -> Tensor:
    out = h.new_empty(links.targets, h.size(1))
    for row, stop, first, last in row_chunks(links.rowptr, CHUNK_EDGES):
        col = links.col[first:last]  # no copy, also of a memory-mapped file; the product uses 32-bit indices
        start = (links.rowptr[row : stop + 1] - first).to(col.dtype)
        shape = (stop - row, links.sources)
        matrix = torch.sparse_csr_tensor(start, col, h.new_ones(last - first), shape, check_invariants=False)
        out[row:stop] = matrix @ h
    if links.loops:
        out += h
        looped, count = links.self_loops
        out.index_add_(0, looped, h[looped] * -count.to(h.dtype).unsqueeze(1))
    return out
