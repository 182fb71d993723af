"""The part of the graph that some nodes' outputs depend on, as a small graph of its own.

Nodes of the small graph stand in the order of their numbers in the whole one, edges in the order of target and source.
So its fields are row by row those of the whole graph, dropout falls on the same entries, and results are the same bits.
At the rim, where neighbours are left out, edges from one empty node keep every degree what it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ergnn.data.formats.limits import Limits
from ergnn.data.graph import UNLABELLED, Graph
from ergnn.folder.graph_store import GraphStore
from ergnn.folder.tensors import Array


@dataclass(frozen=True, eq=False)
class LocalGraph:
    """A part of a stored graph.

    Args:
        graph: the part; its last node is the empty one.
        nodes: the number in the whole graph of each of the others.
    """

    graph: Graph
    nodes: Array

    def places(self, nodes: Array) -> Tensor:
        """Where nodes of the whole graph stand in the part."""
        return torch.from_numpy(np.searchsorted(self.nodes, nodes))

    def numbers(self, places: Tensor) -> Array:
        """The numbers in the whole graph of some nodes of the part."""
        return self.nodes[places.cpu().numpy()]


def local_graph(
    store: GraphStore, roots: Array, hops: int, limits: Limits, *, dense: bool, labelled: Array | None = None
) -> LocalGraph:
    """All that lies within ``hops`` of ``roots``.

    Args:
        limits: how much memory attributes may take.
        dense: attributes as a dense matrix; else in CSR form.
        labelled: nodes whose labels are there to be seen; by default nobody's.
    """
    frontier = nodes = np.unique(roots)
    sources: list[Array] = []
    targets: list[Array] = []
    for _ in range(hops):
        row, source = store.incoming(frontier)
        sources.append(source)
        targets.append(frontier[row])
        frontier = np.setdiff1d(source, nodes)
        nodes = np.union1d(nodes, frontier)
    empty = len(nodes)
    if hops:
        row, source = store.incoming(frontier)
        targets.append(frontier[row])
        sources.append(np.where(source == frontier[row], source, -1))
    edges = np.empty((2, 0), np.int64)
    if sources:
        source, target = np.concatenate(sources), np.concatenate(targets)
        place = np.where(source < 0, empty, np.searchsorted(nodes, source))
        edges = np.stack([place, np.searchsorted(nodes, target)])
        edges = edges[:, np.lexsort(edges)]
    y = np.full(empty + 1, UNLABELLED, np.int64)
    if labelled is not None:
        y[np.searchsorted(nodes, labelled)] = store.labels(labelled)[0]
    if dense:
        limits.check_bytes(4 * store.num_features * len(nodes), f"{len(nodes):,} nodes", "attributes take")
    x = _attributes(store, nodes, dense)
    store.release()
    return LocalGraph(Graph(x, torch.from_numpy(edges), torch.from_numpy(y)), nodes)


def _attributes(store: GraphStore, nodes: Array, dense: bool) -> Tensor:
    """Attributes of the nodes, and of the empty one."""
    pointers, col, value = store.rows(nodes)
    if dense:
        out = np.zeros((len(nodes) + 1, store.num_features), np.float32)
        out[np.repeat(np.arange(len(nodes)), np.diff(pointers)), col] = value
        return torch.from_numpy(out)
    return torch.sparse_csr_tensor(
        torch.from_numpy(np.append(pointers, pointers[-1])),
        torch.from_numpy(col.astype(np.int64)),
        torch.from_numpy(value),
        (len(nodes) + 1, store.num_features),
        check_invariants=False,
    )
