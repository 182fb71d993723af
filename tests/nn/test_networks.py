"""Networks with more layers, normalization and residual connections, against plain PyG and torch modules."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from ergnn.config.errors import InputError
from ergnn.data import Graph
from ergnn.engine import adjacency, outputs
from ergnn.engine.curvature import gauss_newton_product, gradient
from ergnn.engine.dropout import dropout_keys
from ergnn.engine.objective import FieldObjective, make_objective
from ergnn.engine.outputs import logits_of
from ergnn.engine.sampling import Sampling
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.examples import Examples
from graphs import random_graph
from nn.cases import assert_near, labeled, randomize, reference_gradient, reference_logits

NETWORKS = ["gat", "gcn", "gin", "sage"]
VARIANTS: list[dict[str, Any]] = [
    {"norm": "layer", "residual": True, "layers": 3},
    {"norm": "layer", "layers": 2},
    {"residual": True, "layers": 2, "output": "conv"},
    {"norm": "layer", "output": "conv"},
    {"layers": 3, "output": "linear"},
]
WIDTHS = [3, 2]


def network(name: str, seed: int = 0, dtype: torch.dtype = torch.float64, **options: Any) -> Backbone:
    torch.manual_seed(seed)
    model = BACKBONES.create(name, in_channels=8, **{"hidden": 4, "dropout": 0.0, **options})
    for width in WIDTHS:
        model.add_head(width)
    randomize(model)
    return model.to(dtype)


def some_examples(graph: Graph, seed: int = 2) -> Examples:
    return labeled(graph, [3, 17, 5, 3, 29], [[0, 1], [1, 0], [0, 0], [1, 1], [0, 1]], WIDTHS, seed)


def test_the_network_of_luo_et_al() -> None:
    """Three layers, layer norm and residual: ``dropout(relu(norm(conv(x) + linear(x))))``, and a linear layer."""
    graph = random_graph(directed=True, self_loops=True, isolated=2, dtype=torch.float64)
    convs: dict[str, Any] = {"gat": lambda a, b: GATConv(a, b, heads=1), "gcn": GCNConv, "sage": SAGEConv}
    for name, conv in convs.items():
        options = {"layers": 3, "norm": "layer", "residual": True, "hidden": 6, "dropout": 0.4}
        model = BACKBONES.create(
            name, in_channels=8, out_channels=3, **options, **({"heads": 1} if name == "gat" else {})
        )
        layers = [nn.ModuleList([conv(a, 6), nn.Linear(a, 6), nn.LayerNorm(6)]).double() for a in (8, 6, 6)]
        last = nn.Linear(6, 3).double()
        randomize(model)
        model.double()
        for made, plain in zip(model.convs, layers, strict=True):
            for mine, theirs in zip((made.conv, made.residual, made.norm), plain, strict=True):
                theirs.load_state_dict(mine.state_dict())
        last.load_state_dict(model.heads[0].state_dict())
        for training in (False, True):
            model.train(training)
            torch.manual_seed(1)
            h = graph.x
            for layer, residual, norm in layers:
                layer.train(training)
                h = F.dropout(F.relu(norm(layer(h, graph.edge_index) + residual(h))), 0.4, training)
            torch.manual_seed(1)
            assert_near(model(graph.x, graph.edge_index), last(h))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_scores_and_gradients_equal_those_on_the_whole_graph(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On receptive fields, with a fan-out of all neighbors, and on the lists of a large graph."""
    model, sparse = network(name, **options), options.get("layers") == 2
    graph = random_graph(directed=True, self_loops=True, isolated=2, dtype=torch.float64, sparse=sparse)
    examples = some_examples(graph)
    wanted, slopes = reference_logits(model, examples), reference_gradient(model, examples)
    fields = [make_objective([model], [examples]), make_objective([model], [examples], sampling=all_neighbors(model))]
    monkeypatch.setattr(adjacency, "LINKED_FROM", 1)
    fields.append(make_objective([model], [examples]))
    assert [objective.linked for objective in fields] == [False, False, model.num_hops > 0]
    monkeypatch.setattr(outputs, "FIELD_EDGES", -1)
    assert_near(logits_of(model, graph, examples.nodes, examples.heads), wanted.detach())
    for objective in fields:
        params = {key: value.requires_grad_() for key, value in objective.parameters().items()}
        assert_near(objective.logits(params), wanted)
        objective.model_losses(params).sum().backward()
        grads = objective.by_name({key: value.grad for key, value in params.items()})
        for key, grad in grads.items():
            assert_near(grad, slopes[key])


def all_neighbors(model: Backbone) -> Sampling:
    return Sampling((-1,) * model.num_hops)


@pytest.mark.parametrize("name", NETWORKS)
def test_several_models_in_slots_give_the_bits_of_each_alone(name: str) -> None:
    """With dropout, on one graph and on two."""
    options = {**VARIANTS[0], "hidden": 8, "dropout": 0.5, "dtype": torch.float32}
    graph, other = random_graph(seed=0), random_graph(seed=1)
    models = [network(name, seed=seed, **options) for seed in range(3)]
    examples = [some_examples(graph, 0), some_examples(graph, 1), some_examples(other, 2)]
    together = FieldObjective(models, examples, [0, 1])
    keys = dropout_keys([4, 5, 6], 0, 1, together.dropout_sites)[0]
    params = {key: value.requires_grad_() for key, value in together.parameters().items()}
    logits = together.logits(params, keys)
    together.model_losses(params, keys).sum().backward()
    for i, part in enumerate(logits.split(5)):
        alone = FieldObjective([models[i]], [examples[i]], [0, 1])
        own = {key: value.requires_grad_() for key, value in alone.parameters().items()}
        assert torch.equal(alone.logits(own, keys[:, i : i + 1]), part)
        alone.model_losses(own, keys[:, i : i + 1]).sum().backward()
        for key, value in own.items():
            size = value.size(0)
            assert torch.equal(params[key].grad[i * size : (i + 1) * size], value.grad), key


def test_curvature_products_pass_through_normalization_and_residuals() -> None:
    """Against a dense Jacobian of the same losses."""
    graph = random_graph(dtype=torch.float64)
    model = network("gcn", **VARIANTS[0])
    objective = make_objective([model], [some_examples(graph)])
    params = objective.parameters()
    sizes = [value.numel() for value in params.values()]
    start = torch.cat([value.flatten() for value in params.values()])

    def unpacked(vector: Tensor) -> dict[str, Tensor]:
        return {k: part.view_as(v) for (k, v), part in zip(params.items(), vector.split(sizes), strict=True)}

    weights = objective.weights.double()
    jacobian = torch.autograd.functional.jacobian(lambda v: objective.logits(unpacked(v)), start)
    p = objective.logits(params).softmax(1)
    inner = (torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)) * weights.view(-1, 1, 1)
    dense = torch.einsum("noi,nop,npj->ij", jacobian, inner, jacobian)
    vector = torch.randn(start.numel(), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_near(gauss_newton_product(objective, params)(vector), dense @ vector, 1e-8)
    slope = torch.autograd.functional.jacobian(lambda v: (weights * objective.losses(unpacked(v))).sum(), start)
    assert_near(gradient(objective, params, weights), slope)


def test_wrong_options_are_named() -> None:
    with pytest.raises(InputError, match="unknown norm 'instance'"):
        BACKBONES.create("gcn", in_channels=8, norm="instance")
    with pytest.raises(InputError, match="layers is 0; it must be 1 or more"):
        BACKBONES.create("gat", in_channels=8, layers=0)
