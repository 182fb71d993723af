"""The normalized adjacency of a graph as an operator."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.errors import InputError
from ergnn.nn.adjacency import adjacency_of
from ergnn.nn.kernels.links import Links
from ergnn.nn.kernels.sums import neighbour_sum


class NormalizedAdjacency:
    """``S = D̃^-½ (A + I) D̃^-½``, as GCN has it.

    Row v of ``S x`` sums over the in-neighbors of v and v itself; D̃ holds in-degrees, for both ends of an edge, also
    where the graph is directed. A node is linked to itself exactly once, with weight 1, whatever self-loops the graph
    has. A node without edges keeps its own row.

    Args:
        graph: the graph.
        edge_weight: ``[edges]``, the weight of each column of ``graph.edge_index``, 0 or more; by default all 1.
    """

    def __init__(self, graph: Graph, edge_weight: Tensor | None = None) -> None:
        self._links: Links | None = None
        self._matrix: Tensor | None = None
        self._transposed: NormalizedAdjacency | None = None
        if edge_weight is None:
            self._links = adjacency_of(graph).links(loops=True)
            self._scale = self._links.degree().double().rsqrt()
        else:
            self._matrix = _weighted(graph, edge_weight)
            degree = self._matrix @ self._matrix.values().new_ones(graph.num_nodes, 1)
            self._scale = degree.flatten().rsqrt()

    @property
    def device(self) -> torch.device:
        return self._scale.device

    @property
    def num_nodes(self) -> int:
        return int(self._scale.numel())

    def matmul(self, x: Tensor) -> Tensor:
        """``S x`` for a dense ``[nodes, columns]``, in its precision."""
        scale = self._scale.to(x.dtype).unsqueeze(1)
        if self._links is not None:
            return neighbour_sum((x * scale).contiguous(), self._links).mul_(scale)
        assert self._matrix is not None
        return (self._matrix.to(x.dtype) @ (x * scale)).mul_(scale)

    @property
    def T(self) -> NormalizedAdjacency:
        """The transpose; for an undirected graph, the same matrix."""
        if self._transposed is None:
            other = NormalizedAdjacency.__new__(NormalizedAdjacency)
            other._scale, other._transposed = self._scale, self
            other._links = None if self._links is None else self._links.transposed()
            other._matrix = None if self._matrix is None else self._matrix.transpose(0, 1).to_sparse_csr()
            self._transposed = other
        return self._transposed


def _weighted(graph: Graph, edge_weight: Tensor) -> Tensor:
    """``A + I`` as a CSR matrix, rows being targets."""
    if edge_weight.shape != (graph.num_edges,):
        raise InputError(
            f"{graph.name}: edge_weight has shape {tuple(edge_weight.shape)}; expected [{graph.num_edges}], the edges"
        )
    if not bool((torch.isfinite(edge_weight) & (edge_weight >= 0)).all()):
        raise InputError(f"{graph.name}: an edge weight is negative, NaN or infinite; weights must be 0 or more")
    source, target = graph.edge_index
    other = source != target
    loop = torch.arange(graph.num_nodes, device=source.device)
    index = torch.stack([torch.cat([target[other], loop]), torch.cat([source[other], loop])])
    value = torch.cat([edge_weight[other].double(), torch.ones_like(loop, dtype=torch.float64)])
    return torch.sparse_coo_tensor(index, value, (graph.num_nodes,) * 2).coalesce().to_sparse_csr()
