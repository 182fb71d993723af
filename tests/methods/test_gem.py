"""GEM: its quadratic program against SciPy and the Kuhn-Tucker conditions; A-GEM against GEM with one memory."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from ergnn.data import TaskStream
from ergnn.engine.curvature import flatten
from ergnn.engine.losses import gradients
from ergnn.engine.objective import make_objective
from ergnn.learning.learner import Learner
from ergnn.learning.observing import begin
from ergnn.methods.episodic import (
    AGEM,
    GEM,
    EpisodicMemory,
    GradientConstraint,
    flat_gradients,
    nonnegative_minimum,
    project,
    project_on_average,
)
from graphs import random_graph


@st.composite
def programs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Generate a gradient and gradients of tasks, which may be more than parameters, equal or opposite."""
    size, tasks = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    rows = rng.normal(size=(tasks, size)) * 10.0 ** rng.integers(-2, 3)
    if draw(st.booleans()):
        rows[-1] = rows[0] * draw(st.sampled_from([1.0, -1.0, 3.0, 0.0]))
    return rng.normal(size=size), rows


@settings(max_examples=200)
@given(programs())
def test_the_minimum_satisfies_the_kuhn_tucker_conditions(program: tuple[np.ndarray, np.ndarray]) -> None:
    gradient, rows = program
    p, q = rows @ rows.T, rows @ gradient
    v = nonnegative_minimum(p, q)
    slope, scale = p @ v + q, np.abs(q).max() + 1e-30
    assert v.min() >= 0
    assert slope.min() >= -1e-7 * scale
    assert np.abs(slope[v > 0]).max(initial=0.0) <= 1e-7 * scale


@settings(max_examples=60)
@given(programs())
def test_the_projection_is_the_nearest_feasible_point(program: tuple[np.ndarray, np.ndarray]) -> None:
    gradient, rows = program
    got = project(torch.from_numpy(gradient), torch.from_numpy(rows)).numpy()
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)  # the same constraints
    assert (unit @ got).min() >= -1e-7
    found = minimize(
        lambda z: 0.5 * np.sum((z - gradient) ** 2),
        np.zeros_like(gradient),
        jac=lambda z: z - gradient,
        constraints=[{"type": "ineq", "fun": lambda z: unit @ z, "jac": lambda z: unit}],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert np.linalg.norm(got - gradient) <= np.linalg.norm(found.x - gradient) + 1e-6
    assert np.linalg.norm(got - gradient) <= np.linalg.norm(gradient) + 1e-9  # 0 is feasible


@settings(max_examples=60)
@given(programs(), st.floats(0.01, 2.0))
def test_a_margin_bounds_the_dual_and_the_constraints_still_hold(
    program: tuple[np.ndarray, np.ndarray], margin: float
) -> None:
    gradient, rows = program
    got = project(torch.from_numpy(gradient), torch.from_numpy(rows), margin).numpy()
    if (rows @ gradient >= 0).all():
        assert np.array_equal(got, gradient)
        return
    size = max(1.0, float(np.abs(rows).max())) ** 2
    assert (rows @ got).min() >= -1e-6 * size
    dual = minimize(
        lambda v: 0.5 * np.sum((rows.T @ v + gradient) ** 2) / size,
        np.full(len(rows), margin),
        jac=lambda v: rows @ (rows.T @ v + gradient) / size,
        bounds=[(margin, None)] * len(rows),
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-12},
    )
    assert 0.5 * np.sum(got**2) / size <= dual.fun + 1e-6


def stream() -> TaskStream:
    return TaskStream.from_classes(random_graph(n=60, classes=6, seed=3), classes_per_task=2)


def step(method: EpisodicMemory, seed: int = 0, **options: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the gradient before and after the projection, and those of the nodes remembered of each task."""
    tasks = stream()
    learner = Learner(method=method, epochs=15, seed=seed, backbone_options={"hidden": 6}, **options)
    for task in tasks[:2]:
        learner.observe(task)
    task, examples = begin(learner, tasks[2])
    assert learner.model is not None
    objective = make_objective([learner.model], [examples])
    params = {name: value.requires_grad_() for name, value in objective.parameters().items()}
    # the worst gradient: it increases the loss of everything that is remembered
    losses, own = objective.losses(params), task.train.numel()
    (losses[:own].mean() - 3.0 * losses[own:].sum()).backward()
    before = flat_gradients(params)[0]
    hook = method.step_hook(learner, task, objective)
    assert isinstance(hook, GradientConstraint)
    hook.before_step(params)
    parts = []
    for experience in method.buffer.experiences:
        remembered = [learner.examples(task.graph, node.view(1), experience.task) for node in experience.nodes]
        of_nodes = [make_objective([learner.model], [node], heads=objective.heads) for node in remembered]
        parts.append(torch.stack([flatten(gradients(node.losses(params).mean(), params)) for node in of_nodes]))
    return before, flat_gradients(params)[0], parts


@pytest.mark.parametrize(("backbone", "head"), [("gcn", "per-task"), ("gcn", "growing"), ("mlp", "shared")])
def test_the_projected_gradient_increases_no_memory_loss(backbone: str, head: str) -> None:
    before, after, parts = step(GEM(per_class=2), backbone=backbone, head=head)
    memories = torch.stack([part.mean(0) for part in parts])
    assert bool((memories @ before < 0).all())
    floor = -1e-5 * float(memories.norm(dim=1).max() * after.norm())
    assert float((memories @ after).min()) >= floor
    assert float((after - before).norm()) > 1e-3 * float(before.norm())


def test_gem_trains_on_nodes_of_the_task_only() -> None:
    tasks = stream()
    learner = Learner("gcn", GEM(per_class=1), epochs=3, head="shared", backbone_options={"hidden": 4, "dropout": 0.0})
    learner.observe(tasks[0])
    examples = learner.method.examples(learner, tasks[0])
    own = tasks[0].train.numel()
    assert examples.weights[:own].tolist() == pytest.approx([1 / own] * own)
    assert set(examples.weights[own:].tolist()) == {0.0}
    assert len(examples) == own + 2


@given(st.integers(1, 9), st.integers(0, 2**16))
def test_agem_equals_gem_with_one_memory(size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    gradient, reference = torch.randn(2, size, generator=generator, dtype=torch.float64)
    got = project_on_average(gradient, reference.unsqueeze(0))
    assert torch.allclose(got, project(gradient, reference.unsqueeze(0)), atol=1e-9)
    assert float(got @ reference) >= -1e-9


def test_the_reference_gradient_is_the_mean_over_the_memory() -> None:
    before, after, parts = step(AGEM(per_class=2, sample=256), backbone="gcn", head="shared")
    reference = torch.cat(parts).mean(0)
    assert [len(part) for part in parts] == [4, 4]
    assert float(before @ reference) < 0
    expected = before - (before @ reference) / (reference @ reference) * reference
    assert torch.allclose(after, expected, atol=1e-5 * float(before.norm()))


def test_a_sample_is_a_subset_of_the_memory() -> None:
    projected = 0
    for seed in range(4):
        before, after, parts = step(AGEM(per_class=2, sample=1), seed, backbone="gcn", head="shared")
        candidates = [before - (before @ g).clamp(max=0) / (g @ g) * g for g in torch.cat(parts)]
        distances = [float((after - candidate).norm() / before.norm()) for candidate in candidates]
        assert min(distances) < 1e-4
        projected += float((after - before).norm() / before.norm()) > 1e-3
    assert projected
