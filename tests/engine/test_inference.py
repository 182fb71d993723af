"""Layer-wise inference gives the same scores as PyG layers on the whole graph."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ergnn.data import Graph
from ergnn.engine import adjacency, outputs
from ergnn.engine.losses import PlainModel
from ergnn.engine.objective import FieldObjective
from ergnn.engine.outputs import embed, layerwise_embed, layerwise_logits, prefers_layers
from ergnn.nn.backbones import BACKBONES
from ergnn.nn.examples import Examples
from graphs import random_graph
from nn.cases import examples_of, messy_graphs, model_of, reference_logits


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adjacency, "CHUNK_EDGES", 13)
    monkeypatch.setattr(outputs, "ROWS", 5)


@pytest.mark.parametrize("name", list(BACKBONES))
@settings(max_examples=15)
@given(st.data())
def test_scores_equal_those_on_the_whole_graph(name: str, data: st.DataObject) -> None:
    graph, widths = data.draw(messy_graphs()), [3, 2, 3]
    examples = data.draw(examples_of(graph, widths, 2))
    model = model_of(name, graph.num_features, widths)
    found = layerwise_logits(model, graph, examples.nodes, examples.heads)
    assert torch.allclose(found, reference_logits(model, examples), atol=1e-10)


@pytest.mark.parametrize(("name", "sparse"), [("gat", True), ("gin", False), ("mlp", True), ("sgc", False)])
def test_float32_scores_and_embeddings_equal_those_on_fields(name: str, sparse: bool) -> None:
    graph = random_graph(n=120, p_edge=0.15, isolated=3, sparse=sparse)
    model = model_of(name, graph.num_features, [4], dtype=torch.float32)
    nodes = torch.randperm(120)[:50]
    heads = torch.zeros(50, 1).long()
    blank = torch.zeros(50)
    field = FieldObjective([model], [Examples(graph, nodes, heads, heads.flatten(), blank)])
    wanted = field.logits(field.parameters())
    found = layerwise_logits(model, graph, nodes, heads)
    scale = wanted.abs().max()
    assert float((found - wanted).abs().max() / scale) < 1e-5
    near, far = embed(model, graph, nodes), layerwise_embed(model, graph, nodes)
    assert float((near - far).abs().max() / near.abs().max()) < 1e-5


def test_embeddings_of_a_large_field_are_computed_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(n=60, p_edge=0.3)
    model = model_of("gat", graph.num_features, [3], dtype=torch.float32)
    on_field = embed(model, graph, torch.arange(60))
    monkeypatch.setattr(outputs, "FIELD_EDGES", 50)
    calls = []
    monkeypatch.setattr("ergnn.engine.outputs.layerwise_embed", lambda *a: calls.append(a) or layerwise_embed(*a))
    assert torch.allclose(embed(model, graph, torch.arange(60)), on_field, atol=1e-5)
    assert len(calls) == 1


def test_few_nodes_of_a_large_graph_are_scored_on_their_field(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(n=200, p_edge=0.05)  # about 10 neighbors each
    gat, mlp = (model_of(name, graph.num_features, [3]) for name in ("gat", "mlp"))
    monkeypatch.setattr(outputs, "FIELD_EDGES", 1000)
    assert graph.num_edges > 1000
    assert not prefers_layers(gat, graph, torch.arange(2))  # 20 + 200 edges
    assert prefers_layers(gat, graph, torch.arange(150))
    assert not prefers_layers(mlp, graph, torch.arange(200))  # uses no edges
    assert not prefers_layers(PlainModel(gat), graph, torch.arange(150))
    monkeypatch.setattr(outputs, "FIELD_EDGES", graph.num_edges)
    assert not prefers_layers(gat, graph, torch.arange(200))


@pytest.mark.parametrize("name", ["gcn", "sgc"])
def test_embeddings_are_cached_until_parameters_or_graph_change(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, other = (random_graph(n=60, p_edge=0.2, seed=seed) for seed in (0, 1))
    model = model_of(name, graph.num_features, [3, 3])
    encoded = []
    compute, depth = outputs._compute, len(model.learned_layers)
    monkeypatch.setattr(outputs, "_compute", lambda *a: encoded.extend([a] * (a[3] == depth)) or compute(*a))
    nodes, heads = torch.arange(60), torch.zeros(60, 1).long()

    def score(where: Graph = graph, head: int = 0) -> float:
        found = layerwise_logits(model, where, nodes, heads + head)
        wanted = model.eval()(where.x.double(), where.edge_index, head).detach()
        return float((found - wanted).abs().max())

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
