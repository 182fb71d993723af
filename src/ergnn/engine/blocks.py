"""Blocks: the edges that one layer needs to compute some rows, exact or sampled.

The blocks of a large graph share the lists of in-neighbors, and nothing else is stored per edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data.csr import pointers
from ergnn.engine.adjacency import Adjacency, merge_loops
from ergnn.engine.dropout import DropoutStream
from ergnn.engine.features import SparsePattern, spmm
from ergnn.engine.kernels import Links, neighbor_sum
from ergnn.engine.kernels.attention import attention
from ergnn.engine.sampling import ALL, sample_neighbors
from ergnn.engine.slots import GatheredRows, SlotRows, SortedRows, model_positions
from ergnn.nn.layers import Aggregation, Block

WHOLE_FROM = 0.4
"""A linked block with more than this fraction of the edges uses the lists of the whole graph."""
FILLED_FROM = 0.75
"""If a linked block needs more than this fraction of the nodes, all nodes are included."""


@dataclass(frozen=True, eq=False)
class EdgeBlock(Block):
    """A block that stores its edges.

    Args:
        src, dst: source and target rows.
        root: for each target row, the source row of the same node.
        row: target row of each edge, ascending.
        pattern: positions of the edges, target rows × source rows.
        weight: factor of each edge in a sum over neighbors.
        models: number of stacked models.
        src_position, edge_position: int32 position of each source row and of each edge within its model.
    """

    src: SlotRows
    dst: SlotRows
    root: Tensor
    row: Tensor
    pattern: SparsePattern
    weight: Tensor
    models: int
    src_position: Tensor
    edge_position: Tensor

    @property
    def src_model(self) -> Tensor:
        return self.src.slot // (self.src.slots // self.models)

    def at_targets(self, h: Tensor) -> Tensor:
        return h.index_select(0, self.root)

    def aggregate(self, h: Tensor) -> Tensor:
        return spmm(self.pattern, self.weight.to(h.dtype), h)

    def attend(
        self, z: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, drop: DropoutStream, p: float
    ) -> Tensor:
        """Compute attention over ``z``, ``[sources, heads, width]``, storing one entry per edge, head and channel."""
        from torch_geometric.utils import softmax  # the closed form needs no PyG

        from_source, col = (z * self.src.each(att_src)).sum(-1), self.pattern.col
        to_target = (self.at_targets(z) * self.dst.each(att_dst)).sum(-1)
        score = from_source.index_select(0, col) + to_target.index_select(0, self.row)
        alpha = softmax(F.leaky_relu(score, slope), self.row, num_nodes=self.dst.count)
        edge_model = self.dst.slot[self.row] // (self.src.slots // self.models)
        alpha = drop(alpha, p, self.edge_position, edge_model)
        message = alpha.unsqueeze(-1) * z.index_select(0, col)
        return message.new_zeros(self.dst.count, *z.shape[1:]).index_add(0, self.row, message)


def make_block(
    adj: Adjacency,
    aggregation: Aggregation | None,
    nodes: Tensor,
    slot: Tensor,
    slots: int,
    dtype: torch.dtype = torch.float32,
    *,
    models: int = 1,
    fanout: int = ALL,
    replace: bool = False,
    key: int = 0,
) -> tuple[EdgeBlock, Tensor]:
    """Build the block whose target rows are ``nodes``, each computed with the parameters of its ``slot``.

    With several models, the block has one component per model, built with one set of operations for all.

    Args:
        adj: adjacency of the whole graph; weights use its degrees, so a small field is exact.
        aggregation: weighting of neighbors; None for layers without neighbors.
        dtype: dtype of the weights.
        models: number of stacked models, with ``slots // models`` slots each; ``nodes`` are those of the first model,
            then those of the second, and so on.
        fanout, replace, key: settings of :func:`~ergnn.engine.sampling.sample_neighbors`; by default all neighbors.

    Returns:
        the block and the node of each of its source rows.
    """
    n = adj.num_nodes
    if aggregation is None:
        row = source = nodes.new_empty(0)
        weight = torch.empty(0, dtype=dtype, device=nodes.device)
    else:
        looped = aggregation.self_loops
        adj = adj.without_loops() if looped else adj
        row, source, count = sample_neighbors(adj, nodes, fanout, replace, key)
        weight, of_loop = _weights(aggregation, adj, nodes, row, source, count)
        if looped:
            row, source, weight = merge_loops(row, count, source, nodes, weight, of_loop)
        weight = weight.to(dtype)
    keys, local = relabel(torch.cat([slot * n + nodes, slot[row] * n + source]), slots * n)
    read, rows = keys % n, SlotRows(keys // n, slots, models)
    root, col = local[: nodes.numel()], local[nodes.numel() :]
    targets = SlotRows(rows.slot[root], slots, models)
    pattern = SparsePattern(pointers(row, targets.count), col, (targets.count, rows.count))
    position = [model_positions(index, slots // models, models) for index in (rows.slot, slot[row])]
    return EdgeBlock(rows, targets, root, row, pattern, weight, models, *position), read


def _weights(
    aggregation: Aggregation, adj: Adjacency, nodes: Tensor, row: Tensor, source: Tensor, count: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the weights of edges, multiplied by ``d/k`` if k of d neighbors are sampled, and of self-loops.

    Args:
        row, source: target row and source node of each edge.
        count: number of sampled neighbors of each of ``nodes``.
    """
    loop, degree = int(aggregation.self_loops), adj.degrees(nodes)
    looped_degree = (degree + loop).to(torch.float64)
    of_loop = torch.ones_like(looped_degree) if aggregation.target is None else aggregation.target(looped_degree)
    weight = (of_loop * (degree / count.to(torch.float64))).index_select(0, row)
    if aggregation.source is not None:
        weight = aggregation.source((adj.degrees(source) + loop).to(torch.float64)) * weight
        of_loop = of_loop * aggregation.source(looped_degree)
    return weight, of_loop


