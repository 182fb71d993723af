"""Scores of many nodes of a large graph equal those of PyG layers on the whole graph."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ergnn.data import Graph
from ergnn.engine import adjacency, blocks, features, outputs
from ergnn.engine.losses import PlainModel
from ergnn.engine.objective import FieldObjective
from ergnn.engine.outputs import embed, has_large_field, logits_of
from ergnn.nn.backbones import BACKBONES
from ergnn.nn.examples import Examples
from graphs import random_graph
from nn.cases import examples_of, messy_graphs, model_of, reference_logits


@pytest.fixture(autouse=True)
def every_field_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "FIELD_EDGES", -1)
    monkeypatch.setattr(adjacency, "CHUNK_EDGES", 13)
    monkeypatch.setattr(adjacency, "LINKED_FROM", 0)


@pytest.mark.parametrize(("name", "cached"), [(name, True) for name in BACKBONES] + [("gat", False), ("sage", False)])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_scores_equal_those_on_the_whole_graph(
    name: str, cached: bool, data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of features that are read while they are multiplied."""
    monkeypatch.setattr(features, "ROWS", 2)
    for module, name_of_limit, limit in (
        *((outputs, "MAX_CACHED", 0), (features, "LARGE", 1)),
        *((blocks, "WHOLE_FROM", 2.0), (blocks, "FILLED_FROM", 2.0)),  # only the rows in use
    ):
        monkeypatch.setattr(module, name_of_limit, getattr(module, name_of_limit) if cached else limit)
    graph, widths = data.draw(messy_graphs()), [3, 2, 3]
    examples = data.draw(examples_of(graph, widths, 2))
    model = model_of(name, graph.num_features, widths)
    scores = logits_of(model, graph, examples.nodes, examples.heads)
    assert torch.allclose(scores, reference_logits(model, examples), atol=1e-10)


@pytest.mark.parametrize(("name", "sparse"), [("gat", True), ("gin", False), ("mlp", True), ("sgc", False)])
def test_float32_scores_and_embeddings_equal_those_on_small_fields(
    name: str, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(n=120, p_edge=0.15, isolated=3, sparse=sparse)
    model = model_of(name, graph.num_features, [4], dtype=torch.float32)
    nodes = torch.randperm(120)[:50]
    heads = torch.zeros(50, 1).long()
    far, scores = embed(model, graph, nodes), logits_of(model, graph, nodes, heads)
    monkeypatch.setattr(outputs, "FIELD_EDGES", 1 << 21)
    monkeypatch.setattr(adjacency, "LINKED_FROM", 1 << 20)
    field = FieldObjective([model], [Examples(graph, nodes, heads, heads.flatten(), torch.zeros(50))])
    for value, wanted in ((far, embed(model, graph, nodes)), (scores, field.logits(field.parameters()))):
        assert float((value - wanted).abs().max() / wanted.abs().max()) < 1e-5


def test_few_nodes_of_a_large_graph_are_scored_on_their_field(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(n=200, p_edge=0.05)  # about 10 neighbors each
    gat, mlp = (model_of(name, graph.num_features, [3]) for name in ("gat", "mlp"))
    monkeypatch.setattr(outputs, "FIELD_EDGES", 1000)
    assert graph.num_edges > 1000
    assert not has_large_field(gat, graph, torch.arange(2))  # 20 + 200 edges
    assert has_large_field(gat, graph, torch.arange(150))
    assert not has_large_field(mlp, graph, torch.arange(200))  # uses no edges
    assert not has_large_field(PlainModel(gat), graph, torch.arange(150))
    monkeypatch.setattr(outputs, "FIELD_EDGES", graph.num_edges)
    assert not has_large_field(gat, graph, torch.arange(200))


@pytest.mark.parametrize("name", ["gcn", "sgc"])
def test_embeddings_are_cached_until_parameters_or_graph_change(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, other = (random_graph(n=60, p_edge=0.2, seed=seed) for seed in (0, 1))
    model = model_of(name, graph.num_features, [3, 3])
    encoded, encode = [], outputs.encode
    monkeypatch.setattr(outputs, "encode", lambda *a: encoded.append(a) or encode(*a))
    nodes, heads = torch.arange(60), torch.zeros(60, 1).long()

    def score(where: Graph = graph, head: int = 0) -> float:
        scores = logits_of(model, where, nodes, heads + head)
        wanted = model.eval()(where.x.double(), where.edge_index, head).detach()
        return float((scores - wanted).abs().max())

    assert max(score(), score(), score(head=1)) < 1e-9
    assert len(encoded) == 1
    if name == "gcn":
        torch.nn.init.ones_(model.convs[0].bias)
        assert score() < 1e-9
        assert encoded.pop() is not encoded[0]
    torch.nn.init.ones_(model.heads[0].bias)  # embeddings do not depend on it
    assert score() < 1e-9
    assert len(encoded) == 1
    assert max(score(other), score(other)) < 1e-9
    assert len(encoded) == 2
