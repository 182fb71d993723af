"""The form of each layer on blocks equals the PyG layer."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv, TransformerConv

from ergnn.data import Graph
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.blocks import make_block
from ergnn.engine.dropout import DropoutStream, dropout_keys
from ergnn.engine.features import features_of
from ergnn.nn.layers import form_of, has_form
from graphs import random_graph
from nn.cases import assert_near, messy_graphs, randomize


def mlp(fan_in: int, bias: bool = True) -> nn.Sequential:
    return nn.Sequential(nn.Linear(fan_in, 4), nn.ReLU(), nn.Linear(4, 3, bias=bias))


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "GAT, one head": lambda f: GATConv(f, 3),
    "GAT, heads side by side": lambda f: GATConv(f, 3, heads=2, negative_slope=0.4),
    "GAT, heads averaged": lambda f: GATConv(f, 3, heads=4, concat=False),
    "GCN": lambda f: GCNConv(f, 3),
    "SAGE": lambda f: SAGEConv(f, 3),
    "GIN": lambda f: GINConv(mlp(f)),
    "GIN with epsilon": lambda f: GINConv(mlp(f), eps=0.3),
    "Linear": lambda f: nn.Linear(f, 3),
}


def on_block(layer: nn.Module, graph: Graph, nodes: Tensor, as_features: bool) -> Tensor:
    assert has_form(layer)
    block, read = make_block(
        adjacency_of(graph), form_of(layer).aggregation, nodes, torch.zeros_like(nodes), 1, torch.float64
    )
    params = {n: (v.T if v.dim() == 2 else v).unsqueeze(0) for n, v in layer.named_parameters()}
    h = features_of(graph, read, torch.float64) if as_features else graph.rows(read)
    return form_of(layer).forward(layer, params, h, block, DropoutStream(None))


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_layer_on_a_block_equals_the_layer_on_the_whole_graph(kind: str, data: st.DataObject) -> None:
    graph = data.draw(messy_graphs())
    nodes = torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=6)))
    layer = LAYERS[kind](graph.num_features)
    randomize(layer)
    layer = layer.double().eval()
    assert has_form(layer)
    x = graph.dense_x()
    expected = (layer(x) if isinstance(layer, nn.Linear) else layer(x, graph.edge_index))[nodes]
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = list(layer.parameters())
    gradient = torch.autograd.grad((weights * expected).sum(), values)
    for as_features in (False, True):
        actual = on_block(layer, graph, nodes, as_features)
        assert_near(actual, expected)
        for mine, theirs in zip(torch.autograd.grad((weights * actual).sum(), values), gradient, strict=True):
            assert_near(mine, theirs)


def test_attention_is_finite_for_very_large_scores() -> None:
    graph = random_graph(seed=1, dtype=torch.float64)
    layer = GATConv(graph.num_features, 3).double()
    with torch.no_grad():
        layer.att_src.fill_(1e4)
        layer.lin.weight.normal_(generator=torch.Generator().manual_seed(0))
    actual = on_block(layer, graph, torch.arange(graph.num_nodes), as_features=False)
    assert_near(actual, layer(graph.x, graph.edge_index))


class Doubled(GCNConv):
    """A layer with the same parameters, but a different function."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * super().forward(x, edge_index)


class DoubledLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * super().forward(x)


OTHERS = {
    "GAT without self-loops": GATConv(4, 3, add_self_loops=False),
    "GAT with edge attributes": GATConv(4, 3, edge_dim=2),
    "GAT with a residual": GATConv(4, 3, residual=True),
    "GAT without bias": GATConv(4, 3, bias=False),
    "GAT from two kinds of nodes": GATConv((4, 4), 3),
    "GAT with a maximum": GATConv(4, 3, aggr="max"),
    "GATv2": GATv2Conv(4, 3),
    "Transformer": TransformerConv(4, 3),
    "GCN, improved": GCNConv(4, 3, improved=True),
    "GCN without self-loops": GCNConv(4, 3, add_self_loops=False),
    "GCN that does not normalize": GCNConv(4, 3, normalize=False),
    "GCN without bias": GCNConv(4, 3, bias=False),
    "GCN against the edges": GCNConv(4, 3, flow="target_to_source"),
    "GCN with a mean": GCNConv(4, 3, aggr="mean"),
    "a subclass of GCN": Doubled(4, 3),
    "SAGE with a maximum": SAGEConv(4, 3, aggr="max"),
    "SAGE with two aggregations": SAGEConv(4, 3, aggr=["mean", "max"]),
    "SAGE without the node itself": SAGEConv(4, 3, root_weight=False),
    "SAGE that projects": SAGEConv(4, 3, project=True),
    "SAGE that normalizes": SAGEConv(4, 3, normalize=True),
    "SAGE without bias": SAGEConv(4, 3, bias=False),
    "SAGE against the edges": SAGEConv(4, 3, flow="target_to_source"),
    "GIN with a learned epsilon": GINConv(mlp(4), train_eps=True),
    "GIN with a mean": GINConv(mlp(4), aggr="mean"),
    "GIN with one linear layer": GINConv(nn.Linear(4, 3)),
    "GIN with normalization": GINConv(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))),
    "GIN with another activation": GINConv(nn.Sequential(nn.Linear(4, 4), nn.ELU(), nn.Linear(4, 3))),
    "GIN without bias": GINConv(mlp(4, bias=False)),
    "Linear without bias": nn.Linear(4, 3, bias=False),
    "a subclass of Linear": DoubledLinear(4, 3),
    "an activation": nn.ReLU(),
}


def test_layers_with_unsupported_settings_have_no_form() -> None:
    assert [kind for kind, layer in OTHERS.items() if has_form(layer)] == []


def test_dropout_acts_on_single_entries_of_vectors_and_features() -> None:
    graph = random_graph(n=60, f=30, sparse=True, dtype=torch.float64)
    nodes = torch.arange(60)
    block, read = make_block(adjacency_of(graph), None, nodes, torch.zeros_like(nodes), 1)
    keys = dropout_keys([0], 0, 1, 1)[0]
    sparse = DropoutStream(keys).input(features_of(graph, read, torch.float64), 0.5, block, is_first=True)
    dense = DropoutStream(keys).input(graph.dense_x(), 0.5, block, is_first=True)
    eye = torch.eye(30, dtype=torch.float64).unsqueeze(0)
    assert torch.equal(block.project(sparse, eye), dense)
    share = float((dense != 0).sum() / (graph.dense_x() != 0).sum())
    assert 0.4 < share < 0.6
