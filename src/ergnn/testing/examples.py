"""Small synthetic, seeded inputs for checks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

from ergnn.data import Graph, TaskStream, splits
from ergnn.learning.learner import Learner
from ergnn.replay import SelectionContext

FEATURES = 12
CLASSES = 6
EPOCHS = 5


def example_graph(*, per_class: int = 15, sparse: bool = False, seed: int = 0) -> Graph:
    """Create a random graph of 6 classes with self-loops and isolated nodes; class means are well separated.

    About half of the features are zeros if they are sparse.
    """
    generator = torch.Generator().manual_seed(seed)
    n = CLASSES * per_class
    y = torch.arange(n)[torch.randperm(n, generator=generator)] % CLASSES
    x = 2 * torch.randn(CLASSES, FEATURES, generator=generator)[y] + torch.randn(n, FEATURES, generator=generator)
    alike = (y.unsqueeze(0) == y.unsqueeze(1)).float()
    linked = torch.rand(n, n, generator=generator) < 0.01 + 0.1 * alike
    linked = linked.triu() | linked.triu().T
    alone = torch.randperm(n, generator=generator)[: n // 10]
    linked[alone], linked[:, alone] = False, False
    edges = linked.nonzero().T.contiguous()
    return Graph(x.clamp(min=0).to_sparse_csr() if sparse else x, edges, y, name="example").validate()


def example_stream(*, sparse: bool = False, classes_per_task: int = 2) -> TaskStream:
    """Split :func:`example_graph` into tasks with 6 training, 4 validation and 5 test nodes per class."""
    graph = example_graph(sparse=sparse)
    split = splits.per_class(graph.y, train=6, val=4, seed=0)
    return TaskStream.from_classes(graph, classes_per_task=classes_per_task, split=split)


def example_context(
    *, per_class: int = 1, sparse: bool = False, classes_per_task: int = 2, head: str = "per-task"
) -> SelectionContext:
    """Create the input of a selector after a small GCN has learned the second task of :func:`example_stream`."""
    task = example_stream(sparse=sparse, classes_per_task=classes_per_task)[1]
    learned = _after_two_tasks(sparse, classes_per_task, head)
    learner = Learner(learned.config)
    learner.load_state_dict(learned.state_dict())
    return learner.selection_context(task, learner.method.examples(learner, task), per_class, allow_test=False)


@cache  # training takes most of the time of a check
def _after_two_tasks(sparse: bool, classes_per_task: int, head: str) -> Learner:
    learner = Learner("gcn", "finetune", head=head, epochs=30, backbone_options={"hidden": 8})
    for task in example_stream(sparse=sparse, classes_per_task=classes_per_task)[:2]:
        learner.observe(task)
    return learner


def scrambled(stream: TaskStream) -> TaskStream:
    """Return the same stream with every test label wrong."""
    y = stream[0].graph.y.clone()
    for task in stream:
        y[task.test] = torch.tensor(task.classes).roll(1)[task.targets(task.test)]
    graph = replace(stream[0].graph, y=y)
    return TaskStream([replace(task, graph=graph) for task in stream], name=stream.name)


def in_graph(context: SelectionContext, graph: Graph) -> SelectionContext:
    return replace(
        context, task=replace(context.task, graph=graph), trained_on=replace(context.trained_on, graph=graph)
    )
