"""The graph in the database: rows of nodes, labels and lists of neighbors.

Every node that is read must have exactly one row of each table, so that a damaged index is detected.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import scipy.sparse

from ergnn.config.errors import FolderError
from ergnn.data.partial import Array, join_weights
from ergnn.data.tables.encoder import Encoder
from ergnn.data.tables.kinds import Codes
from ergnn.data.tables.node_tables import SPLITS
from ergnn.folder.database import VISIBLE, Row, Version, damaged, insert, read_number, reading_values, select, to_json
from ergnn.folder.update import Update

AMONG = "IN (SELECT value FROM json_each(:nodes))"


def json_list(values: Iterable[Any]) -> str:
    """A list as one argument of a query, for ``json_each``."""
    return json.dumps(values.tolist() if isinstance(values, np.ndarray) else list(values), ensure_ascii=False)


class StoredGraph:
    """The graph of one version, a :class:`ergnn.data.partial.PartialGraph` with ids and labels.

    A label has a class, a split (index into ``SPLITS``), and the update that added it. ``stored_features`` returns what
    ``encode`` turns into features, ``names`` the ids of some nodes, ``nodes`` all nodes, ``labels`` class (-1 for
    none), split and update of each node, and ``split`` all nodes of a split with class and update.
    """

    def __init__(self, connection: sqlite3.Connection, version: Version) -> None:
        self.connection, self.version = connection, version
        self.num_nodes, self.num_edges, self.next_node = version.nodes, version.edges, version.next_node
        with reading_values("the features"):
            state = version.state
            self.num_features, self.dense = int(state["num_features"] or 0), bool(state["dense"])
            self.encoder = Encoder.from_json(state["encoder"]) if state.get("encoder") else None
            self.stored_width = int(state.get("stored_width") or self.num_features)
            self.structural = bool(state.get("structure"))
            encoding = "structure" if self.structural else state.get("encoder")
            self.encoding = blake2b(to_json(encoding).encode(), digest_size=8).hexdigest() if encoding else ""

    def find(self, ids: Sequence[str]) -> Array:
        nodes = np.full(len(ids), -1, np.int64)
        query = f"""SELECT asked.key, node FROM json_each(:ids) AS asked CROSS JOIN nodes ON nodes.id = asked.value
                    WHERE {VISIBLE}"""
        for index, node in self.connection.execute(query, {"ids": json_list(ids), "v": self.version.number}):
            nodes[index] = node
        return nodes

    def names(self, nodes: Array) -> list[str]:
        query = f"SELECT node, id FROM nodes WHERE node {AMONG} AND {VISIBLE}"
        names = dict(self.connection.execute(query, {"nodes": json_list(nodes), "v": self.version.number}))
        with reading_values("the ids"):
            return [names[node] for node in nodes.tolist()]

    def nodes(self) -> Array:
        query = f"SELECT node FROM nodes WHERE {VISIBLE} ORDER BY node"
        return np.array([row[0] for row in self.connection.execute(query, {"v": self.version.number})], np.int64)

    def neighbors(self, nodes: Array) -> tuple[Array, Array, Array | None]:
        rows = self._rows("adjacency", nodes)
        with reading_values("the adjacency"):
            sources = np.frombuffer(b"".join([row[2] for row in rows]), np.int32).astype(np.int64)
            if sources.size and not 0 <= sources.min() <= sources.max() < self.next_node:
                raise FolderError("an edge names a node that is not there: the database is damaged")
            index = np.repeat(np.arange(len(rows)), [len(row[2]) // 4 for row in rows])
            if all(row[3] is None for row in rows):
                return index, sources, None
            ones = (np.ones(len(row[2]) // 4, np.float32).tobytes() if row[3] is None else row[3] for row in rows)
            weights = np.frombuffer(b"".join(ones), np.float32)
            if len(weights) != len(sources) or not np.isfinite(weights).all() or (weights < 0).any():
                raise FolderError("weights of edges are not as many as edges, or not numbers: the database is damaged")
            return index, sources, weights

    def features(self, nodes: Array) -> Any:
        return self.encode(self.stored_features(nodes))

    def encode(self, stored: Any) -> Any:
        return self.encoder.features(Codes.from_matrix(stored, self.encoder.num_numbers)) if self.encoder else stored

    def stored_features(self, nodes: Array) -> Any:
        rows = self._rows("nodes", nodes)
        with reading_values("the features"):
            if any((row[3] is None) != self.dense for row in rows):
                raise FolderError("features of some nodes are dense, of others sparse: the database is damaged")
            values = np.frombuffer(b"".join([row[4] for row in rows]), np.float32)
            if self.dense:
                return values.reshape(len(rows), self.stored_width)
            columns = np.frombuffer(b"".join([row[3] for row in rows]), np.int32)
            indptr = np.concatenate([[0], np.cumsum([len(row[4]) // 4 for row in rows], dtype=np.int64)])
            if len(columns) and not 0 <= columns.min() <= columns.max() < self.stored_width:
                raise FolderError(f"a feature beyond the {self.stored_width} there are: the database is damaged")
            return scipy.sparse.csr_matrix((values, columns, indptr), (len(rows), self.stored_width))

    def labels(self, nodes: Array) -> tuple[Array, Array, Array]:
        out, known = np.full((3, len(nodes)), -1, np.int64), np.isin(nodes, self._labeled[0])
        out[:, known] = self._labeled[1:, np.searchsorted(self._labeled[0], nodes[known])]
        label, split, update = out
        return label, split, update

    def split(self, name: str) -> tuple[Array, Array, Array]:
        node, label, _, update = self._labeled[:, self._labeled[2] == SPLITS.index(name)]
        return node, label, update

    @cached_property
    def _labeled(self) -> Array:
        """Labeled nodes in ascending order, with class, split and update, as rows of ``[4, n]``."""
        rows = select(self.connection, "labels", f"{VISIBLE} ORDER BY node", v=self.version.number)
        columns = np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 5).T)
        limits = (self.next_node, self.version.classes, len(SPLITS), self.version.updates)
        if rows and (columns.min() < 0 or (columns[:4].max(1) >= limits).any()):
            raise damaged("the table labels")
        return columns[:4]

    def _rows(self, table: str, nodes: Array) -> list[Row]:
        """One row of a table per node, in the order of the nodes (ascending, unique)."""
        where = f"node {AMONG} AND {VISIBLE} ORDER BY node"
        rows = select(self.connection, table, where, nodes=json_list(nodes), v=self.version.number)
        if [row[0] for row in rows] != nodes.tolist():
            raise damaged(f"the table {table}")
        return rows


class MemoryGraph(StoredGraph):
    """A stored graph that was read completely and needs no connection."""

    def __init__(self, stored: StoredGraph) -> None:
        vars(self).update(vars(stored))
        nodes = stored.nodes()
        self._nodes, self._ids, self._labeled = nodes, stored.names(nodes), stored._labeled
        self._node_of = dict(zip(self._ids, nodes.tolist(), strict=True))
        self._row = np.full(stored.next_node, -1, np.int64)
        self._row[nodes] = np.arange(len(nodes))
        row, source, weight = stored.neighbors(nodes)
        self._is_weighted, values = weight is not None, np.ones(len(row), np.float32) if weight is None else weight
        indptr = np.searchsorted(row, np.arange(len(nodes) + 1))
        self._edges = scipy.sparse.csr_matrix((values, source, indptr), (len(nodes), stored.next_node))
        self._stored = stored.stored_features(nodes)
        self._x = self.encode(self._stored)

    def find(self, ids: Sequence[str]) -> Array:
        return np.fromiter((self._node_of.get(name, -1) for name in ids), np.int64, len(ids))

    def names(self, nodes: Array) -> list[str]:
        return [self._ids[row] for row in self._row[nodes]]

    def nodes(self) -> Array:
        return self._nodes

    def neighbors(self, nodes: Array) -> tuple[Array, Array, Array | None]:
        edges = self._edges[self._row[nodes]]
        row = np.repeat(np.arange(len(nodes)), np.diff(edges.indptr))
        return row, edges.indices.astype(np.int64), edges.data if self._is_weighted else None

    def features(self, nodes: Array) -> Any:
        return self._x[self._row[nodes]]

    def stored_features(self, nodes: Array) -> Any:
        return self._stored[self._row[nodes]]


def write_update(
    connection: sqlite3.Connection, graph: StoredGraph, update: Update, version: int, number: int, directed: bool
) -> None:
    """Add an update to the graph of the next version; older versions do not contain it.

    Nodes with other features than before are removed, and added with a new number, their labels and their edges.
    """
    known = read_number(connection, "SELECT count(*) FROM classes")
    insert(connection, "classes", ((known + i, name, version) for i, name in enumerate(update.classes)))
    new = graph.next_node + np.arange(len(update.ids))
    columns, values = _blobs(update.features)
    insert(connection, "nodes", zip(new.tolist(), update.ids, repeat(version), columns, values, strict=False))
    changed, renumber = update.changed, np.arange(graph.next_node + len(update.ids))
    renumber[changed] = new[: len(changed)]
    nodes, classes = update.corrected
    corrected = np.stack([nodes, classes, *graph.labels(nodes)[1:]])
    labeled = np.stack([*update.labels, np.full_like(update.labels[0], number)])
    moved = np.stack([changed, *graph.labels(changed)])
    moved = moved[:, (moved[1] >= 0) & ~np.isin(changed, nodes)]
    labels = np.concatenate([labeled, corrected, moved], axis=1)
    labels[0] = renumber[labels[0]]
    remove_rows(connection, "labels", np.union1d(nodes, changed), version)
    insert(connection, "labels", ((*row, version) for row in labels.T.tolist()))
    targets = np.unique(update.edges[1])
    old = np.union1d(targets[targets < graph.next_node], changed)
    if len(changed):
        old = np.union1d(old, _targets_of(graph, changed, directed)[0])
    row, source, weight = graph.neighbors(old)
    weights = join_weights(weight, len(row), update.weights, update.edges.shape[1])
    edges = np.concatenate([np.stack([source, old[row]]), update.edges], axis=1)
    for table in ("nodes", "adjacency"):
        remove_rows(connection, table, changed, version)
    write_adjacency(connection, np.union1d(renumber[np.union1d(old, targets)], new), renumber[edges], weights, version)


def _blobs(features: Any) -> tuple[Iterable[bytes | None], Iterable[bytes]]:
    """Columns (None if dense) and values of each row."""
    if isinstance(features, np.ndarray):
        return repeat(None), (row.tobytes() for row in features.astype(np.float32))
    arrays = (features.indices.astype(np.int32), features.data.astype(np.float32))
    columns, values = ([a[start:end].tobytes() for start, end in pairwise(features.indptr)] for a in arrays)
    return columns, values


def remove_rows(connection: sqlite3.Connection, table: str, nodes: Array, version: int) -> None:
    """Remove rows of some nodes from a version on."""
    query = f"UPDATE {table} SET removed = :v WHERE removed IS NULL AND node {AMONG}"
    connection.execute(query, {"v": version, "nodes": json_list(nodes)})


def write_adjacency(
    connection: sqlite3.Connection, nodes: Array, edges: Array, weights: Array | None, version: int
) -> None:
    """Replace the neighbors of nodes (ascending) from a version on by all ``edges`` ``[2, m]`` into them.

    An edge that is there twice keeps the larger weight.
    """
    remove_rows(connection, "adjacency", nodes, version)
    order = np.lexsort(edges if weights is None else (weights, *edges))
    edges = edges[:, order]
    last = np.append((edges[:, 1:] != edges[:, :-1]).any(0), True)[: edges.shape[1]]
    sources, targets = edges[0][last].astype(np.int32), edges[1][last]
    starts = np.searchsorted(targets, nodes)
    lists = [neighbors.tobytes() for neighbors in np.split(sources, starts)[1:]]
    blobs: list[bytes | None] = [None] * len(nodes)
    if weights is not None:
        of_nodes = np.split(weights[order][last].astype(np.float32), starts)[1:]
        blobs = [None if (values == 1).all() else values.tobytes() for values in of_nodes]
    insert(connection, "adjacency", zip(nodes.tolist(), repeat(version), lists, blobs, strict=False))


def remove_nodes(connection: sqlite3.Connection, graph: StoredGraph, nodes: Array, version: int, directed: bool) -> int:
    """Remove nodes and their edges from a version on; returns the number of edges."""
    incoming = graph.neighbors(nodes)[1]
    targets, edges, weights = _targets_of(graph, nodes, directed)
    gone = np.isin(edges[0], nodes)
    for table in ("nodes", "labels", "adjacency"):
        remove_rows(connection, table, nodes, version)
    write_adjacency(connection, targets, edges[:, ~gone], None if weights is None else weights[~gone], version)
    return len(incoming) + int(gone.sum())


def _targets_of(graph: StoredGraph, nodes: Array, directed: bool) -> tuple[Array, Array, Array | None]:
    """Other nodes with an edge from one of the nodes (ascending), all edges ``[2, m]`` into them, and their weights."""
    # lists have the sources of a node, which are its targets as well unless edges are directed
    others = np.setdiff1d(graph.nodes() if directed else graph.neighbors(nodes)[1], nodes)
    row, source, weight = graph.neighbors(others)
    target = others[row]
    targets = np.unique(target[np.isin(source, nodes)])
    into = np.isin(target, targets)
    return targets, np.stack([source, target])[:, into], None if weight is None else weight[into]
