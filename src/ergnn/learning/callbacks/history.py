"""In-memory record of losses and metrics."""

from __future__ import annotations

from ergnn.config.errors import InputError
from ergnn.data.stream import Task
from ergnn.learning.callbacks.recorder import Recorder
from ergnn.methods.base import LearnerView


class History(Recorder):
    """Stores all losses and the metrics of every task in memory (see :class:`Recorder`).

    Attributes:
        tasks: one dict of metrics per task, in the order of learning.
    """

    def __init__(self, *, split: str | None = "test") -> None:
        super().__init__(split=split, every=None)
        self.tasks: list[dict[str, float]] = []
        self._curves: dict[int, list[tuple[int, float]]] = {}

    def losses(self, task: int) -> list[float]:
        """Return the loss of every epoch of a task (numbered from 0)."""
        if task not in self._curves:
            raise InputError(f"task number {task} is not in this history; it has: {sorted(self._curves)}")
        return [loss for _, loss in self._curves[task]]

    def column(self, name: str) -> list[float | None]:
        """Return one metric over all tasks; None for tasks without it."""
        known = sorted({key for metrics in self.tasks for key in metrics})
        if name not in known:
            raise InputError(f"no task has a metric {name!r}; available: {', '.join(known)}")
        return [metrics.get(name) for metrics in self.tasks]

    def write_losses(self, learner: LearnerView, task: int, losses: list[tuple[int, float]]) -> None:
        self._curves[task] = losses

    def write_task(self, learner: LearnerView, task: Task, metrics: dict[str, float]) -> None:
        self.tasks.append({"task": float(task.id), **metrics})
