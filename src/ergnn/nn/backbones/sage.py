"""GraphSAGE with mean aggregation (Hamilton et al. 2017)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from ergnn.config.registry import inherit_options
from ergnn.nn.backbones.base import BACKBONES, ConvBackbone
from ergnn.nn.layers import MEAN, Block, LayerForm, Params, form_for, reads_messages


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
        own = block.at_targets(block.project(h, params["lin_r.weight"]))
        return neighbors + own + block.dst.each(params["lin_l.bias"])


@BACKBONES.register("sage", aliases=("graphsage",), help="GraphSAGE with mean aggregation (Hamilton et al. 2017)")
class SAGE(ConvBackbone):
    """GraphSAGE with the mean aggregator: 128 hidden units, ReLU, no dropout."""

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

    def make_conv(self, fan_in: int, hidden: int, dropout: float) -> nn.Module:
        return SAGEConv(fan_in, hidden)

    def make_head(self, out_channels: int) -> nn.Module:
        return SAGEConv(self.embedding_size, out_channels)
