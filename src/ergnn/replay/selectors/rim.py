"""RIM: repaired influence maximization."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import check_choice
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext, Selector
from ergnn.replay.selectors.first_layer import gradients, summed_gradient

Target = Literal["val", "train"]


@SELECTORS.register("rim", help="first-layer gradient best aligned with that of a target set (repaired influence)")
class RepairedInfluence(Selector):
    """Ranks training nodes by ``cos(∇_{W1} ℓ_v, Σ_{t∈T} ∇_{W1} ℓ_t)``, W1 the first layer's weights.

    Plain influence scales with a node's residual and gradient norm, so that confident, typical nodes score about 0 and
    outliers rank first. Without the norm, and in the first layer only, no Hessian is needed. A positive score is
    helpful: a gradient step on v's loss lowers the target's loss.

    Args:
        target: ``val`` or ``train``.
    """

    def __init__(self, target: Target = "val") -> None:
        check_choice("target", target, Target)
        self.target = target

    def score(self, context: SelectionContext) -> Tensor:
        goal = summed_gradient(context.model, context.examples(self.target), _losses)
        tiny = torch.finfo(goal.dtype).tiny
        goal = goal / goal.norm().clamp(min=tiny)
        own = gradients(context.model, context.examples("train"), _losses)
        return torch.stack([(g / g.norm().clamp(min=tiny)) @ goal for g in own])


def _losses(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets, reduction="none")
