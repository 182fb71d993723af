"""Recorders: metrics against the accuracy matrix, and files read back by their own libraries."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from ergnn.config.errors import InputError, UnknownNameError
from ergnn.data import TaskStream
from ergnn.learning.callbacks import History, TensorBoard
from ergnn.learning.learner import Learner
from ergnn.learning.metrics import AccuracyMatrix, average_accuracy
from graphs import random_graph

EPOCHS = 7


@pytest.fixture(scope="module")
def stream() -> TaskStream:
    return TaskStream.from_classes(random_graph(n=60, f=6, classes=6, p_edge=0.08, seed=1), edges="seen")


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
        TensorBoard("runs", every=0)


def expected(history: History) -> dict[str, list[tuple[int, float]]]:
    """What a file must hold: ``name: [(step, value), …]``; times, which differ from run to run, left out."""
    losses = [loss for task in range(3) for loss in history.losses(task)]
    out: dict[str, list[tuple[int, float]]] = {"loss": list(enumerate(losses, start=1))}
    for metrics in history.tasks:
        for name, value in metrics.items():
            if name != "task" and "seconds" not in name:
                out.setdefault(name, []).append((int(metrics["task"]) + 1, value))
    return out


def assert_same(found: dict[str, list[tuple[int, float]]], history: History) -> None:
    wanted = expected(history)
    assert {name for name in found if "seconds" not in name} == wanted.keys()
    for name, values in wanted.items():
        assert [step for step, _ in found[name]] == [step for step, _ in values], name
        for (_, value), (_, right) in zip(found[name], values, strict=True):
            assert math.isclose(value, right, rel_tol=1e-6), name


def test_tensorboard_files_read_back(stream: TaskStream, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = History()
    with TensorBoard(tmp_path / "runs", every=3) as board:
        learn(stream, history, board)
    events = EventAccumulator(str(tmp_path / "runs"), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    found = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert_same(found, history)
    text = events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "backbone: gcn" in text
    assert "per_class: 2" in text


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # what an import sees where a package is absent
    with pytest.raises(InputError, match=r"pip install 'ergnn\[tensorboard\]'"):
        TensorBoard("somewhere")
