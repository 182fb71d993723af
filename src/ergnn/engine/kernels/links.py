"""The source rows of each target row: a CSR matrix without values, the input format of the kernels."""

from __future__ import annotations

from dataclasses import dataclass

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
        one_each: whether each row has exactly one entry.
    """

    def __init__(
        self,
        rowptr: Tensor,
        col: Tensor,
        sources: int,
        loops: bool = False,
        undirected: bool = False,
        one_each: bool = False,
    ) -> None:
        self.rowptr, self.col, self.sources, self.loops, self.one_each = rowptr, col, sources, loops, one_each
        self.targets = int(rowptr.numel()) - 1
        self._transposed: Links | None = self if undirected else None
        self._degree: Tensor | None = None
        self._own: tuple[Tensor, Tensor] | None = None
        self._segments: dict[int, Segments] = {}

    def with_loops(self) -> Links:
        """Return the same links with one self-loop per row."""
        looped = Links(self.rowptr, self.col, self.sources, True)
        if self._transposed is not None:
            other = looped if self._transposed is self else Links(*self._transposed._parts(), True)
            looped._transposed, other._transposed = other, looped
        return looped

    def _parts(self) -> tuple[Tensor, Tensor, int]:
        return self.rowptr, self.col, self.sources

    def transposed(self) -> Links:
        """Return the target rows of each source row, computed in chunks and cached."""
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
            self._transposed._transposed = self
        return self._transposed

    def degree(self) -> Tensor:
        """Return the number of source rows of each target row, ``[targets]``."""
        if self._degree is None:
            self._degree = self.rowptr.diff()
            if self.loops:
                rows, count = self.self_loops()
                self._degree = (self._degree + 1).index_add_(0, rows, -count)
        return self._degree

    def self_loops(self) -> tuple[Tensor, Tensor]:
        """Return the rows with self-loops in ``col``, and their number of self-loops; cached."""
        if self._own is None:
            found = [self.rowptr[:0]]
            for row, stop, first, last in row_chunks(self.rowptr):
                target = targets(self.rowptr[row : stop + 1]).add_(row)
                found.append(target[self.col[first:last] == target])
            self._own = torch.unique_consecutive(torch.cat(found), return_counts=True)
        return self._own

    def segments(self, parts: int = 1) -> Segments:
        """Return the rows split into pieces of at most ``SEGMENT`` entries; cached.

        With ``parts`` = 2, all pieces with sources in the first half of the source rows precede those in the second
        half, which halves the cache size that gathered rows need. Rows must be in ascending order; otherwise, they are
        not divided.
        """
        if parts not in self._segments:
            first, last = self.rowptr[:-1], self.rowptr[1:]
            middle = self._halves() if parts == 2 else None
            cuts = [(first, last)] if middle is None else [(first, middle), (middle, last)]
            self._segments[parts] = _cut(cuts, SEGMENT, torch.int32 if self.col.numel() < 2**31 - 2**12 else torch.long)
        return self._segments[parts]

    def _halves(self) -> Tensor | None:
        """Return the position in each row where the second half of the source rows begins; None if not ascending."""
        middle = self.rowptr[:-1].clone()
        for row, stop, first, last in row_chunks(self.rowptr):
            part, start = self.col[first:last], self.rowptr[row : stop + 1] - first
            rises = part[1:] >= part[:-1]
            rises[(start[1:-1] - 1)[(start[1:-1] > 0) & (start[1:-1] < last - first)]] = True
            if not bool(rises.all()):
                return None
            below = torch.cat([start.new_zeros(1), (part < self.sources // 2).cumsum(0)])
            middle[row:stop] += below[start[1:]] - below[start[:-1]]
        return middle


def _cut(cuts: list[tuple[Tensor, Tensor]], max_size: int, index: torch.dtype) -> Segments:
    """Split ranges of entries, one pair of begin and end tensors per part, into pieces of at most ``max_size``."""
    rows, device = cuts[0][0].numel(), cuts[0][0].device
    size = torch.stack([last - first for first, last in cuts])
    pieces = (size + max_size - 1) // max_size
    pieces[0] += pieces.sum(0) == 0  # a row without entries has one piece
    each = pieces.flatten()
    number = torch.repeat_interleave(torch.arange(each.numel(), device=device), each)
    within = torch.arange(number.numel(), device=device) - (each.cumsum(0) - each)[number]
    length = ((size + pieces.clamp(min=1) - 1) // pieces.clamp(min=1)).flatten()[number]
    first = torch.cat([first for first, _ in cuts])[number]
    last = torch.cat([last for _, last in cuts])[number]
    begin = torch.minimum(first + within * length, last)
    end = torch.minimum(begin + length, last)
    row = number % rows
    # longest pieces of each part first, so that concurrent programs take similar time
    order = torch.argsort((number // rows) * (max_size + 1) + max_size - (end - begin), stable=True)
    row, begin, end = row[order], begin[order], end[order]
    total = pieces.sum(0)
    shared = (total > 1)[row].nonzero().flatten()
    slot = torch.full_like(row, -1)
    slot[shared[torch.argsort(row[shared], stable=True)]] = torch.arange(shared.numel(), device=device)
    merged = (total > 1).nonzero().flatten()
    pointer = torch.cat([total.new_zeros(1), total[merged].cumsum(0)])
    row, slot, merged, pointer = (value.to(torch.int32) for value in (row, slot, merged, pointer))
    return Segments(row, begin.to(index), end.to(index), slot, merged, pointer, int(shared.numel()))
