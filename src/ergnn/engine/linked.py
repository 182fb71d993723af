"""Blocks of large graphs: all layers share the lists of in-neighbors, and nothing else is stored per edge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ergnn.data.csr import row_chunks
from ergnn.engine.adjacency import Adjacency
from ergnn.engine.dropout import DropoutStream
from ergnn.engine.kernels.attention import attention
from ergnn.engine.kernels.links import Links
from ergnn.engine.kernels.sums import neighbor_sum
from ergnn.engine.slots import GatheredRows, SlotRows, SortedRows
from ergnn.nn.layers import Aggregation, Block

WHOLE_FROM = 0.4
"""A block with more than this fraction of the edges uses the lists of the whole graph."""
FILLED_FROM = 0.75
"""If a block needs more than this fraction of the nodes, all nodes are included."""
CHUNK_EDGES = 1 << 22
"""Number of edges per chunk while building a block."""


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
    """Build an exact block of a large graph; see :func:`~ergnn.engine.blocks.make_block`."""
    loops, n = aggregation.self_loops, adj.num_nodes
    everything = torch.arange(n, device=nodes.device)
    if slots == 1 and int(adj.degrees(nodes).sum()) > WHOLE_FROM * adj.num_edges:
        links, read, whole = adj.links(loops), everything, True
        root = None if nodes.numel() == n and torch.equal(nodes, everything) else nodes
        src = SortedRows(torch.zeros_like(everything), 1)
    else:
        links, key, root = _compact(adj, nodes, slot, slots, loops)
        src, read, whole = SortedRows(key // n, slots), key % n, False
    before = after = None
    if aggregation.source is not None or aggregation.target is not None:
        degree = adj.links(loops).degree.to(torch.float64).unsqueeze(1)
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
    """Yield the edges into chunks of ``nodes``, by row; without self-loops if ``loops``."""
    size = adj.degrees(nodes)
    for row, stop, _, _ in row_chunks(torch.cat([size.new_zeros(1), size.cumsum(0)]), CHUNK_EDGES):
        target, source = adj.incoming(nodes[row:stop])
        if loops:
            other = source != nodes[row:stop][target]
            target, source = target[other], source[other]
        yield slice(row, stop), target, source
