"""A graph's edges in CSR form."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ergnn.data.csr import CsrEdges, is_undirected, row_chunks, targets
from ergnn.data.graph import Graph
from ergnn.engine.kernels.links import Links

LINKED_FROM = 1_000_000
"""Graphs of so many directed edges are large: their blocks share lists of neighbors, see :mod:`ergnn.engine.linked`."""
EDGES = 1 << 20
"""Edges per chunk where many rows are computed."""


class Adjacency:
    """In-neighbors of every node: ``col[rowptr[v]:rowptr[v + 1]]`` are the sources of edges into ``v``."""

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        if isinstance(edge_index, CsrEdges):
            self.rowptr, self.col, self._undirected = edge_index.rowptr, edge_index.col, edge_index.undirected
        else:
            source, target = edge_index
            self.rowptr, self.col = pointers(target, num_nodes), source[torch.argsort(target, stable=True)]
            self._undirected = None
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
        """Whether each edge is present in both directions."""
        if self._undirected is None:
            self._undirected = is_undirected(self.rowptr, self.col)
        return self._undirected

    @property
    def degree(self) -> Tensor:
        return self.rowptr.diff()

    def degrees(self, nodes: Tensor) -> Tensor:
        """The in-degrees of some nodes."""
        return self.rowptr.index_select(0, nodes + 1) - self.rowptr.index_select(0, nodes)

    def without_loops(self) -> Adjacency:
        """The same edges without those from a node to itself; the same object if there are none."""
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
            adj = self.without_loops()
            row, source = adj.incoming(nodes)
            row, source = merge_loops(row, adj.degrees(nodes), source, nodes)
            return row, source
        count = self.degrees(nodes)
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
        upto = (self.degrees(nodes) + 1).cumsum(0).cpu()
        first = 0
        while first < nodes.numel():
            done = int(upto[first - 1]) if first else 0
            last = max(int(torch.searchsorted(upto, done + EDGES, right=True)), first + 1)
            yield nodes[first:last]
            first = last


def merge_loops(row: Tensor, count: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Give each row one more edge, its last: the new row of each edge, and every pair of values merged the same way.

    Args:
        row: of each edge, ascending.
        count: how many edges each row has.
        values: alternately a value per edge and a value per row.
    """
    own = torch.arange(count.numel(), device=row.device)
    loop = count.cumsum(0) + own
    edge = torch.arange(row.numel(), device=row.device) + row
    merged = []
    for old, new in zip((row, *values[::2]), (own, *values[1::2]), strict=True):
        out = old.new_empty(old.numel() + new.numel())
        merged.append(out.index_copy_(0, edge, old).index_copy_(0, loop, new))
    return tuple(merged)


_ADJACENCIES = WeakTensorKeyDictionary()
"""Edge index → number of nodes → its version, and the adjacency: graphs that share edges share their adjacency."""


def adjacency_of(graph: Graph) -> Adjacency:
    """The adjacency of a graph's edges, built once per ``edge_index`` tensor, and again if that was written to."""
    edges = graph.edge_index
    made, version = _ADJACENCIES.setdefault(edges, {}), version_of(edges)
    if graph.num_nodes not in made or made[graph.num_nodes][0] != version:
        made[graph.num_nodes] = version, Adjacency(edges, graph.num_nodes)
    adj: Adjacency = made[graph.num_nodes][1]
    return adj


def version_of(value: Tensor) -> int:
    """A number that changes whenever a tensor is written to (a tensor of inference mode never is)."""
    return 0 if value.is_inference() else value._version


def pointers(index: Tensor, size: int) -> Tensor:
    """Where each row starts, from the row of each entry."""
    count = torch.bincount(index, minlength=size)
    return torch.cat([count.new_zeros(1), count.cumsum(0)])
