# mypy: ignore-errors
"""Triton kernels for the gradients of attention; see :mod:`.triton_attention`."""

from __future__ import annotations

import triton
import triton.language as tl

from ergnn.engine.kernels.triton_common import (
    bound,
    column,
    following,
    gather,
    gather_heads,
    keeps,
    lanes,
    leaky,
    leaky_slope,
    power,
    store,
)


@triton.jit(do_not_specialize=["rows"])
def targets(
    G, OUT, P, AD, LSE, Q, LOW, HIGH, DAD, RECORD, SCALED, rows, scale,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, B: tl.constexpr,
    SLOPE: tl.constexpr, NARROW: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of ``a_dst``, and what the pass over sources reads of each target.

    With one head, these are ``g``, ``a_dst``, ``lse`` and ``D / scale`` in one record. With several heads, they are
    ``g`` and ``D / scale`` times ``exp(b − lse)``, ``a_dst``, and ``b``, an offset that replaces ``lse``. If all scores
    are near their bound, that is ``b``, and the pass computes it from ``a_dst`` instead of reading it.
    """
    n = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    h, c = tl.arange(0, HP), tl.arange(0, CP)
    at = n[:, None, None] * (H * C) + (h[:, None] * C + c[None, :])[None, :, :]
    valid = (n < rows)[:, None, None] & ((h < H)[:, None] & (c < C)[None, :])[None, :, :]
    g = tl.load(G + at, mask=valid, other=0.0)
    out = tl.load(OUT + at, mask=valid, other=0.0)
    p = tl.load(P + at, mask=valid, other=0.0)
    ah = n[:, None] * H + h[None, :]
    ok = (n < rows)[:, None] & (h < H)[None, :]
    ad, lse = tl.load(AD + ah, mask=ok, other=0.0), tl.load(LSE + ah, mask=ok, other=0.0)
    q = tl.load(Q + ah, mask=ok, other=0.0)
    d = tl.sum(g * out, 2)
    dad = tl.sum(g * (SLOPE * out + (1 - SLOPE) * p), 2) - d * (SLOPE + (1 - SLOPE) * q)
    tl.store(DAD + ah, dad, mask=ok)
    d = d / scale
    if W > C:
        c3 = c[None, None, :]
        more = tl.where(c3 == C, ad[:, :, None], tl.where(c3 == C + 1, lse[:, :, None], d[:, :, None]))
        to = n[:, None, None] * (H * W) + (h[:, None] * W + c[None, :])[None, :, :]
        tl.store(RECORD + to, tl.where(c3 < C, g, more), mask=ok[:, :, None] & (c < W)[None, None, :])
    else:
        high, narrow = bound(LOW, HIGH, h, H, NARROW)
        offset = tl.where(narrow, leaky(high[None, :] + ad, SLOPE), lse)
        factor = power(offset - lse)
        tl.store(SCALED + at, g * factor[:, :, None], mask=valid)
        to = n[:, None] * (3 * H) + h[None, :]
        tl.store(RECORD + to, ad, mask=ok)
        tl.store(RECORD + to + H, d * factor, mask=ok)
        tl.store(RECORD + to + 2 * H, offset, mask=ok)


@triton.jit
def _step(
    das, acc, acc2, i, ok, row, a, z, z2, high, narrow, h, c, G, RECORD, key, limit,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, N: tl.constexpr,
    SLOPE: tl.constexpr, DROP: tl.constexpr, BIG: tl.constexpr,
):  # fmt: skip
    EVEN: tl.constexpr = HP == H and CP == W
    kept = ok
    if DROP:
        kept = keeps(i, row, h[None, :], key, limit)
    if W > C:
        g = gather(RECORD, i, kept, h, c, H, W, EVEN, False, BIG)
        ad, lse, d = column(g, c, C), column(g, c, C + 1), column(g, c, C + 2)
    else:
        g = gather(G, i, kept, h, c, H, C, EVEN, DROP, BIG)
        ad = gather_heads(RECORD, i, h, H, HP, 3 * H, BIG)
        d = gather_heads(RECORD + H, i, h, H, HP, 3 * H, BIG)
        at = (i.to(tl.int64) if BIG else i) * (3 * H) + h[None, :]
        own = tl.load(RECORD + 2 * H + at, mask=(h < tl.where(narrow, 0, H))[None, :], other=0.0)
        lse = tl.where(narrow, leaky(high[None, :] + ad, SLOPE), own)
    score = a[None, :] + ad
    alpha = tl.where(ok, power(leaky(score, SLOPE) - lse), 0.0)
    dot = tl.sum(g * z[None, :, :], 2)
    if N < CP:
        g2 = gather(G, i, kept, h, c + N, H, C, EVEN, DROP, BIG)
        dot += tl.sum(g2 * z2[None, :, :], 2)
    weight = alpha
    if DROP and W > C:
        weight, dot = tl.where(kept, alpha, 0.0), tl.where(kept, dot, 0.0)
    das += alpha * leaky_slope(score, SLOPE) * (dot - d)
    acc += weight[:, :, None] * g
    if N < CP:
        acc2 += weight[:, :, None] * g2
    return das, acc, acc2


@triton.jit
def sources(
    ROW, BEGIN, END, SLOT, ROWPTR, COL, Z, AS, G, RECORD, LOW, HIGH, KEY, DZ, DAS, PZ, PA, limit, scale,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, N: tl.constexpr,
    U: tl.constexpr, V: tl.constexpr, SLOPE: tl.constexpr, DROP: tl.constexpr, LOOPS: tl.constexpr,
    NARROW: tl.constexpr, BIG: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of ``z`` and ``a_src`` from the targets of each source row."""
    s = tl.program_id(0)
    row, begin, end, slot = tl.load(ROW + s), tl.load(BEGIN + s), tl.load(END + s), tl.load(SLOT + s)
    h, c = tl.arange(0, HP), tl.arange(0, N)
    v = lanes(V, HP)
    at = row.to(tl.int64)
    own = Z + at * (H * C) + h[:, None] * C + c[None, :]
    z = tl.load(own, mask=(h < H)[:, None] & (c < C)[None, :], other=0.0)
    z2 = tl.load(own + N, mask=(h < H)[:, None] & (c + N < C)[None, :], other=0.0)
    a = tl.load(AS + at * H + h, mask=h < H, other=0.0)
    key = tl.load(KEY)
    high, narrow = bound(LOW, HIGH, h, H, NARROW)
    das = tl.zeros([V, HP], tl.float32)
    acc, acc2 = tl.zeros([V, HP, N], tl.float32), tl.zeros([V, HP, N], tl.float32)
    then = following(COL, begin + v, end)
    for e in range(begin, end, U * V):
        for u in tl.static_range(U):
            i, ok = then, e + u * V + v < end
            then = following(COL, e + (u + 1) * V + v, end)
            if LOOPS:
                ok = ok & (i != row)
            das, acc, acc2 = _step(
                das, acc, acc2, i, ok, row, a, z, z2, high, narrow, h, c, G, RECORD, key, limit,
                H, C, W, HP, CP, N, SLOPE, DROP, BIG,
            )  # fmt: skip
    if LOOPS:
        ok = (v == 0) & (tl.load(ROWPTR + at) == begin)
        das, acc, acc2 = _step(
            das, acc, acc2, row + v * 0, ok, row, a, z, z2, high, narrow, h, c, G, RECORD, key, limit,
            H, C, W, HP, CP, N, SLOPE, DROP, BIG,
        )  # fmt: skip
    das, acc, acc2 = tl.sum(das, 0) * scale, tl.sum(acc, 0) * scale, tl.sum(acc2, 0) * scale
    if slot < 0:
        tl.store(DAS + at * H + h, das, mask=h < H)
        store(DZ, at, acc, h, c, H, C)
        if N < CP:
            store(DZ, at, acc2, h, c + N, H, C)
    else:
        to = slot.to(tl.int64)
        tl.store(PA + to * H + h, das, mask=h < H)
        store(PZ, to, acc, h, c, H, C)
        if N < CP:
            store(PZ, to, acc2, h, c + N, H, C)


@triton.jit
def merge(
    ROW, POINTER, PZ, PA, DZ, DAS, OUT,
    H: tl.constexpr, C: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, CENTERED: tl.constexpr,
):  # fmt: skip
    """Sum the pieces of each row; CENTERED adds the last term of the derivative, ``− (Σ_j α_ij ė_ij) o_i``."""
    s = tl.program_id(0)
    row, first = tl.load(ROW + s).to(tl.int64), tl.load(POINTER + s).to(tl.int64)
    pieces = tl.load(POINTER + s + 1) - tl.load(POINTER + s)
    h, c = tl.arange(0, HP), tl.arange(0, CP)
    hc = h[:, None] * C + c[None, :]
    valid = (h < H)[:, None] & (c < C)[None, :]
    acc, das = tl.zeros([HP, CP], tl.float32), tl.zeros([HP], tl.float32)
    for t in range(0, pieces):
        at = first + t
        acc += tl.load(PZ + at * (H * C) + hc, mask=valid, other=0.0)
        das += tl.load(PA + at * H + h, mask=h < H, other=0.0)
    if CENTERED:
        acc -= das[:, None] * tl.load(OUT + row * (H * C) + hc, mask=valid, other=0.0)
    else:
        tl.store(DAS + row * H + h, das, mask=h < H)
    tl.store(DZ + row * (H * C) + hc, acc, mask=valid)
