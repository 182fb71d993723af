"""How much a network attends to each neighbor, and the size of this attention, which TWP preserves."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import softmax

from ergnn.engine.adjacency import adjacency_of
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import form_of


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
