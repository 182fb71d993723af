import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv
from torch_geometric.nn.models import GCN as PyGGCN

from ergnn.config.errors import InputError
from ergnn.engine.dropout import dropout_keys
from ergnn.engine.losses import PlainModel
from ergnn.engine.objective import FieldObjective, Objective, PlainObjective, can_be_stacked, make_objective
from ergnn.engine.outputs import embed
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import Propagate
from graphs import random_graph
from nn.cases import assert_near, examples_of, labeled, messy_graphs, model_of, reference_gradient, reference_logits

NAMES = BACKBONES.names()
WIDTHS = [2, 4, 3]


def gradient_in(model: nn.Module, objective: Objective) -> dict[str, Tensor]:
    """Return the gradient by the model's parameter names, with 0 for unused parameters."""
    params = {name: value.requires_grad_() for name, value in objective.parameters().items()}
    total = (objective.weights * objective.losses(params)).sum()
    grads = torch.autograd.grad(total, list(params.values()), allow_unused=True)
    for value in model.parameters():
        value.detach().zero_()
    objective.write_back(
        {
            name: torch.zeros_like(value) if g is None else g
            for (name, value), g in zip(params.items(), grads, strict=True)
        }
    )
    return dict(model.named_parameters())


def assert_equals_reference(kind: type[Objective], model: Backbone, examples: Examples, tolerance: float) -> None:
    expected, gradient = reference_logits(model, examples).detach(), reference_gradient(model, examples)
    mine = copy.deepcopy(model)
    objective = FieldObjective([mine], [examples]) if kind is FieldObjective else PlainObjective(mine, examples)
    params = objective.parameters()
    there = expected > -1e8
    logits = objective.logits(params)
    assert torch.equal(logits > -1e8, there)
    assert_near(logits[there], expected[there], tolerance)
    losses = F.cross_entropy(expected, examples.targets, reduction="none")
    assert_near(objective.losses(params), losses, tolerance)
    actual = gradient_in(mine, objective)
    assert actual.keys() == gradient.keys()
    for name, value in gradient.items():
        assert_near(actual[name].detach(), value, tolerance)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_scores_losses_and_gradients_equal_pyg_on_the_whole_graph(name: str, data: st.DataObject) -> None:
    graph = data.draw(messy_graphs())
    widths = data.draw(st.sampled_from([[3], [3, 3], WIDTHS]))
    examples = data.draw(examples_of(graph, widths, heads_each=data.draw(st.integers(1, 3))))
    model = model_of(name, graph.num_features, widths, seed=data.draw(st.integers(0, 99)))
    assert model.runs_on_fields
    assert_equals_reference(FieldObjective, model, examples, 1e-9)
    assert_equals_reference(PlainObjective, model, examples, 1e-9)


@pytest.mark.parametrize("name", ["gat", "mlp", "sgc"])
def test_integer_features_give_the_same_results_as_in_pyg(name: str) -> None:
    graph = random_graph(sparse=True)
    counts = replace(graph, x=graph.dense_x().round().long())
    examples = labeled(counts, [0, 7, 7], [[0], [1], [0]], [2, 3], seed=0)
    model = model_of(name, 8, [2, 3], dropout=0.0 if name == "sgc" else 0.5)
    assert_equals_reference(FieldObjective, model, examples, 1e-9)
    objective = FieldObjective([model], [examples])
    keys = dropout_keys([0], 0, 1, objective.dropout_sites)[0]
    other = FieldObjective([model], [replace(examples, graph=replace(counts, x=counts.x.double()))])
    assert torch.equal(objective.logits(objective.parameters(), keys), other.logits(other.parameters(), keys))


def trio(name: str, dropout: float, sparse: str = "some") -> tuple[list[Backbone], list[Examples]]:
    """Return three models with different examples: two on one graph, and one on a graph with sparse features."""
    first = random_graph(seed=1, directed=True, dtype=torch.float64, sparse=sparse == "all")
    graphs = [first, first, random_graph(seed=2, dtype=torch.float64, sparse=sparse != "none")]
    nodes = [[0, 4, 4, 19], [7, 30], [2, 3, 5, 7, 11, 13]]
    models = [model_of(name, 8, WIDTHS, seed=s, dropout=dropout) for s in range(3)]
    heads = [[[0, 2]] * (len(part) - 1) + [[2, 0]] for part in nodes]
    examples = [labeled(g, n, h, WIDTHS, seed=9) for g, n, h in zip(graphs, nodes, heads, strict=True)]
    return models, examples


