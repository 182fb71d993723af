"""Limits of methods: finetuning without their term, and a frozen network with an infinite penalty."""

from typing import Any

import pytest

from ergnn.learning.learner import Learner
from methods.plain_loop import assert_equal_bits, learned, make_tasks

NO_TERM: dict[str, dict[str, Any]] = {
    **{name: {"lam": 0.0} for name in ("ewc", "online-ewc", "mas", "si")},
    "derpp": {"alpha": 0.0, "beta": 0.0},
    "lwf": {"alpha": 0.0},
}


@pytest.mark.parametrize("head", ["shared", "growing"])
@pytest.mark.parametrize("name", NO_TERM)
def test_without_its_term_a_method_is_finetuning_bit_for_bit(name: str, head: str) -> None:
    tasks = make_tasks()
    assert_equal_bits(learned(name, head, tasks, **NO_TERM[name]), learned("finetune", head, tasks))


@pytest.mark.parametrize(
    ("name", "option", "optimizer"),
    [
        *((name, "lam", kind) for name in ("ewc", "online-ewc", "mas", "si") for kind in ("sgd", "adam")),
        *(("continualgnn", "lam", "sgd"), ("twp", "lam_loss", "sgd")),
    ],
)
def test_an_infinite_penalty_freezes_the_network(name: str, option: str, optimizer: str) -> None:
    tasks = make_tasks()
    options = {"head": "shared", "epochs": 30, "lr": 0.2 if optimizer == "sgd" else 0.05, "weight_decay": 0.0}
    moved = []
    for method, of_method in ((name, {option: 1e12}), ("finetune", {})):
        backbone = {"hidden": 6, "dropout": 0.0}
        learner = Learner("gcn", method, optimizer=optimizer, backbone_options=backbone, **options, **of_method)
        learner.observe(tasks[0])
        before = learner.logits(tasks[0].graph, tasks[0].train, 0)
        learner.observe(tasks[1])
        moved.append(float((learner.logits(tasks[0].graph, tasks[0].train, 0) - before).abs().max()))
    assert moved[0] < 1e-3
    assert moved[1] > 0.3
