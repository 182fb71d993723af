"""The exact receptive field of some nodes: all that a forward pass has to touch to score them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.nn.adjacency import Block, adjacency_of, join_blocks, make_block
from ergnn.nn.backbones import Backbone
from ergnn.nn.features import DenseFeatures, Features, features_of, join_features
from ergnn.nn.layers import Propagate, aggregation_of


@dataclass(frozen=True, eq=False)
class Field:
    """Attributes and blocks, first layer first.

    Args:
        features: attributes of the rows that the first layer reads.
        layers: one block for each layer of the encoder that has parameters.
        take: for each row that the heads read, the encoder's output row (a node scored by two heads is read twice).
        head: the block of the output layer; a slot is a head.
    """

    features: Features
    layers: list[Block]
    take: Tensor
    head: Block | None

    @property
    def rows(self) -> int:
        """Rows that the encoder writes."""
        if self.layers:
            return self.layers[-1].dst.count
        assert isinstance(self.features, DenseFeatures)
        return int(self.features.value.size(0))


def make_field(model: Backbone, graph: Graph, nodes: Tensor, heads: Tensor | None = None, slots: int = 1) -> Field:
    """The field of ``nodes``, scored by ``heads`` (``[n, r]``, positions among ``slots`` heads), or embedded only."""
    adj = adjacency_of(graph)
    dtype = next((value.dtype for value in model.parameters()), torch.float32)
    head, take = None, torch.arange(nodes.numel(), device=nodes.device)
    if heads is not None:
        repeated = nodes.repeat_interleave(heads.size(1))
        head, read = make_block(adj, aggregation_of(model.heads[0]), repeated, heads.flatten(), slots, dtype)
        nodes, take = torch.unique(read, return_inverse=True)
    layers: list[Block] = []
    fixed: list[Block] = []
    for conv in reversed(model.convs):
        hops = conv.hops if isinstance(conv, Propagate) else 1
        kind = "gcn" if isinstance(conv, Propagate) else aggregation_of(conv)
        for _ in range(hops):
            block, nodes = make_block(adj, kind, nodes, torch.zeros_like(nodes), 1, dtype)
            (fixed if isinstance(conv, Propagate) else layers).insert(0, block)
    if layers and not fixed:
        return Field(features_of(graph, nodes, dtype), layers, take, head)
    value = graph.rows(nodes).to(dtype)
    for block in fixed:
        value = block.aggregate(value)
    return Field(DenseFeatures(value), layers, take, head)


def join_fields(fields: list[Field]) -> Field:
    """The fields of several models side by side."""
    if len(fields) == 1:
        return fields[0]
    take, start = [], 0
    for field in fields:
        take.append(field.take + start)
        start += field.rows
    heads = [field.head for field in fields if field.head is not None]
    return Field(
        join_features([field.features for field in fields]),
        [join_blocks(list(blocks)) for blocks in zip(*(field.layers for field in fields), strict=True)],
        torch.cat(take),
        join_blocks(heads) if heads else None,
    )
