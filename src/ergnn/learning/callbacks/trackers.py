"""Logging to TensorBoard, MLflow, and Weights & Biases."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ergnn.config.lazy import extra
from ergnn.data.stream import Task
from ergnn.learning.callbacks.recorder import Recorder, settings
from ergnn.methods.base import LearnerView

MLFLOW_BATCH = 1000
"""Maximum number of metrics that MLflow accepts per batch."""


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


class MLflow(Recorder):
    """Logs to a new MLflow run, with the learner's settings as parameters; MLflow's active run does not change.

    The step of ``loss`` is the epoch, counted over all tasks; the step of the metrics of :class:`Recorder` is the task,
    from 1. The run is open until :meth:`close` (or the end of a ``with`` block). Needs the extra ``mlflow``.

    Args:
        experiment: name of the experiment; created if it does not exist.
        run_name: name of the run.
        tracking_uri: where runs are stored; by default MLflow's setting.
        split, every: see :class:`Recorder`.
    """

    def __init__(
        self,
        experiment: str = "ergnn",
        *,
        run_name: str | None = None,
        tracking_uri: str | None = None,
        split: str | None = "test",
        every: int | None = 50,
    ) -> None:
        super().__init__(split=split, every=every)
        extra("mlflow", "mlflow", "the MLflow callback")
        self.experiment, self.run_name, self.tracking_uri = experiment, run_name, tracking_uri
        self.run_id: str | None = None
        self._client: Any = None

    def on_task_begin(self, learner: LearnerView, task: Task) -> None:
        if self.run_id is None:
            from mlflow import MlflowClient

            self._client = MlflowClient(tracking_uri=self.tracking_uri)
            found = self._client.get_experiment_by_name(self.experiment)
            number = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
            self.run_id = self._client.create_run(number, run_name=self.run_name).info.run_id
            for key, value in settings(learner).items():
                self._client.log_param(self.run_id, key, value)
        super().on_task_begin(learner, task)

    def write_losses(self, learner: LearnerView, task: int, losses: list[tuple[int, float]]) -> None:
        before = task * learner.training.epochs
        self._log([("loss", loss, before + epoch) for epoch, loss in losses])

    def write_task(self, learner: LearnerView, task: Task, metrics: dict[str, float]) -> None:
        self._log([(name, value, task.id + 1) for name, value in metrics.items()])

    def _log(self, values: list[tuple[str, float, int]]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value, step in values]
        for start in range(0, len(metrics), MLFLOW_BATCH):
            self._client.log_batch(self.run_id, metrics=metrics[start : start + MLFLOW_BATCH])

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self.run_id)
            self._client = self.run_id = None


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
