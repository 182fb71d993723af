"""On Cora, with backbones of full size, the engine gives the same results as plain PyG."""

import copy

import pytest
import torch

from ergnn.data import make_stream
from ergnn.engine.objective import FieldObjective, make_objective
from ergnn.engine.outputs import embed
from ergnn.nn.backbones import BACKBONES
from ergnn.nn.examples import Examples
from nn.cases import assert_near, reference_gradient, reference_logits


@pytest.fixture(scope="module")
def examples() -> Examples:
    """Return ten training nodes per task, scored by the head of the task."""
    parts = []
    for task in make_stream("cora", split="seeded").stream:
        nodes = task.train[:10]
        hit = task.graph.y[nodes].unsqueeze(1) == torch.tensor(task.classes)
        heads = torch.full((nodes.numel(), 1), task.id)
        parts.append(Examples(task.graph, nodes, heads, hit.int().argmax(1), torch.full((nodes.numel(),), 0.1)))
    return Examples.join(parts)


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [*((name, torch.float64, 1e-9) for name in ("gat", "gcn", "sage", "gin", "sgc")), ("gat", torch.float32, 1e-5)],
)
def test_losses_and_gradients_on_cora_equal_pyg(
    name: str, dtype: torch.dtype, tolerance: float, examples: Examples
) -> None:
    graph = examples.graph
    torch.manual_seed(0)
    model = BACKBONES.create(name, in_channels=graph.num_features)
    for _ in range(int(examples.heads.max()) + 1):
        model.add_head(2)
    model = model.to(dtype)
    expected, gradient = reference_logits(model, examples).detach(), reference_gradient(model, examples)
    mine = copy.deepcopy(model)
    objective = make_objective([mine], [examples])
    assert isinstance(objective, FieldObjective)
    params = {key: value.requires_grad_() for key, value in objective.parameters().items()}
    losses = objective.losses(params)
    assert_near(losses, torch.nn.functional.cross_entropy(expected, examples.targets, reduction="none"), tolerance)
    grads = torch.autograd.grad((objective.weights * losses).sum(), list(params.values()))
    objective.write_back(dict(zip(params, grads, strict=True)))
    for key, value in mine.named_parameters():
        assert_near(value, gradient[key], tolerance)
    nodes = examples.nodes[:20]
    embedding = model.eval().embed(graph.dense_x().to(dtype), graph.edge_index)[nodes]
    assert_near(embed(model, graph, nodes), embedding, tolerance)
