"""Networks with the settings of their original papers, and the forms of their layers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.nn.backbones.base import BACKBONES, Backbone, ConvBackbone
from ergnn.nn.layers import (
    ATTENTION,
    MEAN,
    SUM,
    SYMMETRIC,
    Block,
    LayerForm,
    Params,
    Propagate,
    form_for,
    reads_messages,
)


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
    """Graph convolutional network (Kipf and Welling 2017): one hidden layer of 16 units, ReLU, dropout 0.5."""

    def make_conv(self, fan_in: int, fan_out: int) -> nn.Module:
        return GCNConv(fan_in, fan_out)


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
    """Graph attention network (Veličković et al. 2018): 8 heads of 8 channels, ELU, dropout 0.6, also on attention.

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
        check_at_least(1, heads=heads)
        self.attention_heads = heads
        super().__init__(in_channels, out_channels, hidden, dropout=dropout, **options)
        self.activation = F.relu if self.linear_output else F.elu

    def make_conv(self, fan_in: int, fan_out: int) -> nn.Module:
        dropout = 0.0 if self.linear_output else self.dropout
        return GATConv(fan_in, fan_out, heads=self.attention_heads, dropout=dropout)

    def make_head(self, out_channels: int) -> nn.Module:
        return GATConv(self.embedding_size, out_channels, heads=1, concat=False, dropout=self.dropout)


@form_for(SAGEConv)
class SAGEForm(LayerForm):
    """``W_l mean_j h_j + b + W_r h_i``."""

    aggregation = MEAN
    projections = ("lin_l.weight", "lin_r.weight")

    def supports(self, conv: SAGEConv) -> bool:
        plain = conv.root_weight and isinstance(conv.in_channels, int) and not conv.project and not conv.normalize
        return bool(plain and conv.lin_l.bias is not None and reads_messages(conv, "mean"))

    def forward(self, conv: SAGEConv, params: Params, h: Any, block: Block, drop: Any) -> Tensor:
        neighbors = block.aggregate(block.project(h, params["lin_l.weight"]))
        root = block.at_targets(block.project(h, params["lin_r.weight"]))
        return neighbors + root + block.dst.each(params["lin_l.bias"])


@BACKBONES.register("sage", aliases=("graphsage",), help="GraphSAGE with mean aggregation (Hamilton et al. 2017)")
class SAGE(ConvBackbone):
    """GraphSAGE with the mean aggregator (Hamilton et al. 2017): 128 hidden units, ReLU, no dropout."""

    projects_first = False

    @inherit_options(ConvBackbone)
    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        hidden: int = 128,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden, dropout=dropout, **options)

    def make_conv(self, fan_in: int, fan_out: int) -> nn.Module:
        return SAGEConv(fan_in, fan_out)


@form_for(GINConv)
class GINForm(LayerForm):
    """``W_2 ReLU(W_1((1 + ε) h_i + Σ_j h_j) + b_1) + b_2``, computing the sum after ``W_1``, where rows are shorter."""

    aggregation = SUM
    projections = ("nn.0.weight",)

    def supports(self, conv: GINConv) -> bool:
        layers = list(conv.nn) if isinstance(conv.nn, nn.Sequential) else []
        mlp = [type(layer) for layer in layers] == [nn.Linear, nn.ReLU, nn.Linear]
        biased = mlp and all(layer.bias is not None for layer in layers[::2])
        return biased and not isinstance(conv.eps, nn.Parameter) and reads_messages(conv, "add", "sum")

    def forward(self, conv: GINConv, params: Params, h: Any, block: Block, drop: Any) -> Tensor:
        z = block.project(h, params["nn.0.weight"])
        z = block.aggregate(z) + (1.0 + conv.eps) * block.at_targets(z)
        z = F.relu(z + block.dst.each(params["nn.0.bias"]))
        return block.dst.matmul(z, params["nn.2.weight"]) + block.dst.each(params["nn.2.bias"])


@BACKBONES.register("gin", help="graph isomorphism network, two-layer MLPs (Xu et al. 2019)")
class GIN(ConvBackbone):
    """Graph isomorphism network (GIN-0, Xu et al. 2019): sums over neighbors, MLPs with one hidden layer of 16 units.

    Unlike the original, it has no batch normalization by default: the running statistics of one task are wrong for the
    next, and a node's output would depend on nodes outside its receptive field.
    """

    projects_first = False

    def make_conv(self, fan_in: int, fan_out: int, hidden: int | None = None) -> nn.Module:
        hidden = fan_out if hidden is None else hidden
        return GINConv(nn.Sequential(nn.Linear(fan_in, hidden), nn.ReLU(), nn.Linear(hidden, fan_out)))

    def make_head(self, out_channels: int) -> nn.Module:
        return self.make_conv(self.embedding_size, out_channels, self.embedding_size)


@form_for(nn.Linear)
class LinearForm(LayerForm):
    """``W h_i + b``."""

    aggregation = None
    projections = ("weight",)

    def supports(self, conv: nn.Linear) -> bool:
        return conv.bias is not None

    def forward(self, conv: nn.Linear, params: Params, h: Any, block: Block, drop: Any) -> Tensor:
        return block.at_targets(block.project(h, params["weight"])) + block.dst.each(params["bias"])


@BACKBONES.register("mlp", help="two hidden layers that read no neighbors")
class MLP(Backbone):
    """Multilayer perceptron: two hidden layers of 256 ReLU units.

    Args:
        hidden: number of units per hidden layer.
        layers: number of hidden layers.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        hidden: int = 256,
        layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        check_at_least(1, hidden=hidden)
        sizes = [in_channels] + [hidden] * layers
        super().__init__(out_channels, [nn.Linear(a, b) for a, b in pairwise(sizes)], F.relu, dropout, sizes[-1])


@BACKBONES.register("sgc", help="simplified graph convolution, a linear model on S²X (Wu et al. 2019)")
class SGC(Backbone):
    """Simplified graph convolution (Wu et al. 2019): softmax regression on ``S^K X``.

    Args:
        hops: K, the number of propagation steps.
    """

    lr = 0.2
    weight_decay = 5e-6

    def __init__(self, in_channels: int, out_channels: int | None = None, hops: int = 2) -> None:
        check_at_least(1, hops=hops)
        super().__init__(out_channels, [Propagate(hops)], nn.Identity(), 0.0, in_channels)
