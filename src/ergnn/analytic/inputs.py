"""The features of a graph as input of feature maps: rows are scaled, and many columns are sketched.

Columns that are numbers of different scales are found and standardized, so that none dominates the rows. Bags of words
and embeddings are left as they are: the columns of each have one scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from ergnn.data.csr import pointers, release, targets
from ergnn.data.graph import Graph, csr_tensor
from ergnn.data.scale import CLIP, TEXT_LENGTH, Scale

FLOAT64_ENTRIES = 1 << 25
"""Graphs with more feature entries (nodes × features) are propagated in float32."""

NONZEROS = 3
"""Entries per row of a sketch."""

SKETCH_SEED = 7
COPIED_BYTES = 1 << 28
"""Dense features are converted once if they take at most this many bytes, otherwise by each product."""

ROW_BLOCK = 1 << 16
"""Rows of dense features to convert at a time."""

RELEASE_BYTES = 1 << 28
"""Pages of mapped features are released after this many bytes have been read."""

FEW_COLUMNS = 64
"""Features with at most this many columns are columns of a table."""
NUMBER_RATIO = 20.0
"""A column whose nonzero entries are this many times as large as those of most columns is no count of a word."""
DENSE = 0.9
SPREAD_RATIO = 10.0
"""Dense columns are numbers of different scales if the largest tenth is this many times as large as the smallest."""
WORD_CLIP = 2.0
"""Standardized words beyond this are set to it, so that a rare word counts little more than a frequent one."""
SAMPLED_ROWS = 1 << 16
"""Columns are judged and scaled by at most this many rows, evenly spaced."""


@dataclass(frozen=True)
class ColumnScales:
    """Columns to standardize, and how; the other columns are words, whose rows are scaled to a fixed length.

    Args:
        columns: the columns, ascending.
        scales: their scales.
        clip: bound of standardized values.
        square: typical squared length of a row; 0 if lengths of rows say nothing.
    """

    columns: tuple[int, ...]
    scales: tuple[Scale, ...]
    clip: float = CLIP
    square: float = 0.0

    @classmethod
    def fit(cls, x: Tensor, columns: Sequence[int] | None = None, words: bool = False) -> ColumnScales | None:
        """Choose the scale of each column that is a number; None if there are none.

        Args:
            x: features of all nodes, dense or CSR.
            columns: columns that are numbers; by default those of :func:`number_columns`.
            words: whether they are words.
        """
        columns = number_columns(x) if columns is None else columns
        if not len(columns):
            return None
        values = _columns(x, columns, _step(x))
        scales = tuple(Scale.fit(values[:, i]) for i in range(len(columns)))
        if words:
            return cls(tuple(columns), scales, WORD_CLIP)
        return cls(tuple(columns), scales, square=len(columns) + TEXT_LENGTH**2 * (len(columns) < x.size(1)))

    def to_tensor(self) -> Tensor:
        """Return column, center, scale, unit, ``clip`` and ``square``, ``[columns, 6]``."""
        pairs, same = zip(self.columns, self.scales, strict=True), (self.clip, self.square)
        return torch.tensor([(c, s.center, s.scale, s.unit, *same) for c, s in pairs], dtype=torch.float64)

    @classmethod
    def from_tensor(cls, rows: Tensor) -> ColumnScales:
        """Restore what :meth:`to_tensor` returned; in earlier versions without ``clip`` and ``square``."""
        scales = tuple(Scale(*values) for values in rows[:, 1:4].tolist())
        return cls(tuple(int(c) for c in rows[:, 0]), scales, *rows[0, 4:].tolist())

    def apply(self, x: Tensor) -> Tensor:
        """Return the scaled features: dense if all columns are scaled, otherwise dense or CSR as ``x``."""
        if not self.columns:
            return x
        values = _columns(x, self.columns)
        standardized = [s.apply(values[:, i], self.clip)[:, :1] for i, s in enumerate(self.scales)]
        scaled = np.concatenate(standardized, 1).astype(np.float32)
        if len(self.columns) == x.size(1):
            return torch.from_numpy(scaled).to(x.device)
        words = _scipy(x)
        words = words @ scipy.sparse.diags(~np.isin(np.arange(x.size(1)), self.columns) * np.float32(1))
        length = np.sqrt(np.asarray(words.multiply(words).sum(1)))
        words = words.multiply(TEXT_LENGTH / np.maximum(length, np.finfo(np.float32).tiny)).tocsr()
        row = np.repeat(np.arange(len(scaled)), len(self.columns))
        numbers = scipy.sparse.csr_matrix(
            (scaled.ravel(), (row, np.tile(self.columns, len(scaled)))), shape=words.shape, dtype=np.float32
        )
        joined = (words + numbers).tocsr()
        if x.layout != torch.sparse_csr:
            return torch.from_numpy(joined.toarray()).to(x.device)
        return csr_tensor(joined.astype(np.float32)).to(x.device)


AS_THEY_ARE = ColumnScales((), ())
"""For features that are scaled already."""


def number_columns(x: Tensor) -> list[int]:
    """Return the columns that are numbers of different scales; none for bags of words and embeddings."""
    if x.layout == torch.sparse_csr:
        sample = _scipy(x, _step(x)).astype(np.float64)
        rows, count = sample.shape[0], np.bincount(sample.indices, sample.data != 0, minlength=x.size(1))
        squares = np.bincount(sample.indices, sample.data**2, minlength=x.size(1))
    else:
        dense = x[:: _step(x)]
        rows, count = dense.size(0), (dense != 0).sum(0).cpu().numpy()
        squares = torch.linalg.vector_norm(dense, dim=0, dtype=torch.float64).square().cpu().numpy()
    used = np.flatnonzero(count)
    if not used.size:
        return []
    density = count.sum() / (rows * x.size(1))
    if x.size(1) <= FEW_COLUMNS and rows > 1:
        return list(range(x.size(1)))
    size = np.sqrt(squares[used] / count[used])
    low, middle, high = np.quantile(size, [0.1, 0.5, 0.9])
    if density >= DENSE and high > SPREAD_RATIO * low:
        return list(range(x.size(1)))
    return used[size > NUMBER_RATIO * middle].tolist()


def _step(x: Tensor) -> int:
    """Return every how many rows are sampled."""
    return max(1, -(-x.size(0) // SAMPLED_ROWS))


def _scipy(x: Tensor, step: int = 1) -> scipy.sparse.csr_matrix:
    if x.layout != torch.sparse_csr:
        return scipy.sparse.csr_matrix(x[::step].cpu().numpy())
    values, column, start = (part.cpu().numpy() for part in (x.values(), x.col_indices(), x.crow_indices()))
    return scipy.sparse.csr_matrix((values, column, start), tuple(x.shape))[::step]


def _columns(x: Tensor, columns: Sequence[int], step: int = 1) -> np.ndarray:
    """Return some columns as float64."""
    if x.layout == torch.sparse_csr:
        return _scipy(x, step)[:, list(columns)].toarray().astype(np.float64)
    return x[::step, list(columns)].cpu().double().numpy()


class Sketch:
    """A sparse random sign matrix P ``[width, size]``, with three entries of ±1/√3 per row in random columns.

    ``E[P Pᵀ] = I``, so ``X P`` preserves the inner products of rows in expectation (Kane and Nelson, 2014). Since P
    acts on columns and S on rows, ``S (X P) = (S X) P``. All learners use the same P for the same width and size.
    """

    def __init__(self, width: int, size: int, device: torch.device | str = "cpu") -> None:
        generator = torch.Generator().manual_seed(SKETCH_SEED)
        column = torch.randint(size, (width, NONZEROS), generator=generator)
        sign = torch.randint(2, (width, NONZEROS), generator=generator).double().mul_(2).sub_(1)
        self.width, self.size = width, size
        self.column, self.sign = column.to(device), (sign / NONZEROS**0.5).to(device)

    def columns(self, first: int, last: int, dtype: torch.dtype) -> Tensor:
        """Compute ``P[:, first:last]``, dense."""
        row = torch.arange(self.width, device=self.column.device).unsqueeze(1).expand_as(self.column)
        inside = (self.column >= first) & (self.column < last)
        out = torch.zeros(self.width, last - first, dtype=dtype, device=self.column.device)
        index = (row[inside], self.column[inside] - first)
        return out.index_put_(index, self.sign[inside].to(dtype), accumulate=True)

    def matmul(self, w: Tensor) -> Tensor:
        """Compute ``P w``."""
        return (self.sign.to(w.dtype).unsqueeze(2) * w[self.column]).sum(1)

    def t_matmul(self, q: Tensor) -> Tensor:
        """Compute ``Pᵀ q``."""
        out = q.new_zeros(self.size, q.size(1))
        for j in range(NONZEROS):
            out.index_add_(0, self.column[:, j], self.sign[:, j, None].to(q.dtype) * q)
        return out


class Inputs:
    """The features of a graph: each row divided by the sum of its absolute values, or scaled columns.

    For bags of words, the sum gives the frequency of each word; for dense features of any sign it gives nodes about the
    same weight in sums over neighbors. A row of zeros stays zero.

    Args:
        graph: the graph; large dense features are not copied.
        sketch: number of columns to sketch the features to; None for no sketch.
        dtype: type to compute in.
        scales: columns to standardize instead of dividing rows; None to divide rows.
    """

    def __init__(
        self,
        graph: Graph,
        sketch: int | None = None,
        dtype: torch.dtype = torch.float64,
        scales: ColumnScales | None = None,
    ) -> None:
        self.dtype, self.standardized = dtype, scales is not None
        self.square = 0.0 if scales is None else scales.square
        self._x, self._scales = graph.x, scales
        x = graph.x if scales is None or not graph.is_sparse else scales.apply(graph.x)
        if x.layout == torch.sparse_csr:
            value = x.values().to(dtype)
            row = targets(x.crow_indices())
            if scales is None:
                total = value.new_zeros(graph.num_nodes).index_add_(0, row, value.abs())
                value = value / total.clamp(min=torch.finfo(dtype).tiny)[row]
            shape = (graph.num_nodes, graph.num_features)
            parts = (x.crow_indices(), x.col_indices().long(), value)
            self._x = torch.sparse_csr_tensor(*parts, shape, check_invariants=False)
            order = torch.argsort(parts[1], stable=True)
            pointer = pointers(parts[1], graph.num_features)
            self._t = torch.sparse_csr_tensor(pointer, row[order], value[order], shape[::-1], check_invariants=False)
        else:
            total = torch.ones(graph.num_nodes, dtype=dtype, device=graph.device)
            for rows, part in self._row_blocks() if scales is None else ():
                total[rows] = torch.linalg.vector_norm(part, 1, 1, dtype=dtype)
            if graph.is_sparse:  # all columns are standardized
                self._x, self._scales = x.to(dtype), None
            elif graph.x.numel() * dtype.itemsize <= COPIED_BYTES:
                self._x, self._scales = self._scaled(graph.x).to(dtype), None
            self._scale = total.clamp(min=torch.finfo(dtype).tiny).reciprocal_().unsqueeze(1)
        self.sketch = None if sketch is None else Sketch(graph.num_features, sketch, graph.device)
        self.width = graph.num_features if sketch is None else sketch
        self.num_nodes, self.is_sparse = graph.num_nodes, graph.is_sparse

    def columns(self, first: int, last: int) -> Tensor:
        """Return some columns as a dense matrix ``[nodes, last − first]``."""
        if self.sketch is not None:
            weight = self.sketch.columns(first, last, self.dtype)
            if self._x.layout == torch.sparse_csr:
                return self._x @ weight
            used = weight.any(1).nonzero().flatten()  # few of the columns of X, for few of P
            return self._matmul(weight[used], used) if 2 * used.numel() < len(weight) else self._matmul(weight)
        if self._x.layout != torch.sparse_csr:
            out = self._scale.new_empty(self.num_nodes, last - first)
            for rows, part in self._row_blocks():
                torch.mul(part[:, first:last].to(self.dtype), self._scale[rows], out=out[rows])
            return out
        start = self._t.crow_indices()[first : last + 1]
        begin, end = int(start[0]), int(start[-1])
        out = torch.zeros(self.num_nodes, last - first, dtype=self.dtype, device=start.device)
        index = (self._t.col_indices()[begin:end], targets(start - begin))
        return out.index_put_(index, self._t.values()[begin:end], accumulate=True)

    def matmul(self, w: Tensor) -> Tensor:
        """Compute ``X w`` for a dense ``[width, columns]``."""
        return self._matmul(w if self.sketch is None else self.sketch.matmul(w))

    def t_matmul(self, q: Tensor) -> Tensor:
        """Compute ``Xᵀ q`` for a dense ``[nodes, columns]``."""
        return self.by_column(q) if self.sketch is None else self.sketch.t_matmul(self.by_column(q))

    def by_column(self, q: Tensor) -> Tensor:
        """Compute ``Xᵀ q`` without the sketch, one row per column of the features."""
        if self._x.layout == torch.sparse_csr:
            return self._t @ q
        out = q.new_zeros(self._x.size(1), q.size(1))
        for rows, part in self._row_blocks():
            out += ((self._scale[rows] * q[rows]).T @ part.to(self.dtype)).T
        return out

    def _matmul(self, w: Tensor, columns: Tensor | slice = slice(None)) -> Tensor:
        """Compute ``X w``, or ``X[:, columns] w`` of dense features."""
        if self._x.layout == torch.sparse_csr:
            return self._x @ w
        out = w.new_empty(self.num_nodes, w.size(1))
        for rows, part in self._row_blocks():
            torch.mm(part[:, columns].to(self.dtype), w, out=out[rows])
        return out.mul_(self._scale)

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self._scales is None else self._scales.apply(x)

    def _row_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield dense features in blocks of rows, and release the pages of a mapped file after use."""
        read = 0
        for first in range(0, self._x.size(0), ROW_BLOCK):
            part = self._scaled(self._x[first : first + ROW_BLOCK])
            yield slice(first, first + ROW_BLOCK), part
            read += part.numel() * part.element_size()
            if read >= RELEASE_BYTES:
                release(self._x)
                read = 0


def working_dtype(num_nodes: int, num_features: int) -> torch.dtype:
    """Return the dtype in which to propagate the features of a graph of this size."""
    return torch.float32 if num_nodes * num_features > FLOAT64_ENTRIES else torch.float64
