# mypy: ignore-errors
# ruff: noqa: SIM108
"""Attention's output, and its derivative along a direction; see :mod:`.triton_attention`."""

from __future__ import annotations

import triton
import triton.language as tl

from ergnn.engine.kernels.triton_gather import column, gather, gather_heads, gather_kept, leaky
from ergnn.engine.kernels.triton_masks import keeps


@triton.jit
def peaks(
    ROW, BEGIN, END, COL, AS, LOW, HIGH, M,
    H: tl.constexpr, HP: tl.constexpr, T: tl.constexpr, LOOPS: tl.constexpr, NARROW: tl.constexpr,
):  # fmt: skip
    """An upper bound of the ``a_src`` that each piece of a row meets: the largest of all, or its own largest.

    Weights ``exp(s − m)`` need a bound m that is near the row's largest score. If the range of ``a_src`` is at most
    NARROW, the largest of all rows is near enough; otherwise the piece's neighbors are read.
    """
    s = tl.program_id(0)
    row, begin, end = tl.load(ROW + s), tl.load(BEGIN + s), tl.load(END + s)
    h, t = tl.arange(0, HP), tl.arange(0, T)
    high = tl.load(HIGH + h, mask=h < H, other=0.0)
    narrow = tl.max(high - tl.load(LOW + h, mask=h < H, other=0.0), 0) <= NARROW
    if narrow:
        end = begin
    most = tl.full([T, HP], float("-inf"), tl.float32)
    for e in range(begin, end, T):
        ok = e + t < end
        j = tl.load(COL + e + t, mask=ok, other=0)
        most = tl.maximum(most, tl.where(ok[:, None], gather_heads(AS, j, h, H, HP, H), float("-inf")))
    m = tl.max(most, 0)
    if LOOPS:
        m = tl.maximum(m, tl.load(AS + row.to(tl.int64) * H + h, mask=h < H, other=0.0))
    tl.store(M + s.to(tl.int64) * H + h, tl.where(narrow, high, m), mask=h < H)


@triton.jit
def _output_step(
    total, share, acc, accp, j, ok, row, ad, m, h, c, Z, AS, key, limit,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr,
    SLOPE: tl.constexpr, DROP: tl.constexpr, TRAIN: tl.constexpr,
):  # fmt: skip
    if W > C:
        z = gather(Z, j, h, c, H, W, HP, CP)
        a = column(z, c, C)
    else:
        a = gather_heads(AS, j, h, H, HP, H)
        if DROP:
            kept = keeps(row, j[:, None], h[None, :], key, limit)
            z = gather_kept(Z, j, kept, h, c, H, W, HP, CP)
        else:
            z = gather(Z, j, h, c, H, W, HP, CP)
    a += ad[None, :]
    p = tl.where(ok[:, None], tl.exp(leaky(a, SLOPE) - m[None, :]), 0.0)
    total += p
    if TRAIN:
        share += tl.where(a > 0, p, 0.0)
    if DROP and W > C:
        p = tl.where(keeps(row, j[:, None], h[None, :], key, limit), p, 0.0)
    acc += p[:, :, None] * z
    if TRAIN:
        accp += tl.where(a > 0, p, 0.0)[:, :, None] * z
    return total, share, acc, accp


