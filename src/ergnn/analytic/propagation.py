"""The normalized adjacency matrix of a graph as an operator."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.kernels.links import Links
from ergnn.engine.kernels.sums import neighbor_sum
from ergnn.errors import InputError

MATRIX_EDGES = 1 << 22
"""On a CPU, graphs of at most this many edges are stored as a sparse matrix."""


class NormalizedAdjacency:
    """``S = D̃^-½ (A + I) D̃^-½``, as in GCN.

    Row v of ``S x`` sums over the in-neighbors of v and v itself. D̃ contains in-degrees for both ends of an edge, also
    in a directed graph. Each node has exactly one self-loop of weight 1, regardless of the self-loops of the graph. A
    node without edges keeps its own row. Small or weighted graphs are stored as a sparse matrix; others use the kernels
    for neighbor sums.

    Args:
        graph: the graph.
        edge_weight: ``[edges]``, the weight of each column of ``graph.edge_index``, 0 or more; by default all 1.
    """

    def __init__(self, graph: Graph, edge_weight: Tensor | None = None) -> None:
        self.num_nodes, self.device = graph.num_nodes, graph.device
        self._links: Links | None = None
        self._matrices: dict[torch.dtype, Tensor] = {}
        self._transposed: NormalizedAdjacency | None = None
        if edge_weight is not None or (graph.device.type == "cpu" and graph.num_edges <= MATRIX_EDGES):
            self._matrices[torch.float64] = _matrix(graph, edge_weight)
        else:
            self._links = adjacency_of(graph).links(loops=True)
            self._scale = self._links.degree().double().rsqrt()

    def matmul(self, x: Tensor) -> Tensor:
        """Compute ``S x`` for a dense ``[nodes, columns]``, in its precision."""
        if self._links is not None:
            scale = self._scale.to(x.dtype).unsqueeze(1)
            return neighbor_sum(x * scale, self._links).mul_(scale)
        if x.dtype not in self._matrices:
            self._matrices[x.dtype] = self._matrices[torch.float64].to(x.dtype)
        return self._matrices[x.dtype] @ x

    @property
    def T(self) -> NormalizedAdjacency:
        """The transpose; for an undirected graph, the same matrix."""
        if self._transposed is None:
            other = NormalizedAdjacency.__new__(NormalizedAdjacency)
            other.num_nodes, other.device, other._transposed = self.num_nodes, self.device, self
            other._links, other._matrices = None, {}
            if self._links is not None:
                other._links, other._scale = self._links.transposed(), self._scale
            else:
                other._matrices[torch.float64] = _csr32(self._matrices[torch.float64].transpose(0, 1).to_sparse_csr())
            self._transposed = other
        return self._transposed


def _matrix(graph: Graph, edge_weight: Tensor | None) -> Tensor:
    """Return S as a CSR matrix in float64; rows are targets."""
    source, target = graph.edge_index.long()
    weight = torch.ones(graph.num_edges, device=graph.device) if edge_weight is None else edge_weight
    if weight.shape != (graph.num_edges,):
        raise InputError(
            f"{graph.name}: edge_weight has shape {tuple(weight.shape)}; expected [{graph.num_edges}], one per edge"
        )
    if not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        raise InputError(f"{graph.name}: an edge weight is negative, NaN or infinite; weights must be 0 or more")
    other = source != target
    loop = torch.arange(graph.num_nodes, device=source.device)
    row, col = torch.cat([target[other], loop]), torch.cat([source[other], loop])
    value = torch.cat([weight[other].double(), torch.ones_like(loop, dtype=torch.float64)])
    scale = value.new_zeros(graph.num_nodes).index_add_(0, row, value).rsqrt_()
    value = scale[row] * value * scale[col]
    shape = (graph.num_nodes, graph.num_nodes)
    return _csr32(
        torch.sparse_coo_tensor(torch.stack([row, col]), value, shape, check_invariants=False).to_sparse_csr()
    )


def _csr32(matrix: Tensor) -> Tensor:
    """Convert to 32-bit indices, which sparse products would otherwise do every time."""
    parts = (matrix.crow_indices().int(), matrix.col_indices().int(), matrix.values())
    return torch.sparse_csr_tensor(*parts, matrix.shape, check_invariants=False)
