from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ergnn.data import Graph
from ergnn.engine.dropout import dropout_keys
from ergnn.engine.features import SparseFeatures, features_of
from ergnn.engine.objective import FieldObjective
from ergnn.engine.slots import SlotRows
from ergnn.nn.backbones import BACKBONES
from graphs import random_graph, sparse_x
from nn.cases import assert_near, labeled, messy_graphs, model_of


@settings(max_examples=40)
@given(messy_graphs(), st.data())
def test_products_with_features_match_dense_products(graph: Graph, data: st.DataObject) -> None:
    nodes = torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), max_size=6)), dtype=torch.long)
    weight = torch.randn(1, graph.num_features, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    part = features_of(graph, nodes, torch.float64)
    assert isinstance(part, SparseFeatures) == graph.is_sparse
    found = part @ weight[0] if isinstance(part, Tensor) else part.project(weight, SlotRows(torch.zeros_like(nodes), 1))
    assert_near(found, graph.dense_x()[nodes] @ weight[0])


def mostly_zero(share: float) -> Graph:
    graph = random_graph(n=50, f=40, directed=True, dtype=torch.float64)
    keep = torch.rand(graph.x.shape, generator=torch.Generator().manual_seed(0)) < share
    return replace(graph, x=graph.x * keep)


def test_features_are_sparse_if_few_are_non_zero() -> None:
    nodes = torch.tensor([3, 1])
    assert isinstance(features_of(mostly_zero(0.05), nodes), SparseFeatures)
    assert isinstance(features_of(mostly_zero(0.2), nodes), Tensor)
    assert isinstance(features_of(sparse_x(mostly_zero(0.2)), nodes), SparseFeatures)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", BACKBONES.names())
def test_sparse_and_dense_features_give_the_same_results(
    name: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(name, 40, [3], dropout=0.5)
    results = []
    for below in (0.0, 1.0):
        monkeypatch.setattr("ergnn.data.graph.SPARSE_BELOW", below)
        examples = labeled(mostly_zero(0.05), [0, 3, 3, 8], [[0]] * 4, [3], seed=0)
        objective = FieldObjective([model], [examples])
        if objective.field.layers and name != "sgc":
            assert isinstance(objective.field.features, SparseFeatures if below else Tensor)
        keys = dropout_keys([0], 0, 1, objective.dropout_sites)[0] if training else None
        params = {key: value.requires_grad_() for key, value in objective.parameters().items()}
        logits = objective.logits(params, keys)
        grads = torch.autograd.grad(objective.losses(params, keys).sum(), list(params.values()))
        results.append([logits, *grads])
    for sparse, dense in zip(*results, strict=True):
        assert_near(sparse, dense)
