"""Networks without learned convolutions: multilayer perceptron and simplified graph convolution."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ergnn.nn.backbones.base import BACKBONES, Backbone, at_least_one
from ergnn.nn.layers import Block, LayerForm, Params, Propagate, form_for


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
        at_least_one(hidden=hidden)
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
        at_least_one(hops=hops)
        super().__init__(out_channels, [Propagate(hops)], nn.Identity(), 0.0, in_channels)
