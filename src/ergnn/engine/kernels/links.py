"""Which source rows each target row reads: a CSR matrix without values, as the kernels take it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.data.csr import row_chunks, targets

SEGMENT = 2048
"""Longer rows are cut, so that a hub is not one program's work."""


@dataclass(frozen=True, eq=False)
class Segments:
    """Rows in pieces, the work of one program each, without atomics: pieces of a row are merged afterwards.

    Args:
        row: ``[pieces]``, the row of each.
        begin, end: its entries.
        slot: where what it sums is kept for merging; -1 is a row in one piece.
        merged: rows of several pieces.
        pointer: ``[merged + 1]``, their slots.
        slots: how many there are.
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
        sources: how many source rows there are.
        loops: link each row to itself exactly once: entries of ``col`` that do are skipped, and one is added. For
            square matrices only.
        undirected: whether the matrix is its own transpose.
    """

    def __init__(
        self, rowptr: Tensor, col: Tensor, sources: int, loops: bool = False, undirected: bool = False
    ) -> None:
        self.rowptr, self.col, self.sources, self.loops = rowptr, col, sources, loops
        self.targets = int(rowptr.numel()) - 1
        self._transposed: Links | None = self if undirected else None
        self._degree: Tensor | None = None
        self._own: tuple[Tensor, Tensor] | None = None
        self._segments: dict[int, Segments] = {}

    def with_loops(self) -> Links:
        """The same lists, each row linked to itself."""
        looped = Links(self.rowptr, self.col, self.sources, True)
        if self._transposed is not None:
            other = looped if self._transposed is self else Links(*self._transposed._parts(), True)
            looped._transposed, other._transposed = other, looped
        return looped

    def _parts(self) -> tuple[Tensor, Tensor, int]:
        return self.rowptr, self.col, self.sources

    def transposed(self) -> Links:
        """The target rows of each source row; made once, a run of rows at a time."""
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
        """``[targets]``, how many source rows each target row reads."""
        if self._degree is None:
            self._degree = self.rowptr.diff()
            if self.loops:
                rows, count = self.own_rows()
                self._degree = (self._degree + 1).index_add_(0, rows, -count)
        return self._degree

    def own_rows(self) -> tuple[Tensor, Tensor]:
        """Rows with entries of ``col`` that link them to themselves, and how many; found once."""
        if self._own is None:
            found = [self.rowptr[:0]]
            for row, stop, first, last in row_chunks(self.rowptr):
                target = targets(self.rowptr[row : stop + 1]).add_(row)
                found.append(target[self.col[first:last] == target])
            self._own = torch.unique_consecutive(torch.cat(found), return_counts=True)
        return self._own

    def segments(self, parts: int = 1) -> Segments:
        """Rows cut into pieces of at most ``SEGMENT`` entries; made once.

        With ``parts`` = 2, all pieces that read the first half of the source rows come before those that read the
        second, so that what is gathered stays in a cache of half the size. This needs lists in ascending order;
        others are not divided.
        """
        if parts not in self._segments:
            first, last = self.rowptr[:-1], self.rowptr[1:]
            middle = self._halves() if parts == 2 else None
            cuts = [(first, last)] if middle is None else [(first, middle), (middle, last)]
            self._segments[parts] = _cut(cuts, SEGMENT, torch.int32 if self.col.numel() < 2**31 - 2**12 else torch.long)
        return self._segments[parts]

    def _halves(self) -> Tensor | None:
        """Where each row's entries reach the second half of the source rows; None where a row is not ascending."""
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


def _cut(cuts: list[tuple[Tensor, Tensor]], most: int, index: torch.dtype) -> Segments:
    rows, device = cuts[0][0].numel(), cuts[0][0].device
    size = torch.stack([last - first for first, last in cuts])
    pieces = (size + most - 1) // most
    pieces[0] += pieces.sum(0) == 0  # a row without entries is a piece too
    each = pieces.flatten()
    number = torch.repeat_interleave(torch.arange(each.numel(), device=device), each)
    within = torch.arange(number.numel(), device=device) - (each.cumsum(0) - each)[number]
    length = ((size + pieces.clamp(min=1) - 1) // pieces.clamp(min=1)).flatten()[number]
    first = torch.cat([first for first, _ in cuts])[number]
    last = torch.cat([last for _, last in cuts])[number]
    begin = torch.minimum(first + within * length, last)
    end = torch.minimum(begin + length, last)
    row = number % rows
    # the longest pieces of each part first: programs that run at the same time end at about the same time
    order = torch.argsort((number // rows) * (most + 1) + most - (end - begin), stable=True)
    row, begin, end = row[order], begin[order], end[order]
    total = pieces.sum(0)
    shared = (total > 1)[row].nonzero().flatten()
    slot = torch.full_like(row, -1)
    slot[shared[torch.argsort(row[shared], stable=True)]] = torch.arange(shared.numel(), device=device)
    merged = (total > 1).nonzero().flatten()
    pointer = torch.cat([total.new_zeros(1), total[merged].cumsum(0)])
    row, slot, merged, pointer = (value.to(torch.int32) for value in (row, slot, merged, pointer))
    return Segments(row, begin.to(index), end.to(index), slot, merged, pointer, int(shared.numel()))
