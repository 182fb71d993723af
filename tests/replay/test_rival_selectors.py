"""Herding, k-center, DSLR, degree, PageRank and gradient norm against their definitions, as loops."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import networkx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.replay import SELECTORS, SelectionContext
from ergnn.testing import example_context
from ergnn.testing.examples import in_graph


def embeddings(context: SelectionContext, c: int) -> dict[int, Tensor]:
    """Node → embedding, of the candidates of a class, by the model on the whole graph."""
    with torch.no_grad():
        h = context.model.eval().embed(context.graph.dense_x(), context.graph.edge_index).double()  # type: ignore[operator]
    return {v: h[v] for v in context.nodes.tolist() if int(context.graph.y[v]) == c}


def chosen_of(context: SelectionContext, name: str, **options: object) -> dict[int, list[int]]:
    """Class → its chosen nodes in order of choice."""
    nodes = SELECTORS.create(name, **options).select(context).nodes.tolist()
    e = context.per_class
    return {c: nodes[i * e : (i + 1) * e] for i, c in enumerate(context.task.classes)}


def greedy(h: dict[int, Tensor], count: int, value: Callable[[list[int], int], float]) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(max((v for v in h if v not in chosen), key=lambda v: value(chosen, v)))
    return chosen


def moved_mean(h: dict[int, Tensor], mean: Tensor, before: list[int], v: int) -> float:
    """Herding: how close the mean of the chosen nodes comes to the class mean."""
    return -float((mean - torch.stack([h[u] for u in [*before, v]]).mean(0)).norm())


def farthest(h: dict[int, Tensor], mean: Tensor, before: list[int], v: int) -> float:
    """k-center: the distance to the nearest chosen node; the first is the nearest to the mean."""
    return min((float((h[v] - h[u]).norm()) for u in before), default=-float((h[v] - mean).norm()))


@pytest.mark.parametrize("head", ["per-task", "growing"])
@pytest.mark.parametrize(("name", "value"), [("herding", moved_mean), ("k-center", farthest)])
def test_each_node_is_the_best_after_those_before_it(name: str, value: Callable[..., float], head: str) -> None:
    context = example_context(per_class=4, head=head)
    for c, chosen in chosen_of(context, name).items():
        h = embeddings(context, c)
        mean = torch.stack(list(h.values())).mean(0)
        assert chosen == greedy(h, 4, partial(value, h, mean))
    one = replace(context, per_class=1)
    assert torch.equal(SELECTORS.create(name).select(one).nodes, SELECTORS.create("mf*").select(one).nodes)


@pytest.mark.parametrize("ratio", [0.1, 0.6, 1.0])
def test_dslr_takes_the_node_that_covers_most_of_what_is_not_covered(ratio: float) -> None:
    context = example_context(per_class=2)
    options = {"ratio": ratio, "space": "feature"}
    for c, chosen in chosen_of(context, "dslr", **options).items():
        nodes = [v for v in context.nodes.tolist() if int(context.graph.y[v]) == c]
        x = {v: context.graph.x[v].double() for v in nodes}
        distances = [float((x[u] - x[v]).norm()) for u, v in itertools.permutations(nodes, 2)]
        d = ratio * sum(distances) / len(distances)
        cover = {v: {u for u in nodes if float((x[u] - x[v]).norm()) < d} for v in nodes}
        covered: set[int] = set()
        for v in chosen:
            assert len(cover[v] - covered) == max(
                len(cover[u] - covered) for u in nodes if u not in chosen[:1] or u == v
            )
            covered |= cover[v]
        if ratio == 1.0:
            best = max(len(cover[a] | cover[b]) for a, b in itertools.combinations(nodes, 2))
            assert len(covered) >= (1 - 1 / 2.718281828) * best, "the bound of greedy set cover"
            assert len(covered) > 2


def test_degree_counts_neighbors_without_self_loops() -> None:
    context = example_context()
    edges = [(u, v) for u, v in context.graph.edge_index.T.tolist() if u != v]
    score = SELECTORS.create("degree").score(context)
    assert score.tolist() == [sum(v == node for _, v in edges) for node in context.nodes.tolist()]
    assert len(set(score.tolist())) > 2


@pytest.mark.parametrize("damping", [0.0, 0.5, 0.85])
def test_pagerank_is_that_of_networkx(damping: float) -> None:
    """In a directed graph with self-loops, and nodes without outgoing edges."""
    context = example_context()
    keep = torch.rand(context.graph.num_edges, generator=torch.Generator().manual_seed(1)) < 0.6
    context = in_graph(context, replace(context.graph, edge_index=context.graph.edge_index[:, keep]))
    reference = networkx.DiGraph()
    reference.add_nodes_from(range(context.graph.num_nodes))
    reference.add_edges_from(context.graph.edge_index.T.tolist())
    assert any(degree == 0 for _, degree in reference.out_degree())
    expected = networkx.pagerank(reference, alpha=damping, tol=1e-14, max_iter=1000)
    score = SELECTORS.create("pagerank", damping=damping).score(context) / context.graph.num_nodes
    assert score.tolist() == pytest.approx([expected[v] for v in context.nodes.tolist()], abs=1e-9)


def test_gradient_norm_is_that_of_each_node_s_loss() -> None:
    context = example_context()
    graph, head = context.graph, context.task.id
    logits = context.model.eval()(graph.dense_x(), graph.edge_index, head)
    targets = context.task.targets(context.nodes)
    expected = []
    for v, target in zip(context.nodes.tolist(), targets.tolist(), strict=True):
        loss = F.cross_entropy(logits[v : v + 1], torch.tensor([target]))
        parts = torch.autograd.grad(loss, list(context.model.parameters()), retain_graph=True, allow_unused=True)
        expected.append(float(torch.cat([part.flatten() for part in parts if part is not None]).norm()))
    assert SELECTORS.create("gradient-norm").score(context).tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["herding", "k-center", "dslr"])
def test_a_class_with_fewer_than_e_nodes_gives_all_of_them(name: str) -> None:
    context = example_context(per_class=100)
    chosen = SELECTORS.create(name).select(context).nodes
    assert sorted(chosen.tolist()) == sorted(context.nodes.tolist())


@pytest.mark.parametrize("name", ["herding", "k-center", "dslr"])
def test_a_class_without_nodes_changes_nothing_for_the_others(name: str) -> None:
    context, selector = example_context(per_class=2), SELECTORS.create(name)
    there = context.labels != context.task.classes[0]
    smaller = replace(context, task=replace(context.task, train=context.task.train[there]))
    assert set(selector.select(smaller).nodes.tolist()) <= set(context.nodes[there].tolist())
    assert selector.select(smaller).nodes.numel() == 2 * (len(context.task.classes) - 1)
