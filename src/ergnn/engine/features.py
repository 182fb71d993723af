"""Input features of a field; sparse if most are zero, so that dropout and products skip the zeros.

Products with sparse matrices are differentiable in the dense matrix any number of times. ``torch.sparse.mm`` rebuilds
the transpose in each backward pass; here, it is built once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ergnn.data.csr import pointers, row_entries, targets
from ergnn.data.graph import Graph, compact
from ergnn.engine.cache import Cache
from ergnn.engine.slots import SlotRows, model_positions

LARGE = 1 << 28
"""Dense features with more entries are not converted or copied, since they may be a memory-mapped file."""
ROWS = 8192
"""Number of rows per chunk of a product with stored features."""


class SparsePattern:
    """Positions of the non-zeros of a CSR matrix and of its transpose.

    Args:
        rowptr: ``[rows + 1]``, start of each row.
        col: ``[nnz]``, column of each non-zero.
        shape: number of rows and columns.
    """

    def __init__(self, rowptr: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
        self.rowptr, self.col, self.shape = rowptr, col, shape

    @cached_property
    def transposed(self) -> tuple[SparsePattern, Tensor]:
        """The transposed pattern, and the permutation of values from this pattern to it."""
        order = torch.argsort(self.col, stable=True)
        rowptr, row = pointers(self.col, self.shape[1]).to(self.rowptr.dtype), targets(self.rowptr)
        return SparsePattern(rowptr, row[order].to(self.col.dtype), self.shape[::-1]), order


class _SparseMatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pattern: SparsePattern, value: Tensor, dense: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(value)
        matrix = torch.sparse_csr_tensor(pattern.rowptr, pattern.col, value, pattern.shape, check_invariants=False)
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        (value,) = ctx.saved_tensors
        transpose, order = ctx.pattern.transposed
        return None, None, spmm(transpose, value[order], grad.contiguous())


def spmm(pattern: SparsePattern, value: Tensor, dense: Tensor) -> Tensor:
    """Compute ``A @ dense`` for the matrix ``A`` with this pattern and these constant values."""
    return _SparseMatMul.apply(pattern, value, dense)


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

    def project(self, weight: Tensor, rows: SlotRows) -> Tensor:
        """Compute ``X W`` for features in ``rows``; ``weight`` is ``[models, features, out]``."""
        return spmm(self.pattern, self.value.to(weight.dtype), weight.reshape(-1, weight.size(2)))

    @cached_property
    def transposed(self) -> tuple[SparsePattern, Tensor, Tensor]:
        """The transposed pattern, and values and positions in its order."""
        pattern, order = self.pattern.transposed
        return pattern, self.value[order], self.position[order]


@dataclass(frozen=True, eq=False)
class StoredFeatures:
    """Rows of dense features, perhaps of a memory-mapped file, that are read while they are multiplied.

    Without gradients only, which would keep what was read.
    """

    x: Tensor
    nodes: Tensor

    def project(self, weight: Tensor, rows: SlotRows) -> Tensor:
        """Compute ``X W`` for the features of one model; ``weight`` is ``[1, features, out]``."""
        return torch.cat([self.x[chunk].to(weight.dtype) @ weight[0] for chunk in self.nodes.split(ROWS)])


InputFeatures = Tensor | SparseFeatures | StoredFeatures


@dataclass(frozen=True, eq=False)
class DroppedFeatures:
    """Features whose dropout is applied while they are multiplied, which stores no copy of them.

    Args:
        features: features of one or more models.
        key: dropout key of each model.
        p: dropout probability.
    """

    features: InputFeatures
    key: Tensor
    p: float

    def project(self, weight: Tensor, rows: SlotRows) -> Tensor:
        """Compute ``X W`` for features in ``rows``; ``weight`` is ``[models, features, out]``."""
        from ergnn.engine.kernels.triton_projection import DenseProduct, SparseProduct

        h = self.features
        if isinstance(h, SparseFeatures):
            return SparseProduct.apply(weight, (h.pattern, h.value, h.position), h.transposed, self.key, self.p)
        return DenseProduct.apply(weight, h, rows.starts(), rows.largest, self.key, self.p)


_SPARSE: Cache[Tensor | None] = Cache()


def sparse_x(graph: Graph) -> Tensor | None:
    """Return the features in CSR form if most are zero, otherwise None."""
    if graph.is_sparse:
        return graph.x
    if graph.x.numel() > LARGE:
        return None

    def convert() -> Tensor | None:
        x = compact(graph.x)
        return None if x is graph.x else x

    return _SPARSE.get([graph.x], convert)


def features_of(
    graph: Graph, nodes: Tensor, dtype: torch.dtype = torch.float32, model: Tensor | None = None, models: int = 1
) -> InputFeatures:
    """Return the features of ``nodes`` in their order, as ``dtype``; ``model`` is the model of each node, ascending."""
    x = sparse_x(graph)
    if x is None:
        whole = nodes.numel() == graph.num_nodes and torch.equal(
            nodes, torch.arange(nodes.numel(), device=nodes.device)
        )
        if not whole and models == 1 and nodes.numel() * graph.num_features > LARGE and not torch.is_grad_enabled():
            return StoredFeatures(graph.x, nodes)
        return (graph.x if whole else graph.x[nodes]).to(dtype)
    count, row, entry = row_entries(x.crow_indices(), nodes)
    rowptr, col, width = torch.cat([count.new_zeros(1), count.cumsum(0)]), x.col_indices()[entry], graph.num_features
    model = torch.zeros_like(nodes) if model is None else model
    position = model_positions(model, 1, models).index_select(0, row) * width + col.int()
    model = model.index_select(0, row)
    pattern = SparsePattern(rowptr, col + model * width, (nodes.numel(), width * models))
    return SparseFeatures(pattern, x.values()[entry].to(dtype), position, model)
