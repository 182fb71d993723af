"""Graph convolution (Kipf and Welling 2017)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from ergnn.nn.backbones.base import BACKBONES, ConvBackbone
from ergnn.nn.layers import SYMMETRIC, Block, LayerForm, Params, form_for, reads_messages


@form_for(GCNConv)
class GCNForm(LayerForm):
    """``Σ_j W h_j / √(d̃_i d̃_j) + b`` over neighbors and the node itself."""

    aggregation = SYMMETRIC
    projections = ("lin.weight",)

    def supports(self, conv: GCNConv) -> bool:
        plain = conv.normalize and conv.add_self_loops and not conv.improved and conv.bias is not None
        return bool(plain and reads_messages(conv, "add", "sum"))

    def forward(self, conv: GCNConv, params: Params, h: Any, block: Block, drop: Any) -> Tensor:
        return block.aggregate(block.project(h, params["lin.weight"])) + block.dst.each(params["bias"])


@BACKBONES.register("gcn", help="graph convolution, 16 hidden units (Kipf and Welling 2017)")
class GCN(ConvBackbone):
    """Graph convolutional network: one hidden layer of 16 units, ReLU, dropout 0.5."""

    def make_conv(self, fan_in: int, hidden: int, dropout: float) -> nn.Module:
        return GCNConv(fan_in, hidden)

    def make_head(self, out_channels: int) -> nn.Module:
        return GCNConv(self.embedding_size, out_channels)
