"""Solves with preconditioners and of several systems at once give the same solution."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ergnn.engine.adjacency
from ergnn.data import TaskStream
from ergnn.engine import curvature
from ergnn.engine.curvature import Curvature, conjugate_gradients, gradient, nystrom_preconditioner, solve_together
from ergnn.engine.objective import make_objective
from ergnn.learning.learner import Learner
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.influence import SKETCH
from graphs import random_graph
from nn.cases import labeled, model_of


def low_rank(size: int, rank: int, seed: int) -> tuple[Tensor, Tensor]:
    """A positive semi-definite matrix with eigenvalues over four orders of magnitude, and a right-hand side."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(size, rank, dtype=torch.float64, generator=generator)).Q
    values = torch.logspace(0, -4, rank, dtype=torch.float64)
    return (basis * values) @ basis.T, torch.randn(size, dtype=torch.float64, generator=generator)


def assert_close(got: Tensor, expected: Tensor, relative: float) -> None:
    assert float((got - expected).norm()) <= relative * float(expected.norm())


@given(st.integers(2, 40), st.integers(1, 12), st.integers(1, 15), st.integers(0, 1000), st.sampled_from([1e-3, 0.1]))
@settings(max_examples=60, deadline=None)
def test_every_variant_gives_the_dense_solution(size: int, rank: int, sketch: int, seed: int, shift: float) -> None:
    g, b = low_rank(size, min(rank, size), seed)
    a = g + shift * torch.eye(size, dtype=torch.float64)
    expected = torch.linalg.solve(a, b)
    inverse = nystrom_preconditioner(lambda v: g @ v, b, sketch, shift)
    for preconditioner in (None, inverse):
        found = conjugate_gradients(
            lambda v: a @ v, b, tolerance=1e-9, max_iterations=500, preconditioner=preconditioner
        )
        assert_close(found.x, expected, 1e-9 * float(torch.linalg.cond(a)) + 1e-9)
        assert float((a @ found.x - b).norm() / b.norm()) <= 1.1e-9
        assert found.residual <= 1e-9


@given(st.integers(4, 30), st.integers(1, 10), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_preconditioner_is_positive_definite_and_inverts_its_subspace(size: int, sketch: int, seed: int) -> None:
    rank = min(3, size)
    g, b = low_rank(size, rank, seed)
    inverse = nystrom_preconditioner(lambda v: g @ v, b, sketch, 0.01)
    m = torch.stack([inverse(column) for column in torch.eye(size, dtype=torch.float64)], dim=1)
    assert_close(m, m.T, 1e-9)
    assert float(torch.linalg.eigvalsh((m + m.T) / 2)[0]) > 0
    if sketch >= rank:  # M A has two eigenvalues left: λ_k + shift where G acts, shift where it does not
        values = torch.linalg.eigvals(m @ (g + 0.01 * torch.eye(size))).real
        near = torch.stack([(values - v).abs() for v in (1e-4 + 0.01, 0.01)]).min(0).values
        assert float(near.max()) < 1e-6


def test_a_zero_matrix_has_no_preconditioner() -> None:
    b = torch.ones(5)
    assert torch.equal(nystrom_preconditioner(torch.zeros_like, b, 3, 0.1)(b), b)


def test_several_systems_are_solved_as_each_alone() -> None:
    systems = [low_rank(30, rank, rank) for rank in (3, 10, 25)]
    matrices = [g + 0.01 * torch.eye(30, dtype=torch.float64) for g, _ in systems]
    b = torch.stack([b for _, b in systems] + [torch.zeros(30, dtype=torch.float64)])

    def product(rows: Tensor) -> Tensor:
        return torch.stack([a @ row for a, row in zip([*matrices, matrices[0]], rows, strict=True)])

    *found, nothing = solve_together(product, b, 1e-8, 500)
    for one, a, (_, own) in zip(found, matrices, systems, strict=True):
        alone = conjugate_gradients(lambda v, a=a: a @ v, own, tolerance=1e-8)
        assert (one.iterations, one.residual) == (alone.iterations, alone.residual)
        assert torch.equal(one.x, alone.x)
    assert (nothing.iterations, nothing.residual, float(nothing.x.norm())) == (0, 0.0, 0.0)


@pytest.mark.parametrize("name", ["gat", "sgc"])
def test_influence_is_the_same_with_a_preconditioner(name: str) -> None:
    graph = random_graph(n=30, f=6, dtype=torch.float64)
    model = model_of(name, 6, [3])
    objective = make_objective([model], [labeled(graph, [0, 3, 5, 9, 20], [[0]] * 5, [3], 0)])
    target = make_objective([model], [labeled(graph, [1, 2, 4], [[0]] * 3, [3], 1)])
    params = objective.parameters()
    goal = gradient(target, params, torch.ones_like(target.weights))
    exact = {"damping": 1e-4, "tolerance": 1e-10, "max_iterations": 2000}
    plain = Curvature(objective, params, **exact)
    expected = plain.influence(goal)[0]
    helped = Curvature(objective, params, **exact, rank=6)
    assert_close(helped.influence(goal)[0], expected, 1e-6)
    assert helped.solve(goal).iterations < plain.solve(goal).iterations


def test_a_sketch_of_the_examples_with_most_weight_saves_products_and_changes_nothing_else() -> None:
    graph = random_graph(n=60, f=6, dtype=torch.float64)
    model = model_of("gcn", 6, [3])
    examples = labeled(graph, list(range(40)), [[0]] * 40, [3], 0)
    weights = torch.full((40,), 1e-3, dtype=torch.float64)
    weights[35:] = 1.0
    objective = make_objective([model], [examples.weighted(weights)])
    params = objective.parameters()
    goal = gradient(objective, params, torch.ones_like(weights))
    exact = {"damping": 1e-4, "tolerance": 1e-10, "max_iterations": 2000}
    plain = Curvature(objective, params, **exact)
    helped = Curvature(objective, params, **exact, rank=10, sketched=torch.arange(35, 40))
    assert_close(helped.influence(goal)[0], plain.influence(goal)[0], 1e-6)
    assert helped.solve(goal).iterations < 0.8 * plain.solve(goal).iterations


def test_on_a_large_graph_im_sketches_the_replayed_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ergnn.engine.adjacency, "LINKED_FROM", 1)
    stream = TaskStream.from_classes(random_graph(n=60, f=5, classes=6, p_edge=0.1, seed=3))
    learner = Learner("gat", "replay", head="per-task", epochs=5, selector="random", weight_decay=5e-4)
    ranks: list[int] = []
    examples: list[Examples] = []
    make, select = curvature.nystrom_preconditioner, learner.method.select
    monkeypatch.setattr(curvature, "nystrom_preconditioner", lambda *args: (ranks.append(args[2]), make(*args))[1])
    monkeypatch.setattr(learner.method, "select", lambda *args: (examples.append(args[2]), select(*args))[1])
    for task in stream:
        learner.observe(task)
        context = learner.selection_context(task, examples[-1], 1, False)
        expected = SELECTORS.create("im", tolerance=1e-5, rank=0).select(context)
        for options in ({}, {"rank": 3}):
            chosen = SELECTORS.create("im", tolerance=1e-5, **options).select(context)
            assert torch.equal(chosen.nodes, expected.nodes)
            torch.testing.assert_close(chosen.scores, expected.scores, rtol=1e-3, atol=1e-5)
    assert ranks == [3, *[SKETCH, 3] * (len(stream) - 1)]  # no sketch after the first task, which replays nothing
