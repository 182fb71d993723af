"""Blocks of large graphs: lists of in-neighbours shared by all layers, and nothing else of the size of the edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ergnn.data.csr import row_chunks
from ergnn.engine.adjacency import Adjacency, Rows
from ergnn.engine.kernels.attention import attention
from ergnn.engine.kernels.links import Links
from ergnn.engine.kernels.sums import neighbour_sum

WHOLE_FROM = 0.4
"""A block of more than this share of the edges is the whole graph's, whose lists are there already."""
FILLED_FROM = 0.75
"""Where more than this share of the nodes is read, all are."""
CHUNK = 1 << 22
"""Edges at a time while a block is made."""


class Runs(Rows):
    """Rows in the order of their slots, of sizes that may differ much: one product a slot, whose sums are in order."""

    def __init__(self, slot: Tensor, slots: int) -> None:
        self.slot, self.slots, self.count = slot, slots, int(slot.numel())
        self.parts = []
        self.sizes = torch.bincount(slot, minlength=slots).tolist()

    def matmul(self, h: Tensor, weight: Tensor) -> Tensor:
        if self.slots == 1:
            return h @ weight[0]
        return torch.cat([part @ matrix for part, matrix in zip(h.split(self.sizes), weight, strict=True)])

    def each(self, parameter: Tensor) -> Tensor:
        if self.slots == 1:
            return parameter
        runs = zip(parameter.split(1), self.sizes, strict=True)
        return torch.cat([value.expand(size, *value.shape[1:]) for value, size in runs])


class Chosen(Rows):
    """Rows in any order; entries of their slots are read by a product, whose gradient is added up in a fixed order."""

    def __init__(self, slot: Tensor, slots: int) -> None:
        super().__init__(slot, slots)
        self._one = torch.nn.functional.one_hot(slot, slots)

    def each(self, parameter: Tensor) -> Tensor:
        if self.slots == 1:
            return parameter
        return (self._one.to(parameter.dtype) @ parameter.flatten(1)).view(-1, *parameter.shape[1:])


@dataclass(frozen=True, eq=False)
class LinkedBlock:
    """One layer's edges, from the rows it reads (sources) to the rows it writes (targets); of one model.

    Args:
        src: the source rows.
        links: which source rows each target row reads; of the whole graph, those of every node.
        root: for each target row, the source row of the same node; None where they are the same rows.
        whole: whether ``links`` has a row for every source row, of which those at ``root`` are wanted.
        before, after: what a sum over neighbours multiplies source rows and then target rows with.
    """

    src: Rows
    links: Links
    root: Tensor | None
    whole: bool
    before: Tensor | None
    after: Tensor | None
    dst: Rows = field(init=False)
    src_position: None = field(init=False, default=None)
    src_model: None = field(init=False, default=None)

    def __post_init__(self) -> None:
        rows = self.src if self.root is None else Chosen(self.src.slot[self.root], self.src.slots)
        object.__setattr__(self, "dst", rows)

    def at_targets(self, h: Tensor) -> Tensor:
        """The target rows of what source rows have."""
        return h if self.root is None else h.index_select(0, self.root)

    def aggregate(self, h: Tensor) -> Tensor:
        """``Σ_j after_i before_j h_j`` over the edges into each target row."""
        h = h if self.before is None else h * self.before
        out = neighbour_sum(h, self.links)
        out = out if self.after is None else out * self.after
        return self._wanted(out)

    def attend(self, z: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, key: Tensor | None, p: float) -> Tensor:
        """Attention over ``z``, ``[sources, heads, width]``, with vectors ``[slots, heads, width]``."""
        if self.src.slots == 1:
            vectors = torch.cat([_spread(att_src[0]), _spread(att_dst[0])], 1)
            a_src, a_dst = (z.flatten(1) @ vectors).split(z.size(1), 1)
            a_dst = a_dst if self.whole else self.at_targets(a_dst)
        else:
            a_src = (z * self.src.each(att_src)).sum(-1)
            a_dst = (self.at_targets(z) * self.dst.each(att_dst)).sum(-1)
        return self._wanted(attention(z, a_src, a_dst, self.links, slope, key, p))

    def _wanted(self, out: Tensor) -> Tensor:
        return self.at_targets(out) if self.whole else out


