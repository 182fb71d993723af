"""S and S^K X equal dense matrices on irregular graphs, for all nodes or some, on small and large graphs."""

import pytest
import torch
from hypothesis import given, settings

from ergnn.config.errors import InputError
from ergnn.data import Graph
from ergnn.engine import adjacency, propagation
from ergnn.engine.propagation import normalized_adjacency, propagate
from graphs import dense_adjacency, dense_powers, sparse_x
from nn.cases import assert_near, messy_graphs


@pytest.fixture(params=["small", "small, not kept", "large", "large, not kept"])
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "large" in request.param:
        monkeypatch.setattr(adjacency, "LINKED_FROM", 0)
        monkeypatch.setattr(propagation, "MATRIX_EDGES", 0)
    if "not kept" in request.param:
        monkeypatch.setattr(adjacency, "CHUNK_EDGES", 7)  # in chunks
        monkeypatch.setattr(propagation, "MAX_CACHED", 0)
        monkeypatch.setattr(propagation, "SMALL_CACHED", 0)


@pytest.mark.usefixtures("_sizes")
@pytest.mark.parametrize("hops", [0, 1, 3])
def test_rows_of_the_power_equal_dense_matrices(hops: int) -> None:
    @settings(max_examples=15, derandomize=True)
    @given(messy_graphs())
    def check(graph: Graph) -> None:
        wanted = dense_powers(graph, hops)
        nodes = torch.arange(graph.num_nodes).flip(0)[::2].repeat(2)
        for each in (graph, sparse_x(graph)):
            assert_near(propagate(each, hops, dtype=torch.float64), wanted)
            assert_near(propagate(each, hops, nodes=nodes, dtype=torch.float64), wanted[nodes])
            assert propagate(each, hops, nodes=nodes[:0]).shape == (0, graph.num_features)

    check()


@pytest.mark.usefixtures("_sizes")
def test_products_and_gradients_equal_dense_matrices() -> None:
    @settings(max_examples=15, derandomize=True)
    @given(messy_graphs())
    def check(graph: Graph) -> None:
        matrix, x = dense_adjacency(graph), torch.randn(graph.num_nodes, 3, dtype=torch.float64).requires_grad_()
        out = normalized_adjacency(graph).matmul(x)
        assert_near(out, matrix @ x)
        weight = torch.randn_like(out)
        assert_near(torch.autograd.grad((out * weight).sum(), x)[0], matrix.T @ weight)

    check()


def pair() -> Graph:
    return Graph(torch.randn(4, 2), torch.tensor([[0, 1], [1, 0]]), torch.zeros(4, dtype=torch.long))


def test_features_and_edges_that_were_edited_in_place_are_propagated_again() -> None:
    graph = pair()
    before = propagate(graph, 2).clone()
    graph.x.mul_(2)
    torch.testing.assert_close(propagate(graph, 2), 2 * before)
    matrix, x = normalized_adjacency(graph).matmul(torch.eye(4)), torch.eye(4, dtype=torch.float64)
    graph.edge_index[1, 1] = 3
    assert_near(normalized_adjacency(graph).matmul(x), dense_adjacency(graph))
    assert float((normalized_adjacency(graph).matmul(torch.eye(4)) - matrix).abs().max()) > 0.1
    assert_near(propagate(graph, 2, dtype=torch.float64), dense_powers(graph, 2))


def test_the_results_of_a_graph_are_deleted_with_it() -> None:
    graph, cached = pair(), len(propagation._PROPAGATED._entries)
    propagate(graph, 1), propagate(graph, 2)
    assert len(propagation._PROPAGATED._entries) == cached + 2
    del graph
    assert len(propagation._PROPAGATED._entries) == cached


@pytest.mark.parametrize("linked_from", [0, 10**6])
def test_a_graph_is_propagated_once(linked_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adjacency, "LINKED_FROM", linked_from)
    graph = pair()
    first = propagate(graph, 2)
    assert propagate(graph, 2).data_ptr() == first.data_ptr()
    assert propagate(graph, 2, dtype=torch.float64).dtype == torch.float64
    assert normalized_adjacency(graph) is normalized_adjacency(graph)


def test_a_negative_number_of_hops_is_refused() -> None:
    graph = Graph(torch.ones(1, 1), torch.empty(2, 0, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    with pytest.raises(InputError, match="hops is -1; it must be 0 or more"):
        propagate(graph, -1)
