"""EWC: Fisher information by brute force, the implicit step against its minimization problem, and constant memory."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ergnn.data import TaskStream
from ergnn.engine.losses import Objective, PlainModel
from ergnn.engine.objective import FieldObjective, RowObjective, make_objective
from ergnn.learning.learner import Learner
from ergnn.methods.importance import EWC, QuadraticPenalty, step_size
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.examples import Examples
from graphs import random_graph
from nn.cases import assert_near, labeled, model_of, reference_logits


def brute_force_fisher(model: Backbone, examples: Examples) -> dict[str, Tensor]:
    """Compute the Fisher diagonal with one backward pass per example, on the whole graph."""
    values = dict(model.named_parameters())
    total = {name: torch.zeros_like(value) for name, value in values.items()}
    for i in range(len(examples)):
        loss = F.cross_entropy(reference_logits(model, examples)[i : i + 1], examples.targets[i : i + 1])
        grads = torch.autograd.grad(loss, list(values.values()), allow_unused=True)
        for (name, _), grad in zip(values.items(), grads, strict=True):
            if grad is not None:
                total[name] += grad**2
    return {name: value / len(examples) for name, value in total.items()}


def mean_squares(objective: Objective) -> dict[str, Tensor]:
    total = objective.by_name(objective.gradient_sums(objective.parameters()))
    return {name: value / objective.targets.numel() for name, value in total.items()}


@pytest.mark.parametrize("heads", [[[0]] * 6, [[0], [1], [0], [1], [1], [0]], [[0, 1]] * 6])
@pytest.mark.parametrize("name", BACKBONES.names())
def test_fisher_is_the_mean_squared_per_example_gradient(
    name: str, heads: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = labeled(random_graph(n=30, dtype=torch.float64), [0, 3, 8, 21, 8, 4], heads, [3, 2], seed=1)
    model = model_of(name, 8, [3, 2], seed=4)
    objective = make_objective([model], [examples]).batch(torch.arange(6))
    is_rowwise, chunks, make = name == "mlp" and heads == [[0]] * 6, list[int](), FieldObjective.__init__
    assert isinstance(objective, RowObjective) == is_rowwise
    size = sum(value.numel() for value in objective.parameters().values())
    monkeypatch.setattr("ergnn.engine.objective.GRADIENT_ENTRIES", 4 * size)
    monkeypatch.setattr(
        FieldObjective,
        "__init__",
        lambda self, models, *rest, **options: chunks.append(len(models)) or make(self, models, *rest, **options),
    )
    got = mean_squares(objective)
    assert chunks == ([] if is_rowwise else [4, 2]), "6 examples in chunks of at most 4"
    expected = brute_force_fisher(model, examples)
    assert sum(float(value.sum()) for value in got.values()) > 1e-3
    for key, value in expected.items():
        if key in got:
            assert_near(got[key], value, 1e-9)
        else:
            assert float(value.abs().max()) == 0.0


def test_fisher_of_a_third_party_model() -> None:
    examples = labeled(random_graph(n=30, dtype=torch.float64), [0, 3, 8, 21], [[0]] * 4, [3], seed=1)
    inner = model_of("gcn", 8, [3], seed=4)
    plain = PlainModel(copy.deepcopy(inner))
    plain.add_head(3)
    objective = make_objective([plain], [examples])
    got = mean_squares(objective)
    for key, value in brute_force_fisher(inner, examples).items():
        assert_near(got[f"module.{key}"], value, 1e-9)


@given(st.integers(0, 2**16), st.floats(0.0, 1e4), st.floats(1e-3, 1.0), st.integers(1, 5))
def test_the_implicit_step_minimizes_penalty_plus_distance(seed: int, lam: float, lr: float, tasks: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    fishers = torch.rand(tasks, 4, generator=generator, dtype=torch.float64)
    anchors = torch.randn(tasks, 4, generator=generator, dtype=torch.float64)
    start = torch.randn(4, generator=generator, dtype=torch.float64)
    value = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([value], lr=lr)
    QuadraticPenalty(lam, {"w": fishers.sum(0)}, {"w": (fishers * anchors).sum(0)}).after_step({"w": value}, optimizer)
    moved = value.detach().requires_grad_()
    penalty = 0.5 * lam * (fishers * (moved - anchors) ** 2).sum()
    distance = ((moved - start) ** 2).sum() / (2 * lr)
    slope = torch.autograd.grad(penalty + distance, moved)[0]
    assert float(slope.abs().max()) <= 1e-9 * (lam + 1 / lr) * 10


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_with_adam_the_step_size_is_the_factor_of_the_mean_gradient(kind: type[torch.optim.Optimizer]) -> None:
    value = torch.tensor([0.3, -2.0, 1.0], dtype=torch.float64, requires_grad=True)
    optimizer = kind([value], lr=0.05, weight_decay=0.0)  # type: ignore[call-arg]
    for gradient in ([1.0, -0.1, 5.0], [0.5, 0.3, -2.0], [0.1, 0.1, 0.1]):
        before = value.detach().clone()
        value.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        state = optimizer.state[value]
        mean = state["exp_avg"] / (1 - 0.9 ** float(state["step"]))
        size = step_size(optimizer, value)
        assert torch.allclose(before - value.detach(), size * mean, atol=1e-12)


def stream() -> TaskStream:
    return TaskStream.from_classes(random_graph(n=60, classes=6, seed=3), classes_per_task=2)


def test_the_head_of_a_task_is_penalized_by_that_task_only() -> None:
    learner = Learner("gcn", EWC(1.0), head="per-task", epochs=2)
    tasks = stream()
    learner.observe(tasks[0])
    first = learner.method.state_dict()["importance"]
    assert {name.partition(".")[0] for name in first} == {"convs", "heads"}
    assert not any(name.startswith("heads.1") for name in first)
    learner.observe(tasks[1])
    second = learner.method.state_dict()["importance"]
    for name, value in first.items():
        same = torch.equal(second[name], value)
        assert same if name.startswith("heads.0") else not same
    assert any(name.startswith("heads.1") for name in second)


def test_fisher_of_a_sample_equals_that_of_the_sampled_nodes() -> None:
    task = stream()[0]
    fishers = []
    for samples in (1, None):
        learner = Learner("gcn", EWC(1.0, samples), epochs=2, backbone_options={"hidden": 4}).observe(task)
        fishers.append(learner.method.state_dict()["importance"]["convs.0.bias"])
    learner = Learner("gcn", "finetune", epochs=2, backbone_options={"hidden": 4}).observe(task)
    objective = make_objective([learner.model], [learner.examples(task.graph, task.train, 0)])  # type: ignore[list-item]
    each = []
    for i in range(task.train.numel()):
        part = objective.batch(torch.tensor([i]))
        each.append(mean_squares(part)["convs.0.bias"])
    assert sum(torch.allclose(fishers[0], one, atol=1e-9) for one in each) == 1
    assert torch.allclose(fishers[1], torch.stack(each).mean(0), atol=1e-7)
