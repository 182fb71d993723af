"""The receptive field of some nodes: everything that a forward pass reads to score them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.data.hashing import stream_key
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.blocks import Block, join_blocks, make_block, relabel
from ergnn.engine.features import DenseFeatures, Features, features_of, join_features
from ergnn.engine.kernels.links import Links
from ergnn.engine.kernels.sums import neighbor_sum
from ergnn.engine.linked import LinkedBlock, make_linked_block
from ergnn.engine.propagation import propagate
from ergnn.engine.sampling import Sampling
from ergnn.nn.backbones import Backbone
from ergnn.nn.layers import SYMMETRIC, Aggregation, form_of

AnyBlock = Block | LinkedBlock


@dataclass(frozen=True, eq=False)
class Field:
    """Features and blocks, first layer first.

    Args:
        features: features of the rows that the first layer reads.
        layers: one block for each layer of the encoder that has parameters.
        take: for each row that the heads read, the encoder's output row (a node scored by two heads is read twice);
            None if these are the same rows. For a large graph, lists of one row each, so that gradients of a row that
            is read twice are summed in a fixed order.
        head: the block of the output layer; a slot is a head.
        linked: whether the blocks are linked ones, of a large graph; these cannot be joined.
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
            return neighbor_sum(h, self.take)
        return h.index_select(0, self.take)

    @property
    def rows(self) -> int:
        """Rows that the encoder writes."""
        if self.layers:
            return self.layers[-1].dst.count
        assert isinstance(self.features, DenseFeatures)
        return int(self.features.value.size(0))


def make_field(
    model: Backbone,
    graph: Graph,
    nodes: Tensor,
    heads: Tensor | None = None,
    slots: int = 1,
    sampling: Sampling | None = None,
    key: int = 0,
) -> Field:
    """The field of ``nodes``, scored by ``heads`` (``[n, r]``, positions among ``slots`` heads), or embedded only.

    Args:
        sampling: how many neighbors are sampled, with ``key`` as their key; None reads all.
    """
    adj = adjacency_of(graph)
    linked = adj.is_large and sampling is None
    dtype = model.dtype
    hops = enumerate(sampling.fanout if sampling is not None else ())

    def block(aggregation: Aggregation | None, nodes: Tensor, slot: Tensor, slots: int) -> tuple[AnyBlock, Tensor]:
        if linked and aggregation is not None:
            return make_linked_block(adj, aggregation, nodes, slot, slots, dtype)
        if sampling is None or aggregation is None:
            return make_block(adj, aggregation, nodes, slot, slots, dtype)
        hop, fanout = next(hops)
        drawn_by = stream_key(key, hop)
        return make_block(
            adj, aggregation, nodes, slot, slots, dtype, fanout=fanout, replace=sampling.replace, key=drawn_by
        )

    head, take = None, torch.arange(nodes.numel(), device=nodes.device)
    if heads is not None:
        repeated = nodes.repeat_interleave(heads.size(1))
        head, read = block(form_of(model.heads[0]).aggregation, repeated, heads.flatten(), slots)
        nodes, take = relabel(read, adj.num_nodes)
    same = take.numel() == nodes.numel() and torch.equal(take, torch.arange(take.numel(), device=take.device))
    layers: list[AnyBlock] = []
    for conv in reversed(model.learned_layers):
        made, nodes = block(form_of(conv).aggregation, nodes, torch.zeros_like(nodes), 1)
        layers.insert(0, made)
    features: Features
    if layers and not model.propagated_hops:
        features = features_of(graph, nodes, dtype)
    elif sampling is None:
        features = DenseFeatures(propagate(graph, model.propagated_hops, nodes=nodes, dtype=dtype))
    else:
        fixed = []
        for _ in range(model.propagated_hops):
            made, nodes = block(SYMMETRIC, nodes, torch.zeros_like(nodes), 1)
            fixed.append(made)
        value = graph.rows(nodes).to(dtype)
        for made in reversed(fixed):
            value = made.aggregate(value)
        features = DenseFeatures(value)
    if not linked:
        return Field(features, layers, take, head)
    rows = layers[-1].dst.count if layers else int(nodes.numel())
    each = torch.arange(take.numel() + 1, device=take.device)
    return Field(features, layers, None if same else Links(each, take.int(), rows), head, linked)


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
