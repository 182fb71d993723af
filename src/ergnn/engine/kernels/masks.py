"""Hashed dropout masks for attention weights and for inputs of layers; see :mod:`ergnn.engine.dropout`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ergnn.engine.dropout import keep_rows, shifted, write_scale
from ergnn.engine.kernels.device import runs_on_triton

TARGET, SOURCE, HEAD = 0x9E3779B1 - 2**32, 0x85EBCA77 - 2**32, 0xC2B2AE3D - 2**32
FIRST, SECOND = 0x21F0AAAD, 0x735A2D97


def attention_keep(target: Tensor, source: Tensor, heads: int, key: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """Return ``1 / (1 - p)`` for attention weights that are kept, and 0 for dropped ones: ``[edges, heads]``.

    The mask is a hash of (target row, source row, head, key), so the passes over targets and over sources agree
    without knowing the position of an edge in the other list. Duplicate edges have the same mask.
    """
    edge = target.int() * TARGET + source.int() * SOURCE
    x = edge.unsqueeze(1) + torch.arange(heads, dtype=torch.int32, device=edge.device) * HEAD + key
    x = x.bitwise_xor_(shifted(x, 16).bitwise_and_(0xFFFF)).mul_(FIRST)
    x = x.bitwise_xor_(shifted(x, 15).bitwise_and_(0x1FFFF)).mul_(SECOND)
    return write_scale(x, p, torch.empty(x.shape, dtype=dtype, device=x.device))


class _Dropped(torch.autograd.Function):
    """Drop entries of a matrix by their position; a linear operation, so every derivative is the same operation."""

    @staticmethod
    def forward(h: Tensor, key: Tensor, p: float) -> Tensor:
        from ergnn.engine.kernels.triton_masks import dropped

        return dropped(h.contiguous(), key, p)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, key, ctx.p = inputs
        ctx.save_for_backward(key)
        ctx.save_for_forward(key)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (key,) = ctx.saved_tensors
        return _Dropped.apply(grad, key, ctx.p), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (key,) = ctx.saved_tensors
        return _Dropped.apply(tangents[0], key, ctx.p)


def dropped(h: Tensor, key: Tensor, p: float) -> Tensor:
    """Drop entries of a matrix by :func:`ergnn.engine.dropout.keep_scale` at position ``row · width + column``."""
    if runs_on_triton(h):
        return _Dropped.apply(h, key, p)
    rows = torch.arange(h.size(0), dtype=torch.int32, device=h.device)
    return h * keep_rows(rows, h.numel() // max(1, h.size(0)), key, p, h.dtype).view_as(h)
