"""Graph attention (Veličković et al. 2018)."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from ergnn.config.registry import inherit_options
from ergnn.nn.backbones.base import BACKBONES, ConvBackbone, at_least_one
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
class GAT(ConvBackbone):
    """Graph attention network: 8 heads of 8 channels, ELU, dropout 0.6 on inputs and on attention.

    With a linear output layer, the activation is ReLU, and attention has no dropout.

    Args:
        heads: number of attention heads of hidden layers.
    """

    lr = 0.005

    @inherit_options(ConvBackbone)
    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        hidden: int = 8,
        heads: int = 8,
        dropout: float = 0.6,
        **options: Any,
    ) -> None:
        at_least_one(heads=heads)
        self.attention_heads = heads
        super().__init__(in_channels, out_channels, hidden, dropout=dropout, **options)
        self.activation = F.relu if self.linear_output else F.elu

    def make_conv(self, fan_in: int, hidden: int, dropout: float) -> nn.Module:
        return GATConv(fan_in, hidden, heads=self.attention_heads, dropout=0.0 if self.linear_output else dropout)

    def make_head(self, out_channels: int) -> nn.Module:
        return GATConv(self.embedding_size, out_channels, heads=1, concat=False, dropout=self.dropout)
