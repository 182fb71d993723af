"""ContinualGNN: importance against its definition, the loss against a plain loop, the penalty against its limit."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data import Task
from ergnn.methods.graph_memory import ContinualGNN
from ergnn.nn.heads import HEADS
from methods.plain_loop import PlainGCN, assert_same_parameters, learn_plainly, learned, make_learner, make_tasks


@pytest.mark.parametrize("head", HEADS)
def test_without_a_penalty_parameters_are_those_of_a_plain_loop(head: str) -> None:
    tasks = make_tasks()
    learner = learned("continualgnn", head, tasks, per_class=2, lam=0.0)
    parts = learner.method.buffer.experiences  # type: ignore[union-attr]

    def loss(model: PlainGCN, before: PlainGCN, task: Task) -> Tensor:
        total = F.cross_entropy(model.scores(task, task.id)[task.train], model.targets(task, task.train))
        for part in parts[: task.id]:
            scores, targets = model.scores(task, part.task)[part.nodes], model.targets(tasks[part.task], part.nodes)
            total = total + F.cross_entropy(scores, targets) / task.id
        return total

    assert_same_parameters(learner, learn_plainly(tasks, head, loss))


def test_importance_is_the_share_of_neighbors_predicted_as_another_class() -> None:
    tasks = make_tasks()
    learner = learned("continualgnn", "growing", tasks)
    task, method = tasks[2], learner.method
    assert isinstance(method, ContinualGNN)
    predicted, edges = learner.predict(torch.arange(60)), task.graph.edge_index.T.tolist()
    for node, value in zip(task.train.tolist(), method.share_of_other_classes(learner, task).tolist(), strict=True):
        neighbors = [a for a, b in edges if b == node and a != b]
        differs = [int(predicted[u]) != int(task.graph.y[node]) for u in neighbors]
        assert value == pytest.approx(sum(differs) / max(1, len(differs)))


def test_half_of_the_nodes_are_important_ones() -> None:
    tasks = make_tasks()
    learner = make_learner("continualgnn", "growing", per_class=3)
    learner.observe(tasks[0])
    method, buffer = learner.method, learner.method.buffer
    assert isinstance(method, ContinualGNN)
    value = dict(zip(tasks[0].train.tolist(), method.share_of_other_classes(learner, tasks[0]).tolist(), strict=True))
    available = {c: sum(value[v] > 0 for v in tasks[0].train.tolist() if tasks[0].graph.y[v] == c) for c in (0, 1)}
    assert max(available.values()) > 0
    for c, nodes in zip(tasks[0].classes, buffer.nodes.split(3), strict=True):
        assert tasks[0].graph.y[nodes].tolist() == [c] * 3
        assert sum(value[v] > 0 for v in nodes[:2].tolist()) == min(2, available[c])
