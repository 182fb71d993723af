"""Random selection."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext, Selector


@SELECTORS.register("random", help="e training nodes of each class, drawn by seed")
class Random(Selector):
    """e training nodes of each class, drawn by seed."""

    def score(self, context: SelectionContext) -> Tensor:
        return torch.rand(context.nodes.numel(), generator=context.generator())
