"""A progress bar for every task, on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ergnn.callbacks.base import Callback
from ergnn.data.stream import Task

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

    from ergnn.learner import Learner


class Progress(Callback):
    """A bar of a task's epochs, which goes when the task is done; one line a task stays.

    Nothing is shown where nobody would see it (standard error is not a terminal), and losses are never waited for.

    Args:
        console: a rich console to draw on; by default standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console
        self._bar: Bar | None = None

    def on_task_begin(self, learner: Learner, task: Task) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = self.console or Console(stderr=True)
        if not console.is_terminal:
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=console, transient=True)
        self._bar.add_task(task.name, total=learner.training.epochs)
        self._bar.start()

    def on_epoch_end(self, learner: Learner, epoch: int, loss: Tensor) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=epoch)

    def on_task_end(self, learner: Learner, task: Task, record: dict[str, Any]) -> None:
        if self._bar is not None:
            buffer = learner.method.buffer
            remembered = "" if buffer is None else f", {len(buffer)} nodes remembered"
            line = f"{task.name}: learnt in {record['train_seconds']:.1f} s{remembered}"
            self._bar.console.print(line, markup=False, highlight=False)
        self._stop()

    def on_task_failed(self, learner: Learner, task: Task, error: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
