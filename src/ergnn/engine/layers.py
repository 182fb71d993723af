"""PyG's layers on a block: the same function of the same parameters, for one model or many side by side.

Parameters come stacked, ``[slots, …]``, matrices as ``[slots, in, out]``; see :mod:`ergnn.engine.objective`. Each form
is held equal to PyG's own ``forward`` by the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, MessagePassing, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from ergnn.engine.adjacency import Block
from ergnn.engine.dropout import keep_scale
from ergnn.engine.features import DenseFeatures, Features, SparseFeatures
from ergnn.engine.kernels.masks import dropped
from ergnn.engine.linked import LinkedBlock

Params = Mapping[str, Tensor]
AnyBlock = Block | LinkedBlock


class DropoutStream:
    """Hands out one dropout mask a site, in the order in which the forward pass asks.

    Args:
        keys: ``[sites, models]``, or None in evaluation, when nothing is dropped.
    """

    def __init__(self, keys: Tensor | None) -> None:
        self.keys = keys
        self._site = 0

    def key(self, p: float) -> Tensor | None:
        """The next site's keys, a model each; None where nothing is dropped."""
        if self.keys is None or p == 0.0:
            return None
        self._site += 1
        return self.keys[self._site - 1]

    def __call__(self, h: Tensor, p: float, position: Tensor | None, model: Tensor | None) -> Tensor:
        """``h`` with entries dropped; row i belongs to ``model[i]`` and is its ``position[i]``-th.

        Without these, rows are those of one model in their order.
        """
        key = self.key(p)
        if key is None:
            return h
        if position is None or model is None:
            return dropped(h, key, p)
        key = key if key.numel() == 1 else key.index_select(0, model)
        if h.dim() == 2:
            column = torch.arange(h.size(1), dtype=torch.int32, device=h.device)
            position, key = position.unsqueeze(1) * h.size(1) + column, key.unsqueeze(1)
        return h * keep_scale(position, key, p, h.dtype)

    def input(self, h: Tensor | Features, p: float, block: AnyBlock) -> Tensor | Features:
        """Dropout on what a layer reads: activations, or attributes in either form."""
        if isinstance(h, SparseFeatures):
            return SparseFeatures(h.pattern, self(h.value, p, h.position, h.model), h.position, h.model)
        if isinstance(h, DenseFeatures):
            return DenseFeatures(self(h.value, p, block.src_position, block.src_model))
        return self(h, p, block.src_position, block.src_model)


def _project(h: Tensor | Features, weight: Tensor, block: AnyBlock) -> Tensor:
    if isinstance(h, SparseFeatures):
        return h.project(h.value, weight)
    value = h.value if isinstance(h, DenseFeatures) else h
    return block.src.matmul(value.to(weight.dtype), weight)


def gat(conv: GATConv, params: Params, h: Tensor | Features, block: AnyBlock, drop: DropoutStream) -> Tensor:
    """``Σ_j α_ij W h_j + b`` with ``α = softmax_j(LeakyReLU(a_src·W h_j + a_dst·W h_i))``, heads side by side."""
    heads, width = conv.heads, params["att_src"].size(-1)
    z = _project(h, params["lin.weight"], block).view(-1, heads, width)
    att_src, att_dst = params["att_src"].squeeze(1), params["att_dst"].squeeze(1)
    if isinstance(block, LinkedBlock):
        out = block.attend(z, att_src, att_dst, conv.negative_slope, drop.key(conv.dropout), conv.dropout)
    else:
        out = _attend(z, att_src, att_dst, conv, block, drop)
    out = out.flatten(1) if conv.concat else out.mean(1)
    return out + block.dst.each(params["bias"])


def _attend(z: Tensor, att_src: Tensor, att_dst: Tensor, conv: GATConv, block: Block, drop: DropoutStream) -> Tensor:
    """``Σ_j α_ij z_j``, an entry for each edge, head and channel."""
    from_source = (z * block.src.each(att_src)).sum(-1)
    to_target = (block.at_targets(z) * block.dst.each(att_dst)).sum(-1)
    score = from_source.index_select(0, block.col) + to_target.index_select(0, block.row)
    score = F.leaky_relu(score, conv.negative_slope)
    index = block.row.unsqueeze(1).expand(-1, conv.heads)
    largest = score.detach().new_zeros(block.dst.count, conv.heads)
    largest = largest.scatter_reduce(0, index, score.detach(), "amax", include_self=False)
    weight = torch.exp(score - largest.index_select(0, block.row))
    total = weight.new_zeros(block.dst.count, conv.heads).index_add(0, block.row, weight)
    alpha = weight / total.index_select(0, block.row)
    alpha = drop(alpha, conv.dropout, block.edge_position, block.edge_model)
    message = alpha.unsqueeze(-1) * z.index_select(0, block.col)
    return message.new_zeros(block.dst.count, *z.shape[1:]).index_add(0, block.row, message)


