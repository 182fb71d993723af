# mypy: ignore-errors
"""Triton kernels for the product of input features, with dropout, and the weights of stacked models."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from ergnn.engine.dropout import threshold
from ergnn.engine.features import SparsePattern
from ergnn.engine.kernels.triton_common import keeps_entry

ROWS, FEATURES, WIDEST = 64, 32, 64
"""Size of a tile of dense features, and number of outputs computed at a time."""
ENTRIES = 32
"""Number of non-zeros of a sparse row that are read at a time."""


@triton.jit
def _tile(X, START, KEY, model, r, f, features: tl.constexpr, limit):
    """Load entries of dense features with dropout; ``r`` are rows of a model."""
    start, end = tl.load(START + model), tl.load(START + model + 1)
    inside = (r < end - start)[:, None] & (f < features)[None, :]
    x = tl.load(X + (start + r)[:, None] * features + f[None, :], mask=inside, other=0.0)
    return tl.where(keeps_entry(r[:, None] * features + f[None, :], tl.load(KEY + model), limit), x, 0.0)


@triton.jit
def _dense(
    X, W, START, KEY, OUT, limit, scale,
    features: tl.constexpr, width: tl.constexpr, R: tl.constexpr, B: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    start, end = tl.load(START + model), tl.load(START + model + 1)
    r = tl.program_id(0) * R + tl.arange(0, R)
    o = tl.program_id(2) * N + tl.arange(0, N)
    if tl.program_id(0) * R < end - start:
        total = tl.zeros([R, N], tl.float32)
        for at in range(0, features, B):
            f = at + tl.arange(0, B)
            x = _tile(X, START, KEY, model, r, f, features, limit)
            place = (model * features + f)[:, None] * width + o[None, :]
            w = tl.load(W + place, mask=(f < features)[:, None] & (o < width)[None, :], other=0.0)
            total += tl.dot(x, w, input_precision="ieee")
        place = (start + r)[:, None] * width + o[None, :]
        tl.store(OUT + place, total * scale, mask=(r < end - start)[:, None] & (o < width)[None, :])


@triton.jit
def _dense_backward(
    X, G, START, KEY, OUT, limit, scale,
    features: tl.constexpr, width: tl.constexpr, R: tl.constexpr, B: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    start, end = tl.load(START + model), tl.load(START + model + 1)
    f = tl.program_id(0) * B + tl.arange(0, B)
    o = tl.program_id(2) * N + tl.arange(0, N)
    total = tl.zeros([B, N], tl.float32)
    for at in range(0, end - start, R):
        r = at + tl.arange(0, R)
        x = _tile(X, START, KEY, model, r, f, features, limit)
        place = (start + r)[:, None] * width + o[None, :]
        g = tl.load(G + place, mask=(r < end - start)[:, None] & (o < width)[None, :], other=0.0)
        total += tl.dot(tl.trans(x), g, input_precision="ieee")
    place = (model * features + f)[:, None] * width + o[None, :]
    tl.store(OUT + place, total * scale, mask=(f < features)[:, None] & (o < width)[None, :])


@triton.jit
def _sparse(
    ROWPTR, COL, VALUE, POSITION, KEY, H, OUT, limit, scale,
    features: tl.constexpr, width: tl.constexpr, BY_ROW: tl.constexpr, E: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    o = tl.program_id(1) * N + tl.arange(0, N)
    begin, end = tl.load(ROWPTR + row), tl.load(ROWPTR + row + 1)
    total = tl.zeros([E, N], tl.float32)
    for at in range(begin, end, E):
        e = at + tl.arange(0, E)
        inside = e < end
        col = tl.load(COL + e, mask=inside, other=0)
        value = tl.load(VALUE + e, mask=inside, other=0.0)
        model = (row + tl.zeros_like(col)) // features if BY_ROW else col // features
        key = tl.load(KEY + model, mask=inside, other=0)
        kept = inside & keeps_entry(tl.load(POSITION + e, mask=inside, other=0), key, limit)
        h = tl.load(H + col[:, None] * width + o[None, :], mask=kept[:, None] & (o < width)[None, :], other=0.0)
        total += value[:, None] * h
    tl.store(OUT + row * width + o, tl.sum(total, 0) * scale, mask=o < width)


def _outputs(width: int) -> int:
    return min(WIDEST, max(16, triton.next_power_of_2(width)))


def _launch_dense(
    kernel, x: Tensor, start: Tensor, tiles: int, other: Tensor, out: Tensor, key: Tensor, p: float
) -> Tensor:
    """Run a kernel of dense features on ``tiles`` tiles of rows, or of features, per model."""
    width = other.size(-1)
    block = _outputs(width)
    grid = (tiles, key.numel(), triton.cdiv(width, block))
    kernel[grid](
        x, other.contiguous(), start, key, out, threshold(p), 1.0 / (1.0 - p), x.size(1), width, ROWS, FEATURES, block,
        num_warps=4,
    )  # fmt: skip
    return out


def _launch_sparse(
    entries: tuple[SparsePattern, Tensor, Tensor], features: int, by_row: bool, h: Tensor, key: Tensor, p: float
) -> Tensor:
    """Multiply a CSR matrix with dropout by ``h``; ``by_row`` if the rows are the features of each model."""
    pattern, value, position = entries
    rows, width = pattern.rowptr.numel() - 1, h.size(1)
    out, block = h.new_empty(rows, width), _outputs(width)
    _sparse[(rows, triton.cdiv(width, block))](
        pattern.rowptr, pattern.col, value, position, key, h.contiguous(), out, threshold(p), 1.0 / (1.0 - p),
        features, width, by_row, ENTRIES, block, num_warps=1,
    )  # fmt: skip
    return out


class DenseProduct(torch.autograd.Function):
    """``(X_m ∘ M_m) W_m`` for each model m, with the mask M of :func:`ergnn.engine.dropout.keep_scale`.

    ``x`` are the rows of each model one after another, with the first row of each in ``start``, and at most ``largest``
    rows per model; ``weight`` is ``[models, features, out]``, and ``key`` the dropout key of each model.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, start: Tensor, largest: int, key: Tensor, p: float) -> Tensor:
        ctx.save_for_backward(x, start, key)
        ctx.p = p
        out = x.new_empty(x.size(0), weight.size(2))
        return _launch_dense(_dense, x.contiguous(), start, triton.cdiv(largest, ROWS), weight, out, key, p)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, start, key = ctx.saved_tensors
        out = x.new_empty(key.numel(), x.size(1), grad.size(1))
        tiles = triton.cdiv(x.size(1), FEATURES)
        return _launch_dense(_dense_backward, x.contiguous(), start, tiles, grad, out, key, ctx.p), *[None] * 5


class SparseProduct(torch.autograd.Function):
    """The same for sparse features: pattern, values and positions of :class:`.SparseFeatures`, and of the transpose."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, entries: tuple[Any, ...], transposed: tuple[Any, ...], key: Tensor, p: float
    ) -> Tensor:
        ctx.save_for_backward(key)
        ctx.shape, ctx.transposed, ctx.p = weight.shape, transposed, p
        return _launch_sparse(entries, weight.size(1), False, weight.reshape(-1, weight.size(2)), key, p)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (key,) = ctx.saved_tensors
        out = _launch_sparse(ctx.transposed, ctx.shape[1], True, grad, key, ctx.p)
        return out.view(ctx.shape), None, None, None, None