@triton.jit
def output(
    ROW, BEGIN, END, SLOT, ROWPTR, COL, Z, AS, AD, M, KEY, OUT, LSE, P, Q, PM, PL, PQ, PO, PP, limit, scale,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, U: tl.constexpr,
    V: tl.constexpr, SLOPE: tl.constexpr, DROP: tl.constexpr, TRAIN: tl.constexpr,
    LOOPS: tl.constexpr,
):  # fmt: skip
    s = tl.program_id(0)
    row, begin, end, slot = tl.load(ROW + s), tl.load(BEGIN + s), tl.load(END + s), tl.load(SLOT + s)
    h, c, v = tl.arange(0, HP), tl.arange(0, CP), tl.arange(0, V)
    at = row.to(tl.int64)
    ad = tl.load(AD + at * H + h, mask=h < H, other=0.0)
    key = tl.load(KEY)
    m = tl.load(M + s.to(tl.int64) * H + h, mask=h < H, other=0.0)
    m = leaky(m + ad, SLOPE)
    total, share = tl.zeros([V, HP], tl.float32), tl.zeros([V, HP], tl.float32)
    acc, accp = tl.zeros([V, HP, CP], tl.float32), tl.zeros([V, HP, CP], tl.float32)
    for e in range(begin, end, U * V):
        for u in tl.static_range(U):
            ok = e + u * V + v < end
            j = tl.load(COL + e + u * V + v, mask=ok, other=0)
            if LOOPS:
                ok = ok & (j != row)
            total, share, acc, accp = _output_step(
                total, share, acc, accp, j, ok, row, ad, m, h, c, Z, AS, key, limit,
                H, C, W, HP, CP, SLOPE, DROP, TRAIN,
            )  # fmt: skip
    if LOOPS:
        ok = (v == 0) & (tl.load(ROWPTR + at) == begin)
        total, share, acc, accp = _output_step(
            total, share, acc, accp, row + v * 0, ok, row, ad, m, h, c, Z, AS, key, limit,
            H, C, W, HP, CP, SLOPE, DROP, TRAIN,
        )  # fmt: skip
    total = tl.sum(total, 0)
    acc = tl.sum(acc, 0)
    hc = h[:, None] * C + c[None, :]
    valid = (h < H)[:, None] & (c < C)[None, :]
    if slot < 0:
        inverse = tl.where(total > 0, 1.0 / total, 0.0)
        tl.store(OUT + at * (H * C) + hc, acc * (inverse * scale)[:, None], mask=valid)
        tl.store(LSE + at * H + h, tl.where(total > 0, m + tl.log(total), 0.0), mask=h < H)
        if TRAIN:
            tl.store(P + at * (H * C) + hc, tl.sum(accp, 0) * (inverse * scale)[:, None], mask=valid)
            tl.store(Q + at * H + h, tl.sum(share, 0) * inverse, mask=h < H)
    else:
        to = slot.to(tl.int64)
        tl.store(PM + to * H + h, m, mask=h < H)
        tl.store(PL + to * H + h, total, mask=h < H)
        tl.store(PO + to * (H * C) + hc, acc, mask=valid)
        if TRAIN:
            tl.store(PQ + to * H + h, tl.sum(share, 0), mask=h < H)
            tl.store(PP + to * (H * C) + hc, tl.sum(accp, 0), mask=valid)


@triton.jit
def merge_output(
    ROW, POINTER, OUT, LSE, P, Q, PM, PL, PQ, PO, PP, scale,
    H: tl.constexpr, C: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, TRAIN: tl.constexpr,
):  # fmt: skip
    s = tl.program_id(0)
    row, first = tl.load(ROW + s).to(tl.int64), tl.load(POINTER + s).to(tl.int64)
    pieces = tl.load(POINTER + s + 1) - tl.load(POINTER + s)
    h, c = tl.arange(0, HP), tl.arange(0, CP)
    hc = h[:, None] * C + c[None, :]
    valid = (h < H)[:, None] & (c < C)[None, :]
    m = tl.full([HP], float("-inf"), tl.float32)
    for t in range(0, pieces):
        m = tl.maximum(m, tl.load(PM + (first + t) * H + h, mask=h < H, other=0.0))
    total, share = tl.zeros([HP], tl.float32), tl.zeros([HP], tl.float32)
    acc, accp = tl.zeros([HP, CP], tl.float32), tl.zeros([HP, CP], tl.float32)
    for t in range(0, pieces):
        at = first + t
        w = tl.exp(tl.load(PM + at * H + h, mask=h < H, other=0.0) - m)
        total += w * tl.load(PL + at * H + h, mask=h < H, other=0.0)
        acc += w[:, None] * tl.load(PO + at * (H * C) + hc, mask=valid, other=0.0)
        if TRAIN:
            share += w * tl.load(PQ + at * H + h, mask=h < H, other=0.0)
            accp += w[:, None] * tl.load(PP + at * (H * C) + hc, mask=valid, other=0.0)
    inverse = tl.where(total > 0, 1.0 / total, 0.0)
    tl.store(OUT + row * (H * C) + hc, acc * (inverse * scale)[:, None], mask=valid)
    tl.store(LSE + row * H + h, tl.where(total > 0, m + tl.log(total), 0.0), mask=h < H)
    if TRAIN:
        tl.store(P + row * (H * C) + hc, accp * (inverse * scale)[:, None], mask=valid)
        tl.store(Q + row * H + h, share * inverse, mask=h < H)


