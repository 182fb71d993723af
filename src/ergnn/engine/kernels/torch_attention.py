"""Attention in plain PyTorch, in chunks of edges: the CPU implementation, and the reference for the Triton kernels.

With ``s_ij = a_src[j] + a_dst[i]``, ``e_ij = LeakyReLU(s_ij)``, ``α_ij = softmax_j e_ij`` and ``α̃_ij = m_ij α_ij``
for dropout factors ``m_ij``, the output is ``o_i = Σ_j α̃_ij z_j``; for its gradient ``g``, with ``D_i = ⟨g_i, o_i⟩``,

    ∂e_ij = α_ij (m_ij ⟨g_i, z_j⟩ − D_i),   ∂z_j = Σ_i α̃_ij g_i,   ∂a = Σ LeakyReLU′(s_ij) ∂e_ij,

and its derivative along ``(ż, ȧ)`` is ``ȯ_i = Σ_j α̃_ij (ė_ij z_j + ż_j) − (Σ_j α_ij ė_ij) o_i``.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data.csr import row_chunks, targets
from ergnn.engine.dropout import attention_keep
from ergnn.engine.kernels import Links

CHUNK_EDGES = 1 << 19
"""Number of edges per chunk."""

Values = tuple[Tensor, Tensor, Tensor]
"""``z``, ``a_src`` and ``a_dst``, or their gradients or tangents."""
Edges = tuple[Links, float, float]
"""The links, the negative slope of LeakyReLU, and the dropout probability of attention weights."""


def _edges(links: Links) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield chunks of target rows: their range, and the target (relative to the range) and source of each edge."""
    for row, stop, first, last in row_chunks(links.rowptr, CHUNK_EDGES):
        target, source = targets(links.rowptr[row : stop + 1]), links.col[first:last].long()
        if links.loops:
            loop, other = torch.arange(stop - row, device=source.device), source != target + row
            target, source = torch.cat([target[other], loop]), torch.cat([source[other], loop + row])
        yield slice(row, stop), target, source


def _factors(rows: slice, target: Tensor, source: Tensor, like: Tensor, key: Tensor | None, p: float) -> Tensor:
    if key is None:
        return like.new_ones(1, 1)
    return attention_keep(target + rows.start, source, like.size(1), key, p, like.dtype)


def _leaky_relu_derivative(score: Tensor, slope: float) -> Tensor:
    return torch.where(score > 0, score.new_ones(()), score.new_tensor(slope))


def forward(values: Values, key: Tensor | None, edges: Edges, train: bool) -> tuple[Tensor, ...]:
    """Return the output ``[targets, heads, width]``, the logarithm of softmax denominators ``[targets, heads]``, and
    two empty tensors in place of those that the Triton kernels save for training."""
    (z, a_src, a_dst), (links, slope, p) = values, edges
    heads = z.size(1)
    out, lse = z.new_zeros(links.targets, *z.shape[1:]), a_dst.new_zeros(links.targets, heads)
    for rows, target, source in _edges(links):
        score = F.leaky_relu(a_src[source] + a_dst[rows][target], slope)
        index, zero = target.unsqueeze(1).expand(-1, heads), torch.zeros_like(lse[rows])
        largest = zero.scatter_reduce(0, index, score, "amax", include_self=False)
        total = zero.index_add(0, target, torch.exp(score - largest[target]))
        lse[rows] = torch.where(total > 0, largest + total.log(), 0.0)
        alpha = torch.exp(score - lse[rows][target]) * _factors(rows, target, source, score, key, p)
        out[rows] = out[rows].index_add(0, target, alpha.unsqueeze(-1) * z[source])
    return out, lse, out.new_empty(0), out.new_empty(0)


def backward(g: Tensor, values: Values, key: Tensor | None, saved: tuple[Tensor, ...], edges: Edges) -> Values:
    """Return the gradients of ``z``, ``a_src`` and ``a_dst``."""
    (z, a_src, a_dst), (out, lse), (links, slope, p) = values, saved[:2], edges
    d_z, d_src, d_dst = torch.zeros_like(z), torch.zeros_like(a_src), torch.zeros_like(a_dst)
    dot = (g * out).sum(-1)
    for rows, target, source in _edges(links):
        score = a_src[source] + a_dst[rows][target]
        alpha = torch.exp(F.leaky_relu(score, slope) - lse[rows][target])
        factor = _factors(rows, target, source, score, key, p)
        g_i = g[rows][target]
        d_score = alpha * (factor * (g_i * z[source]).sum(-1) - dot[rows][target])
        d_score = d_score * _leaky_relu_derivative(score, slope)
        d_z.index_add_(0, source, (alpha * factor).unsqueeze(-1) * g_i)
        d_src.index_add_(0, source, d_score)
        d_dst[rows] = d_dst[rows].index_add(0, target, d_score)
    return d_z, d_src, d_dst


def derivative(tangents: Values, values: Values, key: Tensor | None, saved: tuple[Tensor, ...], edges: Edges) -> Tensor:
    """Return the derivative of the output along ``(ż, ȧ_src, ȧ_dst)``."""
    (z, a_src, a_dst), (out, lse), (links, slope, p) = values, saved[:2], edges
    z_dot, src_dot, dst_dot = tangents
    change = torch.zeros_like(out)
    for rows, target, source in _edges(links):
        score = a_src[source] + a_dst[rows][target]
        alpha = torch.exp(F.leaky_relu(score, slope) - lse[rows][target])
        score_dot = (src_dot[source] + dst_dot[rows][target]) * _leaky_relu_derivative(score, slope)
        mean = torch.zeros_like(lse[rows]).index_add(0, target, alpha * score_dot)
        alpha = (alpha * _factors(rows, target, source, score, key, p)).unsqueeze(-1)
        message = alpha * (score_dot.unsqueeze(-1) * z[source] + z_dot[source])
        change[rows] = change[rows].index_add(0, target, message) - mean.unsqueeze(-1) * out[rows]
    return change
