"""A progress bar for every task, on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ergnn.data.stream import Task
from ergnn.engine.training import TaskProgress
from ergnn.learning.callbacks.base import Callback
from ergnn.methods.base import LearnerView

if TYPE_CHECKING:
    from rich.console import Console


class Progress(Callback):
    """Shows a progress bar over the epochs of a task, then one line per finished task.

    Shows nothing if standard error is not a terminal. Losses are never read, so the device is not synchronized.

    Args:
        console: rich console to draw on; by default standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console

    def on_task_begin(self, learner: LearnerView, task: Task) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        console = self.console or Console(stderr=True)
        name = TextColumn("{task.description}", markup=False)
        columns = (name, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), Remaining())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task(task.name, total=learner.training.epochs)
        self._bar.start()

    def on_epoch_end(self, learner: LearnerView, progress: TaskProgress) -> None:
        self._bar.update(self._task, completed=progress.epoch)

    def on_task_end(self, learner: LearnerView, task: Task, record: dict[str, Any]) -> None:
        buffer = learner.method.buffer
        stored = "" if buffer is None else f", {len(buffer)} nodes stored"
        if not self._bar.disable:
            line = f"{task.name}: learned in {record['train_seconds']:.1f} s{stored}"
            self._bar.console.print(line, markup=False, highlight=False)
        self._bar.stop()

    def on_task_failed(self, learner: LearnerView, task: Task, error: BaseException) -> None:
        self._bar.stop()
