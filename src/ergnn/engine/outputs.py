"""Embeddings and scores of trained models, in evaluation mode: of one model, or of several in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.dropout_stream import DropoutStream
from ergnn.engine.features import DenseFeatures
from ergnn.engine.field import make_field
from ergnn.engine.inference import FIELD_EDGES, layerwise_embed, layerwise_logits, prefers_layers
from ergnn.engine.objective import FieldObjective, encode, encoder_parameters, make_objective
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples

CHUNK = 8192
"""Number of nodes whose receptive fields are joined."""


def logits_of(model: nn.Module, graph: Graph, nodes: Tensor, heads: Tensor) -> Tensor:
    """Compute the scores ``[n, outputs]`` of nodes by their ``heads`` (``[n, r]``)."""
    if isinstance(model, Backbone) and prefers_layers(model, graph, nodes):
        return layerwise_logits(model, graph, nodes, heads)
    chunks = []
    for some, scored_by in zip(nodes.split(CHUNK), heads.split(CHUNK), strict=True):
        unused = torch.zeros_like(some)
        objective = make_objective([model], [Examples(graph, some, scored_by, unused, unused.float())])
        with torch.no_grad():
            chunks.append(objective.logits(objective.parameters()))
    return torch.cat(chunks)


def embed(model: nn.Module, graph: Graph, nodes: Tensor) -> Tensor:
    """Compute the input of the output layer at ``nodes``, ``[n, embedding_size]``."""
    if isinstance(model, Backbone) and model.runs_on_fields:
        large = prefers_layers(model, graph, nodes)
        return layerwise_embed(model, graph, nodes) if large else embed_together([model], graph, [nodes])[0]
    if not hasattr(model, "embed"):
        raise InputError(f"{type(model).__name__} has no embed(x, adj); selectors in embedding space need one")
    with torch.no_grad():
        return _plain_call(model, model.embed, graph)[nodes]


def embed_together(models: Sequence[Backbone], graph: Graph, nodes: Sequence[Tensor]) -> list[Tensor]:
    """Compute :func:`embed` for several models of the same architecture, each at its own nodes, in one pass."""
    sizes = [part.numel() for part in nodes]
    field = make_field(models[0], graph, torch.cat(list(nodes)), sizes=sizes)
    if not models[0].learned_layers:
        assert isinstance(field.features, DenseFeatures)
        return list(field.features.value.split(sizes))
    with torch.no_grad():
        return list(encode(models[0], encoder_parameters(models), field, DropoutStream(None)).split(sizes))


def logits_together(models: Sequence[Backbone], graph: Graph, nodes: Tensor, heads: Tensor) -> Iterator[Tensor]:
    """Compute the scores ``[n, outputs]`` of nodes with each of several models of the same architecture.

    The field is built once. On a GPU, a forward pass computes several models, with about
    :data:`~ergnn.engine.inference.FIELD_EDGES` edges at once.
    """
    none = torch.zeros_like(nodes)
    examples, at_once, made = Examples(graph, nodes, heads, none, none.float()), 1, dict[int, FieldObjective]()
    if graph.device.type != "cpu" and not adjacency_of(graph).is_large:
        at_once = max(1, FIELD_EDGES // (models[0].num_hops * (graph.num_edges + graph.num_nodes) + 1))
    for start in range(0, len(models), at_once):
        part = models[start : start + at_once]
        if len(part) not in made:
            made[len(part)] = FieldObjective(part, [examples] * len(part))
        objective = made[len(part)].with_models(part)
        with torch.no_grad():
            yield from objective.logits(objective.parameters()).chunk(len(part))


def _plain_call(model: nn.Module, function: Any, graph: Graph) -> Tensor:
    model.eval()
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    return function(graph.dense_x().to(dtype), graph.edge_index)
