"""Kernels of the ridge selectors and of their ablation: S²X, and gradients in the first layer."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from ergnn.config.errors import InputError
from ergnn.data import Graph
from ergnn.engine.objective import make_objective
from ergnn.learning.learner import Learner
from ergnn.nn.backbones import Backbone
from ergnn.nn.backbones.convolutional import GIN
from ergnn.replay import SELECTORS, SelectionContext
from ergnn.replay.selectors.gradients import LinearizedRidge, first_layer_names
from ergnn.replay.selectors.ridge import SmoothedRidge, smoothed
from ergnn.testing import example_context, example_stream
from graphs import dense_powers, graphs


def dense_smoothed(graph: Graph, hops: int) -> Tensor:
    """``S^K X`` of the whole graph from dense matrices, rows of length 1."""
    return F.normalize(dense_powers(graph, hops), dim=1)


@given(graphs(), st.integers(0, 3), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_smoothed_features_equal_dense_matrix_powers(graph, hops, seed):
    nodes = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))[:7]
    expected = dense_smoothed(graph, hops)[nodes]
    assert torch.allclose(smoothed(graph, nodes, hops), expected, atol=1e-5)


def test_s2_ridges_kernel_is_the_inner_product_of_smoothed_features():
    context = example_context(sparse=True)
    g = dense_smoothed(context.graph, 2)
    nodes = torch.cat([context.nodes, context.task.val])
    kernel = SmoothedRidge().kernel(context, context.nodes, context.task.val)
    assert torch.allclose(kernel[0], g[context.nodes] @ g[nodes].T, atol=1e-5)


@pytest.mark.parametrize("validation", [True, False])
def test_mf_s2_takes_the_nodes_nearest_to_the_mean_of_train_and_val(validation: bool):
    context = example_context(per_class=3)
    if not validation:
        context = replace(context, task=replace(context.task, val=context.task.val[:0]))
    g, y = dense_smoothed(context.graph, 2), context.graph.y
    known = torch.cat([context.task.train, context.task.val])
    chosen = SELECTORS.create("mf-s2").select(context)
    assert y[chosen.nodes].tolist() == [c for c in context.task.classes for _ in range(3)]
    for part, scores, c in zip(chosen.nodes.view(-1, 3), chosen.scores.view(-1, 3), context.task.classes, strict=True):
        mean = g[[v for v in known.tolist() if y[v] == c]].mean(0)
        expected = sorted(float((g[v] - mean).norm()) for v in context.nodes.tolist() if y[v] == c)[:3]
        assert [float((g[v] - mean).norm()) for v in part.tolist()] == pytest.approx(expected, abs=1e-5)
        assert (-scores).tolist() == pytest.approx(expected, abs=1e-5)


# --- gradients -------------------------------------------------------------------------------------------

FIRST = {
    "gat": ["convs.0.lin.weight"],
    "gcn": ["convs.0.lin.weight"],
    "sage": ["convs.0.lin_l.weight", "convs.0.lin_r.weight"],
    "gin": ["convs.0.nn.0.weight"],
    "mlp": ["convs.0.weight"],
    "sgc": ["heads.{}.weight"],
}


class Plain(nn.Module):
    """Somebody else's model."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(12))
        self.inner, self.outer = nn.Linear(12, 5), nn.Linear(5, 8)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        summed = x.index_add(0, adj[1], x[adj[0]])
        return self.outer(torch.tanh(self.inner(self.scale * summed)))


class Doubled(GCNConv):
    """A layer without a form on fields."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return 2.0 * super().forward(x, edge_index)


class Other(Backbone):
    def __init__(self) -> None:
        super().__init__(None, [Doubled(12, 6)], nn.Tanh(), 0.3, 6)

    def make_head(self, out_channels: int) -> nn.Module:
        return Doubled(6, out_channels)


MODELS: dict[str, tuple[str | nn.Module, list[str]]] = {
    **{name: (name, first) for name, first in FIRST.items()},
    "plain": (Plain(), ["module.inner.weight"]),
    "other": (Other(), ["convs.0.lin.weight"]),
}


def learned(
    backbone: str | nn.Module, head: str, classes: int, options: dict[str, Any] | None = None
) -> SelectionContext:
    """What a selector sees after two tasks, in double precision."""
    learner = Learner(backbone, "finetune", head=head, epochs=3, seed=1, backbone_options=options)
    for task in example_stream(sparse=True, classes_per_task=classes)[:2]:
        learner.observe(task)
    context = learner.selection_context(task, learner.method.examples(learner, task), 1, False)
    context.model.double()
    return context


def outputs(context: SelectionContext) -> Tensor:
    """The scores of every node that compete in training, ``[nodes, outputs]``, by the model's own forward."""
    model, graph = context.model.eval(), context.graph
    x, adj, kind = graph.dense_x().double(), graph.edge_index, context.heads.kind
    heads = range(2) if kind == "growing" else [0 if kind == "shared" else 1]
    if isinstance(model, Backbone):
        return torch.cat([model(x, adj, head) for head in heads], dim=1)
    width = len(context.task.classes)
    return torch.cat([model(x, adj)[:, head * width : (head + 1) * width] for head in heads], dim=1)


