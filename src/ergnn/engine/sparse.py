"""Product of a sparse and a dense matrix, differentiable in the dense matrix in reverse, forward and mixed modes.

``torch.sparse.mm`` does not support forward mode, and rebuilds the transpose in each backward pass. Here, the transpose
is built once, and all modes use the same product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SparsePattern:
    """Positions of the non-zeros of a CSR matrix and of its transpose.

    Args:
        rowptr: ``[rows + 1]``, start of each row.
        col: ``[nnz]``, column of each non-zero.
        shape: number of rows and columns.
    """

    def __init__(self, rowptr: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
        self.rowptr, self.col, self.shape = rowptr, col, shape
        self._transpose: SparsePattern | None = None
        self._order: Tensor | None = None

    @property
    def nnz(self) -> int:
        return int(self.col.numel())

    def rows(self) -> Tensor:
        """Return the row of each non-zero."""
        index = torch.arange(self.shape[0], device=self.col.device)
        return torch.repeat_interleave(index, self.rowptr.diff(), output_size=self.nnz)

    def transposed(self) -> tuple[SparsePattern, Tensor]:
        """Return the transposed pattern, and the permutation of values from this pattern to it."""
        if self._transpose is None or self._order is None:
            order = torch.argsort(self.col, stable=True)
            count = torch.bincount(self.col, minlength=self.shape[1])
            rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)]).to(self.rowptr.dtype)
            self._transpose = SparsePattern(rowptr, self.rows()[order].to(self.col.dtype), self.shape[::-1])
            self._order = order
        return self._transpose, self._order

    def multiply(self, value: Tensor, dense: Tensor) -> Tensor:
        matrix = torch.sparse_csr_tensor(self.rowptr, self.col, value, self.shape, check_invariants=False)
        return matrix @ dense


class _SparseMatMul(torch.autograd.Function):
    @staticmethod
    def forward(pattern: SparsePattern, value: Tensor, dense: Tensor, backward: bool) -> Tensor:
        if backward:
            pattern.transposed()  # build here: tensors cached under a torch.func transform would be wrapped
        return pattern.multiply(value, dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.pattern, value, _, _ = inputs
        ctx.save_for_backward(value)
        ctx.save_for_forward(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, None]:
        (value,) = ctx.saved_tensors
        transpose, order = ctx.pattern.transposed()
        return None, None, spmm(transpose, value[order], grad.contiguous()), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (value,) = ctx.saved_tensors
        return spmm(ctx.pattern, value, tangents[2].contiguous())


def spmm(pattern: SparsePattern, value: Tensor, dense: Tensor) -> Tensor:
    """Compute ``A @ dense`` for the matrix ``A`` with this pattern and these constant values."""
    return _SparseMatMul.apply(pattern, value, dense, torch.is_grad_enabled())
