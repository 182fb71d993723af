"""What is told while a task is learnt, and going on after an interruption."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ergnn.callbacks import Callback, EpochCallback
from ergnn.data import TaskStream
from ergnn.learner import Learner
from graphs import random_graph


class Diary(Callback):
    def __init__(self) -> None:
        self.lines: list[Any] = []

    def on_task_begin(self, learner, task):
        self.lines.append(("begin", task.id, learner.num_tasks))

    def on_epoch_end(self, learner, progress):
        self.lines.append(("epoch", progress.epoch, float(progress.loss)))

    def on_selection(self, learner, task, experience):
        self.lines.append(("selection", experience.nodes.tolist()))

    def on_task_end(self, learner, task, record):
        self.lines.append(("end", record is learner.history[-1]))

    def on_task_failed(self, learner, task, error):
        self.lines.append(("failed", type(error).__name__, learner.num_tasks))


def test_callbacks_are_told_in_order_and_the_losses_are_those_of_the_objective():
    task = TaskStream.from_classes(random_graph(n=48, classes=4))[0]
    diary, learner = Diary(), Learner("gcn", selector="mf", epochs=3, backbone_options={"dropout": 0.0})
    learner.observe(task, callbacks=[diary])
    kinds = [line[0] for line in diary.lines]
    assert kinds == ["begin", "epoch", "epoch", "epoch", "selection", "end"]
    assert diary.lines[0] == ("begin", 0, 0)
    assert [line[1] for line in diary.lines[1:4]] == [1, 2, 3]
    assert diary.lines[4][1] == learner.method.buffer.nodes.tolist()
    assert diary.lines[5] == ("end", True)
    alone = Learner("gcn", selector="mf", epochs=2, backbone_options={"dropout": 0.0}).observe(task)
    logits = alone.model.eval()(task.graph.dense_x(), task.graph.edge_index)
    loss = torch.nn.functional.cross_entropy(logits[task.train], task.targets(task.train))
    assert diary.lines[3][2] == pytest.approx(loss.item(), rel=1e-5), "two steps are made before the third loss"


def test_an_error_in_a_callback_leaves_the_learner_as_it_was():
    class Angry(Diary):
        def on_epoch_end(self, learner, progress):
            raise RuntimeError("no more")

    stream = TaskStream.from_classes(random_graph(n=48, classes=4))
    learner, angry = Learner("gcn", epochs=3).observe(stream[0]), Angry()
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    with pytest.raises(RuntimeError, match="no more"):
        learner.observe(stream[1], callbacks=[angry])
    assert angry.lines == [("begin", 1, 1), ("failed", "RuntimeError", 1)]
    assert {name: value.tolist() for name, value in learner.model.state_dict().items()} == {
        name: value.tolist() for name, value in before.items()
    }
    learner.observe(stream[1])


@pytest.mark.parametrize(
    ("method", "options"),
    [("replay", {"selector": "im", "per_class": 2, "replay_batch": 3}), ("agem", {"sample": 2}), ("ewc", {})],
)
@pytest.mark.parametrize("head", ["growing", "per-task"])
def test_a_task_goes_on_where_it_was_interrupted_to_the_same_bits(method: str, options: dict[str, Any], head: str):
    stream = TaskStream.from_classes(random_graph(n=72, classes=6))
    results = []
    for stop in (None, 1, 4):
        learner = Learner("gat", method, head=head, epochs=5, seed=2, **options)
        for task in stream:
            states: list[dict[str, Any]] = []

            def keep(progress, states=states, stop=stop):
                states.append(progress.state_dict())
                if progress.epoch == stop:
                    raise KeyboardInterrupt

            if stop is not None:
                with pytest.raises(KeyboardInterrupt):
                    learner.observe(task, callbacks=[EpochCallback(keep)])
            learner.observe(task, resume=states[-1] if states else None)
        results.append(learner.state_dict())
    for again in results[1:]:
        assert all(torch.equal(value, again["model"][name]) for name, value in results[0]["model"].items())
        assert str(again["method"]) == str(results[0]["method"])
