"""Rows of φ that an update cannot have changed, so that they need not be computed again.

They are those of one version. Where there are none for a version, all are computed: nothing depends on them.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ergnn.analytic import FeatureMap
from ergnn.data.partial import Array, LabeledGraph
from ergnn.folder.database import VISIBLE, damaged, insert, select
from ergnn.folder.graph import AMONG, StoredGraph, json_list

MIN_UNCHANGED = 0.5
"""Rows under a map are stored if an update leaves at least this share of them as they are."""


class CachedRows:
    """Rows of φ under one map of the nodes that a solve needs, with masks over these nodes.

    Args:
        graph: the graph of the next version.
        base: the version before, whose rows are stored.
        changed: nodes within 0, 1, … hops of what changed since then; empty if that is unknown.
        layout: what else the rows depend on: rows of another layout are not used.
        nodes: the nodes, ascending.
        feature_map: the map.
        width: number of columns.
        dtype: precision.

    Attributes:
        is_stored: whether rows are stored: if the update leaves enough of them as they are.
        loadable: rows of the version before that still hold.
        rows: rows of the nodes in ``present``.
    """

    def __init__(
        self,
        graph: StoredGraph,
        base: int,
        changed: list[Array],
        layout: str,
        nodes: Array,
        feature_map: FeatureMap,
        width: int,
        dtype: torch.dtype,
    ) -> None:
        self.connection, self.layout, self.nodes, self.name = graph.connection, layout, nodes, feature_map.name
        query = "SELECT node FROM phi WHERE map = ? ORDER BY node"  # by the index alone, without reading the rows
        valid = select(self.connection, "row_cache") == [(1, base, layout)]
        stored = self.connection.execute(query, (self.name,)).fetchall() if valid else []
        unchanged = np.zeros(len(nodes), bool)
        if feature_map.num_hops < len(changed):
            unchanged = ~np.isin(nodes, changed[feature_map.num_hops])
        self.is_stored = len(nodes) > 0 and bool(unchanged.mean() >= MIN_UNCHANGED)
        self.loadable = np.isin(nodes, np.array(stored, np.int64)) & unchanged
        self.rows, self.present = torch.empty(len(nodes), width, dtype=dtype), np.zeros(len(nodes), bool)

    def fetch(self, mask: Array, compute: Callable[[Array], Tensor]) -> Tensor:
        """Return the rows of some nodes, read or computed by a function of nodes."""
        missing = mask & ~self.present
        for wanted, get in ((missing & self.loadable, self._read), (missing & ~self.loadable, compute)):
            values = get(self.nodes[wanted])
            self.rows = self.rows.to(values.device)
            self.rows[torch.from_numpy(np.flatnonzero(wanted)).to(values.device)] = values
        self.present = self.present | mask
        return self.rows[torch.from_numpy(np.flatnonzero(mask)).to(self.rows.device)]

    def _read(self, nodes: Array) -> Tensor:
        """Read rows as they were in the version before."""
        where, empty = f"map = :map AND node {AMONG} ORDER BY node", self.rows[:0].cpu()
        if not len(nodes):
            return empty
        rows = select(self.connection, "phi", where, map=self.name, nodes=json_list(nodes))
        size = empty.size(1) * empty.dtype.itemsize
        if [node for _, node, _ in rows] != nodes.tolist() or any(len(data) != size for _, _, data in rows):
            raise damaged("a row of the table phi")
        data = bytearray().join([data for _, _, data in rows])
        return torch.frombuffer(data, dtype=empty.dtype).view(-1, empty.size(1))


def write_rows(connection: sqlite3.Connection, cached: Sequence[CachedRows], version: int) -> None:
    """Make the rows under all maps those of a version; call it in the transaction that writes the version."""
    kept = {each.name: each for each in cached if each.is_stored}
    for (name,) in connection.execute("SELECT DISTINCT map FROM phi").fetchall():
        values = {"map": name, "nodes": json_list(kept[name].nodes[kept[name].loadable] if name in kept else [])}
        connection.execute(f"DELETE FROM phi WHERE map = :map AND node NOT {AMONG}", values)
    for name, each in kept.items():
        computed = np.flatnonzero(each.present & ~each.loadable)
        rows = zip(each.nodes[computed].tolist(), each.rows[computed].cpu().numpy(), strict=True)
        insert(connection, "phi", ((name, node, row.tobytes()) for node, row in rows), "REPLACE")
    insert(connection, "row_cache", [(1, version, cached[0].layout)], "REPLACE")


def name_hashes(graph: LabeledGraph, nodes: Array) -> Tensor:
    """64-bit hashes of the ids of nodes, which do not depend on the order in which nodes arrived."""
    names = graph.names(nodes)
    hashes = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return torch.from_numpy(np.frombuffer(hashes, np.int64).copy())


def changed_within(graph: StoredGraph, base: int, hops: int) -> list[Array]:
    """Nodes within 0, 1, … hops of what changed since a version; it ends where that is more than half of the graph."""
    query = f"SELECT node FROM adjacency WHERE added > :base AND {VISIBLE} ORDER BY node"
    rows = graph.connection.execute(query, {"base": base, "v": graph.version.number})
    nodes = frontier = np.array([row[0] for row in rows], np.int64)
    within = [nodes]
    while len(within) <= hops and 2 * len(nodes) <= graph.num_nodes:
        frontier = np.setdiff1d(graph.neighbors(frontier)[1], nodes)
        nodes = np.union1d(nodes, frontier)
        within.append(nodes)
    return within
