"""Weights of training examples: of a task and its buffer, and of classes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_choice
from ergnn.nn.examples import Examples

LossScale = Literal["sum", "balanced", "mean"]


def replay_weights(task_size: int, buffer_size: int, scale: LossScale = "sum", beta: float | None = None) -> Tensor:
    """Return the weight of each example's loss: the task's examples first, then the remembered ones.

    Eq. 3 is ``L' = β L(D) + (1 − β) L(B)`` with ``β = |B| / (|D| + |B|)`` (Eq. 2). The scale of L matters:

    ``sum``
        Eq. 1 literally, ``L(D) = Σ ℓ``. Both sets have the same total weight, ``|D| |B| / (|D| + |B|)``, which grows
        with the buffer, so an L2 term matters less with every task.
    ``balanced``
        ``sum`` divided by its total weight: ``½ mean(D) + ½ mean(B)`` for the β of Eq. 2.
    ``mean``
        ``L(D) = mean ℓ``. The same β then gives the current task almost no weight.

    Args:
        task_size: |D|.
        buffer_size: |B|; if 0, the loss is the mean over the task (β = 0 would make it vanish).
        scale: ``sum``, ``balanced`` or ``mean``.
        beta: fixed β instead of Eq. 2.
    """
    check_choice("loss_scale", scale, LossScale)
    if beta is not None and not 0.0 < beta < 1.0:
        raise InputError(f"beta is {beta}; it must lie between 0 and 1")
    if buffer_size == 0:
        return torch.full((task_size,), 1.0 / task_size)
    b = buffer_size / (task_size + buffer_size) if beta is None else beta
    own, old = (b / task_size, (1.0 - b) / buffer_size) if scale == "mean" else (b, 1.0 - b)
    weights = torch.cat([torch.full((task_size,), own), torch.full((buffer_size,), old)])
    return weights / weights.sum() if scale == "balanced" else weights


def balance_classes(examples: Examples) -> Examples:
    """Weight an example of class c by ``1 / (C n_c)``, so that each of the C classes has the same total weight."""
    _, place, counts = torch.unique(examples.graph.y[examples.nodes], return_inverse=True, return_counts=True)
    return examples.weighted(1.0 / (counts.numel() * counts[place]))
