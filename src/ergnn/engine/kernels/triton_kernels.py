# mypy: ignore-errors
"""Triton kernels for the output of attention, its directional derivative, and gradients.

See :mod:`.triton_attention`.
"""

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


@triton.jit(do_not_specialize=["count"])
def peaks(
    ROW, BEGIN, END, COL, AS, LOW, HIGH, M, count,
    H: tl.constexpr, HP: tl.constexpr, T: tl.constexpr, B: tl.constexpr, LOOPS: tl.constexpr, NARROW: tl.constexpr,
):  # fmt: skip
    """Find the maximum of ``a_src`` over the sources of each piece, B pieces per program, unless the bound suffices."""
    h, t = tl.arange(0, HP), tl.arange(0, T)
    _, narrow = bound(LOW, HIGH, h, H, NARROW)
    first = tl.program_id(0) * B
    last = tl.where(narrow, first, tl.minimum(first + B, count))
    for s in range(first, last):
        row, begin, end = tl.load(ROW + s), tl.load(BEGIN + s), tl.load(END + s)
        most = tl.full([T, HP], float("-inf"), tl.float32)
        for e in range(begin, end, T):
            ok = e + t < end
            j = tl.load(COL + e + t, mask=ok, other=0)
            most = tl.maximum(
                most, tl.where(ok[:, None], gather_heads(AS, j[:, None], h, H, HP, H, True), float("-inf"))
            )
        m = tl.max(most, 0)
        if LOOPS:
            m = tl.maximum(m, tl.load(AS + row.to(tl.int64) * H + h, mask=h < H, other=0.0))
        tl.store(M + s.to(tl.int64) * H + h, m, mask=h < H)


@triton.jit
def _output_step(
    total, share, acc, accp, acc2, accp2, j, ok, row, ad, m, h, c, Z, AS, key, limit,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, N: tl.constexpr,
    SLOPE: tl.constexpr, DROP: tl.constexpr, TRAIN: tl.constexpr, BIG: tl.constexpr,
):  # fmt: skip
    EVEN: tl.constexpr = HP == H and CP == W
    kept = ok
    if DROP:
        kept = keeps(row, j, h[None, :], key, limit)
    if W > C:
        z = gather(Z, j, kept, h, c, H, W, EVEN, False, BIG)
        a = column(z, c, C)
    else:
        z = gather(Z, j, kept, h, c, H, W, EVEN, DROP, BIG)
        a = gather_heads(AS, j, h, H, HP, H, BIG)
    a += ad[None, :]
    p = tl.where(ok, power(leaky(a, SLOPE) - m[None, :]), 0.0)
    above = tl.where(a > 0, p, 0.0)
    total += p
    if TRAIN:
        share += above
    if DROP and W > C:
        p, above = tl.where(kept, p, 0.0), tl.where(kept, above, 0.0)
    acc += p[:, :, None] * z
    if TRAIN:
        accp += above[:, :, None] * z
    if N < CP:
        z = gather(Z, j, kept, h, c + N, H, W, EVEN, DROP, BIG)
        acc2 += p[:, :, None] * z
        if TRAIN:
            accp2 += above[:, :, None] * z
    return total, share, acc, accp, acc2, accp2


