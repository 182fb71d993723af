"""Logging to TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ergnn.config.lazy import extra
from ergnn.data.stream import Task
from ergnn.learning.callbacks.recorder import Recorder, settings
from ergnn.methods.base import LearnerView


class TensorBoard(Recorder):
    """Writes TensorBoard event files to a folder; ``tensorboard --logdir FOLDER`` shows them.

    The step of ``loss`` is the epoch, counted over all tasks; the step of the metrics of :class:`Recorder` is the task,
    from 1. The learner's settings are logged as text. Needs the extra ``tensorboard``.

    Args:
        folder: output folder.
        split, every: see :class:`Recorder`.
    """

    def __init__(self, folder: str | Path, *, split: str | None = "test", every: int | None = 50) -> None:
        super().__init__(split=split, every=every)
        extra("tensorboard", "tensorboard", "the TensorBoard callback")
        self.folder = Path(folder)
        self._writer: Any = None

    def on_task_begin(self, learner: LearnerView, task: Task) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.folder))
            lines = [f"{key}: {value}" for key, value in settings(learner).items()]
            self._writer.add_text("settings", "  \n".join(lines))
        super().on_task_begin(learner, task)

    def write_losses(self, learner: LearnerView, task: int, losses: list[tuple[int, float]]) -> None:
        before = task * learner.training.epochs
        for epoch, loss in losses:
            self._writer.add_scalar("loss", loss, before + epoch)

    def write_task(self, learner: LearnerView, task: Task, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, task.id + 1)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
