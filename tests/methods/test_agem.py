"""A-GEM: the closed form against GEM's quadratic program with one memory, and the reference gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data import TaskStream
from ergnn.engine.objective import make_objective
from ergnn.learning.learner import Learner
from ergnn.learning.observing import begin
from ergnn.methods.agem import AGEM, project_on_average
from ergnn.methods.episodic import flat_gradients, mean_gradient
from ergnn.methods.gem import project
from ergnn.testing import check_method
from graphs import random_graph


@given(st.integers(1, 9), st.integers(0, 2**16))
def test_it_equals_gem_with_one_memory(size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    gradient, reference = torch.randn(2, size, generator=generator, dtype=torch.float64)
    got = project_on_average(gradient, reference)
    assert torch.allclose(got, project(gradient, reference.unsqueeze(0)), atol=1e-9)
    assert float(got @ reference) >= -1e-9


def test_two_gradients_by_hand() -> None:
    assert project_on_average(torch.tensor([1.0, -1.0]), torch.tensor([0.0, 2.0])).tolist() == [1.0, 0.0]
    kept = torch.tensor([1.0, 1.0])
    assert project_on_average(kept, torch.tensor([0.0, 2.0])) is kept
    assert project_on_average(kept, torch.zeros(2)) is kept


def learned(sample: int, seed: int) -> tuple[Learner, TaskStream]:
    tasks = TaskStream.from_classes(random_graph(n=60, classes=6, seed=3), classes_per_task=2)
    options = {"hidden": 6, "dropout": 0.0}
    learner = Learner(
        "gcn", AGEM(per_class=2, sample=sample), epochs=15, head="shared", seed=seed, backbone_options=options
    )
    for task in tasks[:2]:
        learner.observe(task)
    return learner, tasks


def step(sample: int, seed: int = 0) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the gradient before and after the projection, and the gradient of each remembered node."""
    learner, tasks = learned(sample, seed)
    task, examples = begin(learner, tasks[2])
    assert learner.model is not None
    objective = make_objective([learner.model], [examples])
    params = {name: value.requires_grad_() for name, value in objective.parameters().items()}
    (-objective.losses(params)[task.train.numel() :].sum()).backward()
    before = flat_gradients(params)[0]
    hook = learner.method.step_hook(learner, task, objective)
    assert hook is not None
    hook.before_step(params)
    parts = []
    for experience in learner.method.buffer.experiences:  # type: ignore[union-attr]
        for node in experience.nodes:
            part = learner.examples(task.graph, node.view(1), experience.task)
            parts.append(mean_gradient(make_objective([learner.model], [part], heads=objective.heads), params))
    return before, flat_gradients(params)[0], parts


def test_the_reference_gradient_is_the_mean_over_the_memory() -> None:
    before, after, parts = step(sample=256)
    reference = torch.stack(parts).mean(0)
    assert len(parts) == 8
    assert float(before @ reference) < 0
    expected = before - (before @ reference) / (reference @ reference) * reference
    assert torch.allclose(after, expected, atol=1e-5 * float(before.norm()))


def test_a_sample_is_a_subset_of_the_memory() -> None:
    projected = 0
    for seed in range(4):
        before, after, parts = step(1, seed)
        candidates = [before - (before @ g).clamp(max=0) / (g @ g) * g for g in parts]
        distances = [float((after - candidate).norm() / before.norm()) for candidate in candidates]
        assert min(distances) < 1e-4
        projected += float((after - before).norm() / before.norm()) > 1e-3
    assert projected


def test_agem_passes_the_contract_suite_with_a_sample_of_stored_neighborhoods() -> None:
    check_method("agem", sample=3, replay="ego")


def test_invalid_options_are_refused() -> None:
    with pytest.raises(InputError, match="sample is 0"):
        AGEM(sample=0)
