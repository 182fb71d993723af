"""Embeddings and scores of trained models, in evaluation mode: on fields, of several models in one pass, or by layers.

Computing each chunk of many nodes on its own receptive field would recompute the same rows in many chunks. Layer-wise
inference computes each layer once for all required nodes: it multiplies all rows by the layer's matrix (``Z = H W``,
short rows), then sums over neighbors in chunks of rows. Memory is limited to ``Z`` and the edges of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.engine.adjacency import Adjacency, adjacency_of
from ergnn.engine.blocks import make_block
from ergnn.engine.cache import Cache
from ergnn.engine.dropout import DropoutStream
from ergnn.engine.field import make_field
from ergnn.engine.losses import MASKED, PlainModel
from ergnn.engine.objective import FieldObjective, encode, encoder_parameters, make_objective, transposed
from ergnn.engine.propagation import ALL_CACHED, MAX_CACHED, propagate
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import form_of

CHUNK = 8192
"""Number of nodes whose receptive fields are joined."""
FIELD_EDGES = 1 << 21
"""Maximum number of edges of a field; nodes with a larger field are scored layer by layer."""
ROWS = 8192
"""Number of rows per chunk of a product."""

Lookup = Callable[[Tensor], Tensor]
"""A function that returns rows by node id."""


def logits_of(model: nn.Module, graph: Graph, nodes: Tensor, heads: Tensor) -> Tensor:
    """Compute the scores ``[n, outputs]`` of nodes by their ``heads`` (``[n, r]``)."""
    if isinstance(model, Backbone) and prefers_layers(model, graph, nodes):
        return layerwise_logits(model, graph, nodes, heads)
    chunks = []
    for chunk, scored_by in zip(nodes.split(CHUNK), heads.split(CHUNK), strict=True):
        unused = torch.zeros_like(chunk)
        objective = make_objective([model], [Examples(graph, chunk, scored_by, unused, unused.float())])
        with torch.no_grad():
            chunks.append(objective.logits(objective.parameters()))
    return torch.cat(chunks)


def embed(model: nn.Module, graph: Graph, nodes: Tensor) -> Tensor:
    """Compute the input of the output layer at ``nodes``, ``[n, embedding_size]``."""
    if isinstance(model, Backbone) and model.runs_on_fields:
        if prefers_layers(model, graph, nodes):
            return layerwise_embed(model, graph, nodes)
        return embed_together([model], graph, [nodes])[0]
    module: Any = model.module if isinstance(model, PlainModel) else model
    if not hasattr(module, "embed"):
        raise InputError(f"{type(module).__name__} has no embed(x, adj); selectors in embedding space need one")
    module.eval()
    dtype = next((value.dtype for value in module.parameters()), torch.float32)
    with torch.no_grad():
        rows: Tensor = module.embed(graph.dense_x().to(dtype), graph.edge_index)[nodes]
    return rows


def embed_together(models: Sequence[Backbone], graph: Graph, nodes: Sequence[Tensor]) -> list[Tensor]:
    """Compute :func:`embed` for several models of the same architecture, each at its own nodes, in one pass."""
    sizes = [of_model.numel() for of_model in nodes]
    field = make_field(models[0], graph, torch.cat(list(nodes)), sizes=sizes)
    with torch.no_grad():
        return list(encode(models[0], encoder_parameters(models), field, DropoutStream(None)).split(sizes))


def logits_together(models: Sequence[Backbone], examples: Sequence[Examples], joined: bool) -> Iterator[Tensor]:
    """Compute the scores ``[n, outputs]`` of several models of the same architecture, each at its own nodes.

    The field of models with the same nodes is built once. If ``joined``, a forward pass computes several models, with
    about :data:`FIELD_EDGES` edges at once, or one model of a large graph.
    """
    at_once, objective = 1, None
    if joined and not adjacency_of(examples[0].graph).is_large:
        largest = max(nodes.graph.num_edges + nodes.graph.num_nodes for nodes in examples)
        at_once = max(1, FIELD_EDGES // (models[0].num_hops * largest + 1))
    heads = torch.cat([nodes.heads for nodes in examples]).unique().tolist()
    for start in range(0, len(models), at_once):
        group, nodes = models[start : start + at_once], list(examples[start : start + at_once])
        if objective is None or list(map(id, objective.examples)) != list(map(id, nodes)):
            objective = FieldObjective(group, nodes, heads)
        objective = objective.with_models(group)
        with torch.no_grad():
            yield from objective.logits(objective.parameters()).split([len(of_model) for of_model in nodes])


def prefers_layers(model: nn.Module, graph: Graph, nodes: Tensor) -> bool:
    """Return whether the field of ``nodes`` is estimated to have more than :data:`FIELD_EDGES` edges.

    The result is False on a GPU, whose kernels support large fields.
    """
    if graph.num_edges <= FIELD_EDGES or graph.x.is_cuda or not isinstance(model, Backbone) or not model.runs_on_fields:
        return False
    edges, total = int(adjacency_of(graph).degrees(nodes).sum()), 0
    for _ in range(model.num_hops):
        total += edges
        edges = min(edges * graph.num_edges // graph.num_nodes, graph.num_edges)
    return total > FIELD_EDGES


@torch.no_grad()
def layerwise_embed(model: Backbone, graph: Graph, nodes: Tensor) -> Tensor:
    """Compute the input of the output layer at ``nodes`` layer by layer; see :func:`embed`."""
    return _encoder(model, graph, nodes)(nodes)


@torch.no_grad()
def layerwise_logits(model: Backbone, graph: Graph, nodes: Tensor, heads: Tensor) -> Tensor:
    """Compute the scores ``[n, outputs]`` of nodes by their ``heads`` (``[n, r]``), as :class:`FieldObjective` does."""
    adj, form, wanted = adjacency_of(graph), form_of(model.heads[0]), torch.unique(nodes)
    needed = adj.neighborhood(wanted) if form.aggregation is not None else wanted
    embedded, used = _encoder(model, graph, needed), torch.unique(heads).tolist()
    width = max(model.head_widths[head] for head in used)
    out = torch.full((*heads.shape, width), MASKED, dtype=model.dtype, device=nodes.device)
    for head in used:
        row, position = (heads == head).nonzero().unbind(1)
        scored = torch.unique(nodes[row])
        scores = _layer(model.heads[head], adj, embedded, needed, scored)
        out[row, position, : scores.size(1)] = scores[torch.searchsorted(scored, nodes[row])]
    return out.flatten(1)


_ENCODED: Cache[Tensor] = Cache(ALL_CACHED, Tensor.numel)
"""The encoder's output for all nodes: after a task, the nodes of all tasks so far are scored one after another."""


