"""Logit shifts for a growing head, to offset that the current task has many more examples per class than the buffer.

The method's loss is applied to the shifted logits: cross-entropy, unless a subclass overrides ``Method.loss``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.engine.losses import MASKED
from ergnn.nn.examples import Examples, LossFunction, pure_loss


@pure_loss
def shifted_loss(logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor], loss: LossFunction) -> Tensor:
    """Apply the method's loss to ``logits + shift``, or to the logits if there is no shift."""
    if "shift" in extras:
        shift = F.pad(extras["shift"], (0, logits.size(1) - extras["shift"].size(1)))
        logits = logits + shift.to(logits.dtype)
    return loss(logits, targets, extras)


def _with_shift(examples: Examples, shift: Tensor) -> Examples:
    extras = {**examples.extras, "shift": shift}
    return replace(examples, extras=extras, loss=partial(shifted_loss, loss=examples.loss))


def adjust_logits(examples: Examples, tau: float = 1.0) -> Examples:
    """Apply logit adjustment (Menon et al., 2021): cross-entropy of ``z + τ log π``.

    π is the share of each class in the total weight of the examples. The network then learns scores that are
    independent of class frequency, and predictions from z favor no class.
    """
    share = torch.zeros(int(examples.targets.max()) + 1, device=examples.nodes.device)
    share = share.index_add(0, examples.targets, examples.weights)
    shift = tau * (share / share.sum()).clamp(min=1e-6).log()
    return _with_shift(examples, shift.expand(len(examples), -1))


def separate_classes(examples: Examples, own: int, columns: Tensor) -> Examples:
    """Apply asymmetric cross-entropy (ER-ACE, Caccia et al., 2022).

    The softmax of the first ``own`` examples, which belong to the current task, includes only the task's outputs
    ``columns``, so they do not lower the scores of older classes. The softmax of remembered examples includes all
    classes.
    """
    width = int(torch.cat([examples.targets, columns]).max()) + 1
    shift = torch.zeros(len(examples), width, device=examples.nodes.device)
    shift[:own] = MASKED
    shift[:own, columns] = 0.0
    return _with_shift(examples, shift)


def balance_classes(examples: Examples) -> Examples:
    """Weight an example of class c by ``1 / (C n_c)``, so that each of the C classes has the same total weight."""
    _, place, counts = torch.unique(examples.graph.y[examples.nodes], return_inverse=True, return_counts=True)
    return examples.weighted(1.0 / (counts.numel() * counts[place]))
