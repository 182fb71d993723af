# mypy: ignore-errors
"""Triton kernels for hashed dropout; imported on GPUs only."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ergnn.engine.dropout import threshold

BLOCK = 1024


@triton.jit
def keeps(target, source, head, key, limit):
    """Return whether the attention weight of an edge is kept; bitwise equal to ``attention_keep`` in ``dropout``."""
    x = target.to(tl.uint32) * 0x9E3779B1 + source.to(tl.uint32) * 0x85EBCA77
    x = x + head.to(tl.uint32) * 0xC2B2AE3D + key.to(tl.uint32, bitcast=True)
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0x735A2D97
    return x.to(tl.int32, bitcast=True) >= limit


@triton.jit
def keeps_entry(position, key, limit):
    """Return whether entries are kept; bitwise equal to :func:`ergnn.engine.dropout.keep_scale`."""
    key = key.to(tl.uint32, bitcast=True)
    x = (position.to(tl.uint32) * 0x9E3779B9) ^ key
    x = (x ^ (x >> 16)) * 0x7FEB352D + key
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    return x.to(tl.int32, bitcast=True) >= limit


@triton.jit
def _dropped(H, KEY, OUT, size, limit, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    kept = keeps_entry(at, tl.load(KEY), limit)
    h = tl.load(H + at, mask=at < size, other=0.0)
    tl.store(OUT + at, tl.where(kept, h * scale, 0.0), mask=at < size)


def dropped(h: Tensor, key: Tensor, p: float) -> Tensor:
    out = torch.empty_like(h)
    grid = (triton.cdiv(h.numel(), BLOCK),)
    _dropped[grid](h, key, out, h.numel(), threshold(p), 1.0 / (1.0 - p), BLOCK, num_warps=4)
    return out
