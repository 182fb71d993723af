"""Curvature and influence against dense matrices and curvlinops."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from curvlinops import GGNLinearOperator
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ergnn.engine.adjacency
from ergnn.config.errors import CurvatureError
from ergnn.data import Graph, TaskStream
from ergnn.engine.curvature import (
    Curvature,
    conjugate_gradients,
    flatten,
    gauss_newton_product,
    gradient,
    nystrom_preconditioner,
)
from ergnn.engine.losses import PlainModel
from ergnn.engine.objective import FieldObjective, PlainObjective, make_objective
from ergnn.learning.learner import Learner
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import SELECTORS
from graphs import random_graph

SMALL = {"gat": {"hidden": 2, "heads": 2}, "gcn": {"hidden": 3}, "sgc": {}, "sage": {"hidden": 3}, "gin": {"hidden": 3}}


def make_model(name: str, f: int, widths: tuple[int, ...] = (2,), seed: int = 0) -> Backbone:
    """A small backbone in float64 with non-zero biases, so that every parameter has something to say."""
    torch.manual_seed(seed)
    model = BACKBONES.create(name, in_channels=f, **SMALL[name])
    for width in widths:
        model.add_head(width)
    model.double()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.1 * torch.randn_like(value))
    return model.eval()


def make_examples(graph: Graph, count: int = 8, heads: int = 1, seed: int = 0) -> Examples:
    """Nodes with random binary targets and unequal weights, spread over per-task heads."""
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(graph.num_nodes, generator=generator)[:count]
    return Examples(
        graph,
        nodes,
        (torch.arange(count) % heads).unsqueeze(1),
        torch.randint(2, (count,), generator=generator),
        torch.rand(count, generator=generator) / count + 0.01,
    )


class Whole:
    """The same model by PyG's own forward on the whole graph, node by node: what the fast code has to equal."""

    def __init__(self, model: nn.Module, examples: Examples) -> None:
        self.model, self.examples = model, examples
        self.x = examples.graph.dense_x().double()
        used = torch.unique(examples.heads).tolist()
        self.params = [
            p
            for name, p in model.named_parameters()
            if not name.startswith("heads.") or int(name.split(".")[1]) in used
        ]

    def logits(self) -> Tensor:
        part = self.examples
        rows = [
            self.model(self.x, part.graph.edge_index, int(head))[node]
            for node, head in zip(part.nodes, part.heads[:, 0], strict=True)
        ]
        return torch.stack(rows)

    def grad(self, scalar: Tensor) -> Tensor:
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(scalar, self.params, retain_graph=True)])

    def gradients(self) -> Tensor:
        """``[n, parameters]``, one backward pass a node."""
        losses = F.cross_entropy(self.logits(), self.examples.targets, reduction="none")
        return torch.stack([self.grad(loss) for loss in losses])

    def gauss_newton(self) -> Tensor:
        """``Σ_i w_i J_iᵀ (diag p_i − p_i p_iᵀ) J_i`` with a backward pass for each logit."""
        logits = self.logits()
        total = torch.zeros(1, dtype=torch.float64)
        for row, weight in zip(logits, self.examples.weights.double(), strict=True):
            jacobian = torch.stack([self.grad(logit) for logit in row])
            p = torch.softmax(row.detach(), 0)
            total = total + weight * jacobian.T @ (p.diag() - torch.outer(p, p)) @ jacobian
        return total


def whole_order(objective: FieldObjective, model: Backbone) -> Tensor:
    """Where each of the objective's flat parameters stands among the model's own (matrices are transposed there)."""
    ids, start = {}, 0
    for name, value in model.named_parameters():
        if not name.startswith("heads.") or int(name.split(".")[1]) in objective.heads:
            ids[name] = torch.arange(start, start + value.numel(), dtype=torch.float64).view_as(value)
            start += value.numel()
    return flatten(objective.from_names(ids)).long()


def dense(product, size: int) -> Tensor:
    return torch.stack([product(column) for column in torch.eye(size, dtype=torch.float64)], dim=1)


def assert_close(got: Tensor, expected: Tensor, relative: float = 1e-6) -> None:
    assert float((got - expected).norm()) <= relative * float(expected.norm())


