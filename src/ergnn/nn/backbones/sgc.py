"""Simplified graph convolution (Wu et al. 2019)."""

from __future__ import annotations

from torch import nn

from ergnn.nn.backbones.base import BACKBONES, Backbone, at_least_one
from ergnn.nn.layers import Propagate


@BACKBONES.register("sgc", help="simplified graph convolution, a linear model on S²X (Wu et al. 2019)")
class SGC(Backbone):
    """Simplified graph convolution: softmax regression on ``S^K X``.

    Args:
        hops: K, the number of propagation steps.
    """

    lr = 0.2
    weight_decay = 5e-6

    def __init__(self, in_channels: int, out_channels: int | None = None, hops: int = 2) -> None:
        at_least_one(hops=hops)
        super().__init__(out_channels, [Propagate(hops)], nn.Identity(), 0.0, in_channels)

    def make_head(self, out_channels: int) -> nn.Module:
        return nn.Linear(self.embedding_size, out_channels)
