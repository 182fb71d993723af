"""A third-party convolution in one file, as another package would add it.

``o_i = W (1/d_i) Σ_j h_j / √d_j + V h_i + b`` with in-degrees d: a mean with lower weights for high-degree neighbors.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.layers import Aggregation, Block, LayerForm, Params, form_for


class DiscountedMean(nn.Module):
    """A convolution in plain PyTorch with a dense adjacency matrix."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.neighbors = nn.Linear(in_channels, out_channels)
        self.own = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        count = x.new_zeros(x.size(0), x.size(0)).index_put((target, source), x.new_ones(()), accumulate=True)
        degree = count.sum(1).clamp(min=1)
        return self.neighbors(count @ (x / degree.sqrt().unsqueeze(1)) / degree.unsqueeze(1)) + self.own(x)


@form_for(DiscountedMean)
class DiscountedMeanForm(LayerForm):
    aggregation = Aggregation(
        source=lambda degree: degree.clamp(min=1).rsqrt(), target=lambda degree: degree.clamp(min=1).reciprocal()
    )
    projections = ("neighbors.weight", "own.weight")

    def supports(self, conv: DiscountedMean) -> bool:
        return True

    def forward(self, conv: DiscountedMean, params: Params, h: Any, block: Block, drop: Any) -> Tensor:
        mean = block.aggregate(block.project(h, params["neighbors.weight"]))
        own = block.at_targets(block.project(h, params["own.weight"]))
        return mean + own + block.dst.each(params["neighbors.bias"])


@BACKBONES.register("discounted-mean", help="a mean in which neighbors of many count less")
class DiscountedMeanNet(Backbone):
    def __init__(
        self, in_channels: int, out_channels: int | None = None, hidden: int = 8, dropout: float = 0.5
    ) -> None:
        super().__init__(out_channels, [DiscountedMean(in_channels, hidden)], torch.relu, dropout, hidden)

    def make_head(self, out_channels: int) -> nn.Module:
        return DiscountedMean(self.embedding_size, out_channels)
