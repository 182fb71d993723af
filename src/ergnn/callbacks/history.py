"""Records to query, kept in memory."""

from __future__ import annotations

from ergnn.callbacks.recorder import Recorder
from ergnn.data.stream import Task
from ergnn.errors import InputError
from ergnn.methods.base import LearnerView


class History(Recorder):
    """Keeps every loss and every task's figures (see :class:`Recorder`).

    Attributes:
        tasks: one dict of figures per task, in the order in which they were learned.
    """

    def __init__(self, *, split: str | None = "test") -> None:
        super().__init__(split=split, every=None)
        self.tasks: list[dict[str, float]] = []
        self._curves: dict[int, list[tuple[int, float]]] = {}

    def losses(self, task: int) -> list[float]:
        """The loss of every epoch of a task, by its number from 0."""
        if task not in self._curves:
            raise InputError(f"task number {task} is not in this history; it has: {sorted(self._curves)}")
        return [loss for _, loss in self._curves[task]]

    def column(self, name: str) -> list[float | None]:
        """One figure over all tasks; None where a task has none of that name."""
        known = sorted({key for figures in self.tasks for key in figures})
        if name not in known:
            raise InputError(f"no task has a figure {name!r}; there are: {', '.join(known)}")
        return [figures.get(name) for figures in self.tasks]

    def write_losses(self, learner: LearnerView, task: int, losses: list[tuple[int, float]]) -> None:
        self._curves[task] = losses

    def write_task(self, learner: LearnerView, task: Task, figures: dict[str, float]) -> None:
        self.tasks.append({"task": float(task.id), **figures})
