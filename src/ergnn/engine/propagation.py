"""``S^K X``: features averaged over neighborhoods, with ``S = D̃^-½ (A + I) D̃^-½`` (Kipf and Welling 2017)."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.engine.adjacency import Adjacency, adjacency_of, pointers
from ergnn.engine.kernels.sums import neighbor_sum
from ergnn.engine.sparse import SparsePattern, spmm
from ergnn.errors import InputError

KEPT = 1 << 28
"""On a CPU, results of more entries than this are not computed for all nodes and kept."""


class NormalizedAdjacency:
    """The matrix ``S = D̃^-½ (A + I) D̃^-½``: each node has exactly one self-loop, and D̃ counts it.

    It is never stored. Small graphs multiply by sparse CSR matrices of a few edges at a time; large ones
    (:attr:`Adjacency.is_large`) use the neighbor-sum kernels.
    """

    def __init__(self, adj: Adjacency) -> None:
        self.adj = adj
        degree = adj.links(True).degree() if adj.is_large else adj.without_loops().degree + 1
        self.scale = degree.to(torch.float64).rsqrt()

    def matmul(self, x: Tensor) -> Tensor:
        """``S x`` for a dense ``x`` of shape ``[n, width]``; differentiable in ``x``."""
        if not self.adj.is_large:
            return self.rows(torch.arange(self.adj.num_nodes, device=x.device), x)
        scale = self.scale.to(x.dtype).unsqueeze(1)
        return neighbor_sum(x * scale, self.adj.links(True)) * scale

    def rows(self, nodes: Tensor, x: Tensor, known: Tensor | None = None) -> Tensor:
        """The rows of ``S x`` at ``nodes``; row i of ``x`` belongs to node ``known[i]``, by default to node i."""
        place = None
        if known is not None:
            place = torch.full((self.adj.num_nodes,), -1, device=known.device)
            place[known] = torch.arange(known.numel(), device=known.device)
        out = [x.new_empty(0, x.size(1))]
        for part in self.adj.chunks(nodes):
            row, source = self.adj.incoming(part, loops=True)
            weight = (self.scale[source] * self.scale[part[row]]).to(x.dtype)
            col = source if place is None else place[source]
            out.append(spmm(SparsePattern(pointers(row, part.numel()), col, (part.numel(), x.size(0))), weight, x))
        return torch.cat(out) if len(out) > 2 else out[-1]


_OPERATORS: WeakKeyDictionary[Graph, NormalizedAdjacency] = WeakKeyDictionary()
_PROPAGATED: WeakKeyDictionary[Graph, dict[tuple[int, torch.dtype], Tensor]] = WeakKeyDictionary()


def normalized_adjacency(graph: Graph) -> NormalizedAdjacency:
    """``S`` of a graph, built once."""
    if graph not in _OPERATORS:
        _OPERATORS[graph] = NormalizedAdjacency(adjacency_of(graph))
    return _OPERATORS[graph]


def propagate(graph: Graph, hops: int, *, nodes: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Rows of ``S^K X``, dense and exact.

    On a small graph only the receptive field of ``nodes`` is read. On a large one, the result for all nodes is computed
    once per graph and kept, unless it has more than :data:`KEPT` entries on a CPU. Do not write to it.

    Args:
        hops: K; 0 gives the features themselves.
        nodes: ``[n]``, in any order; by default every node.
        dtype: of the result; by default that of the features.
    """
    if hops < 0:
        raise InputError(f"hops is {hops}; it must be 0 or more")
    adj, matrix = adjacency_of(graph), normalized_adjacency(graph)
    if dtype is None:
        dtype = graph.x.dtype if graph.x.is_floating_point() else torch.float32
    keep = adj.is_large and (graph.x.is_cuda or graph.num_nodes * graph.num_features <= KEPT)
    if hops and (keep or nodes is None):
        kept = _PROPAGATED.setdefault(graph, {})
        value = kept.get((hops, dtype))
        if value is None:
            value = graph.dense_x().to(dtype)
            for _ in range(hops):
                value = matrix.matmul(value)
            if keep:
                kept[hops, dtype] = value
        return value if nodes is None else value[nodes]
    if nodes is None:
        return graph.dense_x().to(dtype)
    written = [nodes]
    for _ in range(hops):
        written.append(adj.neighborhood(written[-1]))
    known = written.pop()
    value = graph.rows(known).to(dtype)
    while written:
        value, known = matrix.rows(written[-1], value, known), written.pop()
    return value
