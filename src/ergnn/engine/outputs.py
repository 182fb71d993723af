"""Embeddings and scores of trained models, in evaluation mode, on fields: chunk by chunk, or of several models at once.

On a CPU, many nodes of a large graph have one field instead of one per chunk, since the fields of chunks overlap. The
encoder's output for all nodes is then cached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.cache import Cache
from ergnn.engine.dropout import DropoutStream
from ergnn.engine.field import make_field
from ergnn.engine.losses import PlainModel
from ergnn.engine.objective import FieldObjective, encode, encoder_parameters, make_objective
from ergnn.engine.propagation import ALL_CACHED, MAX_CACHED
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples

CHUNK = 8192
"""Number of nodes whose receptive fields are joined."""
FIELD_EDGES = 1 << 21
"""Minimum number of edges of a large field, that of all nodes to score instead of one per chunk."""

_ENCODED: Cache[Tensor] = Cache(ALL_CACHED, Tensor.numel)
"""The encoder's output for all nodes: after a task, the nodes of all tasks so far are scored one after another."""


@torch.no_grad()
def logits_of(model: nn.Module, graph: Graph, nodes: Tensor, heads: Tensor) -> Tensor:
    """Compute the scores ``[n, outputs]`` of nodes by their ``heads`` (``[n, r]``)."""
    size = CHUNK
    if isinstance(model, Backbone) and has_large_field(model, graph, nodes):
        size, encoded = nodes.numel(), _encoded(model, graph, nodes)
        if encoded is not None:
            model, graph = _output_layers(model), replace(graph, x=encoded)
    chunks = []
    for chunk, scored_by in zip(nodes.split(size), heads.split(size), strict=True):
        unused = torch.zeros_like(chunk)
        objective = make_objective([model], [Examples(graph, chunk, scored_by, unused, unused.float())])
        chunks.append(objective.logits(objective.parameters()))
    return torch.cat(chunks)


def embed(model: nn.Module, graph: Graph, nodes: Tensor) -> Tensor:
    """Compute the input of the output layer at ``nodes``, ``[n, embedding_size]``."""
    if isinstance(model, Backbone) and model.runs_on_fields:
        encoded = _encoded(model, graph, nodes) if has_large_field(model, graph, nodes) else None
        return embed_together([model], graph, [nodes])[0] if encoded is None else encoded[nodes]
    module: Any = model.module if isinstance(model, PlainModel) else model
    if not hasattr(module, "embed"):
        raise InputError(f"{type(module).__name__} has no embed(x, adj); selectors in embedding space need one")
    module.eval()
    dtype = next((value.dtype for value in module.parameters()), torch.float32)
    with torch.no_grad():
        rows: Tensor = module.embed(graph.dense_x().to(dtype), graph.edge_index)[nodes]
    return rows


@torch.no_grad()
def embed_together(models: Sequence[Backbone], graph: Graph, nodes: Sequence[Tensor]) -> list[Tensor]:
    """Compute :func:`embed` for several models of the same architecture, each at its own nodes, in one pass."""
    sizes = [of_model.numel() for of_model in nodes]
    field = make_field(models[0], graph, torch.cat(list(nodes)), sizes=sizes)
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
        objective.models = list(group)  # of the same architecture, so that fields are the same
        with torch.no_grad():
            yield from objective.logits(objective.parameters()).split([len(of_model) for of_model in nodes])


def has_large_field(model: nn.Module, graph: Graph, nodes: Tensor) -> bool:
    """Return whether the field of ``nodes`` is estimated to have more than :data:`FIELD_EDGES` edges; not on a GPU."""
    if graph.num_edges <= FIELD_EDGES or graph.x.is_cuda or not isinstance(model, Backbone) or not model.runs_on_fields:
        return False
    edges, total = int(adjacency_of(graph).degrees(nodes).sum()), 0
    for _ in range(model.num_hops):
        total += edges
        edges = min(edges * graph.num_edges // graph.num_nodes, graph.num_edges)
    return total > FIELD_EDGES


def _encoded(model: Backbone, graph: Graph, nodes: Tensor) -> Tensor | None:
    """Return the encoder's output for all nodes; None if it is not cached, and too large or mostly not needed."""
    n, sources = graph.num_nodes, [model, graph.x, graph.edge_index, *model.convs.parameters()]
    value: Tensor | None = _ENCODED.find(sources, model.dtype)
    fits = len(model.convs) > 0 and n * model.embedding_size <= MAX_CACHED
    if value is None and fits and 2 * adjacency_of(graph).neighborhood(nodes).numel() >= n:
        value = embed_together([model], graph, [torch.arange(n)])[0]
        _ENCODED.store(sources, value, model.dtype)
    return value


def _output_layers(model: Backbone) -> Backbone:
    """Return the output layers as a model of embeddings."""
    layers = Backbone(None, [], model.activation, 0.0, model.embedding_size)
    layers.heads, layers.head_widths = model.heads, model.head_widths
    return layers
