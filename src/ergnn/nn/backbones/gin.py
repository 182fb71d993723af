"""Graph isomorphism network (Xu et al. 2019)."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GINConv

from ergnn.nn.backbones.base import BACKBONES, ConvBackbone
from ergnn.nn.layers import SUM, Block, LayerForm, Params, form_for, reads_messages


@form_for(GINConv)
class GINForm(LayerForm):
    """``W_2 ReLU(W_1((1 + ε) h_i + Σ_j h_j) + b_1) + b_2``, computing the sum after ``W_1``, where rows are shorter."""

    aggregation = SUM
    projections = ("nn.0.weight",)

    def supports(self, conv: GINConv) -> bool:
        parts = list(conv.nn) if isinstance(conv.nn, nn.Sequential) else []
        mlp = [type(layer) for layer in parts] == [nn.Linear, nn.ReLU, nn.Linear]
        biased = mlp and all(part.bias is not None for part in parts[::2])
        return biased and not isinstance(conv.eps, nn.Parameter) and reads_messages(conv, "add", "sum")

    def forward(self, conv: GINConv, params: Params, h: Any, block: Block, drop: Any) -> Tensor:
        z = block.project(h, params["nn.0.weight"])
        z = block.aggregate(z) + (1.0 + conv.eps) * block.at_targets(z)
        z = F.relu(z + block.dst.each(params["nn.0.bias"]))
        return block.dst.matmul(z, params["nn.2.weight"]) + block.dst.each(params["nn.2.bias"])


@BACKBONES.register("gin", help="graph isomorphism network, two-layer MLPs (Xu et al. 2019)")
class GIN(ConvBackbone):
    """Graph isomorphism network (GIN-0): sums over neighbors, MLPs with one hidden layer of 16 units, dropout 0.5.

    Unlike the original, it has no batch normalization by default: the running statistics of one task are wrong for the
    next, and a node's output would depend on nodes outside its receptive field.
    """

    def make_conv(self, fan_in: int, hidden: int, dropout: float) -> nn.Module:
        return GINConv(_mlp(fan_in, hidden, hidden))

    def make_head(self, out_channels: int) -> nn.Module:
        return GINConv(_mlp(self.embedding_size, self.embedding_size, out_channels))


def _mlp(fan_in: int, hidden: int, fan_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(fan_in, hidden), nn.ReLU(), nn.Linear(hidden, fan_out))