@pytest.mark.parametrize(
    ("name", "dropout", "sparse"),
    [
        ("gat", 0.5, "none"),
        ("gat", 0.5, "all"),
        ("gat", 0.5, "some"),
        ("gcn", 0.0, "some"),
        ("gin", 0.5, "some"),
        ("sage", 0.5, "all"),
        ("sgc", 0.0, "none"),
        ("mlp", 0.5, "some"),
    ],
)
def test_stacked_models_equal_single_models(name: str, dropout: float, sparse: str) -> None:
    models, examples = trio(name, dropout, sparse)
    together = make_objective(models, examples)
    keys = dropout_keys([5, 6, 7], 3, 1, together.dropout_sites)[0] if dropout else None
    params = {name: value.requires_grad_() for name, value in together.parameters().items()}
    logits = together.logits(params, keys)
    grads = torch.autograd.grad((together.weights * together.losses(params, keys)).sum(), list(params.values()))
    start = 0
    for i, (model, part) in enumerate(zip(models, examples, strict=True)):
        alone = make_objective([model], [part])
        own = {name: value.requires_grad_() for name, value in alone.parameters().items()}
        own_keys = None if keys is None else keys[:, i : i + 1]
        expected = alone.logits(own, own_keys)
        there = expected > -1e8
        assert_near(logits[start : start + len(part)][there], expected[there])
        start += len(part)
        own_grads = torch.autograd.grad((part.weights * alone.losses(own, own_keys)).sum(), list(own.values()))
        for key, whole, mine in zip(params, grads, own_grads, strict=True):
            each = mine.size(0)  # 1, or the heads in use
            assert_near(whole[i * each : (i + 1) * each], mine)
            assert torch.equal(params[key][i * each : (i + 1) * each], own[key])
    assert start == logits.size(0)


@pytest.mark.parametrize("name", ["gat", "sage"])
def test_dropout_on_fields_has_the_mean_and_variance_of_pyg(name: str) -> None:
    draws = 600
    graph = random_graph(n=12, f=5, classes=2, p_edge=0.3, seed=4, dtype=torch.float64)
    examples = labeled(graph, [0, 1, 2], [[0]] * 3, [3], seed=0)
    model = model_of(name, 5, [3], dropout=0.4)
    samples = []
    for objective in (FieldObjective([model], [examples]), PlainObjective(model, examples)):
        params = objective.parameters()
        keys = dropout_keys([1], 0, draws, objective.dropout_sites)
        samples.append(torch.stack([objective.logits(params, key).flatten() for key in keys]).detach())
    field, plain = samples
    error = ((field.var(0) + plain.var(0)) / draws).sqrt()
    assert float(((field.mean(0) - plain.mean(0)) / error).abs().max()) < 4.5
    square = [(sample - sample.mean(0)) ** 2 for sample in samples]
    error = ((square[0].var(0) + square[1].var(0)) / draws).sqrt()
    assert float(((square[0].mean(0) - square[1].mean(0)) / error).abs().max()) < 4.5
    assert float(plain.std(0).min()) > 0.01


@pytest.mark.parametrize("plain", [False, True])
def test_only_equal_keys_drop_the_same_entries(plain: bool) -> None:
    graph = random_graph()
    model = model_of("gat", 8, [3], dropout=0.6, dtype=torch.float32)
    examples = labeled(graph, list(range(10)), [[0]] * 10, [3], seed=0)
    objective: Objective = PlainObjective(model, examples) if plain else FieldObjective([model], [examples])
    first, second = dropout_keys([0], 0, 2, objective.dropout_sites)
    params = objective.parameters()
    state = torch.get_rng_state()
    assert torch.equal(objective.logits(params, first), objective.logits(params, first))
    assert torch.equal(torch.get_rng_state(), state)  # the global generator is unchanged
    assert not torch.equal(objective.logits(params, first), objective.logits(params, second))
    assert not torch.equal(objective.logits(params, first), objective.logits(params))


@pytest.mark.parametrize("name", ["gat", "gin"])
def test_write_back_changes_only_the_heads_in_use(name: str) -> None:
    graph = random_graph()
    models = [model_of(name, 8, WIDTHS, seed=s) for s in range(2)]
    before = [copy.deepcopy(model.state_dict()) for model in models]
    examples = labeled(graph, [0, 5], [[0], [2]], WIDTHS, seed=0)
    objective = FieldObjective(models, [examples, examples])
    assert objective.heads == [0, 2]
    objective.write_back(objective.parameters())
    for model, old in zip(models, before, strict=True):
        assert all(torch.equal(value, old[key]) for key, value in model.state_dict().items())
    objective.write_back({key: value + 1 for key, value in objective.parameters().items()})
    for model, old in zip(models, before, strict=True):
        for key, value in model.named_parameters():
            assert torch.equal(value, old[key] if key.startswith("heads.1.") else old[key] + 1)


