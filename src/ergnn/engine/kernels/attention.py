"""Attention over the neighbors of each row, with the derivatives needed for training and Gauss-Newton products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ergnn.config.errors import CurvatureError
from ergnn.engine.kernels import torch_attention
from ergnn.engine.kernels.device import runs_on_triton
from ergnn.engine.kernels.links import Links

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
    out: Tensor = _Attention.apply(z, a_src, a_dst, key if p > 0 else None, links, slope, p, train)[0]
    return out


class _Attention(Function):
    @staticmethod
    def forward(
        z: Tensor, a_src: Tensor, a_dst: Tensor, key: Tensor | None, links: Links, slope: float, p: float, train: bool
    ) -> tuple[Tensor, ...]:
        if train:
            links.transposed()  # build here: tensors cached under a torch.func transform would be wrapped
        if runs_on_triton(z):
            from ergnn.engine.kernels import triton_attention

            return triton_attention.forward(z, a_src, a_dst, key, links, slope, p, train)
        out, lse = torch_attention.forward(z, a_src, a_dst, key, links, slope, p)
        return out, lse, out.new_empty(0), out.new_empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        z, a_src, a_dst, key, ctx.links, ctx.slope, ctx.p, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(z, a_src, a_dst, key, *output)
        ctx.save_for_forward(z, a_src, a_dst, key, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if grads[0] is None:
            return (None,) * 8
        z, a_src, a_dst, *rest = ctx.saved_tensors
        fixed = [_Fixed.apply(value) for value in (z, a_src, a_dst)]
        values = _Gradients.apply(grads[0], *fixed, *rest, ctx.links, ctx.slope, ctx.p)
        return (*values, None, None, None, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        change = _derivative(tangents[:3], *ctx.saved_tensors, ctx.links, ctx.slope, ctx.p)
        return change, None, None, None


def _derivative(tangents: Any, z: Tensor, a_src: Tensor, a_dst: Tensor, *rest: Any) -> Tensor:
    values = (z, a_src, a_dst)
    filled = [torch.zeros_like(value) if part is None else part for part, value in zip(tangents, values, strict=True)]
    change: Tensor = _Derivative.apply(*filled, *values, *rest)
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
    def forward(
        z_dot: Tensor, src_dot: Tensor, dst_dot: Tensor, z: Tensor, a_src: Tensor, a_dst: Tensor, *rest: Any
    ) -> Tensor:
        tangents = (z_dot, src_dot, dst_dot)
        key, *saved, links, slope, p = rest
        if runs_on_triton(z):
            from ergnn.engine.kernels import triton_attention

            return triton_attention.derivative(tangents, z, a_src, a_dst, key, tuple(saved), links, slope, p)
        out, lse = saved[:2]
        return torch_attention.derivative(tangents, z, a_src, a_dst, key, out, lse, links, slope, p)


class _Fixed(_NotDifferentiable):
    """Identity that raises an error when differentiated, for tensors that gradients cannot be differentiated in."""

    @staticmethod
    def forward(value: Tensor) -> Tensor:
        return value.view_as(value)


class _Gradients(Function):
    """Compute ``(∂z, ∂a_src, ∂a_dst) = Jᵀ g``, which is linear in ``g``; its derivative in ``g`` is given by ``J``."""

    @staticmethod
    def forward(
        g: Tensor,
        z: Tensor,
        a_src: Tensor,
        a_dst: Tensor,
        key: Tensor | None,
        out: Tensor,
        lse: Tensor,
        positive_out: Tensor,
        positive_share: Tensor,
        links: Links,
        slope: float,
        p: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if runs_on_triton(z):
            from ergnn.engine.kernels import triton_attention

            saved = (out, lse, positive_out, positive_share)
            return triton_attention.backward(g, z, a_src, a_dst, key, saved, links, slope, p)
        return torch_attention.backward(g, z, a_src, a_dst, key, out, lse, links, slope, p)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.links, ctx.slope, ctx.p = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if all(part is None for part in grads):
            return (None,) * 12
        change = _derivative(grads, *ctx.saved_tensors[1:], ctx.links, ctx.slope, ctx.p)
        return (change, *(None,) * 11)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        _, *tensors = ctx.saved_tensors
        values: tuple[Any, ...] = _Gradients.apply(tangents[0], *tensors, ctx.links, ctx.slope, ctx.p)
        return values
