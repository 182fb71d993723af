"""A graph's edges in CSR form."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from ergnn.data.csr import CsrEdges, pointers, row_chunks, row_entries, targets
from ergnn.data.graph import Graph
from ergnn.engine.cache import Cache
from ergnn.engine.kernels import Links

LINKED_FROM = 1_000_000
"""Minimum number of directed edges of a large graph, whose blocks share lists of neighbors (:mod:`.blocks`)."""
CHUNK_EDGES = 1 << 20
"""Number of edges per chunk."""


class Adjacency(Links):
    """In-neighbors of every node: ``col[rowptr[v]:rowptr[v + 1]]`` are the sources of edges into ``v``."""

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        if isinstance(edge_index, CsrEdges):
            rowptr, col, undirected = edge_index.rowptr, edge_index.col, edge_index.undirected
        else:
            source, target = edge_index
            rowptr, col, undirected = pointers(target, num_nodes), source[torch.argsort(target, stable=True)], None
        super().__init__(rowptr, col.int(), num_nodes, undirected=undirected)

    @property
    def num_edges(self) -> int:
        return int(self.col.numel())

    @property
    def is_large(self) -> bool:
        return self.num_edges >= LINKED_FROM

    @property
    def degree(self) -> Tensor:
        return self.rowptr.diff()

    def degrees(self, nodes: Tensor) -> Tensor:
        """Return the in-degrees of ``nodes``."""
        return self.rowptr.index_select(0, nodes + 1) - self.rowptr.index_select(0, nodes)

    def without_loops(self) -> Adjacency:
        """Return the adjacency without self-loops; the same object if it has none."""
        return self._loop_free or self

    @cached_property
    def loop_free_degree(self) -> Tensor:
        """The in-degrees without self-loops."""
        size = self.degree.clone()
        for row, stop, first, last in row_chunks(self.rowptr):
            target = targets(self.rowptr[row : stop + 1])
            size[row:stop] -= torch.bincount(target[self.col[first:last] == target + row], minlength=stop - row)
        return size

    @cached_property
    def _loop_free(self) -> Adjacency | None:
        """The adjacency without self-loops; None if it has none (not itself: a cycle would keep it in memory)."""
        if torch.equal(self.loop_free_degree, self.degree):
            return None
        rowptr = torch.nn.functional.pad(self.loop_free_degree.cumsum(0), (1, 0))
        adjacency = Adjacency(CsrEdges(rowptr, self.col[self.col != targets(self.rowptr)]), self.num_nodes)
        adjacency._loop_free = None
        return adjacency

    @cached_property
    def looped(self) -> Links:
        """The same lists, in which every node has exactly one self-loop."""
        return Links(self.rowptr, self.col, self.num_nodes, True, self.undirected)

    def incoming(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges into ``nodes``: the position in ``nodes`` (ascending) and the source node of each."""
        _, row, entry = row_entries(self.rowptr, nodes)
        return row, self.col[entry].long()

    def neighborhood(self, nodes: Tensor) -> Tensor:
        """Return ``nodes`` and their in-neighbors, in ascending order."""
        seen = torch.zeros(self.num_nodes, dtype=torch.bool, device=nodes.device)
        seen[nodes] = True
        for rows in self.chunks(nodes):
            seen[self.incoming(nodes[rows])[1]] = True
        return seen.nonzero().flatten()

    def chunks(self, nodes: Tensor) -> Iterator[slice]:
        """Split the rows of ``nodes`` into chunks of about :data:`CHUNK_EDGES` edges, and at most that many rows."""
        size = self.degrees(nodes) + 1
        for first, last, _, _ in row_chunks(torch.cat([size.new_zeros(1), size.cumsum(0)]), CHUNK_EDGES):
            yield slice(first, last)


def merge_loops(row: Tensor, count: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Append one self-loop to the edges of each row.

    Args:
        row: row of each edge, ascending.
        count: number of edges per row.
        values: pairs of tensors, alternately with a value per edge and a value per self-loop.

    Returns:
        the row of each edge after the insertion, and one tensor per pair with the values of edges and self-loops.
    """
    rows = torch.arange(count.numel(), device=row.device)
    loop = count.cumsum(0) + rows
    edge = torch.arange(row.numel(), device=row.device) + row
    merged = []
    for old, new in zip((row, *values[::2]), (rows, *values[1::2]), strict=True):
        out = old.new_empty(old.numel() + new.numel())
        merged.append(out.index_copy_(0, edge, old).index_copy_(0, loop, new))
    return tuple(merged)


_ADJACENCIES: Cache[Adjacency] = Cache()


def adjacency_of(graph: Graph) -> Adjacency:
    """Return the adjacency of a graph, cached per ``edge_index``, which several graphs may share."""
    edges, n = graph.edge_index, graph.num_nodes
    return _ADJACENCIES.get([edges], lambda: Adjacency(edges, n), n)
