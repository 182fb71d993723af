from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import SGConv

from ergnn.engine.dropout import dropout_keys
from ergnn.engine.objective import make_objective
from ergnn.learning.evaluation import evaluate_stream
from ergnn.learning.learner import Learner
from ergnn.nn.backbones import BACKBONES
from ergnn.nn.examples import Examples
from ergnn.testing import example_stream
from graphs import random_graph
from nn.cases import assert_near, model_of

NAMES = BACKBONES.names()


def test_deeper_gcns_with_batch_normalization_are_a_chain_of_pyg_layers() -> None:
    graph = random_graph(30, 5, 3, seed=0)
    x, edges = graph.dense_x(), graph.edge_index
    plain = BACKBONES.create("gcn", in_channels=5, out_channels=3, hidden=8, layers=3, dropout=0.0)
    assert (len(plain.convs), plain.num_hops, plain.runs_on_fields) == (3, 4, True)
    model = BACKBONES.create("gcn", in_channels=5, out_channels=3, hidden=8, layers=2, dropout=0.0, norm="batch")
    assert not model.runs_on_fields
    expected = x
    for layer in model.convs:
        h = layer.conv(expected, edges)
        expected = F.relu((h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt())
    assert_near(model.train()(x, edges), model.heads[0](expected, edges), 1e-5)


def test_batch_normalization_trains_on_sparse_features_as_on_dense_ones() -> None:
    """Features in CSR form give the same scores and gradients; dropout keeps about half of their non-zeros, doubled."""
    graph = random_graph(40, 30, 3, seed=1)
    x = graph.dense_x() * (torch.rand(40, 30, generator=torch.Generator().manual_seed(0)) < 0.08)
    settings = {"in_channels": 30, "out_channels": 3, "hidden": 8, "layers": 2, "norm": "batch"}
    model = BACKBONES.create("gcn", **settings, dropout=0.0).train()
    found = []
    for features in (x, x.to_sparse_csr()):
        out = model(features, graph.edge_index)
        # the gradient of a bias before a normalization is 0
        weights = [value for name, value in model.named_parameters() if not name.endswith("conv.bias")]
        found.append([out, *torch.autograd.grad(out.square().sum(), weights)])
    for dense, sparse in zip(*found, strict=True):
        assert_near(sparse, dense, 1e-4)
    dropped = BACKBONES.create("gcn", **settings, dropout=0.5).train()._dropped(x.to_sparse_csr(), 0.5).to_dense()
    assert set((dropped[x != 0] / x[x != 0]).round(decimals=4).tolist()) == {0.0, 2.0}
    nodes = torch.arange(0, 40, 3)
    examples = Examples(replace(graph, x=x), nodes, nodes.unsqueeze(1) * 0, graph.y[nodes], torch.ones(nodes.numel()))
    objective = make_objective([model], [examples])
    seen: list[torch.layout] = []
    model.convs[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].layout))
    keys = dropout_keys([0], 0, 1, objective.dropout_sites)[0]
    assert_near(objective.logits(objective.parameters(), keys), model(x, graph.edge_index)[nodes], 1e-4)
    assert seen == [torch.sparse_csr, torch.strided]


@pytest.mark.parametrize("name", ["gat", "gin", "sage"])
def test_other_networks_with_batch_normalization_learn_from_sparse_features(name: str) -> None:
    stream = example_stream(sparse=True)
    matrix = evaluate_stream(Learner(name, "finetune", epochs=30, backbone_options={"norm": "batch"}), stream)
    assert matrix[2, 2] > 0.6


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_sgc_equals_pyg_sgconv(hops: int) -> None:
    graph = random_graph(directed=True, self_loops=True, isolated=3, dtype=torch.float64)
    model = BACKBONES.create("sgc", in_channels=8, out_channels=3, hops=hops).double()
    theirs = SGConv(8, 3, K=hops).double()
    theirs.lin.load_state_dict(model.heads[0].state_dict())
    assert_near(model(graph.x, graph.edge_index), theirs(graph.x, graph.edge_index))


@pytest.mark.parametrize("name", ["gat", "gcn", "sage", "gin"])
def test_two_layers_equal_pyg_layers_in_sequence(name: str) -> None:
    graph = random_graph(directed=True, dtype=torch.float64)
    model = model_of(name, 8, [3], dropout=0.5).eval()
    activation = F.elu if name == "gat" else F.relu
    hidden = activation(model.convs[0](graph.x, graph.edge_index))
    assert_near(model(graph.x, graph.edge_index), model.heads[0](hidden, graph.edge_index))
