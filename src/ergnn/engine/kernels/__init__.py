"""Attention and sums over the neighbors in a large graph, without tensors that have an entry per edge.

Layers call :mod:`.attention` and :func:`neighbor_sum`. On a GPU, these run Triton kernels (:mod:`.triton_attention`,
:mod:`.triton_sums`, imported only there). On a CPU, and for dtypes other than float32, they run plain PyTorch on chunks
of edges (:mod:`.torch_attention`), with the same dropout bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from torch.autograd import Function

from ergnn.data.csr import is_undirected, row_chunks, targets

HAS_TRITON = find_spec("triton") is not None
ON_CPU = False
"""Whether to run the kernels on CPU tensors too; for tests with ``TRITON_INTERPRET=1``."""
CHUNK_EDGES = 1 << 22
"""Number of edges per chunk of a sum on a CPU."""
SEGMENT = 2048
"""Maximum number of entries per program; longer rows are split, so that high-degree nodes run in parallel."""


def runs_on_triton(h: Tensor) -> bool:
    """Return whether to use the Triton kernels: for float32 on a GPU, if Triton is installed (as with CUDA wheels)."""
    return (h.is_cuda or ON_CPU) and h.dtype == torch.float32 and HAS_TRITON


@dataclass(frozen=True, eq=False)
class Segments:
    """Rows split into pieces, one per program; the results of pieces are merged afterwards, without atomics.

    Args:
        row: ``[pieces]``, row of each piece.
        begin, end: range of entries of each piece.
        slot: position of the partial result of each piece; -1 if the row has one piece.
        merged: rows with several pieces.
        pointer: ``[merged + 1]``, ranges of the slots of these rows.
        slots: number of slots.
    """

    row: Tensor
    begin: Tensor
    end: Tensor
    slot: Tensor
    merged: Tensor
    pointer: Tensor
    slots: int


class Links:
    """The source rows of each target row.

    Args:
        rowptr: ``[targets + 1]``, int64.
        col: ``[links]``, int32.
        sources: number of source rows.
        loops: whether each row has exactly one self-loop: those in ``col`` are skipped, and one is added. For square
            matrices only.
        undirected: whether the matrix is symmetric; if None, this is checked when it is needed.
    """

    def __init__(
        self, rowptr: Tensor, col: Tensor, sources: int, loops: bool = False, undirected: bool | None = False
    ) -> None:
        self.rowptr, self.col, self.sources, self.loops = rowptr, col, sources, loops
        self.targets = int(rowptr.numel()) - 1
        self.undirected = undirected
        self._transposed: Links | None = None
        self._transpose_of: ReferenceType[Links] | None = None  # weak: a cycle would keep lists on a GPU for long

    def transposed(self) -> Links:
        """Return the target rows of each source row, computed in chunks and cached."""
        if self.undirected is None:
            self.undirected = is_undirected(self.rowptr, self.col)
        if self.undirected:
            return self
        original = None if self._transpose_of is None else self._transpose_of()
        if original is not None:
            return original
        if self._transposed is None:
            count = torch.zeros(self.sources, dtype=torch.long, device=self.col.device)
            for _, _, first, last in row_chunks(self.rowptr):
                count += torch.bincount(self.col[first:last], minlength=self.sources)
            rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
            free, col = rowptr[:-1].clone(), torch.empty_like(self.col)
            for row, stop, first, last in row_chunks(self.rowptr):
                source, order = torch.sort(self.col[first:last], stable=True)
                target = targets(self.rowptr[row : stop + 1])[order] + row
                count = torch.bincount(source, minlength=self.sources)
                rank = torch.arange(last - first, device=col.device) - (count.cumsum(0) - count)[source]
                col[free[source] + rank] = target.to(col.dtype)
                free += count
            self._transposed = Links(rowptr, col, self.targets, self.loops)
            self._transposed._transpose_of = ref(self)
        return self._transposed

    @cached_property
    def longest(self) -> int:
        """The largest number of entries of a row."""
        return int(self.rowptr.diff().max()) if self.targets else 0

    @cached_property
    def segments(self) -> Segments:
        """The rows split into pieces of at most ``SEGMENT`` entries; a row without entries has one piece."""
        size, device = self.rowptr.diff(), self.rowptr.device
        pieces = ((size + SEGMENT - 1) // SEGMENT).clamp(min=1)
        row = torch.repeat_interleave(torch.arange(self.targets, device=device), pieces)
        within = torch.arange(row.numel(), device=device) - (pieces.cumsum(0) - pieces)[row]
        length = ((size + pieces - 1) // pieces)[row]
        begin = torch.minimum(self.rowptr[:-1][row] + within * length, self.rowptr[1:][row])
        end = torch.minimum(begin + length, self.rowptr[1:][row])
        order = torch.argsort(begin - end, stable=True)  # longest first, so that concurrent programs take similar time
        row, begin, end = row[order], begin[order], end[order]
        shared = (pieces > 1)[row].nonzero().flatten()
        slot = torch.full_like(row, -1)
        slot[shared[torch.argsort(row[shared], stable=True)]] = torch.arange(shared.numel(), device=device)
        merged = (pieces > 1).nonzero().flatten()
        pointer = torch.cat([pieces.new_zeros(1), pieces[merged].cumsum(0)])
        row, slot, merged, pointer = (value.to(torch.int32) for value in (row, slot, merged, pointer))
        index = torch.int32 if self.col.numel() < 2**31 - 2**12 else torch.long
        return Segments(row, begin.to(index), end.to(index), slot, merged, pointer, int(shared.numel()))


def neighbor_sum(h: Tensor, links: Links) -> Tensor:
    """Compute ``Σ_j h_j`` over the source rows of each target row, ``[targets, width]``."""
    out: Tensor = _Sum.apply(h, links)
    return out


class _Sum(Function):
    """The sum, a linear operation: its gradient is again such a sum."""

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
        value = (col != targets(start) + row).to(h.dtype) if links.loops else h.new_ones(last - first)
        matrix = torch.sparse_csr_tensor(start, col, value, shape, check_invariants=False)
        out[row:stop] = matrix @ h
    return out.add_(h) if links.loops else out
