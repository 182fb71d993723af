"""Hashed samples on a GPU equal those on the CPU, and S^K X is equal up to rounding."""

import pytest
import torch

from ergnn.data import Graph
from ergnn.engine import adjacency
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.propagation import propagate
from ergnn.engine.sampling import sample_neighbors

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


def random_graph(n: int = 200) -> Graph:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(n, (2, 30 * n), generator=generator)
    return Graph(torch.randn(n, 7, generator=generator), edges, torch.zeros(n, dtype=torch.long))


@pytest.mark.parametrize("replace", [False, True])
def test_the_same_neighbors_are_sampled(replace: bool) -> None:
    graph = random_graph()
    here, there = (
        sample_neighbors(adjacency_of(g), torch.arange(200, device=g.device), 6, replace, 11)
        for g in (graph, graph.to("cuda"))
    )
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))


@pytest.mark.parametrize("limit", [0, 10**9], ids=["large", "small"])
def test_propagated_features_equal_the_cpu(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, nodes = random_graph(), torch.tensor([5, 2, 199])
    expected = propagate(graph, 2, nodes=nodes, dtype=torch.float64)
    monkeypatch.setattr(adjacency, "LINKED_FROM", limit)
    found = propagate(graph.to("cuda"), 2, nodes=nodes.to("cuda"))
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-6)