def _encoder(model: Backbone, graph: Graph, nodes: Tensor) -> Lookup:
    """Return the encoder's output for ``nodes``, from the cache if possible."""
    n, everything = graph.num_nodes, torch.arange(graph.num_nodes, device=nodes.device)
    sources, depth = [model, graph.x, graph.edge_index, *model.convs.parameters()], len(model.learned_layers)
    value = _ENCODED.find(sources, model.dtype)
    if value is None:
        reads_neighbors = model.propagated_hops or any(form_of(conv).aggregation for conv in model.learned_layers)
        needed = adjacency_of(graph).neighborhood(nodes) if reads_neighbors else nodes
        if 2 * needed.numel() < n or n * model.embedding_size > MAX_CACHED:
            return _compute(model, graph, torch.unique(nodes), depth)
        value = _compute(model, graph, everything, depth)(everything)
        _ENCODED.store(sources, value, model.dtype)
    return _lookup(everything, value)


def _compute(model: Backbone, graph: Graph, nodes: Tensor, depth: int) -> Lookup:
    """Compute the output of the first ``depth`` layers with parameters for ``nodes``, in ascending order."""
    if depth == 0 and model.propagated_hops:
        return _lookup(nodes, propagate(graph, model.propagated_hops, nodes=nodes, dtype=model.dtype))
    if depth == 0:
        return lambda read: graph.rows(read).to(model.dtype)
    adj, conv = adjacency_of(graph), model.learned_layers[depth - 1]
    inputs = nodes if form_of(conv).aggregation is None else adj.neighborhood(nodes)
    rows = _compute(model, graph, inputs, depth - 1)
    return _lookup(nodes, model.activation(_layer(conv, adj, rows, inputs, nodes)))


def _layer(conv: nn.Module, adj: Adjacency, rows: Lookup, inputs: Tensor, outputs: Tensor) -> Tensor:
    """Compute the rows of nodes ``outputs`` of one layer from the rows of nodes ``inputs``.

    All projections of the layer are one matrix that rows are multiplied by first; the layer's own matrices then select
    columns of the product.
    """
    params = {name: transposed(value.detach()).unsqueeze(0) for name, value in conv.named_parameters()}
    form, drop, out = form_of(conv), DropoutStream(None), []
    weight = torch.cat([params[name][0] for name in form.projections], dim=1)
    select = torch.eye(weight.size(1), dtype=weight.dtype, device=weight.device)
    columns = select.split([params[name].size(2) for name in form.projections], dim=1)
    params |= {name: value.unsqueeze(0) for name, value in zip(form.projections, columns, strict=True)}
    z = torch.cat([rows(chunk) @ weight for chunk in inputs.split(ROWS)])
    projected = _lookup(inputs, z)
    for chunk in (outputs[nodes] for nodes in adj.chunks(outputs)):
        block, source = make_block(adj, form.aggregation, chunk, torch.zeros_like(chunk), 1, z.dtype)
        out.append(form.forward(conv, params, projected(source), block, drop))
    return torch.cat(out)


def _lookup(nodes: Tensor, value: Tensor) -> Lookup:
    """Return a function that looks up rows of ``value`` by node id; ``nodes`` are ascending."""
    return lambda wanted: value[torch.searchsorted(nodes, wanted)]
