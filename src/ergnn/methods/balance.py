"""Weights of training examples: of a task and its buffer, and of classes; class balancing for a growing head.

The current task has many more examples per class than the buffer. Logit shifts offset this. The method's loss is
applied to the shifted logits: cross-entropy, unless a subclass overrides ``Method.loss``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import InputError, check_choice
from ergnn.data.stream import Task
from ergnn.engine.losses import MASKED
from ergnn.methods.base import LearnerView
from ergnn.nn.examples import Examples, LossFunction, pure_loss
from ergnn.replay.buffer import ExperienceBuffer

LossScale = Literal["sum", "balanced", "mean"]
ClassBalance = Literal["auto", "none", "logit-adjustment", "ace", "memory"]
MEMORY_SHARE = 0.25
"""Minimum ratio of remembered nodes per class to training nodes of the task's largest class for which ``auto`` is
``memory``. With a smaller buffer, the parameters contain more information about earlier classes than the buffer. The
value was chosen on validation nodes: docs/howto/choosing-e.md.
"""
MEMORY_LABELS = 50
"""Maximum size of the task's largest class for which ``auto`` is ``memory``: new parameters have to learn all classes
in the epochs of one task, which fails where many labels need many epochs.
"""


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


def balance_of_task(given: ClassBalance, learner: LearnerView, task: Task, buffer: ExperienceBuffer) -> ClassBalance:
    """Return the class balancing of a task: ``none`` unless the head grows and the buffer contains nodes."""
    grows = learner.heads.kind == "growing"
    if not grows and given not in ("auto", "none"):
        raise InputError(
            f"class_balance is {given!r}, which requires head 'growing'; the head is {learner.heads.kind!r}: choose "
            "auto or none"
        )
    if not grows or not (remembered := _remembered(buffer, task)):
        return "none"
    if given != "auto":
        return given
    seen = {c for classes in learner.heads.classes[: task.id] for c in classes}
    if seen & set(task.classes):
        return "none"
    largest = int(task.graph.y[task.train].bincount().max())
    large = remembered / len(seen) >= MEMORY_SHARE * largest
    return "memory" if large and largest <= MEMORY_LABELS else "logit-adjustment"


def _remembered(buffer: ExperienceBuffer, task: Task) -> int:
    """Return the number of remembered nodes, except those that the task learns again, which leave the buffer."""
    nodes = buffer.nodes
    if not len(buffer) or buffer.replay != "live":
        return nodes.numel()
    return int((~torch.isin(nodes, task.train.to(nodes.device))).sum())


@pure_loss()
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
