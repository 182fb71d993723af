"""DER++ against a plain PyTorch loop."""

import pytest
import torch.nn.functional as F
from torch import Tensor

from ergnn.data import Task
from ergnn.nn.heads import HEADS
from methods.plain_loop import PlainGCN, assert_same_parameters, learn_plainly, learned, make_tasks

ALPHA, BETA = 0.7, 0.4


@pytest.mark.parametrize("head", HEADS)
def test_parameters_equal_a_plain_loop(head: str) -> None:
    tasks = make_tasks()
    learner = learned("derpp", head, tasks, alpha=ALPHA, beta=BETA, per_class=2, selector="random")
    chosen = {part.task: part.nodes for part in learner.method.buffer.experiences}  # type: ignore[union-attr]
    stored: list[tuple[Task, Tensor]] = []

    def remember(model: PlainGCN, task: Task) -> None:
        stored.append((task, model.scores(task, task.id)[chosen[task.id]].detach()))

    def loss(model: PlainGCN, before: PlainGCN, task: Task) -> Tensor:
        total = F.cross_entropy(model.scores(task, task.id)[task.train], model.targets(task, task.train))
        count = sum(len(old) for _, old in stored)
        for earlier, old in stored:
            nodes = chosen[earlier.id]
            now = model.scores(task, earlier.id)[nodes]
            squared = (now[:, : old.size(1)] - old).square().mean(1).sum()
            labels = F.cross_entropy(now, model.targets(earlier, nodes), reduction="sum")
            total = total + (ALPHA * squared + BETA * labels) / count
        return total

    assert_same_parameters(learner, learn_plainly(tasks, head, loss, remember))
