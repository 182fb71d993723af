"""Shifts of the logits for a growing head, whose current task has many more examples per class than the buffer.

The loss of the shifted logits is the method's: cross-entropy, unless a subclass overrides ``Method.loss``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.engine.losses import MASKED
from ergnn.nn.examples import Examples, LossFunction


def shifted_loss(logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor], loss: LossFunction) -> Tensor:
    """The method's loss of ``logits + shift``; without a shift, of the logits."""
    if "shift" in extras:
        shift = F.pad(extras["shift"], (0, logits.size(1) - extras["shift"].size(1)))
        logits = logits + shift.to(logits.dtype)
    return loss(logits, targets, extras)


def _with_shift(examples: Examples, shift: Tensor) -> Examples:
    extras = {**examples.extras, "shift": shift}
    return replace(examples, extras=extras, loss=partial(shifted_loss, loss=examples.loss))


def adjust_logits(examples: Examples, tau: float = 1.0) -> Examples:
    """Logit adjustment (Menon et al., 2021): cross-entropy of ``z + τ log π``.

    π is each class's share of the examples' total weight. The network then learns scores that are independent of class
    frequency, and prediction with z favors no class.
    """
    share = torch.zeros(int(examples.targets.max()) + 1, device=examples.nodes.device)
    share = share.index_add(0, examples.targets, examples.weights)
    shift = tau * (share / share.sum()).clamp(min=1e-6).log()
    return _with_shift(examples, shift.expand(len(examples), -1))


def separate_classes(examples: Examples, own: int, columns: Tensor) -> Examples:
    """Asymmetric cross-entropy (ER-ACE, Caccia et al., 2022).

    The task's own examples, the first ``own``, are compared with the task's outputs ``columns`` only, so that they do
    not push down the scores of older classes. Remembered examples are compared with all classes.
    """
    width = int(torch.cat([examples.targets, columns]).max()) + 1
    shift = torch.zeros(len(examples), width, device=examples.nodes.device)
    shift[:own] = MASKED
    shift[:own, columns] = 0.0
    return _with_shift(examples, shift)


def balance_classes(examples: Examples) -> Examples:
    """Weights ``1 / (C n_c)`` for an example of class c: each of the C classes has the same total weight."""
    _, place, counts = torch.unique(examples.graph.y[examples.nodes], return_inverse=True, return_counts=True)
    return examples.weighted(1.0 / (counts.numel() * counts[place]))
