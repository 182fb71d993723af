"""Hooks are called in order with the documented arguments, and do not change training."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data import Task, TaskStream
from ergnn.engine.training import TaskProgress
from ergnn.learning.callbacks import Callback
from ergnn.learning.learner import Learner
from ergnn.replay.buffer import Experience
from graphs import random_graph


class Diary(Callback):
    """Writes down every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.losses: list[Tensor] = []

    def on_task_begin(self, learner: Learner, task: Task) -> None:
        self.calls.append(("begin", task.id, learner.num_tasks))

    def on_epoch_end(self, learner: Learner, progress: TaskProgress) -> None:
        self.calls.append(("epoch", progress.epoch))
        self.losses.append(progress.loss)

    def on_selection(self, learner: Learner, task: Task, experience: Experience) -> None:
        self.calls.append(("selection", task.id, experience.nodes.tolist()))

    def on_task_end(self, learner: Learner, task: Task, record: dict[str, Any]) -> None:
        self.calls.append(("end", task.id, learner.num_tasks))
        assert record is learner.history[-1]
        assert learner.predict(task.test, task.id).shape == task.test.shape

    def on_task_failed(self, learner: Learner, task: Task, error: BaseException) -> None:
        self.calls.append(("failed", task.id, learner.num_tasks, str(error)))


class Stumbles(Callback):
    """Fails after an epoch."""

    def on_epoch_end(self, learner: Learner, progress: TaskProgress) -> None:
        if progress.epoch == 2:
            raise RuntimeError("stumbled")


@pytest.fixture(scope="module")
def stream() -> TaskStream:
    return TaskStream.from_classes(random_graph(n=60, f=6, classes=6, p_edge=0.08, seed=1), edges="seen")


def parameters(learner: Learner) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in learner.model.state_dict().items()}


def test_hooks_are_called_in_order(stream: TaskStream) -> None:
    diary, learner = Diary(), Learner("gcn", selector="random", per_class=2, epochs=3)
    for task in stream[:2]:
        learner.observe(task, callbacks=[diary])
    chosen = [part.nodes.tolist() for part in learner.method.buffer.experiences]
    epochs = [("epoch", 1), ("epoch", 2), ("epoch", 3)]
    first = [("begin", 0, 0), *epochs, ("selection", 0, chosen[0]), ("end", 0, 1)]
    second = [("begin", 1, 1), *epochs, ("selection", 1, chosen[1]), ("end", 1, 2)]
    assert diary.calls == first + second


@pytest.mark.parametrize("batch_size", [None, 4])
def test_callbacks_do_not_change_training(stream: TaskStream, batch_size: int | None) -> None:
    followed, alone = (Learner("gat", epochs=4, batch_size=batch_size) for _ in range(2))
    for task in stream[:2]:
        followed.observe(task, callbacks=[Diary()])
        alone.observe(task)
    old, new = parameters(alone), parameters(followed)
    assert all(torch.equal(old[name], new[name]) for name in old)


def test_the_loss_is_the_one_before_the_epochs_step(stream: TaskStream) -> None:
    task = stream[0]
    diary = Diary()
    options = {"backbone_options": {"dropout": 0.0}, "lr": 0.05}
    Learner("gcn", "finetune", epochs=6, **options).observe(task, callbacks=[diary])
    for epoch in (1, 3, 5):
        until = Learner("gcn", "finetune", epochs=epoch, **options).observe(task)
        logits = until.model.eval()(task.graph.x, task.graph.edge_index, 0)[task.train]
        torch.testing.assert_close(diary.losses[epoch], F.cross_entropy(logits, task.targets(task.train)).detach())


def test_an_error_in_a_callback_undoes_the_task_and_notifies_all(stream: TaskStream) -> None:
    diary, learner = Diary(), Learner("gcn", epochs=3).observe(stream[0])
    before = parameters(learner)
    with pytest.raises(RuntimeError, match="stumbled"):
        learner.observe(stream[1], callbacks=[diary, Stumbles()])
    assert diary.calls[-1] == ("failed", 1, 1, "stumbled")
    after = parameters(learner)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_non_callbacks_are_rejected_before_training(stream: TaskStream) -> None:
    learner = Learner("gcn", epochs=1)
    with pytest.raises(InputError, match=r"instance of ergnn\.learning\.callbacks\.Callback"):
        learner.observe(stream[0], callbacks=[print])
    assert learner.num_tasks == 0