@triton.jit
def output(
    ROW, BEGIN, END, SLOT, ROWPTR, COL, Z, AS, AD, LOW, HIGH, M, KEY, OUT, LSE, P, Q, PM, PL, PQ, PO, PP, limit, scale,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, N: tl.constexpr,
    U: tl.constexpr, V: tl.constexpr, SLOPE: tl.constexpr, DROP: tl.constexpr, TRAIN: tl.constexpr,
    LOOPS: tl.constexpr, NARROW: tl.constexpr, BIG: tl.constexpr,
):  # fmt: skip
    s = tl.program_id(0)
    row, begin, end, slot = tl.load(ROW + s), tl.load(BEGIN + s), tl.load(END + s), tl.load(SLOT + s)
    h, c = tl.arange(0, HP), tl.arange(0, N)
    v = lanes(V, HP)
    at = row.to(tl.int64)
    ad = tl.load(AD + at * H + h, mask=h < H, other=0.0)
    key = tl.load(KEY)
    high, narrow = bound(LOW, HIGH, h, H, NARROW)
    largest = tl.load(M + s.to(tl.int64) * H + h, mask=h < tl.where(narrow, 0, H), other=0.0)
    m = leaky(tl.where(narrow, high, largest) + ad, SLOPE)
    total, share = tl.zeros([V, HP], tl.float32), tl.zeros([V, HP], tl.float32)
    acc, accp = tl.zeros([V, HP, N], tl.float32), tl.zeros([V, HP, N], tl.float32)
    acc2, accp2 = tl.zeros([V, HP, N], tl.float32), tl.zeros([V, HP, N], tl.float32)
    then = following(COL, begin + v, end)
    for e in range(begin, end, U * V):
        for u in tl.static_range(U):
            j, ok = then, e + u * V + v < end
            then = following(COL, e + (u + 1) * V + v, end)
            if LOOPS:
                ok = ok & (j != row)
            total, share, acc, accp, acc2, accp2 = _output_step(
                total, share, acc, accp, acc2, accp2, j, ok, row, ad, m, h, c, Z, AS, key, limit,
                H, C, W, HP, CP, N, SLOPE, DROP, TRAIN, BIG,
            )  # fmt: skip
    if LOOPS:
        ok = (v == 0) & (tl.load(ROWPTR + at) == begin)
        total, share, acc, accp, acc2, accp2 = _output_step(
            total, share, acc, accp, acc2, accp2, row + v * 0, ok, row, ad, m, h, c, Z, AS, key, limit,
            H, C, W, HP, CP, N, SLOPE, DROP, TRAIN, BIG,
        )  # fmt: skip
    total, share = tl.sum(total, 0), tl.sum(share, 0)
    if slot < 0:
        inverse = tl.where(total > 0, 1.0 / total, 0.0)
        by = (inverse * scale)[:, None]
        tl.store(LSE + at * H + h, tl.where(total > 0, m + tl.log(total), 0.0), mask=h < H)
        store(OUT, at, tl.sum(acc, 0) * by, tl.sum(acc2, 0) * by, h, c, H, C, CP, N)
        if TRAIN:
            tl.store(Q + at * H + h, share * inverse, mask=h < H)
            store(P, at, tl.sum(accp, 0) * by, tl.sum(accp2, 0) * by, h, c, H, C, CP, N)
    else:
        to = slot.to(tl.int64)
        tl.store(PM + to * H + h, m, mask=h < H)
        tl.store(PL + to * H + h, total, mask=h < H)
        store(PO, to, tl.sum(acc, 0), tl.sum(acc2, 0), h, c, H, C, CP, N)
        if TRAIN:
            tl.store(PQ + to * H + h, share, mask=h < H)
            store(PP, to, tl.sum(accp, 0), tl.sum(accp2, 0), h, c, H, C, CP, N)


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
        w = power(tl.load(PM + at * H + h, mask=h < H, other=0.0) - m)
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
    mean, acc, acc2, j, a, a_dot, ok, row, ad, lse, h, c, Z, key, limit,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, N: tl.constexpr,
    SLOPE: tl.constexpr, DROP: tl.constexpr, BIG: tl.constexpr,
):  # fmt: skip
    EVEN: tl.constexpr = HP == H and CP == W
    SKIP: tl.constexpr = DROP and W == C
    score = a + ad[None, :]
    kept = ok
    if DROP:
        kept = keeps(row, j, h[None, :], key, limit)
    chosen = 2 * j + (score > 0).to(tl.int32)
    z = gather(Z, chosen, kept, h, c, H, W, EVEN, SKIP, BIG)
    alpha = tl.where(ok, power(leaky(score, SLOPE) - lse[None, :]), 0.0)
    mean += alpha * leaky_slope(score, SLOPE) * a_dot
    if DROP and W > C:
        alpha = tl.where(kept, alpha, 0.0)
    acc += alpha[:, :, None] * z
    if N < CP:
        acc2 += alpha[:, :, None] * gather(Z, chosen, kept, h, c + N, H, W, EVEN, SKIP, BIG)
    return mean, acc, acc2