def gcn(conv: GCNConv, params: Params, h: Tensor | Features, block: AnyBlock, drop: DropoutStream) -> Tensor:
    """``Σ_j W h_j / √(d_i d_j) + b`` over neighbours and the node itself."""
    return block.aggregate(_project(h, params["lin.weight"], block)) + block.dst.each(params["bias"])


def sage(conv: SAGEConv, params: Params, h: Tensor | Features, block: AnyBlock, drop: DropoutStream) -> Tensor:
    """``W_l mean_j h_j + b + W_r h_i``."""
    neighbours = block.aggregate(_project(h, params["lin_l.weight"], block))
    own = block.at_targets(_project(h, params["lin_r.weight"], block))
    return neighbours + own + block.dst.each(params["lin_l.bias"])


def gin(conv: GINConv, params: Params, h: Tensor | Features, block: AnyBlock, drop: DropoutStream) -> Tensor:
    """``W_2 ReLU(W_1((1 + ε) h_i + Σ_j h_j) + b_1) + b_2``; the sum is taken after ``W_1``, where rows are short."""
    z = _project(h, params["nn.0.weight"], block)
    z = block.aggregate(z) + (1.0 + conv.eps) * block.at_targets(z)
    z = F.relu(z + block.dst.each(params["nn.0.bias"]))
    return block.dst.matmul(z, params["nn.2.weight"]) + block.dst.each(params["nn.2.bias"])


def linear(conv: nn.Linear, params: Params, h: Tensor | Features, block: AnyBlock, drop: DropoutStream) -> Tensor:
    """``W h_i + b``."""
    z = block.at_targets(_project(h, params["weight"], block))
    return z + block.dst.each(params["bias"])


class Propagate(MessagePassing):
    """``S^K x`` with ``S = D̃^-½ (A + I) D̃^-½``: SGC's only use of the graph; nothing is learnt in it."""

    def __init__(self, hops: int) -> None:
        super().__init__(aggr="add")
        self.hops = hops

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges, weight = gcn_norm(edge_index, None, x.size(0), add_self_loops=True, dtype=x.dtype)
        for _ in range(self.hops):
            x = self.propagate(edges, x=x, weight=weight)
        return x

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return weight.unsqueeze(-1) * x_j


Form = Callable[[Any, Params, Any, AnyBlock, DropoutStream], Tensor]

FORMS: dict[type[nn.Module], tuple[str, Form]] = {
    GATConv: ("attention", gat),
    GCNConv: ("gcn", gcn),
    SAGEConv: ("mean", sage),
    GINConv: ("sum", gin),
    nn.Linear: ("none", linear),
}
"""Layer type → how its neighbours are summed, and its form on a block."""


def form_of(layer: nn.Module) -> Form:
    return next(form for kind, (_, form) in FORMS.items() if isinstance(layer, kind))


def aggregation_of(layer: nn.Module) -> str:
    return next(name for kind, (name, _) in FORMS.items() if isinstance(layer, kind))


def has_form(conv: nn.Module) -> bool:
    """Whether this layer, as it is set, has a form on blocks; others run as they are, on the whole graph.

    A subclass has none: its ``forward`` may be another.
    """
    if type(conv) not in FORMS:
        return False
    if isinstance(conv, MessagePassing):
        sums = "mean" if isinstance(conv, SAGEConv) else "add"
        if conv.flow != "source_to_target" or conv.aggr not in (sums, "sum" if sums == "add" else sums):
            return False
    if isinstance(conv, GATConv):
        plain = conv.add_self_loops and conv.edge_dim is None and not conv.residual and conv.bias is not None
        return bool(plain and isinstance(conv.in_channels, int))
    if isinstance(conv, GCNConv):
        return bool(conv.normalize and conv.add_self_loops and not conv.improved and conv.bias is not None)
    if isinstance(conv, SAGEConv):
        plain = conv.root_weight and isinstance(conv.in_channels, int) and not conv.project and not conv.normalize
        return bool(plain and conv.lin_l.bias is not None)
    if isinstance(conv, GINConv):
        parts = list(conv.nn) if isinstance(conv.nn, nn.Sequential) else []
        plain = [type(layer) for layer in parts] == [nn.Linear, nn.ReLU, nn.Linear]
        return plain and not isinstance(conv.eps, nn.Parameter) and all(p.bias is not None for p in parts[::2])
    return isinstance(conv, nn.Linear) and conv.bias is not None
