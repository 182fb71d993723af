"""Rows of φ that an update cannot have changed, so that they need not be computed again.

The rows are those of one version. Where there are none for a version, all are computed: nothing depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from ergnn.analytic import FeatureMap
from ergnn.data.partial import Array
from ergnn.folder.database import VISIBLE, damaged, insert, select
from ergnn.folder.graph import AMONG, StoredGraph, json_list

WORTH = 0.5
"""Rows under a map are stored if an update leaves at least this share of them as they are."""


class RowCache:
    """Rows of φ of some nodes, as they were in the version before.

    Args:
        graph: the graph of the next version.
        nodes: those whose rows are needed, ascending.
        base: the version before.
        layout: what else the rows depend on: rows of another layout are not used.
        directed: whether edges lead one way, so that it is not known what a change reaches.
        maps: the feature maps.
    """

    def __init__(
        self, graph: StoredGraph, nodes: Array, base: int, layout: str, directed: bool, maps: Iterable[FeatureMap]
    ) -> None:
        self.connection, self.nodes, self.layout = graph.connection, nodes, layout
        self.valid = select(self.connection, "row_cache") == [(1, base, layout)]
        self._reached = [] if directed else reached(graph, base, max(each.num_hops for each in maps))
        self._new: dict[str, tuple[Array, Tensor]] = {}

    def unchanged(self, feature_map: FeatureMap) -> Array:
        """Which nodes have the φ that they had in the version before."""
        if feature_map.num_hops >= len(self._reached):
            return np.zeros(len(self.nodes), bool)
        return ~np.isin(self.nodes, self._reached[feature_map.num_hops])

    def load(self, feature_map: FeatureMap, width: int, dtype: torch.dtype) -> tuple[Array, Tensor]:
        """Which nodes have a row that holds, and those rows."""
        where, wanted = f"map = :map AND node {AMONG} ORDER BY node", json_list(self.nodes[self.unchanged(feature_map)])
        found = select(self.connection, "phi", where, map=feature_map.name, nodes=wanted) if self.valid else []
        if not found:
            return np.zeros(len(self.nodes), bool), torch.empty(0, width, dtype=dtype)
        if any(len(row[2]) != width * dtype.itemsize for row in found):
            raise damaged("a row of the table phi")
        known = np.isin(self.nodes, [row[1] for row in found])
        return known, torch.frombuffer(bytearray().join([row[2] for row in found]), dtype=dtype).view(-1, width)

    def put(self, feature_map: FeatureMap, new: Array, rows: Tensor) -> None:
        """Note rows of the nodes in the mask ``new``, which were computed."""
        if len(self.nodes) and self.unchanged(feature_map).mean() >= WORTH:
            self._new[feature_map.name] = self.nodes[new], rows.cpu()

    def write(self, version: int) -> None:
        """Make the rows those of a version; call it in the transaction that writes the version."""
        keep = {"maps": json_list(self._new if self.valid else []), "nodes": json_list(self.nodes)}
        kept = f"map IN (SELECT value FROM json_each(:maps)) AND node {AMONG}"
        gone = f"SELECT rowid FROM phi WHERE NOT ({kept})"  # by the index alone, without reading the rows
        self.connection.execute(f"DELETE FROM phi WHERE rowid IN ({gone})", keep)
        for name, (nodes, rows) in self._new.items():
            values = ((name, node, row.tobytes()) for node, row in zip(nodes.tolist(), rows.numpy(), strict=True))
            insert(self.connection, "phi", values, "REPLACE")
        insert(self.connection, "row_cache", [(1, version, self.layout)], "REPLACE")


def reached(graph: StoredGraph, base: int, hops: int) -> list[Array]:
    """Nodes within 0, 1, … hops of what changed since a version; it ends where that is more than half of the graph."""
    query = f"SELECT node FROM adjacency WHERE added > :base AND {VISIBLE} ORDER BY node"
    rows = graph.connection.execute(query, {"base": base, "v": graph.version.number})
    nodes = frontier = np.array([row[0] for row in rows], np.int64)
    found = [nodes]
    while len(found) <= hops and 2 * len(nodes) <= graph.num_nodes:
        frontier = np.setdiff1d(graph.neighbors(frontier)[1], nodes)
        nodes = np.union1d(nodes, frontier)
        found.append(nodes)
    return found
