"""Experience node replay (ER-GNN), Algorithm 1 of the paper."""

from __future__ import annotations

from typing import Any

import torch

from ergnn.config.errors import check_at_least, check_choice
from ergnn.config.registry import inherit_options
from ergnn.data.stream import Task
from ergnn.methods import METHODS
from ergnn.methods.balance import (
    ClassBalance,
    LossScale,
    adjust_logits,
    balance_of_task,
    replay_weights,
    separate_classes,
)
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.memory import SelectorMethod
from ergnn.nn.examples import Examples

MAX_ROUNDS = 16
"""Maximum number of sets of remembered nodes that the epochs of a task cycle through: preparing a set takes about as
long as an epoch, and all sets stay in memory."""


@METHODS.register("replay", aliases=("er",), help="replay a few remembered nodes per class (ER-GNN)")
class Replay(SelectorMethod):
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

    comparison = Comparison(
        search={"selector": ("mf*", "random", "herding"), "loss_scale": ("sum", "balanced")},
        variants={"live": {"replay": "live"}},
    )

    @inherit_options(SelectorMethod)
    def __init__(
        self,
        *,
        loss_scale: LossScale = "sum",
        beta: float | None = None,
        replay_batch: int | None = None,
        class_balance: ClassBalance = "auto",
        **memory: Any,
    ) -> None:
        check_at_least(0, replay_batch=replay_batch)
        super().__init__(**memory)
        self.loss_scale, self.beta, self.replay_batch = loss_scale, beta, replay_batch
        replay_weights(1, 1, loss_scale, beta)
        check_choice("class_balance", class_balance, ClassBalance)
        self.class_balance = class_balance

    def balance(self, learner: LearnerView, task: Task) -> ClassBalance:
        """Return the class balancing of a task: ``none`` unless the head grows and the buffer contains nodes."""
        return balance_of_task(self.class_balance, learner, task, self.buffer)

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        return self.balance(learner, task) == "memory"

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        joined, balance = Examples.join(self.parts(learner, task)), self.balance(learner, task)
        new = task.train.numel()
        self.chosen = None
        if balance == "memory":
            self.chosen = self.select(learner, task, joined)
            used = torch.ones(len(joined), device=joined.nodes.device)
            used[:new] = torch.isin(task.train, self.chosen.nodes).float()
            return joined.weighted(used / used.sum())
        joined = joined.weighted(replay_weights(new, len(joined) - new, self.loss_scale, self.beta))
        if balance == "logit-adjustment":
            return adjust_logits(joined)
        if balance == "ace":
            return separate_classes(joined, new, learner.heads.columns(task.id, learner.device)[0])
        return joined

    def rounds(self, learner: LearnerView, task: Task, examples: Examples) -> list[Examples]:
        new = task.train.numel()
        count, batch = len(examples) - new, new if self.replay_batch is None else self.replay_batch
        if not batch or count <= batch or learner.training.batch_size is not None or self.chosen is not None:
            return [examples]
        generator = task.generator(learner.seed, 53)
        shuffled = new + torch.randperm(count, generator=generator).to(examples.nodes.device)
        shuffled = shuffled[: min(MAX_ROUNDS, learner.training.epochs) * batch]
        first, rounds = torch.arange(new, device=shuffled.device), []
        for replayed in shuffled.chunk(-(-shuffled.numel() // batch)):
            weights = replay_weights(new, replayed.numel(), self.loss_scale, self.beta)
            rounds.append(examples[torch.cat([first, replayed])].weighted(weights.to(shuffled.device)))
        return rounds
