"""Large graphs: edges in CSR form, where a dense ``edge_index`` would be too large, and memory-mapped arrays."""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ergnn.config.files import wrap_errors
from ergnn.data.hashing import mix

CHUNK_EDGES = 1 << 24
"""Edges per chunk when all edges are visited."""

_ARRAYS: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()
"""Arrays behind mapped tensors, by address; the tensors keep them alive."""


class CsrEdges(Tensor):
    """An ``edge_index`` in CSR form: the sources of edges into ``v`` are ``col[rowptr[v]:rowptr[v + 1]]``.

    Shape, dtype, device and moves between devices need no dense copy. Any other operation first converts it to the
    dense tensor ``[2, edges]``: 16 bytes per edge instead of 4. ``undirected`` says whether each edge is present in
    both directions; None if not known yet.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    rowptr: Tensor
    col: Tensor
    undirected: bool | None

    @staticmethod
    def __new__(cls, rowptr: Tensor, col: Tensor, undirected: bool | None = None) -> CsrEdges:
        return Tensor._make_wrapper_subclass(cls, (2, col.numel()), dtype=torch.long, device=col.device)

    def __init__(self, rowptr: Tensor, col: Tensor, undirected: bool | None = None) -> None:
        self.rowptr, self.col, self.undirected = rowptr, col, undirected

    def materialize(self) -> Tensor:
        """Return the edges as a dense tensor ``[2, edges]``, sorted by target."""
        return torch.stack([self.col.long(), targets(self.rowptr)])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") in (None, torch.long):
            edges = args[0]
            return cls(edges.rowptr.to(kwargs["device"]), edges.col.to(kwargs["device"]), edges.undirected)
        if func is torch.ops.aten.clone.default:
            return cls(args[0].rowptr.clone(), args[0].col.clone(), args[0].undirected)
        args, kwargs = tree_map_only(CsrEdges, CsrEdges.materialize, (args, kwargs))
        return func(*args, **kwargs)

    def numpy(self, *, force: bool = False) -> Any:
        return self.materialize().numpy(force=force)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return CsrEdges, (self.rowptr, self.col, self.undirected)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"CsrEdges(nodes={self.rowptr.numel() - 1}, edges={self.col.numel()}, device={self.col.device})"


def targets(rowptr: Tensor) -> Tensor:
    """Return the row of each entry of a CSR matrix."""
    rows = torch.arange(rowptr.numel() - 1, device=rowptr.device)
    return torch.repeat_interleave(rows, rowptr.diff())


def pointers(index: Tensor, size: int) -> Tensor:
    """Return the CSR row pointers for the row indices of all entries."""
    count = torch.bincount(index, minlength=size)
    return torch.cat([count.new_zeros(1), count.cumsum(0)])


def row_entries(rowptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of entries of some CSR rows, and the position of each entry in ``rows`` and in the matrix."""
    count = rowptr[rows + 1] - rowptr[rows]
    row = torch.repeat_interleave(torch.arange(rows.numel(), device=rows.device), count)
    start = rowptr[rows] - (count.cumsum(0) - count)
    return count, row, start[row] + torch.arange(row.numel(), device=row.device)


def row_chunks(rowptr: Tensor, most: int = CHUNK_EDGES) -> Iterator[tuple[int, int, int, int]]:
    """Split rows into chunks of about ``most`` entries: first and last row, first and last entry (end exclusive)."""
    ends = rowptr.cpu()
    rows, row = ends.numel() - 1, 0
    while row < rows:
        stop = int(torch.searchsorted(ends, ends[row] + most, right=True)) - 1
        stop = min(max(stop, row + 1), rows)
        yield row, stop, int(ends[row]), int(ends[stop])
        row = stop


def is_undirected(rowptr: Tensor, col: Tensor) -> bool:
    """Return whether the multiset of edges stays the same when every edge is reversed.

    Compares the sum of a 64-bit hash of (source, target) over all edges with that of (target, source): equal sets
    have equal sums, and different ones collide with probability 2⁻⁶⁴.
    """
    there = back = torch.zeros((), dtype=torch.long, device=col.device)
    for row, stop, first, last in row_chunks(rowptr):
        target = targets(rowptr[row : stop + 1]) + row
        source = col[first:last].long()
        there, back = there + pair_hash(source, target).sum(), back + pair_hash(target, source).sum()
    return bool(there == back)


def pair_hash(a: Tensor, b: Tensor) -> Tensor:
    """Hash a pair with the finalizer of SplitMix64."""
    return mix(a * 0x1F123BB5159A55E5 + b * 0x5851F42D4C957F2D)


def mapped(path: str | Path) -> Tensor:
    """Map a ``.npy`` file as a read-only tensor; only the parts that are used are loaded into memory.

    A graph's ``x`` may thus be larger than memory: ``Graph.from_csr(mapped("x.npy"), rowptr, col, y)``.
    """
    with wrap_errors(path, "a .npy file with one array of numbers"), warnings.catch_warnings():
        array = np.lib.format.open_memmap(path, mode="r")
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    _ARRAYS[tensor.untyped_storage().data_ptr()] = array
    return tensor


def release(tensor: Tensor) -> None:
    """Drop the pages of a mapped file from this process; they are read again when needed.

    Pages that were read count as memory of the process until the system reclaims them. Does nothing for tensors that
    are not memory-mapped.
    """
    array = _ARRAYS.get(tensor.untyped_storage().data_ptr())
    pages = getattr(array, "_mmap", None)
    if pages is not None and hasattr(pages, "madvise"):  # not on Windows
        pages.madvise(mmap.MADV_DONTNEED)
