"""The exact receptive field of some nodes: all that a forward pass has to touch to score them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.engine.adjacency import Adjacency, Block, adjacency_of, join_blocks, make_block
from ergnn.engine.features import DenseFeatures, Features, features_of, join_features
from ergnn.engine.kernels.links import Links
from ergnn.engine.kernels.sums import neighbour_sum
from ergnn.engine.layers import AnyBlock, Propagate, aggregation_of
from ergnn.engine.linked import make_linked_block
from ergnn.engine.propagation import propagate
from ergnn.nn.backbones import Backbone


@dataclass(frozen=True, eq=False)
class Field:
    """Attributes and blocks, first layer first.

    Args:
        features: attributes of the rows that the first layer reads.
        layers: one block for each layer of the encoder that has parameters.
        take: for each row that the heads read, the encoder's output row (a node scored by two heads is read twice);
            None where these are the same rows. Of a large graph as lists of one row each, so that gradients of a row
            that is read twice are added up in a fixed order.
        head: the block of the output layer; a slot is a head.
        linked: whether blocks are those of a large graph, which do not stand side by side.
    """

    features: Features
    layers: Sequence[AnyBlock]
    take: Tensor | Links | None
    head: AnyBlock | None
    linked: bool = False

    def taken(self, h: Tensor) -> Tensor:
        """The rows that the heads read, of those that the encoder wrote."""
        if self.take is None:
            return h
        if isinstance(self.take, Links):
            return neighbour_sum(h, self.take)
        return h.index_select(0, self.take)

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
    linked = adj.is_large
    dtype = next((value.dtype for value in model.parameters()), torch.float32)
    head, take = None, torch.arange(nodes.numel(), device=nodes.device)
    if heads is not None:
        repeated = nodes.repeat_interleave(heads.size(1))
        head, read = _block(adj, linked, aggregation_of(model.heads[0]), repeated, heads.flatten(), slots, dtype)
        nodes, take = torch.unique(read, return_inverse=True)
    same = take.numel() == nodes.numel() and torch.equal(take, torch.arange(take.numel(), device=take.device))
    layers: list[AnyBlock] = []
    hops = sum(conv.hops for conv in model.convs if isinstance(conv, Propagate))
    for conv in reversed(model.convs):
        if not isinstance(conv, Propagate):
            block, nodes = _block(adj, linked, aggregation_of(conv), nodes, torch.zeros_like(nodes), 1, dtype)
            layers.insert(0, block)
    features: Features
    if layers and not hops:
        features = features_of(graph, nodes, dtype)
    else:
        features = DenseFeatures(propagate(graph, hops, nodes=nodes, dtype=dtype))
    if not linked:
        return Field(features, layers, take, head)
    rows = layers[-1].dst.count if layers else int(nodes.numel())
    each = torch.arange(take.numel() + 1, device=take.device)
    return Field(features, layers, None if same else Links(each, take.int(), rows), head, linked)


def _block(
    adj: Adjacency, linked: bool, aggregation: str, nodes: Tensor, slot: Tensor, slots: int, dtype: torch.dtype
) -> tuple[AnyBlock, Tensor]:
    if linked and aggregation != "none":
        return make_linked_block(adj, aggregation, nodes, slot, slots, dtype)
    return make_block(adj, aggregation, nodes, slot, slots, dtype)


def join_fields(fields: list[Field]) -> Field:
    """The fields of several models side by side."""
    if len(fields) == 1:
        return fields[0]
    take, start = [], 0
    for field in fields:
        assert isinstance(field.take, Tensor)
        take.append(field.take + start)
        start += field.rows
    heads = [field.head for field in fields if isinstance(field.head, Block)]
    layers = [[block for block in field.layers if isinstance(block, Block)] for field in fields]
    return Field(
        join_features([field.features for field in fields]),
        [join_blocks(list(blocks)) for blocks in zip(*layers, strict=True)],
        torch.cat(take),
        join_blocks(heads) if heads else None,
    )
