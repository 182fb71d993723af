"""Training the learner on batches with sampled neighbors."""

from typing import Any

import pytest
import torch

from ergnn.data import TaskStream
from ergnn.engine.curvature import flatten
from ergnn.engine.losses import gradients
from ergnn.engine.objective import make_objective
from ergnn.engine.sampling import Sampling
from ergnn.learning.learner import Learner
from ergnn.learning.observing import begin
from ergnn.methods.episodic import GradientConstraint
from graphs import random_graph

SMALL = {"gat": {"hidden": 3, "heads": 2}, "sage": {"hidden": 4}, "sgc": {}}


def stream(n: int = 120, p_edge: float = 0.15) -> TaskStream:
    return TaskStream.from_classes(random_graph(n=n, classes=6, p_edge=p_edge), classes_per_task=2)


def learner(backbone: str = "gat", **options: Any) -> Learner:
    given = {"epochs": 3, "batch_size": 8, "fanout": (4, 3), "backbone_options": SMALL.get(backbone, {"hidden": 4})}
    return Learner(backbone, selector="mf", **{**given, **options})


def parameters(found: Learner) -> list[torch.Tensor]:
    return [value.detach() for value in found.model.parameters()]


def equal(a: Learner, b: Learner) -> bool:
    return all(torch.equal(x, y) for x, y in zip(parameters(a), parameters(b), strict=True))


@pytest.mark.parametrize(("backbone", "head"), [("gat", "growing"), ("sage", "per-task"), ("sgc", "growing")])
def test_a_fanout_of_the_largest_degree_equals_exact_batches(backbone: str, head: str) -> None:
    sampled, exact = (learner(backbone, head=head, fanout=fanout) for fanout in ((1000, 1000), None))
    for task in stream():
        sampled.observe(task)
        exact.observe(task)
    for a, b in zip(parameters(sampled), parameters(exact), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert sampled.method.buffer is not None
    assert len(sampled.method.buffer) == 6


@pytest.mark.parametrize("with_replacement", [False, True])
def test_only_equal_seeds_give_the_same_bits(with_replacement: bool) -> None:
    made = [learner(seed=seed, with_replacement=with_replacement) for seed in (1, 1, 2)]
    for one in made:
        for task in stream():
            one.observe(task)
    assert equal(made[0], made[1])
    assert not equal(made[0], made[2])


def references(hook: GradientConstraint, params: dict[str, torch.Tensor], steps: int) -> list[torch.Tensor]:
    """Return the memory gradients that a hook computes in a few steps at the same parameters."""
    seen: list[torch.Tensor] = []

    def kept(gradient: torch.Tensor, memories: torch.Tensor) -> torch.Tensor:
        seen.extend(memories)
        return gradient

    hook.project = kept
    for _ in range(steps):
        hook.before_step(params)
    return seen


@pytest.mark.parametrize(("method", "options"), [("gem", {}), ("agem", {}), ("agem", {"sample": 4})])
def test_memories_sample_neighbors_at_each_step(method: str, options: dict[str, int]) -> None:
    tasks, batches = stream(), {"epochs": 2, "batch_size": 8, "fanout": (2, 2)}
    made = Learner("gcn", method, per_class=3, backbone_options={"hidden": 4}, **batches, **options)
    for task in tasks[:2]:
        made.observe(task)
    task, examples = begin(made, tasks[2])
    found = {}
    for fanout in ((1, 1), (1000, 1000)):
        objective = make_objective([made.model], [examples], sampling=Sampling(fanout))
        params = {name: value.requires_grad_() for name, value in objective.parameters().items()}
        found[fanout] = references(made.method.step_hook(made, task, objective), params, 2)
        resumed = made.method.step_hook(made, task, objective)
        resumed.skip(1)
        again = references(resumed, params, 1)
        assert all(torch.equal(a, b) for a, b in zip(again, found[fanout][len(again) :], strict=True))
    few, every = found.values()
    assert all(not torch.equal(few[i], few[i + len(again)]) for i in range(len(again))), "another sample at each step"
    assert all(not torch.allclose(a, b) for a, b in zip(few, every, strict=True)), "not the exact neighborhoods"
    if options:
        return  # which nodes are compared is sampled as well
    places = torch.arange(task.train.numel(), len(examples))
    parts = places.split(places.numel() if method == "agem" else 6)
    exact = make_objective([made.model], [examples])
    assert len(parts) == len(again)
    for part, reference in zip(parts, every, strict=False):
        expected = flatten(gradients(exact.batch(part).losses(params).mean(), params))
        torch.testing.assert_close(expected, reference, rtol=1e-4, atol=1e-6)
