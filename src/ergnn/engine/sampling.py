"""Neighbour sampling: some of a node's neighbours stand for all of them, so that a batch of any graph fits a step.

What is drawn is a hash of (key, layer, node, place): the same on a CPU and a GPU, in a run that was resumed, and in
whatever order batches are made. The *estimator* of a sum over the d neighbours of a node, from k of them drawn:

``mean``
    ``1/k Σ_drawn h_j``; its expectation over draws is the mean, with and without replacement.
``sum``
    ``d/k Σ_drawn h_j``, unbiased likewise.
``gcn``
    ``h_i / d̃_i + d/k Σ_drawn h_j / √(d̃_i d̃_j)`` with degrees d̃ (self-loops counted) of the whole graph: the node
    itself is always there, and the rest is unbiased.
``attention``
    the softmax over the drawn neighbours and the node itself, as PyG's layer gives on a sampled graph. A ratio of two
    sums, so that it is biased, by O(1/k); and the node itself counts as much as one *drawn* neighbour.

Each is unbiased for one layer given what it reads; behind a non-linear activation nothing is. A node with k neighbours
or fewer keeps them all where draws are without replacement, so that a fan-out of the largest degree is the exact field.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ergnn.data.graph import Graph
from ergnn.data.hashing import below, stream_key
from ergnn.engine.adjacency import Adjacency, Block, Rows, adjacency_of, merge_loops
from ergnn.engine.features import DenseFeatures, features_of
from ergnn.engine.field import Field
from ergnn.engine.layers import Propagate, aggregation_of
from ergnn.errors import InputError
from ergnn.nn.backbones import Backbone

ALL = -1
"""The fan-out that takes every neighbour."""


@dataclass(frozen=True)
class Sampling:
    """How many neighbours are drawn.

    Args:
        fanout: of a node to be scored first, then of those drawn for it, and so on: one number a layer that looks at
            neighbours; -1 is all.
        replace: whether a neighbour may be drawn more than once.
    """

    fanout: tuple[int, ...]
    replace: bool = False

    def __post_init__(self) -> None:
        for count in self.fanout:
            if not isinstance(count, int) or isinstance(count, bool) or (count < 1 and count != ALL):
                raise InputError(f"fanout is {self.fanout}; it takes whole numbers of 1 or more, or -1 for all")
        if self.replace and ALL in self.fanout:
            raise InputError(f"fanout is {self.fanout}; all neighbours cannot be drawn with replacement")

    def check(self, model: nn.Module) -> None:
        """Refuse a model that does not fit."""
        name = type(model).__name__
        if not isinstance(model, Backbone) or not model.runs_on_fields:
            raise InputError(f"{name} has no form on sampled neighbours; leave fanout out")
        hops = hops_of(model)
        if hops != len(self.fanout):
            raise InputError(
                f"fanout is {self.fanout}; {name} looks at neighbours in {hops} layer(s): give {hops} number(s)"
            )


def looks(layer: nn.Module) -> int:
    """How many times a layer looks at neighbours."""
    return layer.hops if isinstance(layer, Propagate) else int(aggregation_of(layer) != "none")


def hops_of(model: Backbone) -> int:
    """How many times a model looks at neighbours, one head counted."""
    return sum(looks(layer) for layer in [*model.convs, *model.heads[:1]])


def sample_neighbours(
    adj: Adjacency, nodes: Tensor, fanout: int, replace: bool = False, key: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw in-neighbours of ``nodes``.

    With replacement, ``fanout`` times one of the neighbours. Without, a set of that size, all sets alike (Floyd's
    algorithm: the t-th of k draws is from the first d − k + t + 1, or their last where it is taken), or all of them.

    Returns:
        of each drawn edge the position in ``nodes`` (ascending) and the source node, and how many each node has.
    """
    start = adj.rowptr[nodes]
    degree = adj.rowptr[nodes + 1] - start
    if fanout == ALL or (not replace and (not nodes.numel() or fanout >= int(degree.max()))):
        row, source = adj.incoming(nodes)
        return row, source, degree
    column = torch.arange(fanout, device=nodes.device)
    counter = nodes.unsqueeze(1) * fanout + column
    if replace:
        count = torch.where(degree > 0, fanout, 0)
        place = below(key, counter, degree.clamp(min=1).unsqueeze(1))
    else:
        count = degree.clamp(max=fanout)
        place = column.expand(nodes.numel(), -1).clone()
        many = (degree > fanout).nonzero().flatten()
        place[many] = _floyd(key, counter[many], degree[many], fanout)
    row = torch.repeat_interleave(torch.arange(nodes.numel(), device=nodes.device), count)
    taken = place[column < count.unsqueeze(1)]
    return row, adj.col.index_select(0, start.index_select(0, row) + taken).long(), count


