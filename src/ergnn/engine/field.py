"""The receptive field of some nodes: everything that a forward pass needs to score them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.data.hashing import stream_key
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.blocks import EdgeBlock, LinkedBlock, make_block, make_linked_block, relabel
from ergnn.engine.features import InputFeatures, features_of
from ergnn.engine.kernels import Links, neighbor_sum
from ergnn.engine.propagation import propagate, rows_from_blocks
from ergnn.engine.sampling import Sampling
from ergnn.nn.backbones import Backbone
from ergnn.nn.layers import SYMMETRIC, Aggregation, form_of

AnyBlock = EdgeBlock | LinkedBlock


@dataclass(frozen=True, eq=False)
class Field:
    """Features and blocks, starting with the first layer.

    Args:
        features: input features of the first layer.
        layers: one block per layer of the encoder that has parameters.
        take: the encoder's output row for each input row of the heads (a node scored by two heads occurs twice); None
            if the rows are the same. For a large graph, links with one source per row, so that gradients of repeated
            rows are summed in a fixed order.
        head: block of the output layer, with one slot per head.
        models: number of models.
        linked: whether the blocks are those of a large graph (:class:`LinkedBlock`), of one model.
    """

    features: InputFeatures
    layers: Sequence[AnyBlock]
    take: Tensor | Links | None
    head: AnyBlock | None
    models: int
    linked: bool = False

    def head_inputs(self, h: Tensor) -> Tensor:
        """Select the input rows of the heads from the output rows of the encoder."""
        if self.take is None:
            return h
        if isinstance(self.take, Links):
            return neighbor_sum(h, self.take)
        return h.index_select(0, self.take)


def make_field(
    model: Backbone,
    graph: Graph,
    nodes: Tensor,
    heads: Tensor | None = None,
    slots: int = 1,
    sampling: Sampling | None = None,
    key: int = 0,
    sizes: Sequence[int] = (),
) -> Field:
    """Build the field of ``nodes``.

    With several models, it has one component per model, built with one set of operations for all.

    Args:
        heads: ``[n, r]``, the heads that score each node, as positions among ``slots`` heads; None to embed only.
        sampling: neighbor sampling with ``key``; None uses all neighbors.
        sizes: number of nodes of each model, if ``nodes`` and ``heads`` are those of several models one after another
            (not on a large graph without sampling).
    """
    sizes = sizes or [nodes.numel()]
    n, models = graph.num_nodes, len(sizes)
    adj, hops = adjacency_of(graph), count()
    linked = adj.is_large and sampling is None

    def make(aggregation: Aggregation | None, nodes: Tensor, slot: Tensor, slots: int) -> tuple[AnyBlock, Tensor]:
        """Return the block of a layer, from the last to the first, and the node of each of its source rows."""
        if aggregation is not None and linked:
            return make_linked_block(adj, aggregation, nodes, slot, slots, model.dtype)
        sample: dict[str, Any] = {}
        if aggregation is not None and sampling is not None:
            hop = next(hops)
            sample = {"fanout": sampling.fanout[hop], "replace": sampling.replace, "key": stream_key(key, hop)}
        return make_block(adj, aggregation, nodes, slot, slots, model.dtype, models=models, **sample)

    models_of = torch.arange(models, device=nodes.device)
    owner = torch.repeat_interleave(models_of, nodes.new_tensor(sizes), output_size=nodes.numel())
    head, take = None, torch.arange(nodes.numel(), device=nodes.device)
    if heads is not None:
        repeated = nodes.repeat_interleave(heads.size(1))
        slot = heads + slots * owner.unsqueeze(1)
        head, read = make(form_of(model.heads[0]).aggregation, repeated, slot.flatten(), slots * models)
        keys, take = relabel(head.src.slot // slots * n + read, models * n)
        nodes, owner = keys % n, keys // n
    layers: list[AnyBlock] = []
    for conv in reversed(model.learned_layers):
        block, nodes = make(form_of(conv).aggregation, nodes, owner, models)
        layers.insert(0, block)
        owner = block.src.slot
    features: InputFeatures
    if layers and not model.propagated_hops:
        features = features_of(graph, nodes, model.dtype, owner, models)
    elif sampling is None:
        features = propagate(graph, model.propagated_hops, nodes=nodes, dtype=model.dtype)
    else:
        sampled = partial(make, SYMMETRIC, slots=models)
        features = rows_from_blocks(graph, model.propagated_hops, nodes, owner, model.dtype, sampled)
    if not linked:
        return Field(features, layers, take, head, models)
    rows = layers[-1].dst.count if layers else int(nodes.numel())
    rowptr = torch.arange(take.numel() + 1, device=take.device)
    same = take.numel() == nodes.numel() and torch.equal(take, rowptr[:-1])
    return Field(features, layers, None if same else Links(rowptr, take.int(), rows), head, models, linked=True)
