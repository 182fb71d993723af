"""After any sequence of changes, the head equals that of learning the final data at once."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency
from ergnn.analytic.state import AnalyticState, changed_nodes, reached
from ergnn.config.errors import InputError
from ergnn.data import Graph
from ergnn.methods import METHODS
from graphs import random_graph, sparse_x

N = 24


def with_edges(graph: Graph, edges: dict[tuple[int, int], float], weighted: bool) -> Graph:
    index = torch.tensor(sorted(edges), dtype=torch.long).reshape(-1, 2).T.contiguous()
    weight = torch.tensor([edges[pair] for pair in sorted(edges)], dtype=torch.float64) if weighted else None
    return replace(graph, edge_index=index, edge_weight=weight)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, list[int], int]]:
    """Steps of learning, correcting, forgetting and changing edges, in any order."""
    step = st.tuples(
        st.sampled_from(["label", "label", "label", "forget", "link", "unlink"]),
        st.lists(st.integers(0, N - 1), min_size=1, max_size=6, unique=True),
        st.integers(0, 3),
    )
    return draw(st.lists(step, min_size=1, max_size=12))


@given(
    history=histories(),
    seed=st.integers(0, 99),
    feature_map=st.sampled_from(["auto", "ppr", "hops"]),
    width=st.sampled_from([3, 40]),
    directed=st.booleans(),
    weighted=st.booleans(),
    kernel=st.sampled_from(["auto", "linear", "rbf", "nystrom"]),
    many=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_any_history_equals_learning_the_final_data_at_once(
    history: list[tuple[str, list[int], int]],
    seed: int,
    feature_map: str,
    width: int,
    directed: bool,
    weighted: bool,
    kernel: str,
    many: bool,
) -> None:
    options = {"feature_map": feature_map, "kernel": "rbf" if kernel == "nystrom" else kernel}
    with pytest.MonkeyPatch.context() as patch:
        if kernel == "nystrom":
            patch.setattr("ergnn.analytic.ridge.EXACT_ROWS", 8)
            patch.setattr("ergnn.analytic.ridge.LANDMARKS", 5)
        if many:  # more labels than are left out: inner products and sums are cached
            for module in ("ridge", "state"):
                patch.setattr(f"ergnn.analytic.{module}.LOO_ROWS", 6)
        _check_history(
            history,
            random_graph(n=N, f=width, classes=3, seed=seed, p_edge=0.05, directed=directed, isolated=2),
            weighted,
            directed,
            options,
        )


def _check_history(
    history: list[tuple[str, list[int], int]], graph: Graph, weighted: bool, directed: bool, options: dict[str, str]
) -> None:
    edges = {(int(a), int(b)): 1.0 for a, b in graph.edge_index.T}
    graph = with_edges(graph, edges, weighted)
    labels: dict[int, int] = {}
    method = METHODS.create("analytic", **options)
    for kind, nodes, c in history:
        if kind == "label":  # a node that is labeled already is corrected; class c may have gone and come again
            labels.update(dict.fromkeys(nodes, c))
            method.learn(graph, torch.tensor(nodes), torch.full((len(nodes),), c))
        elif kind == "forget":
            known = [v for v in nodes if v in labels]
            for v in known:
                del labels[v]
            assert method.forget_nodes(torch.tensor(nodes)) == len(known)
        else:
            pairs = {(a, b) for a, b in pairwise(nodes)}
            pairs |= set() if directed else {(b, a) for a, b in pairs}
            if kind == "link":  # an edge that is there already gets another weight
                edges |= dict.fromkeys(pairs, 0.5 * c)
            else:
                edges = {pair: weight for pair, weight in edges.items() if pair not in pairs}
            graph = with_edges(graph, edges, weighted)
            method.refresh(graph)
    final = with_edges(graph, edges, weighted)
    once = METHODS.create("analytic", **options)
    order = sorted(labels, reverse=True)
    if order:
        once.learn(final, torch.tensor(order), torch.tensor([labels[v] for v in order]))
    everything, classes = torch.arange(N), torch.arange(4)
    expected = once.head_scores(final, everything, classes)
    torch.testing.assert_close(method.head_scores(graph, everything, classes), expected, rtol=1e-8, atol=1e-8)
    assert method.state.nodes.tolist() == sorted(labels)


@given(seed=st.integers(0, 99), name=st.sampled_from(["ppr", "hops"]), directed=st.booleans())
@settings(max_examples=30, deadline=None)
def test_rows_out_of_reach_of_a_change_stay_cached(seed: int, name: str, directed: bool) -> None:
    before = random_graph(n=60, f=5, seed=seed, p_edge=0.01, directed=directed)
    new = torch.tensor([[0, 1], [1, 0]])
    after = replace(before, edge_index=torch.cat([before.edge_index, new], 1))
    changed = changed_nodes(before, after)
    assert changed.nonzero().flatten().tolist() == [0, 1]
    each = FEATURE_MAPS.create(name)
    inside = reached(after, changed, each.num_hops)
    assert not bool(inside.all())

    def rows(graph: Graph) -> Tensor:
        return Features(each, NormalizedAdjacency(graph), Inputs(graph)).rows(torch.arange(60))

    moved = (rows(before) - rows(after)).abs().amax(1) > 1e-12
    assert not bool((moved & ~inside).any())


def test_only_rows_in_reach_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = random_graph(n=60, f=90, seed=3, p_edge=0.01)
    asked: list[int] = []
    compute = Features.rows

    def watched(self: Features, nodes: Tensor, ranks: None = None) -> Tensor:
        asked.append(nodes.numel())
        return compute(self, nodes)

    monkeypatch.setattr(Features, "rows", watched)
    method = METHODS.create("analytic", feature_map="hops", kernel="linear")
    method.learn(before, torch.arange(30), before.y[:30])
    after = replace(before, edge_index=torch.cat([before.edge_index, torch.tensor([[0, 1], [1, 0]])], 1))
    method.refresh(after)
    inside = int(reached(after, changed_nodes(before, after), 3)[:30].sum())
    assert asked == [30, inside]
    assert 0 < inside < 30


def test_rows_of_a_map_that_is_not_compared_for_a_while_do_not_become_stale() -> None:
    graph = random_graph(n=60, f=5, seed=3, p_edge=0.05)
    some = graph.edge_index[:, (graph.edge_index < 30).all(0)]
    dense = torch.combinations(torch.arange(30, 60)).T
    many, few = (replace(graph, edge_index=index) for index in (torch.cat([some, dense], 1), some))
    options = {"map_options": {"maps": "ppr,hops", "max_edges": graph.num_edges}, "kernel": "linear", "scale": "rows"}
    methods = [METHODS.create("analytic", **options) for _ in range(2)]
    methods[0].learn(graph, torch.arange(30), graph.y[:30])
    methods[0].refresh(many)
    methods[0].refresh(few)
    methods[1].learn(few, torch.arange(30), graph.y[:30])
    assert torch.allclose(*(method.state._rows["ppr"][1] for method in methods))


def test_changed_features_and_new_nodes_are_detected() -> None:
    before = random_graph(n=20, f=3)
    x = before.x.clone()
    x[4] += 1
    assert changed_nodes(before, replace(before, x=x)).nonzero().flatten().tolist() == [4]
    grown = Graph(torch.cat([before.x, x[:1]]), before.edge_index, torch.cat([before.y, before.y[:1]]))
    assert changed_nodes(before, grown).nonzero().flatten().tolist() == [20]
    assert bool(changed_nodes(sparse_x(before), sparse_x(before)).all())
    weighted = replace(before, edge_weight=torch.ones(before.num_edges))
    weight = torch.ones(before.num_edges)
    weight[3] = 0.5
    heavier = replace(weighted, edge_weight=weight)
    assert changed_nodes(weighted, heavier).nonzero().flatten().tolist() == [int(before.edge_index[1, 3])]
    order = torch.randperm(before.num_edges, generator=torch.Generator().manual_seed(0))
    mixed = replace(heavier, edge_index=before.edge_index[:, order], edge_weight=weight[order])
    assert not bool(changed_nodes(heavier, mixed).any())
    assert not bool(changed_nodes(before, replace(before, edge_index=before.edge_index[:, order])).any())


def test_wrong_updates_are_rejected() -> None:
    state = AnalyticState()
    with pytest.raises(InputError, match="one label per node"):
        state.update(torch.tensor([1, 1]), torch.tensor([0, 0]))
    state.update(torch.tensor([5, 1]), torch.tensor([0, 2]))
    assert state.nodes.tolist() == [1, 5]
    assert state.labels.tolist() == [2, 0]
    assert state.nbytes == 32
    assert state.remove(torch.tensor([5, 3])) == 1
    assert state.nodes.tolist() == [1]
