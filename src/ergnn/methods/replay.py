"""Experience node replay (ER-GNN), the paper's Algorithm 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ergnn.data.stream import Task
from ergnn.errors import InputError, UnknownNameError
from ergnn.methods import METHODS
from ergnn.methods.base import Method
from ergnn.nn.examples import Examples
from ergnn.replay.buffer import ExperienceBuffer
from ergnn.replay.selectors import SELECTORS, Selector, check_per_class

if TYPE_CHECKING:
    from ergnn.learner import Learner

EACH_CLASS = 4
"""By default an epoch replays as many nodes as are remembered of so many classes."""

MOST_ROUNDS = 32
EPOCHS_A_ROUND = 16
"""Sets of remembered nodes that a task's epochs go through in turn: at the most so many, and each for so many epochs,
since setting one up takes about as long as an epoch."""

SCARCE = ("error", "keep")

LOSS_SCALES = ("sum", "balanced", "mean")


def replay_weights(task_size: int, buffer_size: int, scale: str = "sum", beta: float | None = None) -> Tensor:
    """What each example's loss is multiplied with: the task's own first, then the remembered ones.

    Eq. 3 is ``L' = β L(D) + (1 − β) L(B)`` with ``β = |B| / (|D| + |B|)`` (Eq. 2). What L adds up matters:

    ``sum``
        Eq. 1 as it stands, ``L(D) = Σ ℓ``. Both sets weigh the same in total, ``|D| |B| / (|D| + |B|)``, which grows
        with the buffer: an L2 term counts for less from task to task.
    ``balanced``
        The same divided by its total weight, ``½ mean(D) + ½ mean(B)`` for the β of Eq. 2.
    ``mean``
        ``L(D) = mean ℓ``. The same β then leaves the current task with next to nothing.

    Args:
        task_size: |D|.
        buffer_size: |B|; with none the loss is the task's own mean (β = 0 would make it vanish).
        scale: ``sum``, ``balanced`` or ``mean``.
        beta: a fixed β in place of Eq. 2.
    """
    if scale not in LOSS_SCALES:
        raise UnknownNameError("loss_scale", scale, LOSS_SCALES)
    if beta is not None and not 0.0 < beta < 1.0:
        raise InputError(f"beta is {beta}; it must lie between 0 and 1")
    if buffer_size == 0:
        return torch.full((task_size,), 1.0 / task_size)
    b = buffer_size / (task_size + buffer_size) if beta is None else beta
    own, old = (b / task_size, (1.0 - b) / buffer_size) if scale == "mean" else (b, 1.0 - b)
    weights = torch.cat([torch.full((task_size,), own), torch.full((buffer_size,), old)])
    return weights / weights.sum() if scale == "balanced" else weights


@METHODS.register("replay", aliases=("er",), help="a few remembered nodes a class are learnt along (ER-GNN)")
class Replay(Method):
    """Train on the task and the buffer, then select, then remember.

    Args:
        selector: a name or a :class:`Selector`.
        per_class: e, how many nodes of each class are remembered.
        selector_options: for a selector given by name.
        loss_scale: ``sum``, ``balanced`` or ``mean``, see :func:`replay_weights`.
        beta: a fixed β.
        replay, hops: see :class:`ExperienceBuffer`.
        replay_batch: how many remembered nodes B an epoch extracts from the buffer 𝔹 (line 4 of Algorithm 1), by
            default 4 e; 0 extracts all. While the buffer is no larger, B is all of it; then the epochs of a task go
            through several such sets in turn (up to 32, and one for 16 epochs), drawn by seed and task, so that
            time a task does not grow with the buffer. (Mini-batches draw their own share of the buffer.)
        budget_nodes, budget_bytes: the most that is remembered over all classes; see :meth:`ExperienceBuffer.trim`.
        scarce: what to do with a class of fewer than e training nodes: an ``error``, or ``keep`` all it has.
    """

    def __init__(
        self,
        selector: str | Selector = "mf*",
        per_class: int = 1,
        selector_options: dict[str, Any] | None = None,
        loss_scale: str = "sum",
        beta: float | None = None,
        replay: str = "live",
        hops: int = 2,
        replay_batch: int | None = None,
        budget_nodes: int | None = None,
        budget_bytes: int | None = None,
        scarce: str = "error",
    ) -> None:
        if replay_batch is not None and replay_batch < 0:
            raise InputError(f"replay_batch is {replay_batch}; it must be 1 or more, or 0 for the whole buffer")
        for name, budget in (("budget_nodes", budget_nodes), ("budget_bytes", budget_bytes)):
            if budget is not None and budget < 1:
                raise InputError(f"{name} is {budget}; it must be 1 or more, or None for no limit")
        if scarce not in SCARCE:
            raise UnknownNameError("scarce", scarce, SCARCE)
        if per_class < 1:
            raise InputError(f"per_class (e) is {per_class}; at least 1 node a class must be remembered")
        if isinstance(selector, str):
            self.selector: Selector = SELECTORS.create(selector, **(selector_options or {}))
        elif selector_options:
            raise InputError("selector_options go with a selector's name; this selector is already made")
        else:
            self.selector = selector
        self.per_class = per_class
        self.loss_scale, self.beta = loss_scale, beta
        self.replay_batch = EACH_CLASS * per_class if replay_batch is None else replay_batch
        self.budget_nodes, self.budget_bytes, self.scarce = budget_nodes, budget_bytes, scarce
        replay_weights(1, 1, loss_scale, beta)
        self.buffer: ExperienceBuffer = ExperienceBuffer(replay, hops)

    @property
    def leaky(self) -> bool:  # type: ignore[override]
        return self.selector.leaky

    def check(self, task: Task) -> None:
        check_per_class(task, 1 if self.scarce == "keep" else self.per_class)
        self.buffer.check(task)

    def examples(self, learner: Learner, task: Task, number: int) -> Examples:
        graph, remembered = self.buffer.attach(task.graph)
        own = learner.examples(graph, task.train, number)
        parts = [own]
        for experience, nodes in zip(self.buffer.experiences, remembered, strict=True):
            parts.append(learner.examples(graph, nodes, experience.task))
        joined = Examples.join(parts)
        return joined.weighted(replay_weights(len(own), len(joined) - len(own), self.loss_scale, self.beta))

    def rounds(self, learner: Learner, examples: Examples, own: int) -> list[Examples]:
        count = len(examples) - own
        if not self.replay_batch or count <= self.replay_batch or learner.training.batch_size is not None:
            return [examples]
        generator = torch.Generator().manual_seed(learner.seed * 1_000_003 + count)
        shuffled = own + torch.randperm(count, generator=generator).to(examples.nodes.device)
        first = torch.arange(own, device=shuffled.device)
        most = max(1, min(MOST_ROUNDS, learner.training.epochs // EPOCHS_A_ROUND))
        shuffled = shuffled[: most * self.replay_batch]
        parts = shuffled.chunk(-(-shuffled.numel() // self.replay_batch))
        return [
            examples[torch.cat([first, part])].weighted(
                replay_weights(own, part.numel(), self.loss_scale, self.beta).to(shuffled.device)
            )
            for part in parts
        ]

    def after_task(self, learner: Learner, task: Task, number: int, trained_on: Examples) -> dict[str, Any]:
        context = learner.selection_context(task, number, trained_on, self.per_class, self.selector.leaky)
        selection = self.selector.select(context)
        self.buffer.add(task.graph, number, selection.nodes, selection.scores)
        evicted = self.buffer.trim(self.budget_nodes, self.budget_bytes)
        return {**selection.info, "evicted": evicted} if evicted else selection.info

    def state_dict(self) -> dict[str, Any]:
        return {"buffer": self.buffer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.buffer.load_state_dict(state["buffer"])