def test_objectives_with_the_same_heads_have_the_same_parameters() -> None:
    graph = random_graph(dtype=torch.float64)
    model = model_of("gat", 8, WIDTHS)
    both = labeled(graph, [0, 5], [[0], [1]], WIDTHS, seed=0)
    one = labeled(graph, [3, 9], [[0], [0]], WIDTHS, seed=1)
    narrow, wide = make_objective([model], [one]), make_objective([model], [one], heads=[0, 1])
    params = make_objective([model], [both]).parameters()
    assert {key: value.shape for key, value in wide.parameters().items()} == {k: v.shape for k, v in params.items()}
    assert_near(wide.losses(params), narrow.losses(narrow.parameters()))


def test_a_head_that_is_not_in_use_is_refused() -> None:
    model = model_of("gcn", 8, WIDTHS)
    graph = random_graph()
    for heads in ([0], [2], [0, 2]):
        with pytest.raises(InputError, match="scored by head 1"):
            make_objective([model], [labeled(graph, [0, 5], [[1], [1]], WIDTHS, seed=0)], heads=heads)
    parts = [labeled(graph, [0], [[head]], WIDTHS, seed=0) for head in (0, 1)]
    with pytest.raises(InputError, match="scored by head 1"):
        make_objective([model, model_of("gcn", 8, WIDTHS)], parts)


@pytest.mark.parametrize("widths", [[3], [3, 2]])
def test_no_examples_give_no_scores(widths: list[int]) -> None:
    empty = torch.empty(0, dtype=torch.long)
    examples = Examples(random_graph(), empty, torch.empty(0, 1, dtype=torch.long), empty, torch.empty(0))
    model = model_of("gat", 8, widths, dtype=torch.float32)
    objective = make_objective([model], [examples], heads=list(range(len(widths))))
    assert objective.logits(objective.parameters()).shape == (0, 3)


def test_models_of_different_shapes_cannot_be_stacked() -> None:
    gcn = model_of("gcn", 8, [3])
    assert can_be_stacked([gcn, model_of("gcn", 8, [3], seed=1)])
    others = [
        model_of("gat", 8, [3]),
        model_of("gcn", 8, [2]),
        model_of("gcn", 8, [3, 3]),
        model_of("gcn", 9, [3]),
        model_of("gcn", 8, [3], dropout=0.5),
        model_of("gcn", 8, [3], dtype=torch.float32),
    ]
    examples = labeled(random_graph(), [0], [[0]], [3], seed=0)
    for other in others:
        assert not can_be_stacked([gcn, other])
        with pytest.raises(InputError, match="side by side"):
            make_objective([gcn, other], [examples, examples])


class Transformer(Backbone):
    """A backbone whose layer has no form in ergnn."""

    def __init__(self, in_channels: int, out_channels: int | None = None) -> None:
        super().__init__(out_channels, [TransformerConv(in_channels, 4)], F.relu, 0.3, 4)

    def make_head(self, out_channels: int) -> nn.Module:
        return TransformerConv(4, out_channels)


class Doubled(type(model_of("gcn", 2, [2]))):  # type: ignore[misc]
    """A backbone with GCN's layers, but a different function."""

    def embed(self, x: Tensor, adj: Tensor) -> Tensor:
        return 2 * super().embed(x, adj)


class Custom(Backbone):
    """A backbone with given layers and activation, and linear heads."""

    def __init__(self, convs: list[nn.Module], activation: nn.Module, size: int) -> None:
        super().__init__(None, convs, activation, 0.0, size)

    def make_head(self, out_channels: int) -> nn.Module:
        return nn.Linear(self.embedding_size, out_channels)


class ManyHeads(type(model_of("gat", 2, [2]))):  # type: ignore[misc]
    """A backbone whose output layers average several attention heads."""

    def make_head(self, out_channels: int) -> nn.Module:
        head = super().make_head(out_channels)
        return type(head)(self.embedding_size, out_channels, heads=3, concat=False)


FALLBACKS = {
    "an unknown layer": lambda: Transformer(8),
    "another embed": lambda: Doubled(8),
    "an activation that is learned": lambda: Custom([nn.Linear(8, 4)], nn.PReLU(), 4),
    "an activation after propagation": lambda: Custom([Propagate(1), nn.Linear(8, 4)], nn.ReLU(), 4),
    "propagation after a layer": lambda: Custom([nn.Linear(8, 4), Propagate(1)], nn.Identity(), 4),
    "attention heads of unequal width": lambda: ManyHeads(8, hidden=2, heads=2),
}


