"""Rows of φ that an update cannot have changed, so that they need not be computed again.

The rows are those of one version. Where there are none for a version, all are computed: nothing depends on them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from ergnn.analytic import FeatureMap
from ergnn.folder.database import checksum, damaged, insert
from ergnn.folder.graph import AMONG, VISIBLE, Array, StoredGraph, json_list

WORTH = 0.5
"""Rows under a map are stored if an update leaves at least this share of them as they are."""


class RowCache:
    """Rows of φ of training nodes, as they were in the version before.

    Args:
        graph: the graph of the next version.
        base: the version before.
        layout: what else the rows depend on: rows of another layout are not used.
        directed: whether edges lead one way, so that it is not known what a change reaches.
        maps: the feature maps.
    """

    def __init__(self, graph: StoredGraph, base: int, layout: str, directed: bool, maps: Iterable[FeatureMap]) -> None:
        self.connection, self.layout = graph.connection, layout
        row = self.connection.execute("SELECT one, version, layout, checksum FROM row_cache").fetchone()
        self.valid = row is not None and row[1:3] == (base, layout) and row[3] == checksum(*row[:3])
        hops = max(each.num_hops for each in maps)
        self._reached = [] if directed else reached(graph, base, hops)
        self._changed: dict[str, tuple[Array, Tensor]] = {}
        self._stored: set[str] = set()

    def unchanged(self, feature_map: FeatureMap, nodes: Array) -> Array:
        """Which nodes (ascending) have the φ that they had in the version before."""
        if feature_map.num_hops >= len(self._reached):
            return np.zeros(len(nodes), bool)
        return ~np.isin(nodes, self._reached[feature_map.num_hops])

    def load(self, feature_map: FeatureMap, nodes: Array, width: int, dtype: torch.dtype) -> tuple[Array, Tensor]:
        """Which of some nodes (ascending) have a row that holds, and those rows."""
        same, kind = self.unchanged(feature_map, nodes), np.dtype(str(dtype).removeprefix("torch."))
        query = f"SELECT map, node, data, checksum FROM phi WHERE map = :map AND node {AMONG} ORDER BY node"
        values = {"map": feature_map.name, "nodes": json_list(nodes[same])}
        found = self.connection.execute(query, values).fetchall() if self.valid and same.any() else []
        if any(row[3] != checksum(*row[:3]) or len(row[2]) != width * kind.itemsize for row in found):
            raise damaged("a row of the table phi")
        known = np.isin(nodes, np.array([row[1] for row in found], np.int64))
        rows = np.frombuffer(b"".join([row[2] for row in found]), kind).reshape(-1, width).copy()
        return known, torch.from_numpy(rows)

    def put(self, feature_map: FeatureMap, nodes: Array, new: Array, rows: Tensor) -> None:
        """Note rows of all training nodes, of which those in ``new`` were computed."""
        if self.unchanged(feature_map, nodes).mean() >= WORTH:
            self._stored.add(feature_map.name)
            self._changed[feature_map.name] = nodes[new], rows[torch.from_numpy(new)].cpu()

    def write(self, version: int) -> None:
        """Make the rows those of a version; call it in the transaction that writes the version."""
        connection: sqlite3.Connection = self.connection
        keep = json_list(self._stored if self.valid else [])
        connection.execute("DELETE FROM phi WHERE map NOT IN (SELECT value FROM json_each(?))", (keep,))
        for name, (nodes, rows) in self._changed.items():
            blobs = (row.tobytes() for row in rows.numpy())
            values = ((name, node, data) for node, data in zip(nodes.tolist(), blobs, strict=True))
            insert(connection, "phi", "map, node, data", values, "REPLACE")
        insert(connection, "row_cache", "one, version, layout", [(1, version, self.layout)], "REPLACE")


def reached(graph: StoredGraph, base: int, hops: int) -> list[Array]:
    """Nodes within 0, 1, … hops of what changed since a version; it ends where that is more than half of the graph."""
    query = f"SELECT node FROM adjacency WHERE added > :base AND {VISIBLE} ORDER BY node"
    rows = graph.connection.execute(query, {"base": base, "v": graph.version})
    nodes = frontier = np.array([row[0] for row in rows], np.int64)
    found = [nodes]
    while len(found) <= hops and 2 * len(nodes) <= graph.num_nodes:
        frontier = np.setdiff1d(graph.neighbors(frontier)[1], nodes)
        nodes = np.union1d(nodes, frontier)
        found.append(nodes)
    return found
