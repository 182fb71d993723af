"""Graph convolution (Kipf and Welling 2017)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from ergnn.nn.backbones.base import BACKBONES, Backbone, at_least_one
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


class NormalizedConv(nn.Module):
    """A convolution followed by batch normalization; its running statistics are buffers."""

    def __init__(self, conv: nn.Module, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = conv, nn.BatchNorm1d(channels)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        normalized: Tensor = self.norm(self.conv(x, adj))
        return normalized


@BACKBONES.register("gcn", help="graph convolution, 16 hidden units (Kipf and Welling 2017)")
class GCN(Backbone):
    """Graph convolutional network: one hidden layer of 16 units, ReLU, dropout 0.5.

    Args:
        hidden: number of units per hidden layer.
        layers: number of hidden layers, without the output layer.
        batch_norm: normalize the outputs of hidden layers over all nodes of the graph. The model is then computed on
            the whole graph, not on receptive fields.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        hidden: int = 16,
        dropout: float = 0.5,
        layers: int = 1,
        batch_norm: bool = False,
    ) -> None:
        at_least_one(hidden=hidden, layers=layers)
        sizes = [in_channels] + [hidden] * layers
        convs: list[nn.Module] = [
            NormalizedConv(GCNConv(a, b), b) if batch_norm else GCNConv(a, b) for a, b in pairwise(sizes)
        ]
        super().__init__(out_channels, convs, F.relu, dropout, hidden)
        self.sparse_input = batch_norm

    def make_head(self, out_channels: int) -> nn.Module:
        return GCNConv(self.embedding_size, out_channels)
