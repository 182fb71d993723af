"""The graph of a version, read in parts.

Nodes are numbered in the order in which they came and keep their number; a node that was forgotten leaves a gap. Every
node that is read must have exactly one row of each table, so that a damaged index is noticed as well.

The part of the graph that the outputs of some nodes depend on is a small graph of its own. Its nodes have the order
that they have in the whole graph, its edges that of target and source. So receptive fields are row by row those of the
whole graph, dropout falls on the same entries, and results are the same bits. At the rim, where neighbors are left out,
edges from one empty node keep every degree what it is.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from ergnn.data.formats.limits import Limits, truncate
from ergnn.data.formats.tables import SPLITS
from ergnn.data.graph import UNLABELED, Graph
from ergnn.errors import InputError
from ergnn.folder.database import VISIBLE, FolderError, Row, damaged, reading_values, select
from ergnn.folder.versions import Version

Array = NDArray[Any]
AMONG = "IN (SELECT value FROM json_each(:nodes))"


def json_list(values: Iterable[Any]) -> str:
    """A list as one argument of a query, for ``json_each``."""
    return json.dumps(values.tolist() if isinstance(values, np.ndarray) else list(values), ensure_ascii=False)


class StoredGraph:
    """The graph of one version, as far as it is asked for.

    Attributes:
        num_features: features per node.
        dense: whether features are stored and used as a dense matrix; otherwise in CSR form.
    """

    def __init__(self, connection: sqlite3.Connection, version: Version) -> None:
        self.connection, self.version = connection, version
        self.num_nodes, self.next_node = version.nodes, version.next_node
        self._splits: dict[str, tuple[Array, Array, Array]] = {}
        with reading_values("the features"):
            self.num_features, self.dense = int(version.state["num_features"] or 0), bool(version.state["dense"])

    def find(self, ids: Sequence[str]) -> Array:
        """Node numbers; -1 for an id that is not there."""
        found = np.full(len(ids), -1, np.int64)
        query = f"""SELECT asked.key, node FROM json_each(:ids) AS asked CROSS JOIN nodes ON nodes.id = asked.value
                    WHERE {VISIBLE}"""
        for place, node in self.connection.execute(query, {"ids": json_list(ids), "v": self.version.number}):
            found[place] = node
        return found

    def find_all(self, ids: Sequence[str]) -> Array:
        """Node numbers of ids, all of which must be in the graph."""
        numbers = self.find(ids)
        lost = np.flatnonzero(numbers < 0)
        if lost.size:
            raise InputError(f"node {truncate(ids[lost[0]])} is not in the graph ({lost.size} such id(s))")
        return numbers

    def names(self, nodes: Array) -> list[str]:
        """The user's ids of some nodes."""
        query = f"SELECT node, id FROM nodes WHERE node {AMONG} AND {VISIBLE}"
        names = dict(self.connection.execute(query, {"nodes": json_list(nodes), "v": self.version.number}))
        with reading_values("the ids"):
            return [names[node] for node in nodes.tolist()]

    def nodes(self) -> Array:
        """All nodes."""
        query = f"SELECT node FROM nodes WHERE {VISIBLE} ORDER BY node"
        return np.array([row[0] for row in self.connection.execute(query, {"v": self.version.number})], np.int64)

    def neighbors(self, nodes: Array) -> tuple[Array, Array]:
        """Edges into some nodes (ascending, none twice): place in ``nodes`` and source, in the order of both."""
        lists = [row[2] for row in self._rows("adjacency", nodes)]
        with reading_values("the adjacency"):
            sources = np.frombuffer(b"".join(lists), np.int32).astype(np.int64)
            if sources.size and not 0 <= sources.min() <= sources.max() < self.next_node:
                raise FolderError("an edge names a node that is not there: the database is damaged")
            return np.repeat(np.arange(len(lists)), [len(data) // 4 for data in lists]), sources

    def features(self, nodes: Array) -> Any:
        """Features of some nodes (ascending, none twice): float32, a dense matrix or in CSR form."""
        rows = self._rows("nodes", nodes)
        with reading_values("the features"):
            if any((row[3] is None) != self.dense for row in rows):
                raise FolderError("features of some nodes are dense, of others sparse: the database is damaged")
            values = np.frombuffer(b"".join([row[4] for row in rows]), np.float32)
            if self.dense:
                return values.reshape(len(rows), self.num_features)
            columns = np.frombuffer(b"".join([row[3] for row in rows]), np.int32)
            indptr = np.concatenate([[0], np.cumsum([len(row[4]) // 4 for row in rows], dtype=np.int64)])
            if len(columns) and not 0 <= columns.min() <= columns.max() < self.num_features:
                raise FolderError(f"a feature beyond the {self.num_features} there are: the database is damaged")
            return scipy.sparse.csr_matrix((values, columns, indptr), (len(rows), self.num_features))

    def labels(self, nodes: Array) -> tuple[Array, Array, Array]:
        """Class (-1 for none), split (place in ``SPLITS``) and update of the label of each node."""
        wanted, place = np.unique(nodes, return_inverse=True)
        found = self.labeled(f"node {AMONG}", nodes=json_list(wanted))
        out = np.full((3, len(wanted)), -1, np.int64)
        out[:, np.searchsorted(wanted, found[0])] = found[1:]
        label, split, number = out[:, place]
        return label, split, number

    def labeled(self, where: str = "1", **values: Any) -> tuple[Array, Array, Array, Array]:
        """Labeled nodes in their order, with class, split (place in ``SPLITS``) and update of the label."""
        where = f"{where} AND {VISIBLE} ORDER BY node"
        rows = select(self.connection, "labels", where, v=self.version.number, **values)
        node, label, split, number, _ = found = np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 5).T)
        limits = (self.next_node, self.version.classes, len(SPLITS), self.version.updates)
        if len(node) and (found.min() < 0 or (found[:4].max(1) >= limits).any()):
            raise damaged("the table labels")
        return node, label, split, number

    def split(self, name: str) -> tuple[Array, Array, Array]:
        """All nodes of a split in their order, with class and update of the label; read once."""
        if name not in self._splits:
            node, label, _, number = self.labeled("split = :split", split=SPLITS.index(name))
            self._splits[name] = node, label, number
        return self._splits[name]

    def members(self, number: int, split: str) -> tuple[Array, Array]:
        """The labeled nodes of an update's split in their order, and their classes."""
        place = SPLITS.index(split)
        return self.labeled("number = :number AND split = :split", number=number, split=place)[:2]

    def _rows(self, table: str, nodes: Array) -> list[Row]:
        """One row of a table per node, in the order of the nodes (ascending, none twice)."""
        where = f"node {AMONG} AND {VISIBLE} ORDER BY node"
        rows = select(self.connection, table, where, nodes=json_list(nodes), v=self.version.number)
        if [row[0] for row in rows] != nodes.tolist():
            raise damaged(f"the table {table}")
        return rows


class ExtendedGraph(StoredGraph):
    """A stored graph with nodes and edges that are there for one prediction only.

    Args:
        base: the stored graph.
        ids: of the new nodes, whose numbers follow those of the stored ones.
        features: of the new nodes, in the form of the stored ones.
        edges: ``[2, m]`` new sources and targets.
    """

    def __init__(self, base: StoredGraph, ids: Sequence[str], features: Any, edges: Array) -> None:
        version = replace(base.version, nodes=base.num_nodes + len(ids), next_node=base.next_node + len(ids))
        super().__init__(base.connection, version)
        self.base, self.extra = base, features
        self.places = {name: base.next_node + i for i, name in enumerate(ids)}
        self.edges = edges[:, np.lexsort(edges)]

    def find(self, ids: Sequence[str]) -> Array:
        found = self.base.find(ids)
        return np.array([self.places.get(name, node) for name, node in zip(ids, found.tolist(), strict=True)], np.int64)

    def neighbors(self, nodes: Array) -> tuple[Array, Array]:
        row, source = self.base.neighbors(nodes[nodes < self.base.next_node])
        mine = np.isin(self.edges[1], nodes)
        row = np.concatenate([row, np.searchsorted(nodes, self.edges[1][mine])])
        source = np.concatenate([source, self.edges[0][mine]])
        order = np.lexsort((source, row))
        return row[order], source[order]

    def features(self, nodes: Array) -> Any:
        old = self.base.features(nodes[nodes < self.base.next_node])
        new = self.extra[nodes[nodes >= self.base.next_node] - self.base.next_node]
        return np.concatenate([old, new]) if self.dense else scipy.sparse.vstack([old, new], "csr")


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