def _spread(vectors: Tensor) -> Tensor:
    """Vectors ``[heads, width]`` as the matrix ``[heads · width, heads]`` that multiplies each head with its own."""
    one = torch.eye(vectors.size(0), dtype=vectors.dtype, device=vectors.device)
    return (vectors.unsqueeze(-1) * one.unsqueeze(1)).flatten(0, 1)


def make_linked_block(
    adj: Adjacency, aggregation: str, nodes: Tensor, slot: Tensor, slots: int, dtype: torch.dtype = torch.float32
) -> tuple[LinkedBlock, Tensor]:
    """As :func:`~ergnn.engine.adjacency.make_block`, for any aggregation but ``none`` on a large graph."""
    loops, n = aggregation in ("attention", "gcn"), adj.num_nodes
    everything = torch.arange(n, device=nodes.device)
    if slots == 1 and int(adj.degree[nodes].sum()) > WHOLE_FROM * adj.num_edges:
        links, read, whole = adj.links(loops), everything, True
        root = None if nodes.numel() == n and torch.equal(nodes, everything) else nodes
        src = Runs(torch.zeros_like(everything), 1)
    else:
        links, key, root = _compact(adj, nodes, slot, slots, loops)
        src, read, whole = Runs(key // n, slots), key % n, False
    before = after = None
    target = read if whole else nodes
    if aggregation == "gcn":
        scale = adj.links(True).degree().to(torch.float64).rsqrt().unsqueeze(1)
        before, after = scale[read].to(dtype), scale[target].to(dtype)
    elif aggregation == "mean":
        after = adj.degree.to(torch.float64).clamp(min=1).reciprocal().unsqueeze(1)[target].to(dtype)
    return LinkedBlock(src, links, root, whole, before, after), read


def _compact(adj: Adjacency, nodes: Tensor, slot: Tensor, slots: int, loops: bool) -> tuple[Links, Tensor, Tensor]:
    """Links among the rows in use only; the (slot, node) of each source row as one number; each target's own row."""
    n, device = adj.num_nodes, nodes.device
    own = slot * n + nodes
    used = torch.zeros(slots * n, dtype=torch.bool, device=device)
    used[own] = True
    count = torch.full_like(nodes, int(loops))
    for part, row, source in _incoming(adj, nodes, loops):
        used[slot[part][row] * n + source] = True
        count[part] += torch.bincount(row, minlength=part.stop - part.start)
    used = used.view(slots, n)
    used |= used.sum(1, keepdim=True) > FILLED_FROM * n
    key = used.flatten().nonzero().flatten()
    place = (used.flatten().cumsum(0) - 1).int()
    rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    col = torch.empty(int(rowptr[-1]), dtype=torch.int32, device=device)
    if loops:
        col[rowptr[1:] - 1] = place[own]
    for part, row, source in _incoming(adj, nodes, loops):
        first = int(rowptr[part.start])
        at = torch.arange(row.numel(), device=device) + first + row * int(loops)  # a row's last entry is its own
        col[at] = place[slot[part][row] * n + source]
    return Links(rowptr, col, int(key.numel())), key, place[own].long()


def _incoming(adj: Adjacency, nodes: Tensor, loops: bool) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Edges into runs of ``nodes``, by row; without those from a node to itself if each is to have one in any case."""
    size = adj.degree[nodes]
    for row, stop, _, _ in row_chunks(torch.cat([size.new_zeros(1), size.cumsum(0)]), CHUNK):
        target, source = adj.incoming(nodes[row:stop])
        if loops:
            other = source != nodes[row:stop][target]
            target, source = target[other], source[other]
        yield slice(row, stop), target, source
