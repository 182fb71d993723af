"""The hooks of callbacks, when they are called, and ready-made callbacks.

``Learner.observe(task, callbacks=[…])`` and ``observe_together(…, callbacks=[…])`` call, in this order and for each
learner:

1. ``on_task_begin(learner, task)`` after all checks have passed: the model has outputs for the classes of the task, and
   the task is on the learner's device. No training step has been taken.
2. ``on_epoch_end(learner, progress)`` after every epoch, if a callback overrides it
   (otherwise training is faster). ``progress`` is a :class:`~ergnn.engine.training.TaskProgress`. Its ``epoch`` is the
   number of finished epochs of the task, from 1 (a resumed task continues the count). Its ``loss`` is the minimized
   loss of this epoch before the last step (with mini-batches the mean over them): a detached 0-d tensor on the
   learner's device, which is not modified later. The device is synchronized only if a callback reads its value
   (``float(progress.loss)``). ``progress.state_dict()`` is a checkpoint: ``Learner.observe(task, resume=…)`` continues
   from it.
3. ``on_selection(learner, task, experience)`` after the method's ``after_task``, if nodes of this task were added to a
   buffer: ``experience`` contains the added nodes.
4. ``on_task_end(learner, task, record)`` last: the model has the new parameters, ``learner.history[-1]`` is
   ``record``, and the learner can make predictions.

If anything fails, including a callback itself or Ctrl-C, the learner is restored to its state before the task,
``on_task_failed(learner, task, error)`` is called, and the error is raised again. A method that does not train (nearest
mean) has no epochs. In hooks 1 and 2, ``learner.model`` has the parameters from before the task.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.data.graph import SPLITS
from ergnn.data.stream import Task
from ergnn.engine.training import TaskProgress
from ergnn.methods.base import LearnerView
from ergnn.replay.buffer import Experience

if TYPE_CHECKING:
    from rich.console import Console


class Callback:
    """Base class of callbacks. Every hook does nothing unless it is overridden.

    A callback must not change the learner, the task or the global random state, so results are the same with and
    without it.
    """

    def on_task_begin(self, learner: LearnerView, task: Task) -> None:
        """Called before the first step of a task."""

    def on_epoch_end(self, learner: LearnerView, progress: TaskProgress) -> None:
        """Called after each epoch; ``progress.epoch`` epochs of the task are done."""

    def on_selection(self, learner: LearnerView, task: Task, experience: Experience) -> None:
        """Called after nodes of the task were selected and added to the buffer."""

    def on_task_end(self, learner: LearnerView, task: Task, record: dict[str, Any]) -> None:
        """Called after a task was learned; ``record`` is its entry in ``learner.history``."""

    def on_task_failed(self, learner: LearnerView, task: Task, error: BaseException) -> None:
        """Called after a task failed and the learner was restored."""


class EpochCallback(Callback):
    """Calls a function of the :class:`~ergnn.engine.training.TaskProgress` after every epoch of every learner."""

    def __init__(self, call: Callable[[TaskProgress], object]) -> None:
        self.call = call

    def on_epoch_end(self, learner: LearnerView, progress: TaskProgress) -> None:
        self.call(progress)


def call(callbacks: Sequence[Callback], hook: str, *args: Any) -> None:
    """Call a hook, e.g. ``on_task_end``, of every callback."""
    for callback in callbacks:
        getattr(callback, hook)(*args)


class Progress(Callback):
    """Shows a progress bar over the epochs of a task, then one line per finished task.

    Draws on ``console``, a rich console, by default standard error, and shows nothing if it is not a terminal. Losses
    are never read, so the device is not synchronized.
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


class Recorder(Callback):
    """Passes losses and the metrics of a task to :meth:`write_losses` and :meth:`write_task`.

    Losses stay on their device; every ``every`` epochs, and at the end of a task, they are read together. The metrics
    of a task are ``train_seconds``, ``select_seconds``, ``trained_on`` (examples), ``buffer/nodes`` and
    ``buffer/bytes`` if the method has a buffer, ``selection/…`` (values recorded by the selector), and, with a_ij the
    score on task j after task i, over the tasks that the callback has seen: ``accuracy/task_j`` = a_ij,
    ``average_accuracy`` = mean_j a_ij and ``forgetting`` = mean_{j<i} (a_jj − a_ij).

    Args:
        split: the nodes to score tasks on: ``test``, ``val`` or ``train``; None for no scores. A task without such
            nodes is not scored.
        every: epochs between two reads of the losses; None to read only at the end of a task.
    """

    def __init__(self, *, split: str | None = "test", every: int | None = 50) -> None:
        if split is not None:
            check_choice("split", split, SPLITS)
        check_at_least(1, every=every)
        self.split, self.every = split, every
        self._tasks: dict[int, Task] = {}
        self._at_first: dict[int, float] = {}
        self._task = 0
        self._losses: list[tuple[int, Tensor]] = []

    @abstractmethod
    def write_losses(self, learner: LearnerView, task: int, losses: list[tuple[int, float]]) -> None:
        """Write ``(epoch, loss)`` pairs of a task; epochs count from 1 within the task."""

    @abstractmethod
    def write_task(self, learner: LearnerView, task: Task, metrics: dict[str, float]) -> None:
        """Write the metrics of a learned task."""

    def on_task_begin(self, learner: LearnerView, task: Task) -> None:
        self._task, self._losses = task.id, []

    def on_epoch_end(self, learner: LearnerView, progress: TaskProgress) -> None:
        self._losses.append((progress.epoch, progress.loss))
        if self.every is not None and len(self._losses) >= self.every:
            self._fetch(learner)

    def on_task_end(self, learner: LearnerView, task: Task, record: dict[str, Any]) -> None:
        self._fetch(learner)
        self._tasks[task.id] = task
        values = {name: value for name, value in record.items() if name != "task"}
        values |= {f"selection/{name}": value for name, value in (record.get("selection") or {}).items()}
        if (buffer := learner.method.buffer) is not None:
            values |= {"buffer/nodes": len(buffer), "buffer/bytes": buffer.nbytes}
        numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
        self.write_task(learner, task, {**numbers, **self._scores(learner, task.id)})

    def on_task_failed(self, learner: LearnerView, task: Task, error: BaseException) -> None:
        self._losses = []

    def _fetch(self, learner: LearnerView) -> None:
        if self._losses:
            epochs, losses = zip(*self._losses, strict=True)
            self._losses = []
            self.write_losses(learner, self._task, list(zip(epochs, torch.stack(losses).tolist(), strict=True)))

    def _scores(self, learner: LearnerView, last: int) -> dict[str, float]:
        split = self.split
        if split is None:
            return {}
        seen = [task for number, task in sorted(self._tasks.items()) if number <= last]
        scores = {task.id: learner.evaluate(task, split) for task in seen if getattr(task, split).numel()}
        if last in scores:
            self._at_first[last] = scores[last]
        earlier = [self._at_first[j] - score for j, score in scores.items() if j < last and j in self._at_first]
        out = {f"accuracy/task_{number + 1}": score for number, score in scores.items()}
        if scores:
            out["average_accuracy"] = sum(scores.values()) / len(scores)
        if earlier:
            out["forgetting"] = sum(earlier) / len(earlier)
        return out


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
