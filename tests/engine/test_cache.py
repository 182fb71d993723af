"""Cached values belong to the identity and the version of the tensors that they are computed from."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ergnn.data import Graph
from ergnn.engine import outputs
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.cache import Cache, version_of
from ergnn.engine.features import sparse_x
from ergnn.engine.outputs import embed
from ergnn.nn.backbones import BACKBONES


def make_graph() -> Graph:
    x = torch.eye(6, 30)
    return Graph(x, torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), torch.zeros(6, dtype=torch.long))


def test_a_value_is_computed_once_until_a_source_changes() -> None:
    cache: Cache[Tensor] = Cache()
    a, b, calls = torch.ones(2), torch.ones(2), []

    def total() -> Tensor:
        calls.append(1)
        return a + b

    for expected in (2.0, 2.0):
        assert cache.get([a, b], total).tolist() == [expected] * 2
    assert len(calls) == 1
    b.add_(1)
    assert cache.find([a, b]) is None
    assert cache.get([a, b], total).tolist() == [3.0] * 2
    assert len(cache._entries) == 1
    assert cache.find([a, b.clone()]) is None
    assert cache.find([a, b], "other key") is None
    assert Cache[None]().get([a], lambda: None) is None


def test_a_value_is_deleted_with_any_of_its_sources() -> None:
    cache: Cache[int] = Cache()
    long_lived = torch.ones(1)
    for sources in ([torch.ones(1), long_lived], [long_lived, torch.ones(1)]):
        cache.store(sources, 7)
        assert cache.find(sources) == 7
        sources.clear()
        assert len(cache._entries) == 0


def test_the_oldest_values_leave_a_full_cache() -> None:
    cache: Cache[int] = Cache(10, lambda value: value)
    tensors = [torch.ones(1) for _ in range(4)]
    for tensor, size in zip(tensors, (4, 6, 5, 20), strict=True):
        cache.store([tensor], size)
    assert [cache.find([tensor]) for tensor in tensors] == [None, None, None, 20]
    cache.store([tensors[0]], 4)
    cache.store([tensors[1]], 6)
    cache.store([tensors[0]], 4)  # now the latest
    cache.store([tensors[2]], 5)
    assert [cache.find([tensor]) for tensor in tensors] == [4, None, 5, None]


def test_tensors_of_one_context_are_not_cached() -> None:
    cache: Cache[Tensor] = Cache()
    source = torch.ones(2)
    cache.store([source], torch.ones(2, requires_grad=True))
    with torch.inference_mode():
        cache.get([source], lambda: source * 2)
    assert len(cache._entries) == 0


def test_every_edit_of_a_graph_changes_its_version() -> None:
    graph = replace(make_graph(), edge_weight=torch.ones(4))
    adj = adjacency_of(graph)
    csr = Graph.from_csr(graph.x.to_sparse_csr(), adj.rowptr.clone(), adj.col.clone(), graph.y)
    assert graph.edge_weight is not None
    for each, edited in (
        *((graph, part) for part in (graph.x, graph.edge_index, graph.y, graph.edge_weight)),
        *((csr, part) for part in (csr.x.values(), csr.csr.rowptr, csr.csr.col)),
    ):
        before = version_of(each)
        assert version_of(each) == before
        edited.mul_(1)
        assert version_of(each) != before


def test_adjacency_sparse_features_and_embeddings_notice_edits_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "FIELD_EDGES", -1)
    graph, model = make_graph(), BACKBONES.create("gcn", in_channels=30, out_channels=2)
    nodes = torch.arange(6)
    assert adjacency_of(graph) is adjacency_of(replace(graph, name="same edges"))
    for edited in (graph.x, graph.edge_index, model.convs[0].bias):
        first = embed(model, graph, nodes)
        assert torch.equal(embed(model, graph, nodes), first)
        with torch.no_grad():
            edited.copy_(edited.flip(0) if edited.dim() < 2 or edited.size(0) != 2 else edited.flip(1) // 2)
            edited.add_(0.25 if edited.dim() == 1 else 0)
        fresh = Graph(graph.x.clone(), graph.edge_index.clone(), graph.y)
        assert torch.equal(embed(model, graph, nodes), embed(model, fresh, nodes))
        assert not torch.equal(embed(model, graph, nodes), first)
        assert adjacency_of(graph).col.tolist() == adjacency_of(fresh).col.tolist()
        sparse = sparse_x(graph)
        assert torch.equal(sparse.to_dense(), graph.x)