def relabel(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Compute ``torch.unique(keys, return_inverse=True)`` for keys below ``size``, with a table if that is faster."""
    if size > 16 * keys.numel():
        return torch.unique(keys, return_inverse=True)
    table = torch.zeros(size, dtype=torch.int64, device=keys.device)
    table[keys] = 1
    known = table.nonzero().flatten()
    table[known] = torch.arange(known.numel(), device=keys.device)
    return known, table.index_select(0, keys)


@dataclass(frozen=True, eq=False)
class LinkedBlock(Block):
    """A block of one model.

    Args:
        src, dst: source and target rows.
        links: source rows of each target row; with ``whole``, of every node.
        root: for each target row, the source row of the same node; None if they are the same rows.
        whole: whether ``links`` has a row for every source row; the target rows are those at ``root``.
        before, after: factors of source rows before a sum over neighbors, and of target rows after it.
    """

    src: SlotRows
    dst: SlotRows
    links: Links
    root: Tensor | None
    whole: bool
    before: Tensor | None
    after: Tensor | None
    src_position: ClassVar[None] = None
    src_model: ClassVar[None] = None

    def at_targets(self, h: Tensor) -> Tensor:
        return h if self.root is None else h.index_select(0, self.root)

    def aggregate(self, h: Tensor) -> Tensor:
        h = h if self.before is None else h * self.before.to(h.dtype)
        out = neighbor_sum(h, self.links)
        return self._select_targets(out if self.after is None else out.mul_(self.after.to(h.dtype)))

    def attend(
        self, z: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, drop: DropoutStream, p: float
    ) -> Tensor:
        if self.src.slots == 1:
            vectors = torch.cat([_block_diagonal(att_src[0]), _block_diagonal(att_dst[0])], 1)
            a_src, a_dst = (z.flatten(1) @ vectors).split(z.size(1), 1)
            a_dst = a_dst if self.whole else self.at_targets(a_dst)
        else:
            a_src = (z * self.src.each(att_src)).sum(-1)
            a_dst = (self.at_targets(z) * self.dst.each(att_dst)).sum(-1)
        return self._select_targets(attention(z, a_src, a_dst, self.links, slope, drop.key(p), p))

    def _select_targets(self, out: Tensor) -> Tensor:
        return self.at_targets(out) if self.whole else out


def _block_diagonal(vectors: Tensor) -> Tensor:
    """Return the matrix ``[heads · width, heads]`` that multiplies each head with its vector of ``[heads, width]``."""
    one = torch.eye(vectors.size(0), dtype=vectors.dtype, device=vectors.device)
    return (vectors.unsqueeze(-1) * one.unsqueeze(1)).flatten(0, 1)


def make_linked_block(
    adj: Adjacency, aggregation: Aggregation, nodes: Tensor, slot: Tensor, slots: int, dtype: torch.dtype
) -> tuple[LinkedBlock, Tensor]:
    """Build an exact block of a large graph; see :func:`make_block`."""
    loops, n = aggregation.self_loops, adj.num_nodes
    everything = torch.arange(n, device=nodes.device)
    if slots == 1 and int(adj.degrees(nodes).sum()) > WHOLE_FROM * adj.num_edges:
        links, read, whole = adj.looped if loops else adj, everything, True
        root = None if nodes.numel() == n and torch.equal(nodes, everything) else nodes
        src = SortedRows(torch.zeros_like(everything), 1)
    else:
        links, key, root = _compact(adj, nodes, slot, slots, loops)
        src, read, whole = SortedRows(key // n, slots), key % n, False
    before = after = None
    if aggregation.source is not None or aggregation.target is not None:
        degree = (adj.loop_free_degree + 1 if loops else adj.degree).to(torch.float64).unsqueeze(1)
        if aggregation.source is not None:
            before = aggregation.source(degree)[read].to(dtype)
        if aggregation.target is not None:
            after = aggregation.target(degree)[read if whole else nodes].to(dtype)
    dst = src if root is None else GatheredRows(src.slot[root], slots)
    return LinkedBlock(src, dst, links, root, whole, before, after), read


def _compact(adj: Adjacency, nodes: Tensor, slot: Tensor, slots: int, loops: bool) -> tuple[Links, Tensor, Tensor]:
    """Build links among the rows in use.

    Returns:
        the links, ``slot · num_nodes + node`` of each source row, and the source row of each target node.
    """
    n, device = adj.num_nodes, nodes.device
    target_keys = slot * n + nodes
    used = torch.zeros(slots * n, dtype=torch.bool, device=device)
    used[target_keys] = True
    count = torch.full_like(nodes, int(loops))
    for chunk, row, source in _incoming(adj, nodes, loops):
        used[slot[chunk][row] * n + source] = True
        count[chunk] += torch.bincount(row, minlength=chunk.stop - chunk.start)
    used = used.view(slots, n)
    used |= used.sum(1, keepdim=True) > FILLED_FROM * n
    key = used.flatten().nonzero().flatten()
    position = (used.flatten().cumsum(0) - 1).int()
    rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    col = torch.empty(int(rowptr[-1]), dtype=torch.int32, device=device)
    if loops:
        col[rowptr[1:] - 1] = position[target_keys]
    for chunk, row, source in _incoming(adj, nodes, loops):
        first = int(rowptr[chunk.start])
        entry = torch.arange(row.numel(), device=device) + first + row * int(loops)  # the last entry is the self-loop
        col[entry] = position[slot[chunk][row] * n + source]
    return Links(rowptr, col, int(key.numel())), key, position[target_keys].long()


def _incoming(adj: Adjacency, nodes: Tensor, loops: bool) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield the edges into chunks of ``nodes``, by row; without self-loops if ``loops``, and without copying lists."""
    for rows in adj.chunks(nodes):
        target, source = adj.incoming(nodes[rows])
        other = source != nodes[rows][target] if loops else slice(None)
        yield rows, target[other], source[other]