def explicit(context: SelectionContext, names: list[str], values: Tensor) -> Tensor:
    """Gradients of each value in the named parameters, one by one."""
    kind = context.heads.kind
    heads = range(2) if kind == "growing" else [0 if kind == "shared" else 1]
    every = dict.fromkeys(name.format(head) for name in names for head in heads)
    weights = [context.model.get_parameter(name) for name in every]
    rows = []
    for value in values:
        found = torch.autograd.grad(value, weights, retain_graph=True)
        rows.append(torch.cat([part.flatten() for part in found]))
    return torch.stack(rows)


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() <= 1e-5 * b.abs().max())


HEADS = [("shared", 2), ("growing", 2), ("per-task", 3), ("per-task", 2)]
CROSSED = [(model, *HEADS[(i + j) % 4]) for i, model in enumerate(MODELS) for j in range(1 if i else 4)]
"""The first model with every head, each other model with one."""


@pytest.mark.parametrize(("model", "head", "classes"), CROSSED)
def test_la_ridges_kernel_is_that_of_explicit_gradients(model: str, head: str, classes: int):
    backbone, names = MODELS[model]
    context = learned(backbone, head, classes)
    nodes = torch.cat([context.nodes, context.task.val])
    z = outputs(context)[nodes][:, -classes:]
    if classes == 2:
        margins = [z[:, 1] - z[:, 0]]
    else:
        p = torch.softmax(z, dim=1)
        margins = [torch.log(p[:, c] / (1 - p[:, c])) for c in range(classes)]
    kernel = LinearizedRidge().kernel(context, context.nodes, context.task.val)
    assert kernel.size(0) == len(margins)
    for found, margin in zip(kernel, margins, strict=True):
        g = explicit(context, names, margin)
        assert float(g.abs().max()) > 0
        assert close(found, g[: context.nodes.numel()] @ g.T)


def test_a_kernel_made_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch):
    context = learned("mlp", "shared", 2, {"hidden": 30, "layers": 1})
    whole = LinearizedRidge().kernel(context, context.nodes, context.task.val)
    monkeypatch.setattr("ergnn.replay.selectors.gradients.BLOCK_BYTES", 5 * 12 * 30 * 8)  # of 5 of 12 candidates
    blocks = LinearizedRidge().kernel(context, context.nodes, context.task.val)
    assert close(blocks, whole)


@pytest.mark.parametrize(("model", "head", "classes"), CROSSED)
@pytest.mark.parametrize("target", ["val", "train"])
def test_rim_is_the_cosine_of_explicit_gradients(model: str, head: str, classes: int, target: str):
    backbone, names = MODELS[model]
    context = learned(backbone, head, classes)
    z, task = outputs(context), context.task
    offset = classes if head == "growing" else 0
    losses: Callable[[Tensor], Tensor] = lambda nodes: F.cross_entropy(  # noqa: E731
        z[nodes], task.targets(nodes) + offset, reduction="none"
    )
    goal = explicit(context, names, losses(getattr(task, target))).sum(0)
    own = explicit(context, names, losses(task.train))
    expected = (own @ goal) / (own.norm(dim=1) * goal.norm())
    assert torch.allclose(SELECTORS.create("rim", target=target).score(context), expected, atol=1e-5)


def test_the_first_matrix_is_used_if_all_have_the_same_shape():
    model = GIN(16, 2)
    graph = example_context().graph
    graph = replace(graph, x=F.pad(graph.x, (0, 4)))
    context = example_context()
    objective = make_objective(
        [model], [replace(context.examples("train"), graph=graph, heads=torch.zeros(12, 1).long())]
    )
    assert first_layer_names(model, objective) == ["convs.0.nn.0.weight"]


def test_a_module_without_a_matrix_is_rejected():
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(12))

        def forward(self, x: Tensor, adj: Tensor) -> Tensor:
            return (self.scale * x)[:, :2]

    with pytest.raises(InputError, match="has no weight matrix"):
        SELECTORS.create("la-ridge").select(learned(Flat(), "shared", 2))


def test_a_loss_without_a_gradient_scores_zero():
    context = example_context(classes_per_task=1)
    assert SELECTORS.create("rim").score(context).tolist() == [0.0] * 6, "one output is always right"
