"""Topology-aware weight preserving (TWP): EWC that also keeps the attention between neighbors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import softmax

from ergnn.config.errors import InputError, check_at_least
from ergnn.data.stream import Task
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.losses import ParamDict
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.ewc import fisher_diagonal
from ergnn.methods.importance import ImportanceMethod, sampled_objective
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import Propagate, form_of


def attention(conv: nn.Module, h: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Target and coefficients ``[edges, heads]`` of each edge: α of a GAT layer, else as in :class:`TWP`."""
    if isinstance(conv, GATConv):
        _, (index, alpha) = conv(h, edges, return_attention_weights=True)
        return index[1], alpha
    z = h @ conv.get_parameter(form_of(conv).projections[0]).T
    scores = F.leaky_relu((z[edges[0]] * z[edges[1]].tanh()).sum(1, keepdim=True), 0.2)
    return edges[1], softmax(scores, edges[1], num_nodes=h.size(0))


def topology(model: Backbone, examples: Examples) -> Tensor:
    """``T = 1/n Σ_v Σ_l ‖α_v^l‖²`` of n examples v, over the layers l and the output layers in use, without dropout."""
    adj, near = adjacency_of(examples.graph), examples.nodes.unique()
    for _ in range(model.num_hops + 1):  # one more for the degrees of the outermost nodes that are read
        near = adj.neighborhood(near)
    place = torch.full((adj.num_nodes,), -1, device=near.device)
    place[near] = torch.arange(near.numel(), device=near.device)

    def local(loops: bool) -> Tensor:
        row, source = adj.incoming(near, loops)
        return torch.stack([place[source], row])[:, place[source] >= 0]

    edges, looped = local(False), local(True)
    count = torch.bincount(place[examples.nodes], minlength=near.numel())
    h, total = examples.graph.rows(near).to(model.dtype), torch.zeros((), device=near.device)
    model.eval()
    for i, layer in enumerate([*model.convs, *(model.heads[head] for head in examples.heads.unique().tolist())]):
        target, alpha = attention(layer, h, looped)
        total = total + (alpha.square() * count[target].unsqueeze(1)).sum()
        h = model.activation(layer(h, edges)) if i < len(model.convs) else h
    return total / len(examples)


@METHODS.register("twp", help="EWC plus the importance for attention between neighbors (topology-aware preserving)")
class TWP(ImportanceMethod):
    """Topology-aware weight preserving (Liu et al., 2021).

    The loss is ``L + Σ_k Σ_j I_kj (θ_j − θ*_kj)²`` with ``I = λ_l F + λ_t (∂T/∂θ)²`` after each task k: the
    Fisher information F as in EWC, and T, the mean squared norm of the attention coefficients of the training nodes,
    over all layers. In layers without attention, they are ``softmax_u LeakyReLU(z_uᵀ tanh(z_v))`` over the neighbors
    u of v and v itself, with ``z = Wh``, as in the authors' code. (The paper's third term, ``β ‖∇L‖₁``, is a constant
    there, and left out here.)

    Args:
        lam_loss: λ_l, weight of the importance for the loss.
        lam_topology: λ_t, weight of the importance for the topology, whose slopes are smaller.
        fisher_samples: number of training nodes to sample per task to estimate F; by default all.
    """

    comparison = Comparison(
        search={"lam_loss": (0.15, 1.5, 15.0), "lam_topology": (1.0, 100.0, 10_000.0)},
        importance_option="fisher_samples",
    )

    def __init__(self, lam_loss: float = 1.5, lam_topology: float = 100.0, fisher_samples: int | None = None) -> None:
        check_at_least(0, lam_loss=lam_loss, lam_topology=lam_topology)
        check_at_least(1, fisher_samples=fisher_samples)
        super().__init__(lam=2.0, decay=None)
        self.lam_loss, self.lam_topology, self.fisher_samples = lam_loss, lam_topology, fisher_samples

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        model = learner.model
        layers = [*model.convs, *model.heads] if isinstance(model, Backbone) and model.runs_on_fields else []
        if not layers or any(isinstance(one, Propagate) or form_of(one).aggregation is None for one in layers):
            name = learner.backbone if isinstance(learner.backbone, str) else type(learner.backbone).__name__
            raise InputError(f"twp needs weights in layers over neighbors, such as gat, gcn, sage or gin; not {name!r}")
        return super().examples(learner, task)

    def importance(self, learner: LearnerView, task: Task, trained_on: Examples) -> ParamDict:
        assert isinstance(learner.model, Backbone)
        objective = sampled_objective(learner, task, trained_on, self.fisher_samples)
        fisher = objective.by_name(fisher_diagonal(objective, objective.parameters()))
        params = [learner.model.get_parameter(name) for name in fisher]
        slopes = torch.autograd.grad(topology(learner.model, trained_on), params, materialize_grads=True)
        pairs = zip(fisher.items(), slopes, strict=True)
        return {name: self.lam_loss * f + self.lam_topology * slope.square() for (name, f), slope in pairs}
