"""``S^K X``: features averaged over neighborhoods, with ``S = D̃^-½ (A + I) D̃^-½`` (Kipf and Welling 2017)."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.csr import pointers
from ergnn.data.graph import Graph
from ergnn.engine.adjacency import adjacency_of, merge_loops
from ergnn.engine.blocks import LinkedBlock, make_block, make_linked_block
from ergnn.engine.cache import Cache
from ergnn.engine.features import SparsePattern, spmm
from ergnn.nn.layers import SYMMETRIC

MATRIX_EDGES = 1 << 22
"""Maximum number of edges of a graph that is stored as a sparse matrix on a CPU."""
SMALL_CACHED, MAX_CACHED, ALL_CACHED = 1 << 25, 1 << 28, 1 << 29
"""Maximum number of entries of a result that is cached, for small graphs and for large ones on a CPU (small graphs on a
GPU count as large), and of all cached results together."""


class NormalizedAdjacency:
    """``S = D̃^-½ (A + I) D̃^-½`` of a whole graph: the sums over neighbors of GCN (``SYMMETRIC`` in ``nn.layers``).

    Row v of ``S x`` sums over v and its in-neighbors. D̃ contains the in-degrees for both ends of an edge, also if the
    graph is directed. Every node has exactly one self-loop of weight 1, regardless of self-loops in the graph. On a
    CPU, graphs with at most :data:`MATRIX_EDGES` edges are stored as a sparse matrix, as are graphs with edge weights;
    all others use the kernels for neighbor sums.

    Args:
        graph: the graph.
        edge_weight: ``[edges]``, the weight of each column of ``graph.edge_index``, 0 or more; by default all 1.
    """

    def __init__(self, graph: Graph, edge_weight: Tensor | None = None) -> None:
        self.adj, self.device, n = adjacency_of(graph), graph.device, graph.num_nodes
        self._block: LinkedBlock | None = None
        if edge_weight is None and (self.device.type != "cpu" or self.adj.num_edges > MATRIX_EDGES):
            nodes = torch.arange(n, device=self.device)
            self._block = make_linked_block(self.adj, SYMMETRIC, nodes, torch.zeros_like(nodes), 1, torch.float64)[0]
            return
        row, col, weight = _entries(graph, edge_weight)
        scale = weight.new_zeros(n).index_add_(0, row, weight).rsqrt()
        self._pattern = SparsePattern(pointers(row, n).int(), col.int(), (n, n))  # products use 32-bit indices
        self._weights = {torch.float64: scale[col] * weight * scale[row]}

    def matmul(self, x: Tensor) -> Tensor:
        """Compute ``S x`` for a dense ``x`` of shape ``[nodes, columns]``, in its dtype; differentiable in ``x``."""
        if self._block is not None:
            return self._block.aggregate(x)
        if x.dtype not in self._weights:
            self._weights[x.dtype] = self._weights[torch.float64].to(x.dtype)
        return spmm(self._pattern, self._weights[x.dtype], x)

    @property
    def T(self) -> NormalizedAdjacency:
        """The transpose, for :meth:`matmul`."""
        other = copy(self)
        if self._block is not None:
            other._block = replace(self._block, links=self._block.links.transposed())
        else:
            other._pattern, order = self._pattern.transposed
            other._weights = {dtype: weight[order] for dtype, weight in self._weights.items()}
        return other


def _entries(graph: Graph, edge_weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows (ascending), columns and values of ``A + I``; the self-loop is the last entry of each row."""
    source, target = graph.edge_index.long()
    weight = torch.ones_like(source) if edge_weight is None else edge_weight
    if weight.shape != source.shape:
        raise InputError(
            f"{graph.name}: edge_weight has shape {tuple(weight.shape)}; expected [{graph.num_edges}], one per edge"
        )
    if not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        raise InputError(f"{graph.name}: an edge weight is negative, NaN or infinite; weights must be 0 or more")
    other = (source != target).nonzero().flatten()
    order = other[torch.argsort(target[other], stable=True)]
    row, nodes = target[order], torch.arange(graph.num_nodes, device=graph.device)
    value, loop = weight[order].double(), torch.ones_like(nodes, dtype=torch.float64)
    count = torch.bincount(row, minlength=graph.num_nodes)
    row, col, value = merge_loops(row, count, source[order], nodes, value, loop)
    return row, col, value


_OPERATORS: Cache[NormalizedAdjacency] = Cache()
_PROPAGATED: Cache[Tensor] = Cache(ALL_CACHED, Tensor.numel)


def normalized_adjacency(graph: Graph) -> NormalizedAdjacency:
    """Return ``S`` of a graph without edge weights, cached per ``edge_index``, which several graphs may share."""
    return _OPERATORS.get([graph.edge_index], lambda: NormalizedAdjacency(graph), graph.num_nodes)


def propagate(graph: Graph, hops: int, *, nodes: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Compute rows of ``S^K X``, dense and exact.

    The result for all nodes is computed once per graph and cached, unless it is too large (:data:`SMALL_CACHED`,
    :data:`MAX_CACHED`; large graphs on a GPU are always cached). Otherwise, only the receptive field of ``nodes`` is
    used. Do not modify the result.

    Args:
        hops: K; 0 returns the features.
        nodes: ``[n]``, in any order; by default all nodes.
        dtype: dtype of the result; by default that of the features.
    """
    if hops < 0:
        raise InputError(f"hops is {hops}; it must be 0 or more")
    adj = adjacency_of(graph)
    if dtype is None:
        dtype = graph.x.dtype if graph.x.is_floating_point() else torch.float32
    size, on_gpu = graph.num_nodes * graph.num_features, graph.x.is_cuda
    keep = size <= (MAX_CACHED if adj.is_large or on_gpu else SMALL_CACHED) or (adj.is_large and on_gpu)
    if nodes is not None and not (hops and keep):
        make: Any = partial(make_linked_block if adj.is_large else make_block, adj, SYMMETRIC, slots=1, dtype=dtype)
        return rows_from_blocks(graph, hops, nodes, torch.zeros_like(nodes), dtype, make)

    def compute() -> Tensor:
        value = graph.dense_x().to(dtype)
        for _ in range(hops):
            value = normalized_adjacency(graph).matmul(value)
        return value

    sources = [graph.x, graph.edge_index]
    value = _PROPAGATED.get(sources, compute, (hops, dtype)) if hops and keep else compute()
    return value if nodes is None else value[nodes]


def rows_from_blocks(graph: Graph, hops: int, nodes: Tensor, slot: Tensor, dtype: torch.dtype, make: Any) -> Tensor:
    """Compute rows of ``S^K X`` from the receptive field of ``nodes``; ``make(nodes, slot)`` returns each block."""
    if hops == 0:
        return graph.rows(nodes).to(dtype)
    block, sources = make(nodes, slot)
    rows: Tensor = block.aggregate(rows_from_blocks(graph, hops - 1, sources, block.src.slot, dtype, make))
    return rows
