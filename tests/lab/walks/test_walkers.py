"""Walks against exact probabilities, by enumeration and by chi-square."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import Tensor

from ergnn.lab.walks import ENDED, Neighbors, random_walks
from graphs import graphs

UNDIRECTED = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)]
DIRECTED = [(0, 1), (1, 0), (0, 2), (1, 2), (2, 0), (2, 1), (1, 3), (3, 0), (3, 1), (3, 3)]


def edges_of(pairs: list[tuple[int, int]], both_ways: bool) -> Tensor:
    return torch.tensor(pairs + [(t, s) for s, t in pairs] if both_ways else pairs).T


GRAPHS = {"undirected": edges_of(UNDIRECTED, True), "directed": edges_of(DIRECTED, False)}


def exact_step(edge_index: Tensor, before: int | None, here: int, p: float, q: float) -> dict[int, float]:
    """The next node's probabilities, edge by edge from the definition."""
    edges = set(map(tuple, edge_index.T.tolist()))
    weights = {}
    for source, x in edges:
        if source != here:
            continue
        if before is None or (x != before and (before, x) in edges):
            weights[x] = 1.0
        else:
            weights[x] = 1.0 / p if x == before else 1.0 / q
    total = sum(weights.values())
    return {x: weight / total for x, weight in weights.items()}


def exact_walks(edge_index: Tensor, start: int, length: int, p: float, q: float) -> dict[tuple[int, ...], float]:
    """Every walk from a start and its probability."""
    found = {(start,): 1.0}
    for _ in range(length - 1):
        longer: dict[tuple[int, ...], float] = {}
        for walk, probability in found.items():
            before = walk[-2] if len(walk) > 1 else None
            for x, step in exact_step(edge_index, before, walk[-1], p, q).items():
                longer[(*walk, x)] = probability * step
        found = longer
    return found


def draw(edge_index: Tensor, starts: Tensor, length: int, p: float, q: float, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return random_walks(Neighbors(edge_index, int(edge_index.max()) + 1), starts, length, generator, p, q)


def p_value(counts: Counter, expected: dict) -> float:
    """Of the chi-square test that ``counts`` were drawn with these probabilities; 0 where one is impossible."""
    total = sum(counts.values())
    if set(counts) - set(expected):
        return 0.0
    statistic = sum((counts[key] - total * prob) ** 2 / (total * prob) for key, prob in expected.items())
    return float(chi2.sf(statistic, len(expected) - 1)) if len(expected) > 1 else 1.0


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.25, 4.0), (2.0, 3.0)])
def test_whole_walks_have_the_probabilities_of_the_enumeration(name: str, p: float, q: float) -> None:
    edge_index = GRAPHS[name]
    walks = draw(edge_index, torch.ones(40_000, dtype=torch.long), 4, p, q)
    exact = exact_walks(edge_index, 1, 4, p, q)
    assert sum(exact.values()) == pytest.approx(1.0)
    counts = Counter(map(tuple, walks.tolist()))
    assert p_value(counts, exact) > 1e-3
    if (p, q) != (1.0, 1.0):
        assert p_value(counts, exact_walks(edge_index, 1, 4, 1.0, 1.0)) < 1e-9, "the test would not see a bias"


@pytest.mark.parametrize("name", GRAPHS)
def test_steps_deep_in_a_walk_have_the_second_order_probabilities(name: str) -> None:
    edge_index, p, q = GRAPHS[name], 0.3, 2.5
    nodes = int(edge_index.max()) + 1
    walks = draw(edge_index, torch.arange(nodes).repeat(500), 40, p, q)
    steps: dict[tuple[int, int], Counter] = {}
    for before, here, x in walks.unfold(1, 3, 1).reshape(-1, 3).tolist():
        steps.setdefault((before, here), Counter())[x] += 1
    assert set(steps) == set(map(tuple, edge_index.T.tolist()))
    for (before, here), counts in steps.items():
        assert p_value(counts, exact_step(edge_index, before, here, p, q)) > 1e-4, (before, here)


@given(graph=graphs(), length=st.integers(1, 7), p=st.floats(0.1, 8), q=st.floats(0.1, 8), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_every_step_is_an_edge_and_walks_end_only_where_none_leads_on(graph, length, p, q, seed) -> None:
    neighbors = Neighbors(graph.edge_index, graph.num_nodes)
    starts = torch.arange(graph.num_nodes)
    walks = random_walks(neighbors, starts, length, torch.Generator().manual_seed(seed), p, q)
    again = random_walks(neighbors, starts, length, torch.Generator().manual_seed(seed), p, q)
    assert torch.equal(walks, again)
    assert walks.shape == (graph.num_nodes, length)
    assert torch.equal(walks[:, 0], starts)
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    sources = {source for source, _ in edges}
    for walk in walks.tolist():
        for here, x in pairwise(walk):
            if x == ENDED:
                assert here == ENDED or here not in sources
            else:
                assert (here, x) in edges


def test_an_edge_that_is_listed_twice_counts_once() -> None:
    edge_index = torch.tensor([[0, 0, 0, 0], [1, 1, 1, 2]])
    walks = draw(edge_index, torch.zeros(4000, dtype=torch.long), 2, 1.0, 1.0)
    assert p_value(Counter(walks[:, 1].tolist()), {1: 0.5, 2: 0.5}) > 1e-3