@pytest.mark.parametrize(("name", "widths"), [("gat", (2,)), *((name, (2, 2)) for name in sorted(SMALL))])
def test_gauss_newton_product_equals_the_dense_matrix_of_per_logit_gradients(name: str, widths: tuple[int, ...]):
    graph = random_graph(n=14, f=3, classes=2, p_edge=0.2, dtype=torch.float64)
    model = make_model(name, 3, widths)
    examples = make_examples(graph, heads=len(widths))
    objective = make_objective([model], [examples])
    assert isinstance(objective, FieldObjective)
    params = objective.parameters()
    order = whole_order(objective, model)
    got = dense(gauss_newton_product(objective, params), order.numel())
    assert_close(got, Whole(model, examples).gauss_newton()[order][:, order])


class Logits(nn.Module):
    """A backbone's scores of the nodes that it is called with, for curvlinops."""

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        super().__init__()
        self.model, self.graph = model, graph

    def forward(self, nodes: Tensor) -> Tensor:
        return self.model(self.graph.x, self.graph.edge_index)[nodes]


@pytest.mark.parametrize("name", ["gat", "gcn", "sgc"])
def test_gauss_newton_product_equals_curvlinops(name: str):
    graph = random_graph(n=16, f=3, classes=2, p_edge=0.2, dtype=torch.float64)
    model = make_model(name, 3, (3,))
    examples = make_examples(graph).weighted(1 / 8)  # curvlinops takes the mean of the losses
    objective = make_objective([model], [examples])
    operator = GGNLinearOperator(
        Logits(model, graph),
        nn.CrossEntropyLoss(),
        list(model.parameters()),
        [(examples.nodes, examples.targets)],
        check_deterministic=False,
    )
    order = whole_order(objective, model)
    vector = torch.randn(order.numel(), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours = gauss_newton_product(objective, objective.parameters())(vector[order])
    assert_close(ours, (operator @ vector)[order])


def low_rank(size: int, rank: int, seed: int) -> tuple[Tensor, Tensor]:
    """A positive semi-definite matrix with eigenvalues over four orders of magnitude, and a right-hand side."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(size, rank, dtype=torch.float64, generator=generator)).Q
    values = torch.logspace(0, -4, rank, dtype=torch.float64)
    return (basis * values) @ basis.T, torch.randn(size, dtype=torch.float64, generator=generator)


@given(st.integers(2, 40), st.integers(1, 12), st.integers(1, 15), st.integers(0, 1000), st.sampled_from([1e-3, 0.1]))
@settings(max_examples=60, deadline=None)
def test_every_variant_gives_the_dense_solution(size: int, rank: int, sketch: int, seed: int, shift: float) -> None:
    g, b = low_rank(size, min(rank, size), seed)
    a = g + shift * torch.eye(size, dtype=torch.float64)
    for preconditioner in (None, nystrom_preconditioner(lambda v: g @ v, b, sketch, shift)):
        (found,) = conjugate_gradients(lambda rows: rows @ a, b[None], 1e-9, preconditioner=preconditioner)
        assert_close(found.x, torch.linalg.solve(a, b), 1e-9 * float(torch.linalg.cond(a)) + 1e-9)
        assert float((a @ found.x - b).norm() / b.norm()) <= 1.1e-9
        assert found.residual <= 1e-9


@given(st.integers(4, 30), st.integers(1, 10), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_preconditioner_is_positive_definite_and_inverts_its_subspace(size: int, sketch: int, seed: int) -> None:
    rank = min(3, size)
    g, b = low_rank(size, rank, seed)
    inverse = nystrom_preconditioner(lambda v: g @ v, b, sketch, 0.01)
    m = torch.cat([inverse(row[None]) for row in torch.eye(size, dtype=torch.float64)])
    assert_close(m, m.T, 1e-9)
    assert float(torch.linalg.eigvalsh((m + m.T) / 2)[0]) > 0
    if sketch >= rank:  # M A has two eigenvalues left: λ_k + shift where G acts, shift where it does not
        values = torch.linalg.eigvals(m @ (g + 0.01 * torch.eye(size))).real
        near = torch.stack([(values - v).abs() for v in (1e-4 + 0.01, 0.01)]).min(0).values
        assert float(near.max()) < 1e-6


def test_a_zero_matrix_has_no_preconditioner() -> None:
    rows = torch.ones(1, 5)
    assert torch.equal(nystrom_preconditioner(torch.zeros_like, rows[0], 3, 0.1)(rows), rows)


def test_several_systems_are_solved_as_each_alone() -> None:
    systems = [low_rank(30, rank, rank) for rank in (3, 10, 25)]
    matrices = [g + 0.01 * torch.eye(30, dtype=torch.float64) for g, _ in systems]
    b = torch.stack([b for _, b in systems] + [torch.zeros(30, dtype=torch.float64)])

    def product(rows: Tensor) -> Tensor:
        return torch.stack([a @ row for a, row in zip([*matrices, matrices[0]], rows, strict=True)])

    *found, nothing = conjugate_gradients(product, b, 1e-8)
    for one, a, (_, right) in zip(found, matrices, systems, strict=True):
        (alone,) = conjugate_gradients(lambda rows, a=a: (a @ rows[0])[None], right[None], 1e-8)
        assert (one.iterations, one.residual) == (alone.iterations, alone.residual)
        assert torch.equal(one.x, alone.x)
    assert (nothing.iterations, nothing.residual, float(nothing.x.norm())) == (0, 0.0, 0.0)


def test_conjugate_gradients_need_one_product_per_distinct_eigenvalue():
    b = torch.ones(6, dtype=torch.float64)
    diagonal = torch.tensor([1.0, 1, 4, 4, 9, 9], dtype=torch.float64)
    assert conjugate_gradients(lambda v: diagonal * v, b[None], tolerance=1e-12)[0].iterations == 3


def test_a_solve_that_does_not_converge_raises_an_error():
    diagonal, b = torch.arange(1.0, 21.0), torch.ones(1, 20)
    with pytest.raises(CurvatureError, match=r"residual of .* after 2 products.*1e-12 was requested"):
        conjugate_gradients(lambda v: diagonal * v, b, tolerance=1e-12, max_iterations=2)


def test_negative_curvature_raises_an_error():
    diagonal, b = torch.tensor([1.0, -1.0]), torch.tensor([[1.0, 3.0]])
    with pytest.raises(CurvatureError, match="no positive curvature after 1 product"):
        conjugate_gradients(lambda v: diagonal * v, b)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Backbone, Examples, Examples, float, float]:
    """A model, what it was trained on (task nodes, then buffer nodes under another head), a target, damping, l2."""
    f, seed = draw(st.integers(1, 4)), draw(st.integers(0, 10_000))
    graph = random_graph(
        n=draw(st.integers(12, 20)),
        f=f,
        classes=2,
        seed=seed,
        p_edge=draw(st.sampled_from([0.0, 0.1, 0.3])),
        directed=draw(st.booleans()),
        self_loops=draw(st.booleans()),
        sparse=draw(st.booleans()),
    )
    heads = draw(st.integers(1, 2))
    model = make_model(draw(st.sampled_from(["gat", "gcn", "sgc"])), f, (2,) * heads, seed)
    target = make_examples(graph, 5, 1, seed + 1)
    target = Examples(graph, target.nodes, torch.full_like(target.heads, heads - 1), target.targets, target.weights)
    trained = make_examples(graph, draw(st.integers(4, 9)), heads, seed)
    return model, trained, target, draw(st.sampled_from([0.01, 0.1])), draw(st.sampled_from([0.0, 5e-4]))


@pytest.mark.parametrize("linked_from", [1, 10**9], ids=["linked", "blocks"])
@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_influence_equals_per_node_gradients_and_a_dense_solve(linked_from: int, case: tuple):
    model, trained, target, damping, l2 = case
    with pytest.MonkeyPatch.context() as patch:  # a large graph has neighbor lists instead of blocks
        patch.setattr(ergnn.engine.adjacency, "LINKED_FROM", linked_from)
        objective = make_objective([model], [trained])
        goal = make_objective([model], [target], heads=objective.heads)
    assert objective.linked == (linked_from <= trained.graph.num_edges)
    params = objective.parameters()
    curvature = Curvature(objective, params, damping, l2, tolerance=1e-10, max_iterations=2000)
    ((got, solution),) = curvature.influence(gradient(goal, params, torch.ones(5, dtype=torch.float64)))

    whole, aim = Whole(model, trained), Whole(model, target)
    aim.params = whole.params
    losses = F.cross_entropy(aim.logits(), target.targets, reduction="sum")
    found = torch.autograd.grad(losses, aim.params, allow_unused=True, materialize_grads=True)
    h = whole.gauss_newton()
    h = h + (damping * float(trained.weights.sum()) + l2) * torch.eye(h.size(0), dtype=torch.float64)
    g = whole.gradients()
    expected = -g @ torch.linalg.solve(h, torch.cat([part.reshape(-1) for part in found]))
    assert float((got - expected).abs().max()) <= 1e-4 * float(expected.abs().max())
    assert solution.residual <= 1e-10


def test_a_sketch_of_the_examples_with_most_weight_saves_products_and_changes_nothing_else() -> None:
    graph = random_graph(n=60, f=6, classes=2, dtype=torch.float64)
    weights = torch.full((40,), 1e-3, dtype=torch.float64)
    weights[35:] = 1.0
    objective = make_objective([make_model("gcn", 6, (3,))], [make_examples(graph, 40).weighted(weights)])
    params = objective.parameters()
    goal = gradient(objective, params, torch.ones_like(weights))
    exact = {"damping": 1e-4, "tolerance": 1e-10, "max_iterations": 2000}
    plain = Curvature(objective, params, **exact)
    helped = Curvature(objective, params, **exact, sketched=torch.arange(35, 40))
    ((scores, solution),), ((expected, without),) = helped.influence(goal), plain.influence(goal)
    assert_close(scores, expected, 1e-6)
    assert solution.iterations < 0.8 * without.iterations


def test_on_a_large_graph_im_sketches_the_replayed_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ergnn.engine.adjacency, "LINKED_FROM", 1)
    stream = TaskStream.from_classes(random_graph(n=60, f=5, classes=6, p_edge=0.1, seed=3))
    learner = Learner("gat", "replay", head="per-task", epochs=5, selector="random", weight_decay=5e-4)
    sketched: list[int | None] = []
    examples: list[Examples] = []
    select = learner.method.select
    monkeypatch.setattr(learner.method, "select", lambda *args: (examples.append(args[2]), select(*args))[1])
    selector = SELECTORS.create("im", tolerance=1e-5)

    def recorded(*args: Any) -> Curvature:
        sketched.append(None if args[-1] is None else args[-1].numel())
        return Curvature(*args)

    monkeypatch.setattr("ergnn.replay.selectors.influence.Curvature", recorded)
    for task in stream:
        learner.observe(task)
        context = learner.selection_context(task, examples[-1], 1, False)
        chosen = selector.select(context)
        with monkeypatch.context() as patch:
            patch.setattr("ergnn.replay.selectors.influence.Curvature", lambda *args: Curvature(*args[:-1]))
            expected = selector.select(context)
        assert torch.equal(chosen.nodes, expected.nodes)
        torch.testing.assert_close(chosen.scores, expected.scores, rtol=1e-3, atol=1e-5)
    assert sketched == [None, 2, 4]  # no sketch after the first task, which replays nothing


class Someone(nn.Module):
    """Not one of ours: only ``forward(x, adj)``."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_model("gat", 3)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.inner(x, adj)


def test_influence_on_a_custom_module_equals_that_on_a_backbone():
    graph, module = random_graph(n=14, f=3, classes=2, p_edge=0.2), Someone()
    plain = PlainModel(module)
    plain.add_head(2)
    examples, target = make_examples(graph), make_examples(graph, 5, seed=3)
    found = []
    for model in (module.inner, plain.double().eval()):
        objective, goal = make_objective([model], [examples]), make_objective([model], [target])
        params = objective.parameters()
        curvature = Curvature(objective, params, tolerance=1e-10, max_iterations=500)
        found.append(curvature.influence(gradient(goal, params, torch.ones(5, dtype=torch.float64)))[0][0])
    assert isinstance(objective, PlainObjective)
    assert_close(found[1], found[0])