@pytest.mark.parametrize("kind", FALLBACKS)
def test_a_backbone_whose_layers_have_no_form_runs_on_the_whole_graph(kind: str) -> None:
    graph = random_graph(dtype=torch.float64)
    torch.manual_seed(0)
    model = FALLBACKS[kind]()
    for width in WIDTHS:
        model.add_head(width)
    model = model.double()
    examples = labeled(graph, [0, 3, 3], [[0, 1], [1, 2], [2, 0]], WIDTHS, seed=0)
    assert not model.runs_on_fields
    assert isinstance(make_objective([model], [examples]), PlainObjective)
    with pytest.raises(InputError, match="side by side"):
        make_objective([model, model], [examples, examples])
    assert_equals_reference(PlainObjective, model, examples, 1e-9)
    expected = model.eval().embed(graph.x, graph.edge_index)[examples.nodes]
    assert_near(embed(model.train(), graph, examples.nodes), expected.detach())


@pytest.mark.parametrize("kind", ["several attention heads", "propagation, then layers"])
def test_unusual_backbones_on_fields_equal_pyg(kind: str) -> None:
    graph = random_graph(dtype=torch.float64, directed=True)
    torch.manual_seed(0)
    if kind == "several attention heads":
        model: Backbone = ManyHeads(8, hidden=2, heads=2, dropout=0.0)
    else:
        model = Custom([Propagate(1), Propagate(2), nn.Linear(8, 4)], nn.Identity(), 4)
    for width in [3, 3]:
        model.add_head(width)
    model = model.double()
    assert model.runs_on_fields
    assert_equals_reference(
        FieldObjective, model, labeled(graph, [0, 3, 3], [[0, 1], [1, 1], [1, 0]], [3, 3], seed=0), 1e-9
    )


def third_party(outputs: int, heads: int, width: int = 3) -> PlainModel:
    torch.manual_seed(0)
    model = PlainModel(PyGGCN(8, 5, num_layers=2, out_channels=outputs))
    for _ in range(heads):
        model.add_head(width)
    return model.double()


def test_outputs_of_a_third_party_model_are_divided_into_heads() -> None:
    graph = random_graph(dtype=torch.float64)
    model = third_party(outputs=9, heads=3)
    out = model.module(graph.x, graph.edge_index)
    examples = labeled(graph, [4, 4, 9], [[0, 2], [2, 1], [1, 1]], [3, 3, 3], seed=0)
    expected = torch.stack([torch.cat([out[n, 3 * h : 3 * h + 3] for h in row]) for n, row in [
        (4, (0, 2)), (4, (2, 1)), (9, (1, 1)),
    ]])  # fmt: skip
    objective = make_objective([model], [examples])
    assert isinstance(objective, PlainObjective)
    assert_near(objective.logits(objective.parameters()), expected)
    losses = F.cross_entropy(expected, examples.targets, reduction="none")
    assert_near(objective.losses(objective.parameters()), losses)
    expected_gradient = torch.autograd.grad((examples.weights * losses).sum(), list(model.parameters()))
    actual = gradient_in(model, objective)
    for mine, theirs in zip(actual.values(), expected_gradient, strict=True):
        assert_near(mine.detach(), theirs)


def test_a_third_party_model_with_too_few_outputs_is_refused() -> None:
    model = third_party(outputs=5, heads=2)
    examples = labeled(random_graph(dtype=torch.float64), [0], [[1]], [3, 3], seed=0)
    objective = make_objective([model], [examples])
    with pytest.raises(InputError, match=r"GCN has 5 outputs, but 6 are needed, one per class of each head \(3 \+ 3\)"):
        objective.logits(objective.parameters())


def test_heads_of_a_third_party_model_can_have_different_widths() -> None:
    graph = random_graph(dtype=torch.float64)
    model = third_party(outputs=9, heads=1, width=2)
    model.add_head(4)
    out = model.module(graph.x, graph.edge_index)
    examples = labeled(graph, [4, 9], [[0], [1]], [2, 4], seed=0)
    logits = make_objective([model], [examples]).logits(dict(model.named_parameters()))
    assert_near(logits[0, :2], out[4, :2])
    assert bool((logits[0, 2:] < -1e4).all())
    assert_near(logits[1], out[9, 2:6])


def test_embeddings_of_a_third_party_model_require_embed() -> None:
    graph = random_graph(dtype=torch.float64)
    for model in (third_party(6, 2), PyGGCN(8, 5, 2, 3)):
        with pytest.raises(InputError, match="GCN has no embed"):
            embed(model, graph, torch.tensor([0]))
    inner = Transformer(8, 3).double()
    nodes = torch.tensor([5, 2])
    expected = inner.eval().embed(graph.x, graph.edge_index)[nodes]
    assert_near(embed(PlainModel(inner), graph, nodes), expected.detach())
