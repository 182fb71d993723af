"""Experience node replay (ER-GNN), Algorithm 1 of the paper."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ergnn.data.stream import Task
from ergnn.errors import InputError
from ergnn.methods import METHODS
from ergnn.methods.balance import adjust_logits, separate_classes
from ergnn.methods.base import LearnerView
from ergnn.methods.memory import MemoryMethod, Scarce, check_at_least
from ergnn.nn.examples import Examples
from ergnn.registry import check_choice
from ergnn.replay.buffer import ReplayMode
from ergnn.replay.selectors import Selection, Selector

MAX_ROUNDS = 16
"""Maximum number of sets of remembered nodes that the epochs of a task cycle through: preparing a set takes about as
long as an epoch, and all sets stay in memory."""

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


@METHODS.register("replay", aliases=("er",), help="replay a few remembered nodes per class (ER-GNN)")
class Replay(MemoryMethod):
    """Train on the task and the buffer, then select nodes and store them (Zhou and Cao, 2021, Algorithm 1).

    Args:
        loss_scale: scale of the losses of the task and of the buffer before β combines them.
        beta: fixed weight of the current task; by default |B| / (|D| + |B|) for task D and buffer B.
        replay_batch: number of remembered nodes to replay per epoch; 0 for all, by default as many as the task has
            training nodes. If the buffer has more, the epochs of a task cycle through several random sets.
            (Mini-batches sample from the buffer separately.)
        class_balance: correction of a growing head's bias toward the classes of the current task, from the second task
            on: ``logit-adjustment``; ``ace`` (only the task's classes compete for its nodes); ``memory`` (train from
            new parameters, on the buffer and e nodes per class of the task, selected before training); ``none``
            (Eq. 3 alone, as for other heads). ``auto`` is ``none`` for a task that contains earlier classes; otherwise
            ``memory`` if the largest class of the task has at most 50 training nodes and the buffer at least a quarter
            as many per class, else ``logit-adjustment``.
    """

    search = {"selector": ("mf*", "random", "herding"), "loss_scale": ("sum", "balanced")}
    variants = {"live": {"replay": "live"}}

    def __init__(
        self,
        selector: str | Selector = "mf*",
        per_class: int = 1,
        selector_options: dict[str, Any] | None = None,
        loss_scale: LossScale = "sum",
        beta: float | None = None,
        replay: ReplayMode = "live",
        hops: int = 2,
        replay_batch: int | None = None,
        budget_nodes: int | None = None,
        budget_bytes: int | None = None,
        scarce: Scarce = "error",
        class_balance: ClassBalance = "auto",
    ) -> None:
        check_at_least(0, replay_batch=replay_batch)
        super().__init__(selector, per_class, selector_options, replay, hops, budget_nodes, budget_bytes, scarce)
        self.loss_scale, self.beta, self.replay_batch = loss_scale, beta, replay_batch
        replay_weights(1, 1, loss_scale, beta)
        check_choice("class_balance", class_balance, ClassBalance)
        self.class_balance = class_balance
        self._chosen: Selection | None = None

    def balance(self, learner: LearnerView, task: Task) -> ClassBalance:
        """Return the class balancing of a task: ``none`` unless the head grows and the buffer contains nodes."""
        grows = learner.heads.kind == "growing"
        if not grows and self.class_balance not in ("auto", "none"):
            raise InputError(
                f"class_balance is {self.class_balance!r}, which requires head 'growing'; the head is "
                f"{learner.heads.kind!r}: choose auto or none"
            )
        remembered = self._remembered(task)
        if not grows or not remembered:
            return "none"
        if self.class_balance != "auto":
            return self.class_balance
        seen = {c for classes in learner.heads.classes[: task.id] for c in classes}
        if seen & set(task.classes):
            return "none"
        largest = int(task.graph.y[task.train].bincount().max())
        large = remembered / len(seen) >= MEMORY_SHARE * largest
        return "memory" if large and largest <= MEMORY_LABELS else "logit-adjustment"

    def _remembered(self, task: Task) -> int:
        """Return the number of remembered nodes, except those that the task learns again, which leave the buffer."""
        nodes = self.buffer.nodes
        if not len(self.buffer) or self.buffer.replay != "live":
            return nodes.numel()
        return int((~torch.isin(nodes, task.train.to(nodes.device))).sum())

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        return self.balance(learner, task) == "memory"

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        own, *remembered = self.parts(learner, task)
        joined, balance = Examples.join([own, *remembered]), self.balance(learner, task)
        self._chosen = None
        if balance == "memory":
            self._chosen = super().select(learner, task, joined)
            kept = torch.ones(len(joined), device=own.nodes.device)
            kept[: len(own)] = torch.isin(task.train, self._chosen.nodes).float()
            return joined.weighted(kept / kept.sum())
        joined = joined.weighted(replay_weights(len(own), len(joined) - len(own), self.loss_scale, self.beta))
        if balance == "logit-adjustment":
            return adjust_logits(joined)
        if balance == "ace":
            return separate_classes(joined, len(own), learner.heads.columns(task.id, learner.device)[0])
        return joined

    def select(self, learner: LearnerView, task: Task, trained_on: Examples) -> Selection:
        return super().select(learner, task, trained_on) if self._chosen is None else self._chosen

    def rounds(self, learner: LearnerView, task: Task, examples: Examples) -> list[Examples]:
        own = task.train.numel()
        count, batch = len(examples) - own, own if self.replay_batch is None else self.replay_batch
        if not batch or count <= batch or learner.training.batch_size is not None or self._chosen is not None:
            return [examples]
        generator = torch.Generator().manual_seed((learner.seed * 1_000_003 + task.id * 7919 + 53) % 2**63)
        shuffled = own + torch.randperm(count, generator=generator).to(examples.nodes.device)
        shuffled = shuffled[: min(MAX_ROUNDS, learner.training.epochs) * batch]
        first = torch.arange(own, device=shuffled.device)
        return [
            examples[torch.cat([first, part])].weighted(
                replay_weights(own, part.numel(), self.loss_scale, self.beta).to(shuffled.device)
            )
            for part in shuffled.chunk(-(-shuffled.numel() // batch))
        ]
