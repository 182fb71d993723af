"""Logging to MLflow."""

from __future__ import annotations

import time
from typing import Any

from ergnn.config.lazy import extra
from ergnn.data.stream import Task
from ergnn.learning.callbacks.recorder import Recorder, settings
from ergnn.methods.base import LearnerView

BATCH_SIZE = 1000
"""Maximum number of metrics that MLflow accepts per batch."""


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
        for start in range(0, len(metrics), BATCH_SIZE):
            self._client.log_batch(self.run_id, metrics=metrics[start : start + BATCH_SIZE])

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self.run_id)
            self._client = self.run_id = None
