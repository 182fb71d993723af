"""iCaRL against a plain PyTorch loop, and herding and predictions against their definitions."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data import Task
from ergnn.methods.distillation import ICaRL
from ergnn.nn.heads import HEADS
from methods.plain_loop import PlainGCN, assert_same_parameters, learn_plainly, learned, make_tasks

PER_CLASS = 2


@pytest.mark.parametrize("head", HEADS)
def test_parameters_are_those_of_a_plain_loop(head: str) -> None:
    tasks = make_tasks()
    learner = learned("icarl", head, tasks, per_class=PER_CLASS)
    exemplars = {part.task: part.nodes for part in learner.method.buffer.experiences}  # type: ignore[union-attr]

    def loss(model: PlainGCN, before: PlainGCN, task: Task) -> Tensor:
        terms = []
        for number in range(task.id + 1):
            own = number == task.id
            nodes = task.train if own else exemplars[number]
            scores, old = model.scores(task, number)[nodes], before.scores(task, number)[nodes].detach().sigmoid()
            labels = F.one_hot(model.targets(tasks[number], nodes), scores.size(1)).float()
            soft = labels if own else old
            if head == "growing":
                soft = torch.cat([old[:, : 2 * task.id], labels[:, 2 * task.id :]], dim=1)
            terms.append(F.binary_cross_entropy_with_logits(scores, soft, reduction="none").sum(1))
        return torch.cat(terms).mean()

    assert_same_parameters(learner, learn_plainly(tasks, head, loss))


@pytest.mark.parametrize("head", HEADS)
def test_a_node_is_predicted_by_the_nearest_mean_of_exemplars(head: str) -> None:
    tasks = make_tasks()
    learner = learned("icarl", head, tasks, per_class=PER_CLASS)
    graph, model = tasks[-1].graph, learner.model
    assert isinstance(learner.method, ICaRL)
    phi = F.normalize(torch.relu(model.convs[0](graph.dense_x(), graph.edge_index)), dim=1)  # type: ignore[operator, index]
    exemplars = learner.method.buffer.nodes
    means = {int(c): F.normalize(phi[exemplars[graph.y[exemplars] == c]].mean(0), dim=0) for c in range(6)}
    for task in tasks:
        known = range(6) if head == "growing" else task.classes
        for nodes in (task.test, task.test[:1]):  # node by node, whatever the others are
            predicted = learner.predict(nodes, None if head == "growing" else task.id).tolist()
            expected = [min(known, key=lambda c: float((phi[v] - means[c]).norm())) for v in nodes.tolist()]
            assert predicted == expected


def test_exemplars_are_herded_and_a_total_budget_keeps_the_best_of_each_class() -> None:
    tasks = make_tasks()
    learner, small = (learned("icarl", "growing", tasks[:1], per_class=4, budget_nodes=n) for n in (None, 4))
    graph, model, buffer = tasks[0].graph, learner.model, learner.method.buffer
    phi = F.normalize(torch.relu(model.convs[0](graph.dense_x(), graph.edge_index)), dim=1)  # type: ignore[operator, index]
    for c, chosen in zip(tasks[0].classes, buffer.nodes.split(4), strict=True):
        members = tasks[0].train[graph.y[tasks[0].train] == c]
        mean, order = phi[members].mean(0), chosen.tolist()
        for k in range(4):
            error = {
                v: float((phi[[*order[:k], v]].mean(0) - mean).norm()) for v in members.tolist() if v not in order[:k]
            }
            assert order[k] == min(error, key=lambda v: error[v])
    assert small.method.buffer.nodes.tolist() == buffer.nodes[[0, 1, 4, 5]].tolist()  # type: ignore[union-attr]
