"""Attention over the neighbors of each row, with the derivatives needed for training and Gauss-Newton products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ergnn.config.errors import CurvatureError
from ergnn.engine.kernels import runs_on_triton, torch_attention
from ergnn.engine.kernels.links import AttentionEdges, Links

NO_HESSIAN = (
    "attention over a graph of this size has no second derivatives; use curvature='gauss-newton', which needs only "
    "first derivatives"
)


def attention(
    z: Tensor, a_src: Tensor, a_dst: Tensor, links: Links, slope: float = 0.2, key: Tensor | None = None, p: float = 0.0
) -> Tensor:
    """Compute ``o_i = Σ_j m_ij α_ij z_j`` with ``α_i = softmax_j LeakyReLU(a_src[j] + a_dst[i])``.

    No tensor with an entry per edge is stored. First derivatives are supported in reverse and forward mode. Gradients
    can be differentiated only with respect to the incoming gradient, which gives ``J v``.

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
    edges = AttentionEdges(links, slope, p)
    out: Tensor = _Attention.apply(z, a_src, a_dst, key if p > 0 else None, edges, train)[0]
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
        z: Tensor, a_src: Tensor, a_dst: Tensor, key: Tensor | None, edges: AttentionEdges, train: bool
    ) -> tuple[Tensor, ...]:
        if train:
            edges.links.transposed()  # build here: tensors cached under a torch.func transform would be wrapped
        return _kernels(z).forward((z, a_src, a_dst), key, edges, train)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.edges, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *output)
        ctx.save_for_forward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if grads[0] is None:
            return (None,) * 6
        z, a_src, a_dst, *rest = ctx.saved_tensors
        fixed = [_Fixed.apply(value) for value in (z, a_src, a_dst)]
        return (*_Gradients.apply(grads[0], *fixed, *rest, ctx.edges), None, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        return _derivative(tangents[:3], ctx.saved_tensors, ctx.edges), None, None, None


def _derivative(tangents: Any, tensors: Any, edges: AttentionEdges) -> Tensor:
    pairs = zip(tangents, tensors[:3], strict=True)
    tangents = [torch.zeros_like(value) if tangent is None else tangent for tangent, value in pairs]
    change: Tensor = _Derivative.apply(*tangents, *tensors, edges)
    return change


class _NotDifferentiable(Function):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise CurvatureError(NO_HESSIAN)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise CurvatureError(NO_HESSIAN)


class _Derivative(_NotDifferentiable):
    """Compute ``J v``."""

    @staticmethod
    def forward(z_dot: Tensor, src_dot: Tensor, dst_dot: Tensor, *rest: Any) -> Tensor:
        z, a_src, a_dst, key, *saved, edges = rest
        change: Tensor = _kernels(z).derivative((z_dot, src_dot, dst_dot), (z, a_src, a_dst), key, tuple(saved), edges)
        return change


class _Fixed(_NotDifferentiable):
    """Identity that raises an error when differentiated, for tensors that gradients cannot be differentiated in."""

    @staticmethod
    def forward(value: Tensor) -> Tensor:
        return value.view_as(value)


class _Gradients(Function):
    """Compute ``(∂z, ∂a_src, ∂a_dst) = Jᵀ g``, which is linear in ``g``; its derivative in ``g`` is given by ``J``."""

    @staticmethod
    def forward(g: Tensor, z: Tensor, a_src: Tensor, a_dst: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        key, *saved, edges = rest
        gradients: tuple[Tensor, Tensor, Tensor] = _kernels(z).backward(g, (z, a_src, a_dst), key, tuple(saved), edges)
        return gradients

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.edges = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if all(grad is None for grad in grads):
            return (None,) * 10
        return _derivative(grads, ctx.saved_tensors[1:], ctx.edges), *(None,) * 9

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        values: tuple[Any, ...] = _Gradients.apply(tangents[0], *ctx.saved_tensors[1:], ctx.edges)
        return values