def _floyd(key: int, counter: Tensor, degree: Tensor, count: int) -> Tensor:
    """``count`` different numbers below ``degree`` (larger than it) in each row."""
    last = degree.unsqueeze(1) - count + torch.arange(count, device=degree.device)
    drawn = below(key, counter, last + 1).T.contiguous()
    last = last.T.contiguous()
    for t in range(1, count):
        taken = (drawn[:t] == drawn[t]).any(0)
        drawn[t] = torch.where(taken, last[t], drawn[t])
    return drawn.T


def sampled_block(
    adj: Adjacency,
    aggregation: str,
    nodes: Tensor,
    slot: Tensor,
    slots: int,
    fanout: int,
    replace: bool = False,
    key: int = 0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Block, Tensor]:
    """As :func:`~ergnn.engine.adjacency.make_block`, over drawn neighbours; see the estimators above."""
    n = adj.num_nodes
    looped = aggregation in ("attention", "gcn")
    if aggregation == "none":
        row = source = nodes.new_empty(0)
        weight = torch.empty(0, dtype=torch.float64, device=nodes.device)
    else:
        adj = adj.without_loops() if looped else adj
        row, source, count = sample_neighbours(adj, nodes, fanout, replace, key)
        degree = (adj.rowptr[nodes + 1] - adj.rowptr[nodes]).to(torch.float64)
        if aggregation != "attention":
            weight = _edge_weights(adj, aggregation, nodes, source, row, degree / count, count)
    if looped:  # each node's own edge comes last, as it does in the exact block
        if aggregation == "gcn":
            row, source, weight = merge_loops(row, nodes.numel(), source, nodes, weight, (degree + 1).reciprocal())
        else:
            row, source = merge_loops(row, nodes.numel(), source, nodes)
            weight = torch.ones_like(row, dtype=torch.float64)
    if slots == 1:
        read, place = _relabel(torch.cat([nodes, source]), n)
        rows = Rows(torch.zeros_like(read), 1)
    else:
        keys, place = _relabel(torch.cat([slot * n + nodes, slot[row] * n + source]), slots * n)
        read, rows = keys % n, Rows(keys // n, slots)
    root, col = place[: nodes.numel()], place[nodes.numel() :]
    position = [torch.arange(size, dtype=torch.int32, device=nodes.device) for size in (read.numel(), row.numel())]
    return Block(rows, root, row, col, weight.to(dtype), 1, *position), read


def _edge_weights(
    adj: Adjacency, aggregation: str, nodes: Tensor, source: Tensor, row: Tensor, scale: Tensor, count: Tensor
) -> Tensor:
    if aggregation == "gcn":
        far = (
            (adj.rowptr.index_select(0, source + 1) - adj.rowptr.index_select(0, source) + 1).to(torch.float64).rsqrt()
        )
        near = (adj.rowptr[nodes + 1] - adj.rowptr[nodes] + 1).to(torch.float64).rsqrt()
        return far * (near * scale).index_select(0, row)
    if aggregation == "mean":
        return count.to(torch.float64).reciprocal().index_select(0, row)
    return scale.index_select(0, row)


def _relabel(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """``torch.unique(keys, return_inverse=True)`` for keys below ``size``; with a table where that is quicker."""
    if size > 16 * keys.numel():
        return torch.unique(keys, return_inverse=True)
    table = torch.zeros(size, dtype=torch.int64, device=keys.device)
    table[keys] = 1
    known = table.nonzero().flatten()
    table[known] = torch.arange(known.numel(), device=keys.device)
    return known, table.index_select(0, keys)


def sampled_field(
    model: Backbone,
    graph: Graph,
    nodes: Tensor,
    heads: Tensor,
    slots: int,
    sampling: Sampling,
    key: int = 0,
) -> Field:
    """As :func:`~ergnn.engine.field.make_field`, over drawn neighbours."""
    adj = adjacency_of(graph)
    dtype = next((value.dtype for value in model.parameters()), torch.float32)
    fanout = iter((hop, count) for hop, count in enumerate(sampling.fanout))

    def block(kind: str, nodes: Tensor, slot: Tensor, slots: int) -> tuple[Block, Tensor]:
        hop, count = (0, ALL) if kind == "none" else next(fanout)
        return sampled_block(adj, kind, nodes, slot, slots, count, sampling.replace, stream_key(key, hop), dtype)

    repeated = nodes.repeat_interleave(heads.size(1))
    head, read = block(aggregation_of(model.heads[0]), repeated, heads.flatten(), slots)
    nodes, take = _relabel(read, adj.num_nodes)
    layers: list[Block] = []
    fixed: list[Block] = []
    for conv in reversed(model.convs):
        hops = conv.hops if isinstance(conv, Propagate) else 1
        kind = "gcn" if isinstance(conv, Propagate) else aggregation_of(conv)
        for _ in range(hops):
            made, nodes = block(kind, nodes, torch.zeros_like(nodes), 1)
            (fixed if isinstance(conv, Propagate) else layers).insert(0, made)
    if layers and not fixed:
        return Field(features_of(graph, nodes, dtype), layers, take, head)
    value = graph.rows(nodes).to(dtype)
    for made in fixed:
        value = made.aggregate(value)
    return Field(DenseFeatures(value), layers, take, head)