@triton.jit
def derivative(
    ROW, BEGIN, END, SLOT, ROWPTR, COL, Z, AS, ASD, AD, LSE, OUT, KEY, CHANGE, PM, PO, limit, scale,
    H: tl.constexpr, C: tl.constexpr, W: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr, N: tl.constexpr,
    U: tl.constexpr, V: tl.constexpr, SLOPE: tl.constexpr, DROP: tl.constexpr, LOOPS: tl.constexpr,
    BIG: tl.constexpr,
):  # fmt: skip
    """Compute ``Σ_j m_ij α_ij v_ij − o_i Σ_j α_ij c_ij ȧ_src[j]`` with ``v_ij = ż_j + c_ij ȧ_src[j] z_j``.

    ``c_ij`` is LeakyReLU's derivative, 1 or SLOPE, so that ``v_ij`` is one of the two rows of j in Z.
    """
    s = tl.program_id(0)
    row, begin, end, slot = tl.load(ROW + s), tl.load(BEGIN + s), tl.load(END + s), tl.load(SLOT + s)
    h, c = tl.arange(0, HP), tl.arange(0, N)
    v = lanes(V, HP)
    at = row.to(tl.int64)
    ad = tl.load(AD + at * H + h, mask=h < H, other=0.0)
    lse = tl.load(LSE + at * H + h, mask=h < H, other=0.0)
    key = tl.load(KEY)
    mean = tl.zeros([V, HP], tl.float32)
    acc, acc2 = tl.zeros([V, HP, N], tl.float32), tl.zeros([V, HP, N], tl.float32)
    j = following(COL, begin + v, end)
    a, a_dot = gather_heads(AS, j, h, H, HP, H, BIG), gather_heads(ASD, j, h, H, HP, H, BIG)
    then = following(COL, begin + V + v, end)
    for e in range(begin, end, U * V):
        for u in tl.static_range(U):
            ok = e + u * V + v < end
            if LOOPS:
                ok = ok & (j != row)
            # the scores of the next edges, too: rows of Z are read by their signs
            next_a, next_dot = gather_heads(AS, then, h, H, HP, H, BIG), gather_heads(ASD, then, h, H, HP, H, BIG)
            mean, acc, acc2 = _derivative_step(
                mean, acc, acc2, j, a, a_dot, ok, row, ad, lse, h, c, Z, key, limit,
                H, C, W, HP, CP, N, SLOPE, DROP, BIG,
            )  # fmt: skip
            j, a, a_dot = then, next_a, next_dot
            then = following(COL, e + (u + 2) * V + v, end)
    if LOOPS:
        ok = (v == 0) & (tl.load(ROWPTR + at) == begin)
        j = row + v * 0
        a, a_dot = gather_heads(AS, j, h, H, HP, H, BIG), gather_heads(ASD, j, h, H, HP, H, BIG)
        mean, acc, acc2 = _derivative_step(
            mean, acc, acc2, j, a, a_dot, ok, row, ad, lse, h, c, Z, key, limit,
            H, C, W, HP, CP, N, SLOPE, DROP, BIG,
        )  # fmt: skip
    mean = tl.sum(mean, 0)
    acc, acc2 = tl.sum(acc, 0) * scale, tl.sum(acc2, 0) * scale
    if slot < 0:
        _store_change(CHANGE, OUT, at, acc, mean, h, c, H, C)
        if N < CP:
            _store_change(CHANGE, OUT, at, acc2, mean, h, c + N, H, C)
    else:
        to = slot.to(tl.int64)
        tl.store(PM + to * H + h, mean, mask=h < H)
        store(PO, to, acc, acc2, h, c, H, C, CP, N)


@triton.jit
def _store_change(CHANGE, OUT, row, acc, mean, h, c, H: tl.constexpr, C: tl.constexpr):
    at, valid = row * (H * C) + h[:, None] * C + c[None, :], (h < H)[:, None] & (c < C)[None, :]
    tl.store(CHANGE + at, acc - mean[:, None] * tl.load(OUT + at, mask=valid, other=0.0), mask=valid)


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
def _gradient_step(
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
        stored = tl.load(RECORD + 2 * H + at, mask=(h < tl.where(narrow, 0, H))[None, :], other=0.0)
        lse = tl.where(narrow, leaky(high[None, :] + ad, SLOPE), stored)
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
    place = Z + at * (H * C) + h[:, None] * C + c[None, :]
    z = tl.load(place, mask=(h < H)[:, None] & (c < C)[None, :], other=0.0)
    z2 = tl.load(place + N, mask=(h < H)[:, None] & (c + N < C)[None, :], other=0.0)
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
            das, acc, acc2 = _gradient_step(
                das, acc, acc2, i, ok, row, a, z, z2, high, narrow, h, c, G, RECORD, key, limit,
                H, C, W, HP, CP, N, SLOPE, DROP, BIG,
            )  # fmt: skip
    if LOOPS:
        ok = (v == 0) & (tl.load(ROWPTR + at) == begin)
        das, acc, acc2 = _gradient_step(
            das, acc, acc2, row + v * 0, ok, row, a, z, z2, high, narrow, h, c, G, RECORD, key, limit,
            H, C, W, HP, CP, N, SLOPE, DROP, BIG,
        )  # fmt: skip
    das, acc, acc2 = tl.sum(das, 0) * scale, tl.sum(acc, 0) * scale, tl.sum(acc2, 0) * scale
    if slot < 0:
        tl.store(DAS + at * H + h, das, mask=h < H)
        store(DZ, at, acc, acc2, h, c, H, C, CP, N)
    else:
        to = slot.to(tl.int64)
        tl.store(PA + to * H + h, das, mask=h < H)
        store(PZ, to, acc, acc2, h, c, H, C, CP, N)


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
