"""The hooks of callbacks, and when they are called.

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

from collections.abc import Callable, Sequence
from typing import Any

from ergnn.data.stream import Task
from ergnn.engine.training import TaskProgress
from ergnn.methods.base import LearnerView
from ergnn.replay.buffer import Experience


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
    """Calls a function after every epoch of every learner.

    Args:
        call: function of the :class:`~ergnn.engine.training.TaskProgress`.
    """

    def __init__(self, call: Callable[[TaskProgress], object]) -> None:
        self.call = call

    def on_epoch_end(self, learner: LearnerView, progress: TaskProgress) -> None:
        self.call(progress)


def call(callbacks: Sequence[Callback], hook: str, *args: Any) -> None:
    """Call a hook, e.g. ``on_task_end``, of every callback."""
    for callback in callbacks:
        getattr(callback, hook)(*args)
