"""The graph of a version: read in parts, or as a whole.

Nodes are numbered in the order in which they came and keep their number; a node that was forgotten leaves a gap. Every
node that is read must have exactly one row of each table, so that a damaged index is noticed as well.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ergnn.folder.database import VISIBLE, FolderError, checksum, damaged, reading_values
from ergnn.folder.versions import Version

Array = NDArray[Any]
SPLITS = ("train", "val", "test")
AMONG = "IN (SELECT value FROM json_each(:nodes))"


def json_list(values: Iterable[Any]) -> str:
    """A list as one argument of a query, for ``json_each``."""
    return json.dumps(values.tolist() if isinstance(values, np.ndarray) else list(values), ensure_ascii=False)


class StoredGraph:
    """The graph of one version, as far as it is asked for.

    Args:
        connection: of the database.
        version: which one.
        num_nodes: how many there are.
        next_node: numbers are below this one.
        num_features: features per node.
        dense: whether features are stored and used as a dense matrix; otherwise in CSR form.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        version: int,
        num_nodes: int,
        next_node: int,
        num_features: int,
        dense: bool,
    ) -> None:
        self.connection, self.version, self.num_nodes, self.next_node = connection, version, num_nodes, next_node
        self.num_features, self.dense = num_features, dense

    @classmethod
    def of(cls, connection: sqlite3.Connection, version: Version) -> StoredGraph:
        with reading_values("the features"):
            width, dense = int(version.state["num_features"] or 0), bool(version.state["dense"])
        return cls(connection, version.number, version.nodes, version.next_node, width, dense)

    def find(self, ids: Sequence[str]) -> Array:
        """Node numbers; -1 for an id that is not there."""
        found = np.full(len(ids), -1, np.int64)
        query = f"""SELECT asked.key, node FROM json_each(:ids) AS asked CROSS JOIN nodes ON nodes.id = asked.value
                    WHERE {VISIBLE}"""
        for place, node in self.connection.execute(query, {"ids": json_list(ids), "v": self.version}):
            found[place] = node
        return found

    def names(self, nodes: Array) -> list[str]:
        """The user's ids of some nodes."""
        distinct, place = np.unique(nodes, return_inverse=True)
        names = [row[1] for row in self._rows("nodes", "node, id", distinct)]
        return [names[i] for i in place]

    def nodes(self) -> Array:
        """All nodes."""
        query = f"SELECT node FROM nodes WHERE {VISIBLE} ORDER BY node"
        return np.array([row[0] for row in self.connection.execute(query, {"v": self.version})], np.int64)

    def neighbors(self, nodes: Array) -> tuple[Array, Array]:
        """Edges into some nodes (ascending, none twice): place in ``nodes`` and source, in the order of both."""
        rows = self._rows("adjacency", "node, added, neighbors, checksum", nodes)
        return _edges(rows, self.next_node)

    def read_graph(self) -> tuple[Array, Array]:
        """The whole graph in CSR form: ``indptr [next_node + 1]`` and ``indices``, edges by their target."""
        query = f"SELECT node, added, neighbors, checksum FROM adjacency WHERE {VISIBLE} ORDER BY node"
        cursor = self.connection.execute(query, {"v": self.version})
        degree, parts, last = np.zeros(self.next_node, np.int64), [], -1
        while rows := cursor.fetchmany(65536):
            nodes = np.array([row[0] for row in rows])
            if nodes[0] <= last or nodes[-1] >= self.next_node or (np.diff(nodes) < 1).any():
                raise damaged("the adjacency")
            last = int(nodes[-1])
            place, source = _edges(rows, self.next_node)
            degree[nodes] = np.bincount(place, minlength=len(nodes))
            parts.append(source.astype(np.int32))
        indices = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return np.concatenate([[0], np.cumsum(degree)]), indices

    def features(self, nodes: Array) -> Any:
        """Features of some nodes (ascending, none twice): float32, a dense matrix or in CSR form."""
        return self._features(self._rows("nodes", "node, id, added, columns, features, checksum", nodes))

    def read_features(self) -> Any:
        """Features of all nodes ``[next_node, num_features]``; those of a forgotten node are zero."""
        query = f"SELECT node, id, added, columns, features, checksum FROM nodes WHERE {VISIBLE} ORDER BY node"
        cursor = self.connection.execute(query, {"v": self.version})
        dense = np.zeros((self.next_node, self.num_features), np.float32) if self.dense else None
        counts, columns, values = np.zeros(self.next_node, np.int64), [], []
        while rows := cursor.fetchmany(16384):
            nodes, part = np.array([row[0] for row in rows]), self._features(rows)
            if dense is not None:
                dense[nodes] = part
            else:
                counts[nodes] = np.diff(part.indptr)
                columns.append(part.indices)
                values.append(part.data)
        if dense is not None:
            return dense
        indptr = np.concatenate([[0], np.cumsum(counts)])
        entries = [
            np.concatenate(part) if part else np.empty(0, kind) for part, kind in ((values, "f4"), (columns, "i4"))
        ]
        return scipy.sparse.csr_matrix((*entries, indptr), (self.next_node, self.num_features))

    def labels(self, nodes: Array | None = None) -> tuple[Array, Array, Array]:
        """Class (-1 for none), split (place in ``SPLITS``) and update of the label, of some nodes or of all numbers."""
        wanted, place = np.unique(np.arange(self.next_node) if nodes is None else nodes, return_inverse=True)
        which = "" if nodes is None else f"AND node {AMONG}"
        query = f"SELECT node, class, split, number, added, checksum FROM labels WHERE {VISIBLE} {which}"
        rows = self._labels(query, {} if nodes is None else {"nodes": json_list(wanted)})
        out = np.full((3, len(wanted)), -1, np.int64)
        out[:, np.searchsorted(wanted, rows[:, 0])] = rows[:, 1:].T
        label, split, number = out[:, place]
        return label, split, number

    def members(self, number: int, split: str, count: int | None = None) -> tuple[Array, Array]:
        """The labeled nodes of an update's split in their order, and their classes.

        Args:
            count: how many there must be, where that is known.
        """
        query = f"""SELECT node, class, split, number, added, checksum FROM labels
                    WHERE number = :number AND split = :split AND {VISIBLE} ORDER BY node"""
        rows = self._labels(query, {"number": number, "split": SPLITS.index(split)})
        if count is not None and len(rows) != count:
            raise damaged(f"the {split} nodes of update {number + 1}")
        return rows[:, 0], rows[:, 1]

    def labeled(self) -> tuple[Array, Array, Array, Array]:
        """All labeled nodes in their order, with class, split (place in ``SPLITS``) and update of the label."""
        query = f"SELECT node, class, split, number, added, checksum FROM labels WHERE {VISIBLE} ORDER BY node"
        node, label, split, number = np.ascontiguousarray(self._labels(query, {}).T)
        return node, label, split, number

    def _labels(self, query: str, values: dict[str, Any]) -> Array:
        rows = self.connection.execute(query, {**values, "v": self.version}).fetchall()
        with reading_values("the labels"):
            for node, label, split, number, added, total in rows:
                if total != checksum(node, label, split, number, added) or not 0 <= node < self.next_node:
                    raise damaged(f"the label of node {node}")
        return np.array([row[:4] for row in rows], np.int64).reshape(-1, 4)

    def _rows(self, table: str, columns: str, nodes: Array) -> list[tuple[Any, ...]]:
        """One row of a table per node, in the order of the nodes (ascending, none twice)."""
        query = f"SELECT {columns} FROM {table} WHERE node {AMONG} AND {VISIBLE} ORDER BY node"
        rows = self.connection.execute(query, {"nodes": json_list(nodes), "v": self.version}).fetchall()
        if [row[0] for row in rows] != nodes.tolist():
            raise damaged(f"the table {table}")
        return rows

    def _features(self, rows: list[tuple[Any, ...]]) -> Any:
        with reading_values("the features"):
            for *row, total in rows:
                if total != checksum(*row) or (row[3] is None) != self.dense:
                    raise damaged(f"node {row[0]}")
            values = np.frombuffer(b"".join([row[4] for row in rows]), np.float32)
            if self.dense:
                return values.reshape(len(rows), self.num_features)
            columns = np.frombuffer(b"".join([row[3] for row in rows]), np.int32)
            indptr = np.concatenate([[0], np.cumsum([len(row[4]) // 4 for row in rows], dtype=np.int64)])
            if len(columns) and not 0 <= columns.min() <= columns.max() < self.num_features:
                raise FolderError(f"a feature beyond the {self.num_features} there are: the database is damaged")
            return scipy.sparse.csr_matrix((values, columns, indptr), (len(rows), self.num_features))


def _edges(rows: list[tuple[Any, ...]], next_node: int) -> tuple[Array, Array]:
    with reading_values("the adjacency"):
        for node, added, data, total in rows:
            if total != checksum(node, added, data):
                raise damaged(f"the neighbors of node {node}")
        sources = np.frombuffer(b"".join([row[2] for row in rows]), np.int32).astype(np.int64)
        if sources.size and not 0 <= sources.min() <= sources.max() < next_node:
            raise FolderError("an edge names a node that is not there: the database is damaged")
        return np.repeat(np.arange(len(rows)), [len(row[2]) // 4 for row in rows]), sources


class ExtendedGraph(StoredGraph):
    """A stored graph with nodes and edges that are there for one prediction only.

    Args:
        base: the stored graph.
        ids: of the new nodes, whose numbers follow those of the stored ones.
        features: of the new nodes, in the form of the stored ones.
        edges: ``[2, m]`` new sources and targets.
    """

    def __init__(self, base: StoredGraph, ids: Sequence[str], features: Any, edges: Array) -> None:
        sizes = (base.num_nodes + len(ids), base.next_node + len(ids))
        super().__init__(base.connection, base.version, *sizes, base.num_features, base.dense)
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
