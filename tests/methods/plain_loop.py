"""A plain PyTorch loop over tasks, on the whole graph and without the package's training code."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from ergnn.data import Task, TaskStream
from ergnn.learning.learner import Learner
from ergnn.methods import Method
from graphs import random_graph

EPOCHS, LR, HIDDEN = 6, 0.2, 6


def make_tasks() -> TaskStream:
    return TaskStream.from_classes(random_graph(n=60, f=8, classes=6, p_edge=0.08, seed=3), classes_per_task=2)


def make_learner(method: str | Method, head: str, **options: Any) -> Learner:
    """Create a learner without dropout and with SGD (Adam would amplify rounding errors of vanishing gradients)."""
    backbone = {"hidden": HIDDEN, "dropout": 0.0}
    return Learner(
        "gcn", method, head=head, epochs=EPOCHS, lr=LR, optimizer="sgd", backbone_options=backbone, **options
    )


def learned(method: str | Method, head: str, tasks: TaskStream, **options: Any) -> Learner:
    learner = make_learner(method, head, **options)
    for task in tasks:
        learner.observe(task)
    return learner


class PlainGCN(nn.Module):
    """Two GCN layers, with one output layer per task or one for all of them."""

    def __init__(self, tasks: TaskStream, head: str) -> None:
        super().__init__()
        self.kind = head
        self.conv = GCNConv(tasks.num_features, HIDDEN)
        count = 1 if head == "shared" else len(tasks)
        self.heads = nn.ModuleList(GCNConv(HIDDEN, 2) for _ in range(count))
        like = make_learner("finetune", head)  # only its initial parameters are used
        like.model = like.new_model(tasks.num_features)
        for task in tasks:
            like.add_head(task.classes)
        state = like.model.state_dict()
        self.load_state_dict({name.replace("convs.0.", "conv."): value for name, value in state.items()})

    def scores(self, task: Task, number: int) -> Tensor:
        """The scores of all nodes by the outputs of task ``number`` (growing: of all tasks up to ``task``)."""
        h = torch.relu(self.conv(task.graph.dense_x(), task.graph.edge_index))
        if self.kind == "growing":
            return torch.cat([head(h, task.graph.edge_index) for head in self.heads[: task.id + 1]], dim=1)
        return self.heads[0 if self.kind == "shared" else number](h, task.graph.edge_index)

    forward = scores

    def targets(self, task: Task, nodes: Tensor) -> Tensor:
        return task.targets(nodes) + (2 * task.id if self.kind == "growing" else 0)


def learn_plainly(
    tasks: TaskStream,
    head: str,
    loss: Callable[[PlainGCN, PlainGCN, Task], Tensor],
    after: Callable[[PlainGCN, Task], None] = lambda model, task: None,
) -> PlainGCN:
    """Learn a stream with SGD; ``loss`` receives the model, a copy of it from before the task, and the task."""
    model, before = PlainGCN(tasks, head), PlainGCN(tasks, head)
    for task in tasks:
        before.load_state_dict(model.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        for _ in range(EPOCHS):
            optimizer.zero_grad()
            loss(model, before, task).backward()
            optimizer.step()
        after(model, task)
    return model


def assert_same_parameters(learner: Learner, model: PlainGCN) -> None:
    for name, value in learner.model.state_dict().items():
        plain = model.state_dict()[name.replace("convs.0.", "conv.")]
        torch.testing.assert_close(value, plain, rtol=1e-4, atol=2e-5)


def assert_equal_bits(one: Learner, other: Learner) -> None:
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name]), name
