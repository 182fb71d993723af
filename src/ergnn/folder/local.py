"""The part of the graph that the outputs of some nodes depend on, as a small graph of its own.

Nodes of the small graph have the order that they have in the whole one, edges that of target and source. So receptive
fields are row by row those of the whole graph, dropout falls on the same entries, and results are the same bits. At the
rim, where neighbors are left out, edges from one empty node keep every degree what it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.data.formats.limits import Limits
from ergnn.data.graph import UNLABELED, Graph
from ergnn.folder.graph import Array, StoredGraph


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


def read_subgraph(
    stored: StoredGraph, roots: Array, hops: int, limits: Limits, labels: tuple[Array, Array] | None = None
) -> LocalGraph:
    """Everything within ``hops`` of ``roots``.

    Args:
        limits: how much memory features may take.
        labels: nodes whose labels may be seen, and their classes; by default none.
    """
    frontier = nodes = np.unique(roots)
    sources, targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for hop in range(hops + 1 if hops else 0):
        row, source = stored.neighbors(frontier)
        target = frontier[row]
        if hop == hops:  # the rim: all edges but loops come from the empty node
            source = np.where(source == target, source, -1)
        sources.append(source)
        targets.append(target)
        if hop < hops:
            frontier = np.setdiff1d(source, nodes)
            nodes = np.union1d(nodes, frontier)
    source, target = np.concatenate(sources), np.concatenate(targets)
    place = np.where(source < 0, len(nodes), np.searchsorted(nodes, source))
    edges = np.stack([place, np.searchsorted(nodes, target)])
    y = np.full(len(nodes) + 1, UNLABELED, np.int64)
    if labels is not None:
        y[np.searchsorted(nodes, labels[0])] = labels[1]
    if stored.dense:
        limits.check_bytes(4 * stored.num_features * len(nodes), f"{len(nodes):,} nodes", "features take")
    x = _with_empty_row(stored.features(nodes))
    graph = Graph(x, torch.from_numpy(edges[:, np.lexsort(edges)]), torch.from_numpy(y))
    return LocalGraph(graph, nodes)


def _with_empty_row(features: Any) -> Tensor:
    if isinstance(features, np.ndarray):
        return torch.from_numpy(np.concatenate([features, np.zeros((1, features.shape[1]), np.float32)]))
    return torch.sparse_csr_tensor(
        torch.from_numpy(np.append(features.indptr, features.indptr[-1]).astype(np.int64)),
        torch.from_numpy(features.indices.astype(np.int64)),
        torch.from_numpy(features.data.copy()),
        (features.shape[0] + 1, features.shape[1]),
        check_invariants=False,
    )
