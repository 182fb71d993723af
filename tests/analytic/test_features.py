"""Feature maps, operators and sketches against dense matrices."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analytic.dense import dense_phi, dense_s, dense_x
from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency
from ergnn.analytic.inputs import Sketch
from ergnn.config.errors import InputError, UnknownNameError
from ergnn.data import Graph
from ergnn.engine.hardware import use_threads
from graphs import graphs, random_graph, sparse_x

MAPS = ("ppr", "hops")


def make(graph: Graph, name: str, sketch: int | None = None) -> Features:
    return Features(FEATURE_MAPS.create(name), NormalizedAdjacency(graph), Inputs(graph, sketch))


@given(graph=graphs(), name=st.sampled_from(MAPS), sparse=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_rows_and_scores_are_those_of_dense_matrices(graph: Graph, name: str, sparse: bool, seed: int) -> None:
    graph = sparse_x(graph) if sparse else graph
    expected = dense_phi(name, dense_s(graph), dense_x(graph))
    features = make(graph, name)
    everything = torch.arange(graph.num_nodes)
    assert everything.numel() >= features.inputs.width  # a column per feature
    np.testing.assert_allclose(features.rows(everything).numpy(), expected, atol=1e-10)
    few = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))[
        : graph.num_features - 1
    ]  # a column per node
    np.testing.assert_allclose(features.rows(few).numpy(), expected[few.numpy()], atol=1e-10)
    weight = torch.randn(features.width, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    np.testing.assert_allclose(features.scores(weight).numpy(), expected @ weight.numpy(), atol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_of_columns_on_two_threads_give_the_same_rows(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ergnn.analytic.features.CACHE_BYTES", 0)
    monkeypatch.setattr("ergnn.analytic.features.CACHE_COLUMNS", 1)
    graph = sparse_x(random_graph()) if sparse else random_graph()
    for nodes in (torch.arange(graph.num_nodes), torch.arange(0, 2)):
        rows = []
        for count in (1, 2):
            with use_threads(count):
                rows.append(make(graph, "hops").rows(nodes))
        assert torch.equal(*rows)


@given(graph=graphs(), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_edge_weights_and_directions(graph: Graph, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.rand(graph.num_edges, generator=generator, dtype=torch.float64)
    x = torch.randn(graph.num_nodes, 3, generator=generator, dtype=torch.float64)
    for given_weight in (None, weight):
        s = dense_s(graph, None if given_weight is None else weight.numpy())
        operator = NormalizedAdjacency(graph, given_weight)
        np.testing.assert_allclose(operator.matmul(x).numpy(), s @ x.numpy(), atol=1e-12)
        np.testing.assert_allclose(operator.T.matmul(x).numpy(), s.T @ x.numpy(), atol=1e-12)


def test_unit_weights_change_nothing_and_bad_ones_are_rejected() -> None:
    graph = random_graph(directed=True, self_loops=True)
    x = torch.randn(40, 2, dtype=torch.float64)
    one = NormalizedAdjacency(graph, torch.ones(graph.num_edges))
    torch.testing.assert_close(one.matmul(x), NormalizedAdjacency(graph).matmul(x))
    with pytest.raises(InputError, match=r"edge_weight has shape \(3,\)"):
        NormalizedAdjacency(graph, torch.ones(3))
    with pytest.raises(InputError, match="negative"):
        NormalizedAdjacency(graph, -torch.ones(graph.num_edges))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_a_sketch_commutes_with_propagation(name: str, sparse: bool) -> None:
    graph = random_graph(n=40, f=30, sparse=sparse)
    sketch = Sketch(30, 8)
    p = sketch.columns(0, 8, torch.float64)
    s, x = torch.from_numpy(dense_s(graph)), torch.from_numpy(dense_x(graph))
    before = torch.from_numpy(dense_phi(name, s.numpy(), (x @ p).numpy()))
    features = make(graph, name, sketch=8)
    torch.testing.assert_close(features.rows(torch.arange(40)), before, rtol=0, atol=1e-9)
    torch.testing.assert_close(features.rows(torch.arange(5)), before[:5], rtol=0, atol=1e-9)
    operator, propagated = NormalizedAdjacency(graph), Inputs(graph)
    after = [block @ p for block in FEATURE_MAPS.create(name).blocks(operator, propagated.columns(0, 30))]
    sketched = FEATURE_MAPS.create(name).blocks(operator, Inputs(graph, 8).columns(0, 8))
    for one, two in zip(after, sketched, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)
    weight = torch.randn(features.width, 2, dtype=torch.float64)
    torch.testing.assert_close(features.scores(weight), before @ weight, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MAPS)
def test_a_graph_without_features_or_edges_has_the_constant(name: str) -> None:
    graph = Graph(torch.zeros(4, 0), torch.empty(2, 0, dtype=torch.long), torch.tensor([0, 0, 1, 1]))
    features = make(graph, name)
    torch.testing.assert_close(features.rows(torch.arange(4)), torch.full((4, 1), 0.3, dtype=torch.float64))
    torch.testing.assert_close(features.scores(torch.ones(1, 2).double()), torch.full((4, 2), 0.3).double())
    empty = replace(graph, x=torch.zeros(4, 3))
    rows = make(empty, name).rows(torch.arange(4))
    assert float(rows[:, :-1].abs().max()) == 0.0


def test_the_registry_names_maps_and_rejects_wrong_options() -> None:
    assert {"ppr", "hops", "auto"} <= set(FEATURE_MAPS.names())
    assert [each.name for each in FEATURE_MAPS.create("auto").candidates()] == ["ppr", "hops"]
    assert [each.name for each in FEATURE_MAPS.create("auto", maps="hops").candidates()] == ["hops"]
    few, many = (FEATURE_MAPS.create("auto", max_edges=99).candidates(edges) for edges in (99, 100))
    assert [[each.name for each in found] for found in (few, many)] == [["ppr", "hops"], ["hops"]]
    auto = FEATURE_MAPS.create("auto")
    x = torch.eye(3)
    graph = Graph(x, torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1, 1]))
    assert len(list(auto.blocks(NormalizedAdjacency(graph), x))) == auto.num_blocks == 5
    with pytest.raises(InputError, match="without 'auto'"):
        FEATURE_MAPS.create("auto", maps="auto")
    with pytest.raises(InputError, match="alpha is 0"):
        FEATURE_MAPS.create("ppr", alpha=0)
    with pytest.raises(InputError, match="num_steps is -1"):
        FEATURE_MAPS.create("ppr", num_steps=-1)
    with pytest.raises(InputError, match="num_hops is -1"):
        FEATURE_MAPS.create("hops", num_hops=-1)
    with pytest.raises(UnknownNameError, match="feature map"):
        FEATURE_MAPS.create("nothing")
