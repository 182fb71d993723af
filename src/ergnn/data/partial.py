"""Graphs that are read in parts.

Nodes are numbered in the order of their arrival and keep their number; a removed node leaves a gap.

The part that the outputs of some nodes depend on is a small graph of its own. Its nodes have the same order as in the
whole graph, and its edges are sorted by target and source. Receptive fields are therefore the same row by row, dropout
applies to the same entries, and results are the same bit for bit. Where neighbors are left out, at the rim, edges from
one empty node preserve every degree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from ergnn.config.errors import InputError, truncate
from ergnn.config.limits import Limits
from ergnn.data.graph import UNLABELED, Graph, csr_tensor
from ergnn.data.structure import features_of

Array = NDArray[Any]


class PartialGraph(Protocol):
    """A graph that is read in parts; nodes to read are ascending and unique.

    ``find`` returns node numbers (-1 for an unknown id). ``neighbors`` returns the edges into some nodes: index into
    ``nodes`` and source, sorted by both, and weights, or None if all are 1. ``features`` are float32 rows: a matrix if
    ``dense``, else in CSR form. If ``encoding`` is not empty, they are scaled columns of a table. If ``structural``,
    columns that follow from edges are added (:func:`ergnn.data.structure.features_of`). All nodes have numbers below
    ``next_node``.
    """

    num_nodes: int
    next_node: int
    num_features: int
    dense: bool
    encoding: str
    structural: bool

    def find(self, ids: Sequence[str]) -> Array: ...
    def neighbors(self, nodes: Array) -> tuple[Array, Array, Array | None]: ...
    def features(self, nodes: Array) -> Any: ...


def find_all(graph: PartialGraph, ids: Sequence[str]) -> Array:
    """Node numbers; unknown ids are refused."""
    nodes = graph.find(ids)
    unknown = np.flatnonzero(nodes < 0)
    if unknown.size:
        raise InputError(f"node {truncate(ids[unknown[0]])} is not in the graph ({unknown.size} such id(s))")
    return nodes


def join_weights(first: Array | None, first_count: int, second: Array | None, second_count: int) -> Array | None:
    """Weights of the edges of two lists, where None stands for 1."""
    if first is None and second is None:
        return None
    pairs = ((first, first_count), (second, second_count))
    return np.concatenate([np.ones(count, np.float32) if given is None else given for given, count in pairs])


class ExtendedGraph:
    """A graph with additional nodes, whose numbers follow those of ``base``, and edges ``[2, m]``.

    Their ``features`` are in the form of ``base``; ``weights`` are those of the new edges, or None if all are 1.
    """

    def __init__(
        self, base: PartialGraph, ids: Sequence[str], features: Any, edges: Array, weights: Array | None = None
    ) -> None:
        self.base, self.extra = base, features
        self.num_nodes, self.next_node = base.num_nodes + len(ids), base.next_node + len(ids)
        self.num_features, self.dense, self.encoding = base.num_features, base.dense, base.encoding
        self.structural = base.structural
        self.new_nodes = {name: base.next_node + i for i, name in enumerate(ids)}
        order = np.lexsort(edges)
        self.edges, self.weights = edges[:, order], None if weights is None else weights[order]

    def find(self, ids: Sequence[str]) -> Array:
        nodes = self.base.find(ids).tolist()
        return np.array([self.new_nodes.get(name, node) for name, node in zip(ids, nodes, strict=True)], np.int64)

    def neighbors(self, nodes: Array) -> tuple[Array, Array, Array | None]:
        row, source, weight = self.base.neighbors(nodes[nodes < self.base.next_node])
        here = np.isin(self.edges[1], nodes)
        new = self.edges[:, here]
        weight = join_weights(weight, len(row), None if self.weights is None else self.weights[here], new.shape[1])
        row, source = np.concatenate([row, np.searchsorted(nodes, new[1])]), np.concatenate([source, new[0]])
        order = np.lexsort((source, row))
        return row[order], source[order], None if weight is None else weight[order]

    def features(self, nodes: Array) -> Any:
        old = self.base.features(nodes[nodes < self.base.next_node])
        new = self.extra[nodes[nodes >= self.base.next_node] - self.base.next_node]
        return np.concatenate([old, new]) if self.dense else scipy.sparse.vstack([old, new], "csr")


@dataclass(frozen=True, eq=False)
class LocalGraph:
    """A subgraph, whose last node is the empty one; ``nodes`` are the numbers of the others in the whole graph."""

    graph: Graph
    nodes: Array

    def local_ids(self, nodes: Array) -> Tensor:
        """Local ids of nodes with these global ids."""
        return torch.from_numpy(np.searchsorted(self.nodes, nodes))


def read_subgraph(
    graph: PartialGraph, roots: Array, hops: int, limits: Limits, labels: tuple[Array, Array] | None = None
) -> LocalGraph:
    """Read everything within ``hops`` of ``roots``, the nodes whose outputs are wanted.

    ``limits`` are on the memory of the features; ``labels`` are nodes whose labels are visible, and their classes.
    """
    frontier = nodes = np.unique(roots)
    sources, targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    weights, count = None, 0
    for hop in range(hops + 1 if hops else 0):
        row, source, weight = graph.neighbors(frontier)
        weights, count = join_weights(weights, count, weight, len(row)), count + len(row)
        target = frontier[row]
        if hop == hops:  # the rim: all edges but loops come from the empty node
            source = np.where(source == target, source, -1)
        sources.append(source)
        targets.append(target)
        if hop < hops:
            frontier = np.setdiff1d(source, nodes)
            nodes = np.union1d(nodes, frontier)
    source, target = np.concatenate(sources), np.concatenate(targets)
    local_source = np.where(source < 0, len(nodes), np.searchsorted(nodes, source))
    edges = np.stack([local_source, np.searchsorted(nodes, target)])
    order = np.lexsort(edges)
    y = np.full(len(nodes) + 1, UNLABELED, np.int64)
    if labels is not None:
        y[np.searchsorted(nodes, labels[0])] = labels[1]
    if graph.dense:
        limits.check_bytes(4 * graph.num_features * len(nodes), f"{len(nodes):,} nodes", "features take")
    features = features_of(graph, nodes)
    if isinstance(features, np.ndarray):
        x = torch.from_numpy(np.pad(features, ((0, 1), (0, 0))))
    else:
        features.resize(features.shape[0] + 1, features.shape[1])
        x = csr_tensor(features)
    edge_weight = None if weights is None else torch.from_numpy(weights[order])
    return LocalGraph(Graph(x, torch.from_numpy(edges[:, order]), torch.from_numpy(y), edge_weight=edge_weight), nodes)
