"""Products of input features and weights with dropout in one pass; used in training on GPUs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ergnn.engine.sparse import SparsePattern


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, start: Tensor, largest: int, key: Tensor, p: float) -> Tensor:
        from ergnn.engine.kernels.triton_projection import dense

        ctx.save_for_backward(x, start, key)
        ctx.models, ctx.p = weight.size(0), p
        return dense(x.contiguous(), start, largest, weight.contiguous(), key, p)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from ergnn.engine.kernels.triton_projection import dense_backward

        x, start, key = ctx.saved_tensors
        return dense_backward(x.contiguous(), start, grad.contiguous(), ctx.models, key, ctx.p), *[None] * 5


class _Sparse(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, entries: tuple[Any, ...], transposed: tuple[Any, ...], key: Tensor, p: float
    ) -> Tensor:
        ctx.save_for_backward(key)
        ctx.shape, ctx.transposed, ctx.p = weight.shape, transposed, p
        return _multiply(entries, weight.size(1), False, weight.reshape(-1, weight.size(2)), key, p)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (key,) = ctx.saved_tensors
        out = _multiply(ctx.transposed, ctx.shape[1], True, grad, key, ctx.p)
        return out.view(ctx.shape), None, None, None, None


def _multiply(entries: tuple[Any, ...], features: int, by_row: bool, h: Tensor, key: Tensor, p: float) -> Tensor:
    from ergnn.engine.kernels.triton_projection import sparse

    pattern, value, position = entries
    return sparse(pattern.rowptr, pattern.col, value, position, features, by_row, h.contiguous(), key, p)


def project_dense(x: Tensor, start: Tensor, largest: int, weight: Tensor, key: Tensor, p: float) -> Tensor:
    """Compute ``(X_m ∘ M_m) W_m`` for each model m, with the mask M of :func:`ergnn.engine.dropout.keep_scale`.

    Args:
        x: ``[rows, features]``, the rows of each model one after another.
        start: first row of each model, and the number of rows.
        largest: maximum number of rows of a model.
        weight: ``[models, features, out]``.
        key: dropout key of each model.
        p: dropout probability.
    """
    return _Dense.apply(weight, x, start, largest, key, p)


def project_sparse(
    entries: tuple[SparsePattern, Tensor, Tensor],
    transposed: tuple[SparsePattern, Tensor, Tensor],
    weight: Tensor,
    key: Tensor,
    p: float,
) -> Tensor:
    """Compute the same for sparse features: pattern, values and positions of :class:`.SparseFeatures`."""
    return _Sparse.apply(weight, entries, transposed, key, p)
