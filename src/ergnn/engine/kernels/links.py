"""The source rows of each target row: a CSR matrix without values, the input format of the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from ergnn.data.csr import row_chunks, targets

SEGMENT = 2048
"""Maximum number of entries per program; longer rows are split, so that high-degree nodes run in parallel."""


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
        loops: whether each row has exactly one self-loop: self-loops in ``col`` are skipped, and one is added. For
            square matrices only.
        undirected: whether the matrix is symmetric.
    """

    def __init__(
        self, rowptr: Tensor, col: Tensor, sources: int, loops: bool = False, undirected: bool = False
    ) -> None:
        self.rowptr, self.col, self.sources, self.loops = rowptr, col, sources, loops
        self.targets = int(rowptr.numel()) - 1
        self._undirected = undirected
        self._transposed: Links | None = None
        self._transpose_of: ReferenceType[Links] | None = None  # weak: a cycle would keep lists on a GPU for long

    def transposed(self) -> Links:
        """Return the target rows of each source row, computed in chunks and cached."""
        if self._undirected:
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
    def degree(self) -> Tensor:
        """The number of source rows of each target row, ``[targets]``."""
        size = self.rowptr.diff()
        if not self.loops:
            return size
        rows, count = self.self_loops
        return (size + 1).index_add_(0, rows, -count)

    @cached_property
    def self_loops(self) -> tuple[Tensor, Tensor]:
        """The rows with self-loops in ``col``, and their number of self-loops."""
        rows = [self.rowptr[:0]]
        for row, stop, first, last in row_chunks(self.rowptr):
            target = targets(self.rowptr[row : stop + 1]).add_(row)
            rows.append(target[self.col[first:last] == target])
        return torch.unique_consecutive(torch.cat(rows), return_counts=True)

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
