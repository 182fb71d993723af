"""A graph's edges in CSR form, and the exact part of them that some nodes' outputs depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ergnn.data.csr import CsrEdges, is_undirected, row_chunks, targets
from ergnn.data.graph import Graph
from ergnn.engine.kernels.links import Links
from ergnn.engine.sparse import SparsePattern, spmm

VECTOR = 64
"""Bytes that a CPU takes at a time; what is left over at a tensor's end may be rounded otherwise."""

LINKED_FROM = 1_000_000
"""Graphs of so many directed edges are large: their blocks share lists of neighbors, see :mod:`ergnn.engine.linked`."""
EDGES = 1 << 20
"""Edges per chunk where many rows are computed."""


class Adjacency:
    """In-neighbours of every node: ``col[rowptr[v]:rowptr[v + 1]]`` are the sources of edges into ``v``."""

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        if isinstance(edge_index, CsrEdges):
            self.rowptr, self.col, self._undirected = edge_index.rowptr, edge_index.col, edge_index.undirected
        else:
            source, target = edge_index
            self.rowptr, self.col = pointers(target, num_nodes), source[torch.argsort(target, stable=True)]
            self._undirected = None
        self._looped: Adjacency | None = None
        self._loop_free: Adjacency | None = None
        self._has_loops: bool | None = None
        self._links: dict[bool, Links] = {}

    @property
    def num_edges(self) -> int:
        return int(self.col.numel())

    @property
    def is_large(self) -> bool:
        return self.num_edges >= LINKED_FROM

    @property
    def undirected(self) -> bool:
        """Whether each edge is there in both directions."""
        if self._undirected is None:
            self._undirected = is_undirected(self.rowptr, self.col)
        return self._undirected

    @property
    def degree(self) -> Tensor:
        return self.rowptr.diff()

    def with_self_loops(self) -> Adjacency:
        """Every node linked to itself exactly once, as GAT and GCN have it."""
        if self._looped is None:
            target = torch.repeat_interleave(torch.arange(self.num_nodes, device=self.col.device), self.degree)
            other = self.col != target
            loop = torch.arange(self.num_nodes, device=self.col.device)
            edges = torch.stack([torch.cat([self.col[other], loop]), torch.cat([target[other], loop])])
            self._looped = Adjacency(edges, self.num_nodes)
        return self._looped

    def without_loops(self) -> Adjacency:
        """The same edges without those from a node to itself; the same object where there are none."""
        if self._has_loops is None:
            self._has_loops = any(
                bool((self.col[start:end] == targets(self.rowptr[first : last + 1]) + first).any())
                for first, last, start, end in row_chunks(self.rowptr)
            )
        if not self._has_loops:
            return self
        if self._loop_free is None:
            target = targets(self.rowptr)
            other = self.col != target
            self._loop_free = Adjacency(torch.stack([self.col[other].long(), target[other]]), self.num_nodes)
            self._loop_free._has_loops = False
        return self._loop_free

    def links(self, loops: bool) -> Links:
        """All edges as the kernels take them; with ``loops``, every node linked to itself exactly once."""
        if loops and True not in self._links:
            self._links[True] = self.links(False).with_loops()
        elif False not in self._links:
            self._links[False] = Links(self.rowptr, self.col.int(), self.num_nodes, undirected=self.undirected)
        return self._links[loops]

    def incoming(self, nodes: Tensor, loops: bool = False) -> tuple[Tensor, Tensor]:
        """Edges into ``nodes``: for each, the position in ``nodes`` (ascending) and the source node.

        With ``loops``, every node has exactly one edge from itself, the last of its edges.
        """
        if loops:
            row, source = self.without_loops().incoming(nodes)
            row, source = merge_loops(row, nodes.numel(), source, nodes)
            return row, source
        count = self.rowptr[nodes + 1] - self.rowptr[nodes]
        row = torch.repeat_interleave(torch.arange(nodes.numel(), device=nodes.device), count)
        start = self.rowptr[nodes] - (count.cumsum(0) - count)
        return row, self.col[start[row] + torch.arange(row.numel(), device=row.device)].long()

    def neighborhood(self, nodes: Tensor) -> Tensor:
        """``nodes`` and all that have an edge into one of them, ascending."""
        seen = torch.zeros(self.num_nodes, dtype=torch.bool, device=nodes.device)
        seen[nodes] = True
        for part in self.chunks(nodes):
            seen[self.incoming(part)[1]] = True
        return seen.nonzero().flatten()

    def chunks(self, nodes: Tensor) -> Iterator[Tensor]:
        """``nodes`` in runs of about :data:`EDGES` edges, and never more than that many rows."""
        upto = (self.rowptr[nodes + 1] - self.rowptr[nodes] + 1).cumsum(0).cpu()
        first = 0
        while first < nodes.numel():
            done = int(upto[first - 1]) if first else 0
            last = max(int(torch.searchsorted(upto, done + EDGES, right=True)), first + 1)
            yield nodes[first:last]
            first = last


