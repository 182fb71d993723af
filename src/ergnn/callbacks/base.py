"""The hooks of a callback, and who calls them when.

``Learner.observe(task, callbacks=[…])`` makes a :class:`CallbackList` and calls, in this order:

1. ``on_task_begin(learner, task)`` once the task has been accepted: every check has passed, the heads have room for
   its classes, and the task stands on the learner's device. No step has been made.
2. ``on_epoch_end(learner, epoch, loss)`` after every epoch, *only if* :attr:`CallbackList.wants_epochs`; otherwise
   nothing is computed for it. ``epoch`` counts the epochs of the task that are done, from 1 (a resumed task goes on
   counting from where it was). ``loss`` is the loss that was minimised in this epoch (with mini-batches the mean over
   them), before the epoch's last step: a detached 0-d tensor on the learner's device, which nobody writes to
   afterwards. Nothing waits for the device unless a callback reads its value (``float(loss)``).
3. ``on_selection(learner, task, experience)`` after the method's ``after_task``, if the method has a buffer and it
   remembers nodes of this task: ``experience`` is what was added.
4. ``on_task_end(learner, task, record)`` last of all: the model has the new parameters, ``learner.history[-1]`` is
   ``record``, and the learner may be asked for predictions.

If anything goes wrong on the way, a callback's own error and Ctrl-C included, the learner is put back to what it was
before the task, ``on_task_failed(learner, task, error)`` is called, and the error is raised again. A method that does
not train (nearest mean) has no epochs. The parameters that ``learner.model`` has in hooks 1 and 2 are those before the
task.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ergnn.data.stream import Task
from ergnn.errors import InputError
from ergnn.replay.buffer import Experience

if TYPE_CHECKING:
    from ergnn.learner import Learner


class Callback:
    """Something that follows a learner at work. Every hook does nothing unless it is overridden.

    A callback looks on: it must not change the learner, the task or the global random state, so that what is learnt is
    the same with and without it.
    """

    def on_task_begin(self, learner: Learner, task: Task) -> None:
        """A task is about to be learnt."""

    def on_epoch_end(self, learner: Learner, epoch: int, loss: Tensor) -> None:
        """``epoch`` epochs of the task are done; ``loss`` stays on its device until somebody reads it."""

    def on_selection(self, learner: Learner, task: Task, experience: Experience) -> None:
        """Nodes of the task have been chosen and remembered."""

    def on_task_end(self, learner: Learner, task: Task, record: dict[str, Any]) -> None:
        """The task has been learnt; ``record`` is what ``learner.history`` keeps of it."""

    def on_task_failed(self, learner: Learner, task: Task, error: BaseException) -> None:
        """The task was given up, and the learner is what it was before."""


class CallbackList(Callback):
    """Several callbacks as one, called in the order in which they are given."""

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise InputError(
                    f"callbacks has {callback!r}; each must be made from a class derived from ergnn.callbacks.Callback"
                )

    def __len__(self) -> int:
        return len(self.callbacks)

    @property
    def wants_epochs(self) -> bool:
        """Whether anybody listens to epochs, so that their losses are worth keeping."""
        return any(
            one.wants_epochs if isinstance(one, CallbackList) else type(one).on_epoch_end is not Callback.on_epoch_end
            for one in self.callbacks
        )

    def on_task_begin(self, learner: Learner, task: Task) -> None:
        for callback in self.callbacks:
            callback.on_task_begin(learner, task)

    def on_epoch_end(self, learner: Learner, epoch: int, loss: Tensor) -> None:
        for callback in self.callbacks:
            callback.on_epoch_end(learner, epoch, loss)

    def on_selection(self, learner: Learner, task: Task, experience: Experience) -> None:
        for callback in self.callbacks:
            callback.on_selection(learner, task, experience)

    def on_task_end(self, learner: Learner, task: Task, record: dict[str, Any]) -> None:
        for callback in self.callbacks:
            callback.on_task_end(learner, task, record)

    def on_task_failed(self, learner: Learner, task: Task, error: BaseException) -> None:
        for callback in self.callbacks:
            callback.on_task_failed(learner, task, error)
