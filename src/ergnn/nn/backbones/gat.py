"""Graph attention (Veličković et al. 2018)."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from ergnn.nn.backbones.base import BACKBONES, Backbone, at_least_one
from ergnn.nn.layers import ATTENTION, Block, LayerForm, Params, form_for, reads_messages


@form_for(GATConv)
class GATForm(LayerForm):
    """``Σ_j α_ij W h_j + b`` with ``α = softmax_j(LeakyReLU(a_src·W h_j + a_dst·W h_i))``, heads side by side."""

    aggregation = ATTENTION
    projections = ("lin.weight",)

    def supports(self, conv: GATConv) -> bool:
        plain = conv.add_self_loops and conv.edge_dim is None and not conv.residual and conv.bias is not None
        return bool(plain and isinstance(conv.in_channels, int) and reads_messages(conv, "add", "sum"))

    def forward(self, conv: GATConv, params: Params, h: Any, block: Block, drop: Any) -> Tensor:
        att_src, att_dst = params["att_src"].squeeze(1), params["att_dst"].squeeze(1)
        z = block.project(h, params["lin.weight"]).view(-1, conv.heads, att_src.size(-1))
        out = block.attend(z, att_src, att_dst, conv.negative_slope, drop, conv.dropout)
        out = out.flatten(1) if conv.concat else out.mean(1)
        return out + block.dst.each(params["bias"])


@BACKBONES.register("gat", help="graph attention, 8 heads × 8 (Veličković et al. 2018)")
class GAT(Backbone):
    """Graph attention network: 8 heads of 8 channels, ELU, dropout 0.6 on inputs and on attention.

    Args:
        hidden: number of hidden units per attention head.
        heads: number of attention heads.
        dropout: dropout probability of inputs of layers and of attention weights.
    """

    lr = 0.005

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        hidden: int = 8,
        heads: int = 8,
        dropout: float = 0.6,
    ) -> None:
        at_least_one(hidden=hidden, heads=heads)
        convs: list[nn.Module] = [GATConv(in_channels, hidden, heads=heads, dropout=dropout)]
        super().__init__(out_channels, convs, F.elu, dropout, hidden * heads)

    def make_head(self, out_channels: int) -> nn.Module:
        return GATConv(self.embedding_size, out_channels, heads=1, concat=False, dropout=self.dropout)
