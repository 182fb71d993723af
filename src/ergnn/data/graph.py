"""A graph with node features and labels, the source of all tasks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.csr import CsrEdges, row_entries, targets
from ergnn.data.structure import DESCRIPTION, structural_features

if TYPE_CHECKING:
    from torch_geometric.data import Data

UNLABELED = -1
SPLITS = ("train", "val", "test")
CHECKED = 1 << 24
"""Feature values per chunk of a check."""
LOOKED_UP = 100_000
"""Approximate number of edges whose opposite direction is looked up."""
SPARSE_BELOW = 0.1
"""Features are stored in CSR form if a smaller fraction of them is nonzero; the results are the same."""
JUDGED_ROWS, DOMINANT = 1_000, 0.99
"""A feature dominates if it has this share of the squared length of most of about so many rows."""


@dataclass(frozen=True, eq=False)
class Split:
    """Training, validation and test nodes of a whole graph, as index tensors."""

    train: Tensor
    val: Tensor
    test: Tensor

    def apply(self, change: Callable[[Tensor], Tensor]) -> Split:
        """Return the split with every tensor changed."""
        return Split(change(self.train), change(self.val), change(self.test))

    def to(self, device: torch.device | str) -> Split:
        return self.apply(lambda tensor: tensor.to(device))


@dataclass(frozen=True, eq=False)
class Graph:
    """Features, edges and labels of one graph. Immutable by convention.

    Args:
        x: node features, ``[n, f]``; a dense or sparse CSR tensor.
        edge_index: directed edges, ``[2, m]``, sources in row 0 and targets in row 1 (PyG's convention). A graph
            :meth:`from_csr` materializes it only when it is read.
        y: labels, ``[n]``, integers from 0; ``-1`` marks an unlabeled node.
        name: name of the graph in messages and results.
        public_split: the split published with the data set, if any.
        class_names: one name per class.
        edge_weight: weight of each column of ``edge_index``, ``[m]``, floats of 0 or more; by default all are 1. Only
            methods that read weights accept such a graph: ``analytic`` without a student.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    name: str = "graph"
    public_split: Split | None = None
    class_names: tuple[str, ...] | None = None
    edge_weight: Tensor | None = None

    def __post_init__(self) -> None:
        n = self.y.numel()
        if self.x.dim() != 2 or self.x.size(0) != n:
            raise InputError(
                f"{self.name}: x has shape {tuple(self.x.shape)}; expected [{n}, features] as y has {n} nodes"
            )
        if self.edge_index.dim() != 2 or self.edge_index.size(0) != 2:
            raise InputError(f"{self.name}: edge_index has shape {tuple(self.edge_index.shape)}; expected [2, edges]")
        if self.edge_index.dtype != torch.long or self.y.dtype != torch.long:
            raise InputError(
                f"{self.name}: edge_index and y must be int64; got {self.edge_index.dtype} and {self.y.dtype}"
            )
        weight = self.edge_weight
        if weight is not None and (weight.shape != (self.num_edges,) or not weight.is_floating_point()):
            raise InputError(
                f"{self.name}: edge_weight is {weight.dtype} of shape {tuple(weight.shape)}; expected floats of shape "
                f"[{self.num_edges}], one per edge"
            )

    def __repr__(self) -> str:
        features = f"{self.num_features:,} {'sparse ' * self.is_sparse}features"
        sizes = f"{self.num_nodes:,} nodes, {self.num_edges:,} edges, {features}, {self.num_classes:,} classes"
        return f"Graph({self.name!r}, {sizes})"

    def __sklearn_clone__(self) -> Graph:
        """Return the graph itself: copies of an estimator share it."""
        return self

    def validate(self) -> Graph:
        """Check every value (edges to missing nodes, NaN or infinite features, bad weights, labels out of range)."""
        n = self.num_nodes
        if n == 0:
            raise InputError(f"{self.name}: the graph has no nodes")
        csr = self.csr
        ends = self.edge_index if csr is None else csr.col
        if csr is not None and (
            csr.rowptr[[0, -1]].tolist() != [0, ends.numel()] or not bool((csr.rowptr.diff() >= 0).all())
        ):
            raise InputError(f"{self.name}: rowptr must increase from 0 to {ends.numel()}, the number of edges")
        if ends.numel():
            low, high = int(ends.min()), int(ends.max())
            if low < 0 or high >= n:
                raise InputError(
                    f"{self.name}: an edge contains node {low if low < 0 else high}; nodes are 0 to {n - 1}"
                )
        if self.edge_weight is not None:
            bad = self.edge_weight[~(torch.isfinite(self.edge_weight) & (self.edge_weight >= 0))]
            if bad.numel():
                raise InputError(
                    f"{self.name}: an edge has weight {float(bad[0]):g}; weights must be finite, 0 or more"
                )
        if self.is_sparse:
            bad = targets(self.x.crow_indices())[~torch.isfinite(self.x.values())]
        else:  # a memory-mapped file may not fit in memory
            chunks = self.x.split(max(1, CHECKED // max(1, self.num_features)))
            bad = torch.cat([~torch.isfinite(rows).all(dim=1) for rows in chunks]).nonzero().flatten()
        if bad.numel():
            raise InputError(
                f"{self.name}: NaN or infinite features on {bad.unique().numel()} node(s), "
                f"the first is node {int(bad[0])}"
            )
        if int(self.y.min()) < UNLABELED:
            raise InputError(
                f"{self.name}: label {int(self.y.min())} is out of range; labels are 0, 1, 2, … or -1 for none"
            )
        if self.class_names is not None and self.num_classes > len(self.class_names):
            raise InputError(
                f"{self.name}: label {self.num_classes - 1} is out of range; {len(self.class_names)} classes are named"
            )
        return self

    @classmethod
    def from_pyg(cls, data: Data, name: str = "graph") -> Graph:
        """Read a PyG ``Data`` with ``edge_index``, ``y`` and, if present, ``x``, ``edge_weight`` and
        train/val/test masks (``edge_attr`` is not read).

        Warns if class 0 has no node, or if most edges have one direction only.
        """
        check_homogeneous(data, name)
        for key in ("edge_index", "y"):
            if getattr(data, key, None) is None:
                raise InputError(
                    f"{name}: a {type(data).__name__} without {key!r}; a PyG Data with edge_index and y is needed"
                )
        masks = [mask for part in SPLITS if (mask := getattr(data, f"{part}_mask", None)) is not None]
        vectors = [mask for mask in masks if mask.dim() == 1]
        split = Split(*(mask.nonzero().flatten() for mask in vectors)) if len(vectors) == 3 else None
        if masks and split is None:
            shapes = ", ".join(str(list(mask.shape)) for mask in masks)
            text = f"{name}: masks of shape {shapes} are not read; one vector each for train, val and test is needed"
            warnings.warn(text, UserWarning, stacklevel=2)
        graph = read_pyg(data, name, split)
        labeled = graph.y[graph.y != UNLABELED]
        if labeled.numel() and int(labeled.min()) > 0:
            start = int(labeled.min())
            warnings.warn(f"{name}: no node has class 0; labels start at {start}", UserWarning, stacklevel=2)
        return graph

    @classmethod
    def from_csr(
        cls, x: Tensor, rowptr: Tensor, col: Tensor, y: Tensor, *, undirected: bool | None = None, **more: Any
    ) -> Graph:
        """Create a graph from CSR edges, without ever building an ``edge_index`` of 16 bytes per edge.

        Args:
            rowptr: ``[n + 1]``, int64: the sources of edges into ``v`` are ``col[rowptr[v]:rowptr[v + 1]]``.
            col: ``[m]``, int32 or int64; fastest if each list is sorted.
            undirected: whether each edge is present in both directions; computed when needed if not given.
            more: ``name``, ``public_split``, ``class_names``, ``edge_weight`` (in the order of ``col``).
        """
        name = more.get("name", "graph")
        if rowptr.dtype != torch.long or rowptr.shape != (y.numel() + 1,):
            raise InputError(
                f"{name}: rowptr is {rowptr.dtype} of shape {tuple(rowptr.shape)}; expected int64 of [{y.numel() + 1}]"
            )
        if col.dtype not in (torch.int32, torch.int64) or col.dim() != 1:
            raise InputError(f"{name}: col is {col.dtype} of shape {tuple(col.shape)}; expected int32 or int64 [edges]")
        return cls(x, CsrEdges(rowptr, col, undirected), y, **more)

    def unweighted(self) -> Graph:
        """The same graph without edge weights."""
        return self if self.edge_weight is None else replace(self, edge_weight=None)

    def require_unweighted(self, reader: str) -> None:
        """Raise an error if the graph has edge weights, which ``reader`` would ignore."""
        if self.edge_weight is not None:
            raise InputError(
                f"{self.name}: the graph has edge weights, which {reader} does not use; use method 'analytic' without "
                "a student, or drop the weights with graph.unweighted()"
            )

    @property
    def csr(self) -> CsrEdges | None:
        """The CSR edges, if the graph was created from them."""
        return self.edge_index if isinstance(self.edge_index, CsrEdges) else None

    @property
    def num_nodes(self) -> int:
        return int(self.y.numel())

    @property
    def num_features(self) -> int:
        return int(self.x.size(1))

    @property
    def num_edges(self) -> int:
        return int(self.edge_index.size(1))

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1 if self.num_nodes else 0

    @property
    def is_sparse(self) -> bool:
        return self.x.layout == torch.sparse_csr

    @property
    def device(self) -> torch.device:
        return self.x.device

    def rows(self, nodes: Tensor) -> Tensor:
        """Return the dense features of the given nodes."""
        return self._entries(nodes).to_dense() if self.is_sparse else self.x[nodes]

    def select_x(self, nodes: Tensor) -> Tensor:
        """Return the features of the given nodes, in CSR form if those of the graph are."""
        return self._entries(nodes).coalesce().to_sparse_csr() if self.is_sparse else self.x[nodes]

    def _entries(self, nodes: Tensor) -> Tensor:
        """Return the sparse features of the given nodes in COO form, without stored zeros."""
        _, row, entry = row_entries(self.x.crow_indices(), nodes)
        index, value = torch.stack([row, self.x.col_indices()[entry].long()]), self.x.values()[entry]
        stored, shape = value != 0, (nodes.numel(), self.num_features)
        return torch.sparse_coo_tensor(index[:, stored], value[stored], shape, check_invariants=False)

    def dense_x(self) -> Tensor:
        return self.x.to_dense()

    def row_normalized(self) -> Graph:
        """Divide features by their row sum (as GCN and GAT do for bags of words); empty rows stay zero."""
        if not self.is_sparse:
            return replace(self, x=self.x / self.x.sum(1, keepdim=True).clamp(min=1e-12))
        ptr, value = self.x.crow_indices(), self.x.values()
        row = targets(ptr)
        total = value.new_zeros(self.num_nodes).index_add(0, row, value).clamp(min=1e-12)
        x = torch.sparse_csr_tensor(ptr, self.x.col_indices(), value / total[row], self.x.shape, check_invariants=False)
        return replace(self, x=x)

    def apply(self, change: Callable[[Tensor], Tensor]) -> Graph:
        """Return the graph with every tensor changed."""
        return replace(
            self,
            x=change(self.x),
            edge_index=change(self.edge_index),
            y=change(self.y),
            public_split=self.public_split.apply(change) if self.public_split else None,
            edge_weight=None if self.edge_weight is None else change(self.edge_weight),
        )

    def to(self, device: torch.device | str) -> Graph:
        return self.apply(lambda tensor: tensor.to(device))


def join_graphs(graphs: Sequence[Graph]) -> Graph:
    """Return the disjoint union of graphs, with the name and the names of classes of the first."""
    if len(graphs) == 1:
        return graphs[0]
    starts = accumulate((graph.num_nodes for graph in graphs), initial=0)
    edges = torch.cat([graph.edge_index + start for graph, start in zip(graphs, starts, strict=False)], dim=1)
    if all(graph.is_sparse for graph in graphs):
        x = torch.cat([graph.x.to_sparse_coo() for graph in graphs]).to_sparse_csr()
    else:
        x = torch.cat([graph.dense_x() for graph in graphs])
    return replace(graphs[0], x=x, edge_index=edges, y=torch.cat([graph.y for graph in graphs]), public_split=None)


def compact(x: Tensor) -> Tensor:
    """Return features in CSR form if less than a tenth of them are nonzero, dense otherwise."""
    if x.layout == torch.sparse_csr or int(torch.count_nonzero(x)) >= SPARSE_BELOW * x.numel():
        return x
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return x.to_sparse_csr()


def csr_tensor(matrix: Any) -> Tensor:
    """Return a CSR matrix of scipy, with sorted indices, as a tensor; values are copied."""
    pointers, columns = (torch.from_numpy(index.astype("int64")) for index in (matrix.indptr, matrix.indices))
    values = torch.from_numpy(matrix.data.copy())
    return torch.sparse_csr_tensor(pointers, columns, values, tuple(matrix.shape), check_invariants=False)


def check_homogeneous(data: Any, name: str) -> None:
    """Raise an error for a PyG ``HeteroData``."""
    if hasattr(data, "edge_types"):
        raise InputError(
            f"{name}: a HeteroData has several types of nodes or edges, which ergnn does not use; pass a Data with one "
            "type of nodes, e.g. data.to_homogeneous()"
        )


def read_pyg(data: Any, name: str, split: Split | None = None, warn: bool = True) -> Graph:
    """Read a PyG ``Data``, whose nodes are unlabeled if it has no ``y``.

    Without ``x``, features follow from the edges. Unless ``warn`` is false, warnings say so, and that most edges have
    one direction only. Numbers to predict and several labels per node are refused.
    """
    x, y, weight = data.x, data.y, getattr(data, "edge_weight", None)
    ends = data.edge_index
    if ends.is_floating_point() or ends.is_complex() or ends.dtype == torch.bool:
        raise InputError(f"{name}: edge_index is {ends.dtype}; node ids are integers")
    if x is not None and x.dim() != 2:
        raise InputError(f"{name}: x has shape {list(x.shape)}; one row per node, [nodes, features], is needed")
    weight = weight if weight is None or weight.is_floating_point() else weight.float()
    if x is None or not x.size(1):
        if warn:
            warnings.warn(f"{name}: no features x; models read {DESCRIPTION}", UserWarning, stacklevel=3)
        ids = [str(i) for i in range(data.num_nodes if y is None else len(y))]
        x = csr_tensor(structural_features(ids, ends.numpy(force=True))).to(ends.device)
    if y is None:
        y = torch.full((x.size(0),), UNLABELED, device=x.device)
    if y.dim() > 1 and y.size(1) > 1:
        raise InputError(
            f"{name}: y has shape {list(y.shape)}, several labels per node (multi-label), and ergnn predicts one class "
            "per node; pass one column, or data.y.argmax(1) if each row has a single 1"
        )
    if y.is_floating_point():
        raise InputError(
            f"{name}: y is {y.dtype}, numbers to predict (regression), and ergnn predicts classes; pass integers, "
            "or data.y.long() if the values are whole"
        )
    graph = Graph(x, ends.long(), y.reshape(-1).long(), name, public_split=split, edge_weight=weight).validate()
    if warn:
        _warn_one_way(graph.edge_index, graph.num_nodes, name)
    return graph


def _warn_one_way(edge_index: Tensor, num_nodes: int, name: str) -> None:
    """Warn if most edges have no edge in the opposite direction; of many edges, some are looked up."""
    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    step = max(1, source.numel() // LOOKED_UP)
    wanted = (target[::step] * num_nodes + source[::step]).unique()
    if not wanted.numel():
        return
    answered = int(torch.isin(wanted, source * num_nodes + target).sum())
    if 2 * answered < wanted.numel():
        warnings.warn(
            f"{name}: {100 * (1 - answered / wanted.numel()):.0f} % of the edges have one direction only, and messages "
            "pass along edges; for an undirected graph, use torch_geometric.utils.to_undirected(data.edge_index)",
            UserWarning,
            stacklevel=4,
        )


def warn_dominant(graph: Graph) -> None:
    """Warn if one feature makes up more than 99 % of the squared length of most rows."""
    x = graph.rows(torch.arange(0, graph.num_nodes, max(1, graph.num_nodes // JUDGED_ROWS), device=graph.device))
    squares = x.double().square()
    total = squares.sum(1, keepdim=True)
    share = (squares / total)[total.flatten() > 0]
    if graph.num_features < 2 or not len(share):
        return
    middle, column = share.median(0).values.max(0)
    if middle > DOMINANT:
        warnings.warn(
            f"{graph.name}: feature {int(column)} is {100 * float(middle):.1f} % of the length of most rows, so that "
            "the others hardly count; standardize the columns (the closed form does, with scale='auto')",
            UserWarning,
            stacklevel=3,
        )
