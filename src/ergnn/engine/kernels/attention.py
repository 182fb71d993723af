"""Attention over the neighbors of each row, with the derivatives needed for training and Gauss-Newton products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ergnn.config.errors import CurvatureError
from ergnn.engine.kernels import Links, runs_on_triton, torch_attention
from ergnn.engine.kernels.torch_attention import Edges


def attention(
    z: Tensor, a_src: Tensor, a_dst: Tensor, links: Links, slope: float = 0.2, key: Tensor | None = None, p: float = 0.0
) -> Tensor:
    """Compute ``o_i = Σ_j m_ij α_ij z_j`` with ``α_i = softmax_j LeakyReLU(a_src[j] + a_dst[i])``.

    No tensor with an entry per edge is stored. Gradients can be differentiated only with respect to the incoming
    gradient, which gives ``J v``.

    Args:
        z: ``[sources, heads, width]``.
        a_src: ``[sources, heads]``.
        a_dst: ``[targets, heads]``.
        links: source rows of each target row.
        slope: negative slope of LeakyReLU.
        key: dropout key, an int32 tensor with one entry on the device; None drops no edges.
        p: dropout probability per edge and head; ``m_ij`` is 0 for dropped edges and ``1 / (1 - p)`` for the others.

    Returns:
        ``[targets, heads, width]``.
    """
    train = torch.is_grad_enabled() and any(value.requires_grad for value in (z, a_src, a_dst))
    out: Tensor = _Attention.apply(z, a_src, a_dst, key if p > 0 else None, (links, slope, p), train)
    return out


def _kernels(z: Tensor) -> Any:
    """Return the module of ``forward``, ``backward`` and ``derivative``."""
    if not runs_on_triton(z):
        return torch_attention
    from ergnn.engine.kernels import triton_attention

    return triton_attention


class _Attention(Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, a_src: Tensor, a_dst: Tensor, key: Tensor | None, edges: Edges, train: bool
    ) -> Tensor:
        out, *saved = _kernels(z).forward((z, a_src, a_dst), key, edges, train)
        ctx.edges = edges
        ctx.save_for_backward(z, a_src, a_dst, key, out, *saved)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        z, a_src, a_dst, *rest = ctx.saved_tensors
        fixed = [_Fixed.apply(value) for value in (z, a_src, a_dst)]
        return (*_Gradients.apply(grad, *fixed, *rest, ctx.edges), None, None, None)


class _Fixed(Function):
    """Identity that raises an error when differentiated, for tensors that gradients cannot be differentiated in."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise CurvatureError("attention over a graph of this size has no second derivatives")


class _Gradients(Function):
    """Compute ``(∂z, ∂a_src, ∂a_dst) = Jᵀ g``, which is linear in ``g``; its derivative in ``g`` is given by ``J``."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        z, a_src, a_dst, key, *saved, ctx.edges = rest
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(z, a_src, a_dst, key, *saved)
        gradients: tuple[Tensor, Tensor, Tensor] = _kernels(z).backward(
            g, (z, a_src, a_dst), key, tuple(saved), ctx.edges
        )
        return gradients

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(grad is None for grad in grads):
            return (None,) * 10
        *values, key, out, lse, positive_out, positive_share = ctx.saved_tensors
        along = [torch.zeros_like(v) if grad is None else grad for grad, v in zip(grads, values, strict=True)]
        saved = out, lse, positive_out, positive_share
        return _kernels(out).derivative(tuple(along), tuple(values), key, saved, ctx.edges), *(None,) * 9