@triton.jit
def _derivative_step(
    mean, acc, j, ok, row, ad, ad_dot, lse, h, c, Z, ZD, AS, ASD, key, limit, scale,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr,
    SLOPE: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    if W > C:
        z = gather(Z, j, h, c, H, W, HP, CP)
        z_dot = gather(ZD, j, h, c, H, W, HP, CP)
        a, a_dot = column(z, c, C), column(z_dot, c, C)
    else:
        a, a_dot = gather_heads(AS, j, h, H, HP, H), gather_heads(ASD, j, h, H, HP, H)
        if DROP:
            kept = keeps(row, j[:, None], h[None, :], key, limit)
            z = gather_kept(Z, j, kept, h, c, H, W, HP, CP)
            z_dot = gather_kept(ZD, j, kept, h, c, H, W, HP, CP)
        else:
            z = gather(Z, j, h, c, H, W, HP, CP)
            z_dot = gather(ZD, j, h, c, H, W, HP, CP)
    score = a + ad[None, :]
    alpha = tl.where(ok[:, None], tl.exp(leaky(score, SLOPE) - lse[None, :]), 0.0)
    moved = (a_dot + ad_dot[None, :]) * tl.where(score > 0, 1.0, SLOPE)
    mean += alpha * moved
    if DROP:
        alpha = alpha * scale
        if W > C:
            alpha = tl.where(keeps(row, j[:, None], h[None, :], key, limit), alpha, 0.0)
    acc += (alpha * moved)[:, :, None] * z + alpha[:, :, None] * z_dot
    return mean, acc


@triton.jit
def derivative(
    ROW, BEGIN, END, SLOT, ROWPTR, COL, Z, ZD, AS, ASD, AD, ADD, LSE, OUT, KEY, CHANGE, PM, PO, limit, scale,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, U: tl.constexpr,
    V: tl.constexpr, SLOPE: tl.constexpr, DROP: tl.constexpr, LOOPS: tl.constexpr,
):  # fmt: skip
    s = tl.program_id(0)
    row, begin, end, slot = tl.load(ROW + s), tl.load(BEGIN + s), tl.load(END + s), tl.load(SLOT + s)
    h, c, v = tl.arange(0, HP), tl.arange(0, CP), tl.arange(0, V)
    at = row.to(tl.int64)
    ad = tl.load(AD + at * H + h, mask=h < H, other=0.0)
    ad_dot = tl.load(ADD + at * H + h, mask=h < H, other=0.0)
    lse = tl.load(LSE + at * H + h, mask=h < H, other=0.0)
    key = tl.load(KEY)
    mean, acc = tl.zeros([V, HP], tl.float32), tl.zeros([V, HP, CP], tl.float32)
    for e in range(begin, end, U * V):
        for u in tl.static_range(U):
            ok = e + u * V + v < end
            j = tl.load(COL + e + u * V + v, mask=ok, other=0)
            if LOOPS:
                ok = ok & (j != row)
            mean, acc = _derivative_step(
                mean, acc, j, ok, row, ad, ad_dot, lse, h, c, Z, ZD, AS, ASD, key, limit, scale,
                H, C, W, HP, CP, SLOPE, DROP,
            )  # fmt: skip
    if LOOPS:
        ok = (v == 0) & (tl.load(ROWPTR + at) == begin)
        mean, acc = _derivative_step(
            mean, acc, row + v * 0, ok, row, ad, ad_dot, lse, h, c, Z, ZD, AS, ASD, key, limit, scale,
            H, C, W, HP, CP, SLOPE, DROP,
        )  # fmt: skip
    mean = tl.sum(mean, 0)
    acc = tl.sum(acc, 0)
    hc = h[:, None] * C + c[None, :]
    valid = (h < H)[:, None] & (c < C)[None, :]
    if slot < 0:
        out = tl.load(OUT + at * (H * C) + hc, mask=valid, other=0.0)
        tl.store(CHANGE + at * (H * C) + hc, acc - mean[:, None] * out, mask=valid)
    else:
        to = slot.to(tl.int64)
        tl.store(PO + to * (H * C) + hc, acc, mask=valid)
        tl.store(PM + to * H + h, mean, mask=h < H)
