"""Models, graphs and examples shared by the tests of ``ergnn.nn`` and ``ergnn.engine``."""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

from ergnn.data import Graph
from ergnn.engine.losses import Objective
from ergnn.engine.training import Training, train_in_phases
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import ATTENTION, MEAN, SUM, SYMMETRIC
from graphs import graphs

SMALL = {"gat": {"hidden": 3, "heads": 2}, "sage": {"hidden": 5}, "mlp": {"hidden": 5}, "sgc": {}}
PADDING = -1e9
AGGREGATIONS = {"attention": ATTENTION, "gcn": SYMMETRIC, "mean": MEAN, "sum": SUM, "none": None}


def model_of(
    name: str, features: int, widths: list[int], seed: int = 0, dropout: float = 0.0, dtype: torch.dtype = torch.float64
) -> Backbone:
    """Return a small backbone with heads of these widths; all parameters, including biases, are random."""
    options = SMALL.get(name, {"hidden": 4}) | ({} if name == "sgc" else {"dropout": dropout})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BACKBONES.create(name, in_channels=features, **options)
        for width in widths:
            model.add_head(width)
        randomize(model)
    return model.to(dtype)


def randomize(model: nn.Module) -> None:
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(0.0, 0.5)


@st.composite
def messy_graphs(draw: st.DrawFn) -> Graph:
    """Generate graphs with isolated nodes, self-loops, directed edges and duplicate edges and self-loops."""
    graph = draw(graphs(max_classes=3))
    extra = [torch.tensor(draw(st.lists(st.integers(0, graph.num_nodes - 1), max_size=3)), dtype=torch.long)] * 2
    edges = [graph.edge_index, torch.stack(extra)]
    if graph.num_edges:
        again = draw(st.lists(st.integers(0, graph.num_edges - 1), max_size=8))
        edges.append(graph.edge_index[:, torch.tensor(again, dtype=torch.long)])
    edge_index = torch.cat(edges, dim=1)
    order = torch.randperm(edge_index.size(1), generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    return replace(graph, x=graph.x.to(torch.float64), edge_index=edge_index[:, order], public_split=None)


@st.composite
def examples_of(draw: st.DrawFn, graph: Graph, widths: list[int], heads_each: int) -> Examples:
    """Return nodes (some twice), each scored by ``heads_each`` heads, with a target among their outputs."""
    nodes = draw(st.lists(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=7))
    nodes.append(nodes[0])
    heads = [[draw(st.integers(0, len(widths) - 1)) for _ in range(heads_each)] for _ in nodes]
    return labeled(graph, nodes, heads, widths, draw(st.integers(0, 2**16)))


def labeled(graph: Graph, nodes: list[int], heads: list[list[int]], widths: list[int], seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    width = max(widths[head] for row in heads for head in row)
    targets = []
    for row in heads:
        place = int(torch.randint(len(row), (), generator=generator))
        targets.append(place * width + int(torch.randint(widths[row[place]], (), generator=generator)))
    weights = torch.rand(len(nodes), generator=generator, dtype=torch.float64) + 0.1
    return Examples(graph, torch.tensor(nodes), torch.tensor(heads), torch.tensor(targets), weights)


def reference_logits(model: Backbone, examples: Examples) -> Tensor:
    """Compute logits with PyG layers on the whole graph, example by example."""
    x = examples.graph.dense_x().to(next(model.parameters()).dtype)
    model.eval()
    scores = [model(x, examples.graph.edge_index, head) for head in range(len(model.heads))]
    width = max(scores[head].size(1) for head in examples.heads.flatten().tolist())
    rows = []
    for node, heads in zip(examples.nodes.tolist(), examples.heads.tolist(), strict=True):
        parts = [F.pad(scores[h][node], (0, width - scores[h].size(1)), value=PADDING) for h in heads]
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def reference_gradient(model: Backbone, examples: Examples) -> dict[str, Tensor]:
    """Compute the gradient of the weighted loss in every parameter; 0 for unused heads."""
    losses = F.cross_entropy(reference_logits(model, examples), examples.targets, reduction="none")
    values = dict(model.named_parameters())
    total = (examples.weights.to(losses.dtype) * losses).sum()
    grads = torch.autograd.grad(total, list(values.values()), allow_unused=True)
    return {
        name: torch.zeros_like(value) if grad is None else grad
        for (name, value), grad in zip(values.items(), grads, strict=True)
    }


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    """Check equality up to an error relative to the norm, or to 1e-2 if the norm is smaller."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    off = float((actual - expected).detach().norm())
    assert off <= tolerance * max(float(expected.detach().norm()), 1e-2), (off, float(expected.detach().norm()))


def train(
    objective: Objective, training: Training, seeds: list[int], task: int, *on_epoch: Any, **options: Any
) -> None:
    """Run the training of one objective to its end."""
    for _ in train_in_phases([objective], training, seeds, task, *on_epoch, **options):
        pass
