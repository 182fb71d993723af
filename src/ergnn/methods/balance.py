"""Losses for a growing head, whose current task has many more examples per class than the buffer has of older ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.engine.losses import MASKED
from ergnn.nn.examples import Examples, cross_entropy


def shifted_cross_entropy(logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
    """Cross-entropy of ``logits + shift``; without a shift, plain cross-entropy."""
    if "shift" not in extras:
        return cross_entropy(logits, targets, extras)
    shift = F.pad(extras["shift"], (0, logits.size(1) - extras["shift"].size(1)))
    return F.cross_entropy(logits + shift.to(logits.dtype), targets, reduction="none")


def adjust_logits(examples: Examples, tau: float = 1.0) -> Examples:
    """Logit adjustment (Menon et al., 2021): cross-entropy of ``z + τ log π``.

    π is each class's share of the examples' total weight. The network then learns scores that are independent of class
    frequency, and prediction with z favors no class.
    """
    share = torch.zeros(int(examples.targets.max()) + 1, device=examples.nodes.device)
    share = share.index_add(0, examples.targets, examples.weights)
    shift = tau * (share / share.sum()).clamp(min=1e-6).log()
    return replace(examples, extras={"shift": shift.expand(len(examples), -1)}, loss=shifted_cross_entropy)


def separate_classes(examples: Examples, own: int, columns: Tensor) -> Examples:
    """Asymmetric cross-entropy (ER-ACE, Caccia et al., 2022).

    The task's own examples, the first ``own``, are compared with the task's outputs ``columns`` only, so that they do
    not push down the scores of older classes. Remembered examples are compared with all classes.
    """
    width = int(torch.cat([examples.targets, columns]).max()) + 1
    shift = torch.zeros(len(examples), width, device=examples.nodes.device)
    shift[:own] = MASKED
    shift[:own, columns] = 0.0
    return replace(examples, extras={"shift": shift}, loss=shifted_cross_entropy)