def merge_loops(row: Tensor, rows: int, *values: Tensor) -> tuple[Tensor, ...]:
    """Give each row one more edge, its last: the new row of each edge, and every pair of values merged likewise.

    Args:
        row: of each edge, ascending.
        values: alternately a value per edge and a value per row.
    """
    own = torch.arange(rows, device=row.device)
    loop = torch.bincount(row, minlength=rows).cumsum(0) + own
    edge = torch.arange(row.numel(), device=row.device) + row
    merged = []
    for old, new in zip((row, *values[::2]), (own, *values[1::2]), strict=True):
        out = old.new_empty(old.numel() + new.numel())
        merged.append(out.index_copy_(0, edge, old).index_copy_(0, loop, new))
    return tuple(merged)


_ADJACENCIES: WeakKeyDictionary[Graph, Adjacency] = WeakKeyDictionary()


def adjacency_of(graph: Graph) -> Adjacency:
    """The graph's adjacency, built once."""
    if graph not in _ADJACENCIES:
        _ADJACENCIES[graph] = Adjacency(graph.edge_index, graph.num_nodes)
    return _ADJACENCIES[graph]


class Rows:
    """Which *slot* each row belongs to: the set of parameters that it is computed with.

    A slot is a model in a batch of models, or one of the heads of one. The last bits of a sum depend on its order, and
    training tells two orders apart in the end; so on a CPU, products and gradients are added up for each model as it
    would do it alone, and every bit is the same.

    Args:
        slot: ``[rows]``; those of a model follow one another.
        slots: how many there are.
        models: how many models the slots are shared out to, evenly.
    """

    def __init__(self, slot: Tensor, slots: int, models: int = 1) -> None:
        self.slot, self.slots = slot, slots
        self.count = int(slot.numel())
        self.parts: list[Rows] = []
        self.sizes = [self.count]
        if models > 1 and slot.device.type == "cpu":
            each = slots // models
            self.sizes = torch.bincount(slot // each, minlength=models).tolist()
            self.parts = [Rows(part - i * each, each) for i, part in enumerate(slot.split(self.sizes))]
        elif slots > 1:
            order = torch.argsort(slot, stable=True)
            size = torch.bincount(slot, minlength=slots)
            self._size = int(size.max()) if self.count else 0
            rank = torch.arange(self.count, device=slot.device) - (size.cumsum(0) - size)[slot[order]]
            self._place = torch.empty_like(order).index_copy(0, order, rank + slot[order] * self._size)
            self._pads = slots * self._size <= 2 * self.count
            if not self._pads:  # one large slot among many small ones
                self._largest = int(size.argmax())
                large = slot == self._largest
                self._split = torch.cat([large.nonzero().flatten(), (~large).nonzero().flatten()])
                self._joined = torch.empty_like(order).index_copy(
                    0, self._split, torch.arange(self.count, device=slot.device)
                )

    def matmul(self, h: Tensor, weight: Tensor) -> Tensor:
        """Each row times the matrix of its slot; ``weight`` is ``[slots, in, out]``."""
        if self.parts:
            own = zip(self.parts, h.split(self.sizes), weight.split(self.parts[0].slots), strict=True)
            return torch.cat([part.matmul(a, w) for part, a, w in own])
        if self.slots == 1:
            return h @ weight[0]
        if not self._pads:
            large, small = h.index_select(0, self._split).split([self._size, self.count - self._size])
            each = weight.index_select(0, self.slot.index_select(0, self._split[self._size :]))
            out = torch.cat([large @ weight[self._largest], (small.unsqueeze(2) * each).sum(1)])
            return out.index_select(0, self._joined)
        padded = h.new_zeros(self.slots * self._size, h.size(1)).index_copy(0, self._place, h)
        out = torch.bmm(padded.view(self.slots, self._size, h.size(1)), weight)
        return out.flatten(0, 1).index_select(0, self._place)

    def each(self, parameter: Tensor) -> Tensor:
        """The entry of ``parameter`` (``[slots, …]``) for each row (on a GPU, one slot's is left to broadcast)."""
        alone = self.slots == 1 and parameter.device.type != "cpu"
        return parameter if alone else parameter.index_select(0, self.slot)

    def apply(self, function: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
        """A function of each entry; what does not fill a vector of the processor is rounded otherwise by some."""
        if not self.parts or h.size(1) * h.element_size() % VECTOR == 0:
            return function(h)
        return torch.cat([function(part) for part in h.split(self.sizes)])


@dataclass(frozen=True, eq=False)
class Block:
    """One layer's edges, from the rows it reads (sources) to the rows it writes (targets).

    Args:
        src, dst: the rows.
        root: for each target row, the source row of the same node.
        row: target row of each edge, ascending.
        col: source row of each edge.
        weight: what a sum over neighbours multiplies each edge with.
        models: how many models stand side by side.
        src_position, edge_position: int32 place of a source row and of an edge inside its own model.
    """

    src: Rows
    root: Tensor
    row: Tensor
    col: Tensor
    weight: Tensor
    models: int
    src_position: Tensor
    edge_position: Tensor
    dst: Rows = field(init=False)
    pattern: SparsePattern = field(init=False)

    def __post_init__(self) -> None:
        rows = Rows(self.src.slot[self.root], self.src.slots, self.models)
        pattern = SparsePattern(pointers(self.row, rows.count), self.col, (rows.count, self.src.count))
        object.__setattr__(self, "dst", rows)
        object.__setattr__(self, "pattern", pattern)

    @property
    def src_model(self) -> Tensor:
        return self.src.slot // (self.src.slots // self.models)

    @property
    def edge_model(self) -> Tensor:
        return self.dst.slot[self.row] // (self.src.slots // self.models)

    def at_targets(self, h: Tensor) -> Tensor:
        """The target rows of what source rows have."""
        return h.index_select(0, self.root)

    def aggregate(self, h: Tensor) -> Tensor:
        """``Σ_j weight_ij h_j`` over the edges into each target row."""
        return spmm(self.pattern, self.weight.to(h.dtype), h)


def make_block(
    adj: Adjacency,
    aggregation: str,
    nodes: Tensor,
    slot: Tensor,
    slots: int,
    dtype: torch.dtype = torch.float32,
) -> tuple[Block, Tensor]:
    """The block whose target rows are ``nodes``, each computed with the parameters of its ``slot``.

    Args:
        adj: the whole graph; coefficients come from its degrees, so a small field stays exact.
        aggregation: ``attention`` and ``gcn`` (with self-loops), ``mean``, ``sum``, or ``none`` (no edges).
        dtype: of the coefficients.

    Returns:
        the block and the node of each of its source rows.
    """
    n = adj.num_nodes
    if aggregation in ("attention", "gcn"):
        adj = adj.with_self_loops()
    if aggregation == "none":
        row = source = nodes.new_empty(0)
    else:
        row, source = adj.incoming(nodes)
    key, place = torch.unique(torch.cat([slot * n + nodes, slot[row] * n + source]), return_inverse=True)
    root, col = place[: nodes.numel()], place[nodes.numel() :]
    if aggregation == "gcn":
        scale = adj.degree.to(torch.float64).rsqrt()
        weight = scale[source] * scale[nodes[row]]
    elif aggregation == "mean":
        weight = adj.degree.to(torch.float64)[nodes[row]].reciprocal()
    else:
        weight = torch.ones(row.numel(), dtype=torch.float64, device=nodes.device)
    position = [torch.arange(size, dtype=torch.int32, device=nodes.device) for size in (key.numel(), row.numel())]
    return Block(Rows(key // n, slots), root, row, col, weight.to(dtype), 1, *position), key % n


def join_blocks(blocks: list[Block]) -> Block:
    """Put the blocks of several models side by side, as one block-diagonal one."""
    if len(blocks) == 1:
        return blocks[0]
    src = _offsets([block.src.count for block in blocks])
    dst = _offsets([block.dst.count for block in blocks])
    slot = _offsets([block.src.slots for block in blocks])
    models = sum(block.models for block in blocks)
    slots = torch.cat([block.src.slot + s for block, s in zip(blocks, slot, strict=True)])
    return Block(
        Rows(slots, sum(block.src.slots for block in blocks), models),
        torch.cat([block.root + s for block, s in zip(blocks, src, strict=True)]),
        torch.cat([block.row + s for block, s in zip(blocks, dst, strict=True)]),
        torch.cat([block.col + s for block, s in zip(blocks, src, strict=True)]),
        torch.cat([block.weight for block in blocks]),
        models,
        torch.cat([block.src_position for block in blocks]),
        torch.cat([block.edge_position for block in blocks]),
    )


def pointers(index: Tensor, size: int) -> Tensor:
    count = torch.bincount(index, minlength=size)
    return torch.cat([count.new_zeros(1), count.cumsum(0)])


def _offsets(sizes: list[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]
