"""EWC, online EWC, MAS and SI beside a plain PyTorch loop."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data import Task, TaskStream
from ergnn.engine.losses import MASKED
from ergnn.methods.importance import squared_norm
from methods.plain_loop import EPOCHS, LR, PlainGCN, assert_same_parameters, learned, make_tasks

Values = dict[str, Tensor]


def gradients(model: PlainGCN, value: Tensor) -> Values:
    names, params = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(value, params, retain_graph=True, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


def outputs_squared(model: PlainGCN, task: Task) -> Iterator[Values]:
    for scores in model.scores(task, task.id)[task.train]:
        yield {name: value.abs() for name, value in gradients(model, (scores**2).sum()).items()}


def losses_squared(model: PlainGCN, task: Task) -> Iterator[Values]:
    scores, targets = model.scores(task, task.id)[task.train], model.targets(task, task.train)
    for loss in F.cross_entropy(scores, targets, reduction="none"):
        yield {name: value.square() for name, value in gradients(model, loss).items()}


def plainly(name: str, tasks: TaskStream, head: str, lam: float, gamma: float, xi: float) -> PlainGCN:
    """SGD, and after every step the proximal step of the penalty.

    EWC has one penalty per task, the others one around the parameters after the previous task.
    """
    model = PlainGCN(tasks, head)
    total = {key: torch.zeros_like(value) for key, value in model.named_parameters()}
    pull = {key: torch.zeros_like(value) for key, value in total.items()}
    for task in tasks:
        start = {key: value.detach().clone() for key, value in model.named_parameters()}
        path = {key: torch.zeros_like(value) for key, value in start.items()}
        for _ in range(EPOCHS):
            loss = F.cross_entropy(model.scores(task, task.id)[task.train], model.targets(task, task.train))
            gradient = gradients(model, loss)
            with torch.no_grad():
                for key, value in model.named_parameters():
                    before = value.clone()
                    value -= LR * gradient[key]
                    value.copy_((value + LR * lam * pull[key]) / (1 + LR * lam * total[key]))
                    path[key] -= gradient[key] * (value - before)
        if name == "si":
            change = {key: value.detach() - start[key] for key, value in model.named_parameters()}
            new = {key: path[key].clamp(min=0) / (change[key] ** 2 + xi) for key in total}
        else:
            each = list((outputs_squared if name == "mas" else losses_squared)(model, task))
            new = {key: torch.stack([one[key] for one in each]).mean(0) for key in total}
        touched = [key for key in total if head == "growing" or "heads" not in key or head == "shared"]
        touched += [key for key in total if key.startswith(f"heads.{task.id}.") and head == "per-task"]
        for key, value in model.named_parameters():
            importance = new[key].detach() if key in touched else torch.zeros_like(value)
            if name == "ewc":
                total[key], pull[key] = total[key] + importance, pull[key] + importance * value.detach()
            else:
                total[key] = gamma * total[key] + importance if key in touched else total[key]
                pull[key] = total[key] * value.detach()
    return model


@pytest.mark.parametrize("head", ["shared", "per-task", "growing"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("ewc", {"lam": 30.0}), ("mas", {"lam": 0.3}), ("si", {"lam": 5.0, "xi": 0.02})),
        ("online-ewc", {"lam": 30.0, "gamma": 0.4}),
    ],
)
def test_parameters_are_those_of_a_plain_loop(name: str, options: dict[str, Any], head: str) -> None:
    tasks = make_tasks()
    learner = learned(name, head, tasks, weight_decay=0.0, **options)
    gamma = options.get("gamma", 1.0)
    assert_same_parameters(learner, plainly(name, tasks, head, options["lam"], gamma, options.get("xi", 0.0)))
    free = learned("finetune", head, tasks, weight_decay=0.0)
    far = [a - b for a, b in zip(*(each.model.state_dict().values() for each in (learner, free)), strict=True)]
    assert max(float(part.abs().max()) for part in far) > 1e-2, "the penalty has an effect"


def test_padded_outputs_do_not_count() -> None:
    assert squared_norm(torch.tensor([[1.0, 2.0, MASKED], [0.0, 3.0, 1.0]]), torch.zeros(2), {}).tolist() == [5.0, 10.0]
