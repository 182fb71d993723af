"""Logging to Weights & Biases."""

from __future__ import annotations

from typing import Any

from ergnn.config.lazy import extra
from ergnn.data.stream import Task
from ergnn.learning.callbacks.recorder import Recorder, settings
from ergnn.methods.base import LearnerView


class WandB(Recorder):
    """Logs to a new run, with the learner's settings as its configuration.

    ``loss`` is plotted over ``epoch``, counted over all tasks; the metrics of :class:`Recorder` over ``task``, from 1.
    The run is open until :meth:`close` (or the end of a ``with`` block). Needs the extra ``wandb``.

    Args:
        project: name of the project.
        split, every: see :class:`Recorder`.
        options: further arguments of ``wandb.init``, e.g. ``mode="offline"``, ``dir=…``, ``name=…``.
    """

    def __init__(
        self, project: str = "ergnn", *, split: str | None = "test", every: int | None = 50, **options: Any
    ) -> None:
        super().__init__(split=split, every=every)
        extra("wandb", "wandb", "the WandB callback")
        self.project, self.options = project, options
        self.run: Any = None
        self._defined: set[str] = set()

    def on_task_begin(self, learner: LearnerView, task: Task) -> None:
        if self.run is None:
            import wandb

            given = {"reinit": "create_new", "config": settings(learner), **self.options}
            self.run = wandb.init(project=self.project, **given)
            self.run.define_metric("loss", step_metric="epoch")
            self._defined = set()
        super().on_task_begin(learner, task)

    def write_losses(self, learner: LearnerView, task: int, losses: list[tuple[int, float]]) -> None:
        before = task * learner.training.epochs
        for epoch, loss in losses:
            self.run.log({"epoch": before + epoch, "loss": loss})

    def write_task(self, learner: LearnerView, task: Task, metrics: dict[str, float]) -> None:
        for name in metrics.keys() - self._defined:
            self.run.define_metric(name, step_metric="task")
        self._defined |= metrics.keys()
        self.run.log({"task": task.id + 1, **metrics})

    def close(self) -> None:
        if self.run is not None:
            self.run.finish()
            self.run = None
