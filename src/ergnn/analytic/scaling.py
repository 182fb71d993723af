"""Features that are numbers of different scales: found and standardized, so that no column dominates the rows.

Bags of words and embeddings are left as they are: the columns of each have one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from ergnn.data.scale import TEXT_LENGTH, Scale

FEW_COLUMNS = 64
"""Features with at most this many columns are columns of a table."""
NUMBER_RATIO = 20.0
"""A column whose nonzero entries are this many times as large as those of most columns is no count of a word."""
DENSE = 0.9
SPREAD_RATIO = 10.0
"""Dense columns are numbers of different scales if the largest tenth is this many times as large as the smallest."""
SAMPLED_ROWS = 1 << 16
"""Columns are judged and scaled by at most this many rows, evenly spaced."""


@dataclass(frozen=True)
class ColumnScales:
    """Columns to standardize, and how; the other columns are words, whose rows are scaled to a fixed length."""

    columns: tuple[int, ...]
    scales: tuple[Scale, ...]

    @classmethod
    def fit(cls, x: Tensor, columns: Sequence[int] | None = None) -> ColumnScales | None:
        """Choose the scale of each column that is a number; None if there are none.

        Args:
            x: features of all nodes, dense or CSR.
            columns: columns that are numbers; by default those of :func:`number_columns`.
        """
        columns = number_columns(x) if columns is None else columns
        if not len(columns):
            return None
        values = _columns(x, columns, _step(x))
        return cls(tuple(columns), tuple(Scale.fit(values[:, i]) for i in range(len(columns))))

    def to_tensor(self) -> Tensor:
        """Return column, center, scale and unit, ``[columns, 4]``."""
        rows = [(c, s.center, s.scale, s.unit) for c, s in zip(self.columns, self.scales, strict=True)]
        return torch.tensor(rows, dtype=torch.float64)

    @classmethod
    def from_tensor(cls, rows: Tensor) -> ColumnScales:
        """Restore what :meth:`to_tensor` returned."""
        return cls(tuple(int(c) for c in rows[:, 0]), tuple(Scale(*values) for values in rows[:, 1:].tolist()))

    def apply(self, x: Tensor) -> Tensor:
        """Return the scaled features: dense if all columns are scaled, otherwise dense or CSR as ``x``."""
        if not self.columns:
            return x
        values = _columns(x, self.columns)
        scaled = np.concatenate([s.apply(values[:, i])[:, :1] for i, s in enumerate(self.scales)], 1).astype(np.float32)
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
        start, column = (torch.from_numpy(index.astype(np.int64)) for index in (joined.indptr, joined.indices))
        entries, shape = torch.from_numpy(joined.data.astype(np.float32)), tuple(x.shape)
        return torch.sparse_csr_tensor(start, column, entries, shape, check_invariants=False).to(x.device)


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
