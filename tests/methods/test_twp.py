"""TWP: attention and its importance by dense matrices, the norm of the gradient by double backward, and its limits."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from ergnn.config.errors import InputError
from ergnn.data import Task
from ergnn.learning.learner import Learner
from ergnn.methods.importance import TWP
from ergnn.nn.backbones import Backbone
from ergnn.testing import example_stream
from methods.plain_loop import assert_equal_bits, learned, make_tasks

WEIGHT = {"gcn": "lin.weight", "sage": "lin_l.weight", "gin": "nn.0.weight"}


def dense_attention(name: str, layer: nn.Module, h: Tensor, linked: Tensor) -> Tensor:
    """``[target, source, heads]``: softmax over the sources of each target."""
    if isinstance(layer, GATConv):
        z = layer.lin(h).view(h.size(0), layer.heads, -1)
        to, of = (z * layer.att_dst).sum(-1), (z * layer.att_src).sum(-1)
        scores = F.leaky_relu(to.unsqueeze(1) + of.unsqueeze(0), 0.2)
    else:
        z = h @ layer.get_parameter(WEIGHT[name]).T
        scores = F.leaky_relu(torch.tanh(z) @ z.T, 0.2).unsqueeze(-1)
    return scores.masked_fill(~linked.unsqueeze(-1), -torch.inf).softmax(1)


def dense_topology(name: str, model: Backbone, task: Task) -> Tensor:
    n = task.graph.num_nodes
    linked = torch.eye(n, dtype=torch.bool)
    linked[task.graph.edge_index[1], task.graph.edge_index[0]] = True
    h, total = task.graph.dense_x(), torch.zeros(())
    for layer in model.convs:
        total = total + dense_attention(name, layer, h, linked)[task.train].square().sum()
        h = model.activation(layer(h, task.graph.edge_index))
    total = total + dense_attention(name, model.heads[-1], h, linked)[task.train].square().sum()
    return total / task.train.numel()


@pytest.mark.parametrize("name", ["gat", "gcn", "sage", "gin"])
def test_the_importance_of_the_topology_is_the_squared_slope_of_the_attention(name: str) -> None:
    tasks = example_stream()  # with self-loops and isolated nodes
    learner = Learner(name, TWP(lam_loss=0.0, lam_topology=1.0), epochs=3, lr=0.01)
    for i, task in enumerate(tasks[:2]):
        before = dict(learner.method.state_dict()["importance"]) if i else {}
        learner.observe(task)
        assert isinstance(learner.model, Backbone)
        params = dict(learner.model.named_parameters())
        slopes = torch.autograd.grad(
            dense_topology(name, learner.model.eval(), task), list(params.values()), materialize_grads=True
        )
        found = learner.method.state_dict()["importance"]
        assert {key.partition(".")[0] for key in found} == {"convs", "heads"}
        assert max(float(slope.abs().max()) for slope in slopes) > 1e-3
        for key, slope in zip(params, slopes, strict=True):
            torch.testing.assert_close(found[key], before.get(key, 0.0) + slope.square(), rtol=2e-3, atol=1e-8)


@pytest.mark.parametrize("head", ["per-task", "growing"])
def test_without_the_topology_it_is_ewc_bit_for_bit(head: str) -> None:
    tasks = make_tasks()
    one = learned("twp", head, tasks, lam_loss=4.0, lam_topology=0.0)
    assert_equal_bits(one, learned("ewc", head, tasks, lam=8.0))  # powers of 2 multiply exactly


@pytest.mark.parametrize("backbone", ["mlp", "sgc"])
def test_backbones_without_weights_over_neighbors_are_refused(backbone: str) -> None:
    with pytest.raises(InputError, match=f"twp needs weights in layers over neighbors, .* not '{backbone}'"):
        Learner(backbone, "twp").observe(make_tasks()[0])
