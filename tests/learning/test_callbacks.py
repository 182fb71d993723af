"""Callbacks: hooks are called in order with the documented arguments and do not change training; bars and records."""

import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from ergnn.config.errors import DivergedError, InputError, UnknownNameError
from ergnn.data import Task, TaskStream
from ergnn.engine.training import TaskProgress
from ergnn.learning.callbacks import Callback, History, Progress, Recorder
from ergnn.learning.learner import Learner
from ergnn.learning.metrics import AccuracyMatrix, average_accuracy
from ergnn.learning.observing import observe_together
from ergnn.replay.buffer import Experience
from graphs import random_graph

EPOCHS = 7


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


def test_the_loss_and_state_are_those_of_each_learner(stream: TaskStream) -> None:
    class States(Diary):
        def on_epoch_end(self, learner: Learner, progress: TaskProgress) -> None:
            super().on_epoch_end(learner, progress)
            if progress.epoch == 2:
                states[learner.seed] = progress.state_dict()

    states: dict[int, Any] = {}
    together, alone = States(), Diary()
    learners, same = ([Learner("gcn", "finetune", epochs=3, seed=seed) for seed in range(3)] for _ in range(2))
    observe_together(learners, [stream[0]] * 3, [together])
    assert [call[0] for call in together.calls] == ["begin"] * 3 + ["epoch"] * 9 + ["end"] * 3
    for seed, learner in enumerate(same):
        learner.observe(stream[0], callbacks=[alone])
        torch.testing.assert_close(together.losses[seed::3], alone.losses[-3:], rtol=1e-5, atol=0)
        resumed = Learner("gcn", "finetune", epochs=3, seed=seed).observe(stream[0], resume=states[seed])
        for name, value in parameters(learners[seed]).items():
            torch.testing.assert_close(parameters(resumed)[name], value, rtol=1e-4, atol=1e-6)


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


def test_a_terminal_shows_one_line_per_task_and_the_epochs(stream: TaskStream) -> None:
    screen = io.StringIO()
    progress = Progress(Console(file=screen, force_terminal=True, width=100))
    learner = Learner("gcn", per_class=1, epochs=5)
    for task in stream:
        learner.observe(task, callbacks=[progress])
    said = screen.getvalue()
    assert "5/5" in said
    assert "task 1 (classes 0, 1): learned in" in said
    assert "task 2 (classes 2, 3): learned in" in said
    assert "4 nodes stored" in said


def test_nothing_is_shown_without_a_terminal(stream: TaskStream, capsys: pytest.CaptureFixture[str]) -> None:
    Learner("gcn", epochs=2).observe(stream[0], callbacks=[Progress()])
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "")


def test_the_bar_is_removed_when_a_task_fails(stream: TaskStream) -> None:
    screen = io.StringIO()
    progress = Progress(Console(file=screen, force_terminal=True, width=100))
    with pytest.raises(DivergedError):
        Learner("gcn", epochs=3, lr=1e38).observe(stream[0], callbacks=[progress])
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h") == 1  # the cursor is back
    assert "learned in" not in screen.getvalue()


def learn(stream: TaskStream, *callbacks: Any) -> tuple[Learner, list[list[float]]]:
    """A learner that has seen the stream, and its scores after each task."""
    learner, rows = Learner("gcn", selector="cm", per_class=2, epochs=EPOCHS, lr=0.05), []
    for task in stream:
        learner.observe(task, callbacks=callbacks)
        rows.append([learner.evaluate(seen) for seen in stream[: task.id + 1]])
    return learner, rows


def test_history_agrees_with_the_accuracy_matrix(stream: TaskStream) -> None:
    history = History()
    learner, rows = learn(stream, history)
    assert history.column("accuracy/task_1") == [row[0] for row in rows]
    assert history.column("accuracy/task_3") == [None, None, rows[2][2]]
    assert history.column("average_accuracy")[-1] == pytest.approx(average_accuracy(AccuracyMatrix(rows)))
    for i in (1, 2):
        dropped = [rows[j][j] - rows[i][j] for j in range(i)]
        assert history.tasks[i]["forgetting"] == pytest.approx(sum(dropped) / i)
    assert "forgetting" not in history.tasks[0]
    assert history.column("buffer/nodes") == [4, 8, 12]
    assert history.tasks[2]["buffer/bytes"] == learner.method.buffer.nbytes
    assert history.tasks[1]["selection/tie_rate"] == learner.history[1]["selection"]["tie_rate"]
    assert history.tasks[1]["trained_on"] == stream[1].train.numel() + 4
    for task in range(3):
        assert len(history.losses(task)) == EPOCHS


def test_history_errors_list_what_is_available(stream: TaskStream) -> None:
    history = History(split=None)
    learn(stream, history)
    assert not any("accuracy" in name for metrics in history.tasks for name in metrics)
    with pytest.raises(InputError, match="available: buffer/bytes"):
        history.column("accuracy/task_1")
    with pytest.raises(InputError, match="task number 7"):
        history.losses(7)


def test_recorders_reject_invalid_options() -> None:
    with pytest.raises(UnknownNameError, match="unknown split 'valid'"):
        History(split="valid")
    with pytest.raises(InputError, match="every is 0"):
        Recorder(every=0)


def test_losses_are_written_in_between_and_are_those_of_the_history(stream: TaskStream) -> None:
    class Chunks(Recorder):
        def write_losses(self, learner: Learner, task: int, losses: list[tuple[int, float]]) -> None:
            assert len(losses) <= 3
            written.setdefault(task, []).extend(losses)

        def write_task(self, learner: Learner, task: Task, metrics: dict[str, float]) -> None:
            assert {"task": float(task.id), **metrics} == {**history.tasks[task.id], **times(metrics)}

    def times(metrics: dict[str, float]) -> dict[str, float]:
        return {name: value for name, value in metrics.items() if name.endswith("seconds")}

    written: dict[int, list[tuple[int, float]]] = {}
    history = History()
    learn(stream, history, Chunks(every=3))
    assert written == {task: list(enumerate(history.losses(task), start=1)) for task in range(3)}
