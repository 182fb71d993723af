"""MAS, SI and online EWC beside a plain PyTorch loop, and with no penalty and an infinite one."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data import Task, TaskStream
from ergnn.engine.losses import MASKED
from ergnn.learning.learner import Learner
from ergnn.methods import METHODS
from ergnn.methods.importance import squared_norm
from methods.plain_loop import EPOCHS, LR, PlainGCN, assert_equal_bits, assert_same_parameters, learned, make_tasks

Values = dict[str, Tensor]
METHOD_NAMES = ["ewc", "online-ewc", "mas", "si"]


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
    """SGD, and after every step the proximal step of the penalty around the parameters after the previous task."""
    model = PlainGCN(tasks, head)
    total = {key: torch.zeros_like(value) for key, value in model.named_parameters()}
    anchor: Values = {}
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
                    if anchor:
                        stiff = LR * lam * total[key]
                        value.copy_((value + stiff * anchor[key]) / (1 + stiff))
                    path[key] -= gradient[key] * (value - before)
        if name == "si":
            change = {key: value.detach() - start[key] for key, value in model.named_parameters()}
            new = {key: path[key].clamp(min=0) / (change[key] ** 2 + xi) for key in total}
        else:
            each = list((outputs_squared if name == "mas" else losses_squared)(model, task))
            new = {key: torch.stack([one[key] for one in each]).mean(0) for key in total}
        touched = [key for key in total if head == "growing" or "heads" not in key or head == "shared"]
        touched += [key for key in total if key.startswith(f"heads.{task.id}.") and head == "per-task"]
        for key in touched:
            total[key] = gamma * total[key] + new[key].detach()
        anchor = {key: value.detach().clone() for key, value in model.named_parameters()}
    return model


@pytest.mark.parametrize("head", ["shared", "per-task", "growing"])
@pytest.mark.parametrize(
    ("name", "options"),
    [("mas", {"lam": 0.3}), ("si", {"lam": 5.0, "xi": 0.02}), ("online-ewc", {"lam": 30.0, "gamma": 0.4})],
)
def test_parameters_are_those_of_a_plain_loop(name: str, options: dict[str, Any], head: str) -> None:
    tasks = make_tasks()
    learner = learned(name, head, tasks, weight_decay=0.0, **options)
    gamma = options.get("gamma", 1.0)
    assert_same_parameters(learner, plainly(name, tasks, head, options["lam"], gamma, options.get("xi", 0.0)))
    free = learned("finetune", head, tasks, weight_decay=0.0)
    far = [a - b for a, b in zip(*(each.model.state_dict().values() for each in (learner, free)), strict=True)]
    assert max(float(part.abs().max()) for part in far) > 1e-2, "the penalty has an effect"


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", METHOD_NAMES)
def test_an_infinite_penalty_freezes_the_network(name: str, optimizer: str) -> None:
    tasks = make_tasks()
    options = {
        "head": "shared",
        "epochs": 30,
        "lr": 0.2 if optimizer == "sgd" else 0.05,
        "optimizer": optimizer,
        "weight_decay": 0.0,
    }
    moved = {}
    for method in (METHODS.create(name, lam=1e12), METHODS.create("finetune")):
        learner = Learner("gcn", method, backbone_options={"hidden": 6, "dropout": 0.0}, **options)  # type: ignore[arg-type]
        learner.observe(tasks[0])
        before = learner.logits(tasks[0].graph, tasks[0].train, 0)
        learner.observe(tasks[1])
        moved[method] = float((learner.logits(tasks[0].graph, tasks[0].train, 0) - before).abs().max())
    frozen, free = moved.values()
    assert free > 0.3
    assert frozen < 1e-3


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_without_a_penalty_it_is_finetuning_bit_for_bit(name: str) -> None:
    tasks = make_tasks()
    assert_equal_bits(learned(name, "growing", tasks, lam=0.0), learned("finetune", "growing", tasks))


def test_padded_outputs_do_not_count() -> None:
    assert squared_norm(torch.tensor([[1.0, 2.0, MASKED], [0.0, 3.0, 1.0]]), torch.zeros(2), {}).tolist() == [5.0, 10.0]
