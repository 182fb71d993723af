"""Input features of a field; sparse if most are zero, so that dropout and products skip the zeros."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ergnn.data.graph import Graph
from ergnn.engine.adjacency import version_of
from ergnn.engine.sparse import SparsePattern, spmm

SPARSE_BELOW = 0.1
"""Features are converted to sparse if a smaller fraction of them is non-zero; the results are the same."""
LARGE = 1 << 28
"""Dense features with more entries are not converted, since they may be a memory-mapped file."""


@dataclass(frozen=True, eq=False)
class DenseFeatures:
    """Rows of a dense feature matrix."""

    value: Tensor


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Rows of a sparse feature matrix; with several models, one block of columns per model.

    Args:
        pattern: positions of the non-zeros, rows × (models · features).
        value: values of the non-zeros.
        position: int32 position of each non-zero in the dense matrix of its model, so that dropout is the same as for
            dense features.
        model: model of each non-zero.
    """

    pattern: SparsePattern
    value: Tensor
    position: Tensor
    model: Tensor

    def project(self, value: Tensor, weight: Tensor) -> Tensor:
        """Compute ``X W`` with the non-zeros replaced by ``value``; ``weight`` is ``[models, features, out]``."""
        return spmm(self.pattern, value.to(weight.dtype), weight.reshape(-1, weight.size(2)))


Features = DenseFeatures | SparseFeatures

_SPARSE = WeakTensorKeyDictionary()
"""Dense features → their version, and a sparse copy or None."""


def _sparse_x(graph: Graph) -> Tensor | None:
    if graph.is_sparse:
        return graph.x
    if graph.x.numel() > LARGE:
        return None
    version, found = _SPARSE.get(graph.x, (None, None))
    if version != version_of(graph.x):
        share = int(torch.count_nonzero(graph.x)) / max(graph.x.numel(), 1)
        found = graph.x.to_sparse_csr() if share < SPARSE_BELOW else None
        _SPARSE[graph.x] = version_of(graph.x), found
    return found


def features_of(graph: Graph, nodes: Tensor, dtype: torch.dtype = torch.float32) -> Features:
    """Return the features of ``nodes`` in their order, as ``dtype``."""
    x = _sparse_x(graph)
    if x is None:
        whole = nodes.numel() == graph.num_nodes and torch.equal(
            nodes, torch.arange(nodes.numel(), device=nodes.device)
        )
        return DenseFeatures((graph.x if whole else graph.x[nodes]).to(dtype))
    ptr = x.crow_indices()
    count = ptr[nodes + 1] - ptr[nodes]
    rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    row = torch.repeat_interleave(torch.arange(nodes.numel(), device=nodes.device), count)
    index = (ptr[nodes] - rowptr[:-1])[row] + torch.arange(row.numel(), device=row.device)
    col = x.col_indices()[index]
    pattern = SparsePattern(rowptr, col, (nodes.numel(), graph.num_features))
    position = row.int() * graph.num_features + col.int()
    return SparseFeatures(pattern, x.values()[index].to(dtype), position, torch.zeros_like(row))


def join_features(parts: list[Features]) -> Features:
    """Concatenate the rows of several models."""
    if len(parts) == 1:
        return parts[0]
    sparse = [part for part in parts if isinstance(part, SparseFeatures)]
    if len(sparse) < len(parts):
        return DenseFeatures(torch.cat([_dense(part) for part in parts]))
    width = sparse[0].pattern.shape[1]
    starts = [0]
    for part in sparse:
        starts.append(starts[-1] + part.pattern.nnz)
    rowptr = torch.cat(
        [part.pattern.rowptr[:-1] + start for part, start in zip(sparse, starts, strict=False)]
        + [sparse[0].pattern.rowptr.new_tensor(starts[-1:])]
    )
    col = torch.cat([part.pattern.col + i * width for i, part in enumerate(sparse)])
    shape = (sum(part.pattern.shape[0] for part in sparse), width * len(sparse))
    return SparseFeatures(
        SparsePattern(rowptr, col, shape),
        torch.cat([part.value for part in sparse]),
        torch.cat([part.position for part in sparse]),
        torch.cat([part.model + i for i, part in enumerate(sparse)]),
    )


def _dense(part: Features) -> Tensor:
    if isinstance(part, DenseFeatures):
        return part.value
    pattern = part.pattern
    return part.value.new_zeros(pattern.shape).index_put((pattern.rows(), pattern.col), part.value, accumulate=True)
