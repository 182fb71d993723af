"""Neighbor sampling: which neighbors are sampled, how often, and what sums over them estimate."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data import Graph
from ergnn.engine.adjacency import Adjacency, adjacency_of
from ergnn.engine.blocks import make_block, relabel
from ergnn.engine.losses import PlainModel
from ergnn.engine.objective import FieldObjective, make_objective
from ergnn.engine.sampling import Sampling, sample_neighbors
from ergnn.nn.backbones import BACKBONES
from ergnn.nn.examples import Examples
from ergnn.nn.layers import MEAN
from graphs import random_graph
from nn.cases import AGGREGATIONS, examples_of, messy_graphs, model_of


def neighbors(graph: Graph) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for source, target in graph.edge_index.T.tolist():
        found[target].append(source)
    return found


def regular(rows: int, degree: int) -> Adjacency:
    """Return a graph of ``rows`` nodes with in-edges from nodes ``rows`` … ``rows + degree − 1``."""
    target = torch.arange(rows).repeat_interleave(degree)
    source = rows + torch.arange(degree).repeat(rows)
    return Adjacency(torch.stack([source, target]), rows + degree)


def chi_square(counts: Tensor) -> float:
    expected = counts.double().mean()
    return float(((counts - expected) ** 2 / expected).sum())


# --- samples ---------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(messy_graphs(), st.integers(1, 5), st.booleans(), st.integers(0, 2**40))
def test_samples_are_neighbors_and_distinct_without_replacement(
    graph: Graph, fanout: int, replace: bool, key: int
) -> None:
    nodes = torch.randperm(graph.num_nodes)
    row, source, count = sample_neighbors(adjacency_of(graph), nodes, fanout, replace, key)
    assert torch.equal(row, row.sort().values)
    for i, node in enumerate(nodes.tolist()):
        sampled, all_of_them = source[row == i].tolist(), neighbors(graph)[node]
        assert len(sampled) == int(count[i]) == (min(fanout, len(all_of_them)) if not replace else len(sampled))
        assert set(sampled) <= set(all_of_them)
        if replace:
            assert len(sampled) == (fanout if all_of_them else 0)
        else:  # an edge is sampled at most once; a neighbor at most once per parallel edge
            assert all(sampled.count(v) <= all_of_them.count(v) for v in sampled)


def test_without_replacement_all_subsets_are_equally_likely() -> None:
    adj = regular(40_000, 6)
    _, source, _ = sample_neighbors(adj, torch.arange(40_000), 3, key=7)
    sets = source.view(-1, 3).sort(1).values - 40_000
    number = {chosen: i for i, chosen in enumerate(combinations(range(6), 3))}
    counts = torch.bincount(torch.tensor([number[tuple(s)] for s in sets.tolist()]), minlength=20)
    assert chi_square(counts) < 43.8  # 19 degrees of freedom: 0.1 %


def test_with_replacement_samples_are_uniform_and_independent() -> None:
    _, source, _ = sample_neighbors(regular(30_000, 5), torch.arange(30_000), 2, replace=True, key=1)
    pairs = (source.view(-1, 2) - 30_000) @ torch.tensor([5, 1])
    assert chi_square(torch.bincount(pairs, minlength=25)) < 51.2  # 24 degrees of freedom: 0.1 %


def test_samples_depend_only_on_key_and_node() -> None:
    adj = adjacency_of(random_graph(n=60, p_edge=0.4))
    row, source, _ = sample_neighbors(adj, torch.arange(60), 4, key=9)
    alone = sample_neighbors(adj, torch.tensor([31, 17]), 4, key=9)
    assert alone[1][alone[0] == 1].tolist() == source[row == 17].tolist()
    assert sample_neighbors(adj, torch.arange(60), 4, key=10)[1].tolist() != source.tolist()


# --- estimates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replace", [False, True])
def test_the_sample_mean_has_the_moments_of_sampling_theory(replace: bool) -> None:
    """The mean is μ; the variance is σ²/k with replacement, and σ²/k · (d − k)/(d − 1) without."""
    rows, d, k = 30_000, 12, 5
    values = torch.arange(d, dtype=torch.float64) ** 2
    nodes, draw = torch.arange(rows), {"fanout": k, "replace": replace, "key": 5}
    block, read = make_block(regular(rows, d), MEAN, nodes, torch.zeros_like(nodes), 1, torch.float64, **draw)
    h = torch.cat([torch.zeros(rows, dtype=torch.float64), values])[read].unsqueeze(1)
    found = block.aggregate(h).flatten()
    variance = float(values.var(correction=0)) / k * (1.0 if replace else (d - k) / (d - 1))
    assert float(found.mean()) == pytest.approx(float(values.mean()), abs=4 * (variance / rows) ** 0.5)
    assert float(found.var()) == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("aggregation", ["mean", "sum", "gcn"])
def test_sums_over_sampled_neighbors_are_unbiased(aggregation: str, replace: bool) -> None:
    graph = random_graph(n=25, p_edge=0.5, self_loops=True, isolated=2)
    adj, nodes, zero = adjacency_of(graph), torch.arange(25), torch.zeros(25).long()
    x = graph.x.double()
    weighing = AGGREGATIONS[aggregation]
    block, read = make_block(adj, weighing, nodes, zero, 1, torch.float64)
    exact = block.aggregate(x[read])
    draws = []
    for key in range(400):
        block, read = make_block(adj, weighing, nodes, zero, 1, torch.float64, fanout=3, replace=replace, key=key)
        draws.append(block.aggregate(x[read]))
    sampled = torch.stack(draws)
    error = (sampled.mean(0) - exact).abs() / (sampled.std(0) / 400**0.5 + 1e-9)
    assert float(error.max()) < 5.0
    assert float((sampled[0] - exact).abs().max()) > 0.1


@pytest.mark.parametrize("name", list(BACKBONES))
@settings(max_examples=10)
@given(st.data())
def test_a_large_fanout_gives_the_exact_losses_and_gradients(name: str, data: st.DataObject) -> None:
    graph, widths = data.draw(messy_graphs()), [3, 2]
    examples = data.draw(examples_of(graph, widths, 2))
    model = model_of(name, graph.num_features, widths, dropout=0.3)
    exact = FieldObjective([model], [examples])
    sampled = make_objective([model], [examples], sampling=Sampling((10_000,) * model.num_hops))
    keys = torch.arange(exact.dropout_sites, dtype=torch.int32).unsqueeze(1)
    index = torch.arange(len(examples)).flip(0)
    for dropout in (None, keys):
        grads = []
        for objective in (FieldObjective([model], [examples[index]], exact.heads), sampled.batch(index, key=4)):
            params = {key: value.requires_grad_() for key, value in exact.parameters().items()}
            losses = objective.losses(params, dropout)
            losses.sum().backward()
            grads.append((losses.detach(), {key: value.grad for key, value in params.items()}))
        assert torch.allclose(grads[0][0], grads[1][0], atol=1e-12)
        for key, value in grads[0][1].items():
            assert (value is None) == (grads[1][1][key] is None)
            assert value is None or torch.allclose(value, grads[1][1][key], atol=1e-10)


# --- objectives ------------------------------------------------------------------------------------------


def task_examples(graph: Graph, count: int = 16) -> Examples:
    nodes = torch.arange(count)
    return Examples(graph, nodes, torch.zeros(count, 1).long(), nodes % 3, torch.ones(count))


def test_a_batch_is_determined_by_its_key() -> None:
    graph = random_graph(n=80, p_edge=0.5)
    model = model_of("sage", graph.num_features, [3], dtype=torch.float32)
    objective = make_objective([model], [task_examples(graph)], sampling=Sampling((3, 2)))
    params, index = objective.parameters(), torch.arange(8)
    first = objective.batch(index, key=1).losses(params)
    assert torch.equal(objective.batch(index, key=1).losses(params), first)
    assert not torch.equal(objective.batch(index, key=2).losses(params), first)
    assert objective.losses(params).shape == (16,)


def test_models_side_by_side_have_the_samples_of_each_model() -> None:
    graph = random_graph(n=80, p_edge=0.5)
    models, examples = [model_of("gcn", graph.num_features, [3], seed=s) for s in (0, 1)], task_examples(graph)
    parts = [examples[torch.arange(5)], examples[torch.arange(3, 9)]]
    options = {"sampling": Sampling((3, 2)), "key": 5}
    alone = [FieldObjective([model], [part], **options) for model, part in zip(models, parts, strict=True)]
    together = FieldObjective(models, parts, **options)
    expected = torch.cat([objective.logits(objective.parameters()) for objective in alone])
    assert torch.equal(together.logits(together.parameters()), expected)


def test_hops_are_sampled_independently() -> None:
    """With the same key for both hops of SGC, a node that is its own 2-hop neighbor would have correlated samples."""
    graph = random_graph(n=50, p_edge=0.6)
    model = model_of("sgc", graph.num_features, [3], dtype=torch.float64)
    exact = FieldObjective([model], [task_examples(graph)])
    params, rows = exact.parameters(), []
    for key in range(300):
        sampled = FieldObjective([model], [task_examples(graph)], sampling=Sampling((4, 4)), key=key)
        rows.append(sampled.logits(params))
    sampled = torch.stack(rows)
    error = (sampled.mean(0) - exact.logits(params)).abs() / (sampled.std(0) / 300**0.5)
    assert float(error.max()) < 5.0  # S²X is linear, so the whole model is unbiased


@given(st.lists(st.integers(0, 99), max_size=60))
def test_relabel_with_a_table_equals_unique(keys: list[int]) -> None:
    given_keys = torch.tensor(keys, dtype=torch.long)
    for size in (100, 10**6):
        known, place = relabel(given_keys, size)
        wanted = torch.unique(given_keys, return_inverse=True)
        assert torch.equal(known, wanted[0])
        assert torch.equal(place, wanted[1])


# --- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fanout", [(0,), (-2, 3), (2.5,), (True,)])
def test_invalid_fanouts_are_refused(fanout: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="must be 1 or more, or -1 for all"):
        Sampling(fanout)


def test_unsupported_models_are_refused() -> None:
    graph = random_graph()
    with pytest.raises(InputError, match=r"fanout is \(5,\); GAT aggregates neighbors in 2 layer\(s\)"):
        make_objective([model_of("gat", 8, [3])], [task_examples(graph)], sampling=Sampling((5,)))
    with pytest.raises(InputError, match="MLP aggregates neighbors in 0"):
        Sampling((5,)).check(model_of("mlp", 8, [3]))
    with pytest.raises(InputError, match="PlainModel cannot be computed on sampled neighbors"):
        Sampling((5,)).check(PlainModel(torch.nn.Linear(1, 1)))
    with pytest.raises(InputError, match="with replacement"):
        Sampling((5, -1), replace=True)
