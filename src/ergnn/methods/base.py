"""What a method decides: which examples a task is learnt from, and what is kept afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.objective import Objective
from ergnn.nn.examples import Examples
from ergnn.replay.buffer import ExperienceBuffer
from ergnn.training import Guide

if TYPE_CHECKING:
    from ergnn.learner import Learner


class Method(ABC):
    """A way of learning one task after another.

    Attributes:
        from_scratch: whether every task starts from new parameters.
        leaky: whether test labels are used.
        trains: whether parameters are learnt at all; if not, the method gives the :meth:`scores`.
        guided: whether :meth:`guide` has a say in every step; such a learner is trained on its own.
        buffer: what is remembered, for methods that remember nodes.
    """

    from_scratch: bool = False
    leaky: bool = False
    trains: bool = True
    guided: bool = False
    buffer: ExperienceBuffer | None = None

    def check(self, task: Task) -> None:
        """Refuse a task that cannot be learnt, before any training; by default none is."""
        return None

    @abstractmethod
    def examples(self, learner: Learner, task: Task, number: int) -> Examples:
        """What to minimise: weighted examples, the task's own training nodes first."""

    def guide(self, learner: Learner, task: Task, objective: Objective) -> Guide | None:
        """What to do around each step of training on ``objective`` (made of :meth:`examples`); asked if ``guided``."""
        return None

    def rounds(self, learner: Learner, examples: Examples, own: int) -> list[Examples]:
        """What the epochs go through in turn; by default all examples in each.

        Args:
            own: how many of the examples, the first ones, are the task's own.
        """
        return [examples]

    def after_task(self, learner: Learner, task: Task, number: int, trained_on: Examples) -> dict[str, Any]:
        """What to do once the task has been learnt; returns what is worth recording."""
        return {}

    def scores(self, graph: Graph, nodes: Tensor, classes: Tensor) -> Tensor | None:
        """Scores ``[n, classes]`` to predict with in place of the model's; by default None, the model's own."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` gave; by default there is nothing."""
        return None
