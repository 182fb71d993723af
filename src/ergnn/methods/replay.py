"""Experience node replay (ER-GNN), Algorithm 1 of the paper, its corrections of a growing head's bias, and its bounds.

The bounds are finetuning without a memory, and joint training on all tasks so far, which replay approximates.

The current task has many more examples per class than the buffer. Logit shifts offset this. The method's loss is
applied to the shifted logits: cross-entropy, unless a subclass overrides ``Method.loss``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import InputError, check_at_least, check_between, check_choice
from ergnn.config.registry import inherit_options
from ergnn.data.stream import Task
from ergnn.engine.losses import MASKED
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView, Method
from ergnn.methods.memory import SelectorMethod
from ergnn.nn.examples import Examples, LossFunction, pure_loss

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
MAX_ROUNDS = 16
"""Maximum number of sets of remembered nodes that the epochs of a task cycle through: preparing a set takes about as
long as an epoch, and all sets stay in memory."""


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
    check_between(0, 1, beta=beta)
    if buffer_size == 0:
        return torch.full((task_size,), 1.0 / task_size)
    b = buffer_size / (task_size + buffer_size) if beta is None else beta
    new, old = (b / task_size, (1.0 - b) / buffer_size) if scale == "mean" else (b, 1.0 - b)
    weights = torch.cat([torch.full((task_size,), new), torch.full((buffer_size,), old)])
    return weights / weights.sum() if scale == "balanced" else weights


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


def adjust_logits(examples: Examples) -> Examples:
    """Apply logit adjustment (Menon et al., 2021): cross-entropy of ``z + log π``.

    π is the share of each class in the total weight of the examples. The network then learns scores that are
    independent of class frequency, and predictions from z favor no class.
    """
    share = torch.zeros(int(examples.targets.max()) + 1, device=examples.nodes.device)
    share = share.index_add(0, examples.targets, examples.weights)
    shift = (share / share.sum()).clamp(min=1e-6).log()
    return _with_shift(examples, shift.expand(len(examples), -1))


def separate_classes(examples: Examples, count: int, columns: Tensor) -> Examples:
    """Apply asymmetric cross-entropy (ER-ACE, Caccia et al., 2022).

    The softmax of the first ``count`` examples, which belong to the current task, includes only the task's outputs
    ``columns``, so they do not lower the scores of older classes. The softmax of remembered examples includes all
    classes.
    """
    width = int(torch.cat([examples.targets, columns]).max()) + 1
    shift = torch.zeros(len(examples), width, device=examples.nodes.device)
    shift[:count] = MASKED
    shift[:count, columns] = 0.0
    return _with_shift(examples, shift)


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
        given, kind = self.class_balance, learner.heads.kind
        if kind != "growing" and given not in ("auto", "none"):
            raise InputError(
                f"class_balance is {given!r}, which requires head 'growing'; the head is {kind!r}: choose auto or none"
            )
        nodes = self.buffer.nodes
        if self.buffer.replay == "live":  # nodes that the task learns again leave the buffer
            nodes = nodes[~torch.isin(nodes, task.train.to(nodes.device))]
        if kind != "growing" or not nodes.numel():
            return "none"
        if given != "auto":
            return given
        seen = {c for classes in learner.heads.classes[: task.id] for c in classes}
        if seen & set(task.classes):
            return "none"
        largest = int(task.graph.y[task.train].bincount().max())
        large = nodes.numel() / len(seen) >= MEMORY_SHARE * largest
        return "memory" if large and largest <= MEMORY_LABELS else "logit-adjustment"

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


class BalancedReplay(Replay):
    """``replay`` with a fixed ``class_balance``."""

    supported_heads = ("growing",)
    comparison = Comparison(search={"selector": ("mf*", "random", "herding")})
    fixed: ClassVar[ClassBalance]

    @inherit_options(Replay, "loss_scale", "class_balance")
    def __init__(self, **options: Any) -> None:
        super().__init__(class_balance=self.fixed, **options)


@METHODS.register(
    "er-ace", help="replay with asymmetric cross-entropy: new nodes compete among new classes only (ER-ACE)"
)
class ERACE(BalancedReplay):
    """Experience replay with asymmetric cross-entropy (Caccia et al., 2022).

    The loss is that of :func:`~ergnn.methods.replay.separate_classes`: ``replay`` with ``class_balance=ace``.
    """

    fixed = "ace"


@METHODS.register("logit-adjusted", help="replay with logits adjusted by class shares (DeLoMe's debiasing)")
class LogitAdjusted(BalancedReplay):
    """Experience replay with logit adjustment (Menon et al., 2021), the debiasing of DeLoMe (Niu et al., 2024).

    The loss is that of :func:`~ergnn.methods.replay.adjust_logits`: ``replay`` with ``class_balance=logit-adjustment``.
    """

    fixed = "logit-adjustment"


@METHODS.register("finetune", help="continue training on each task, without memory: the lower bound")
class Finetune(Method):
    """Minimize only the mean loss of the task's training nodes."""


@METHODS.register("joint", help="train on all nodes so far, from scratch at every task: the upper bound")
class Joint(Method):
    """Minimize the mean loss of all training nodes so far, from new parameters at every task.

    Attributes:
        nodes, val: training nodes and (if the best epoch is kept) validation nodes of each task.
    """

    needs_earlier_graph = True
    stored = ("nodes", "val")

    def __init__(self) -> None:
        self.nodes: list[Tensor] = []
        self.val: list[Tensor] = []

    @property
    def nbytes(self) -> int:
        """Ids and labels of all training nodes so far."""
        return sum(16 * nodes.numel() for nodes in self.nodes)

    def check(self, task: Task) -> None:
        if task.own_graph:
            raise InputError(f"{task.name} has its own graph; joint training needs all tasks in one graph")

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        return True

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        joined = self._with_earlier(learner, task, learner.examples(task.graph, task.train, task.id), self.nodes)
        return joined.weighted(1.0 / len(joined))

    def validation(self, learner: LearnerView, task: Task) -> Examples:
        """Return the validation nodes of all tasks so far."""
        return self._with_earlier(learner, task, super().validation(learner, task), self.val)

    def _with_earlier(self, learner: LearnerView, task: Task, new: Examples, nodes: list[Tensor]) -> Examples:
        earlier = [learner.examples(task.graph, of_task, i) for i, of_task in enumerate(nodes) if of_task.numel()]
        return Examples.join([new, *earlier])

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        self.nodes.append(task.train)
        self.val.append(task.val if learner.training.best_epoch else task.val[:0])
        return {}

    def remap_nodes(self, mapping: Callable[[Tensor], Tensor]) -> None:
        self.nodes, self.val = (list(map(mapping, of_tasks)) for of_tasks in (self.nodes, self.val))

    def forget_nodes(self, nodes: Tensor) -> int:
        before = sum(map(len, self.nodes))
        self.remap_nodes(lambda of_task: of_task[~torch.isin(of_task, nodes.to(of_task.device))])
        return before - sum(map(len, self.nodes))
