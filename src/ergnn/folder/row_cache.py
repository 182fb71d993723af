"""Rows of φ that an update cannot have changed, and sums over them, so that neither need be computed again.

Both are those of one version. Where there are none for a version, all are computed: nothing depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from ergnn.analytic import FeatureMap
from ergnn.analytic.ridge import LOO_ROWS
from ergnn.data.partial import Array
from ergnn.data.tables.node_tables import SPLITS
from ergnn.folder.database import VISIBLE, damaged, insert, select
from ergnn.folder.graph import AMONG, StoredGraph, json_list

WORTH = 0.5
"""Rows under a map are stored if an update leaves at least this share of them as they are."""

GRAM_BYTES = 1 << 26
"""Sums under a map are stored if they take at most this many bytes, and fewer than the rows."""

IN_PLACE = "ON CONFLICT (map, class) DO UPDATE SET data = excluded.data, checksum = excluded.checksum"
"""Overwrites the pages of a row of the same size, where deleting it first would write them twice."""


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
        self._versions = {"base": base, "v": graph.version.number}
        self._reached = [] if directed else reached(graph, base, max(each.num_hops for each in maps))
        self._stored: dict[str, Array] = {}
        self._new: dict[str, tuple[Array, Tensor]] = {}
        self._grams: dict[str, tuple[Array, Tensor]] = {}

    def unchanged(self, feature_map: FeatureMap) -> Array:
        """Which nodes have the φ that they had in the version before."""
        if feature_map.num_hops >= len(self._reached):
            return np.zeros(len(self.nodes), bool)
        return ~np.isin(self.nodes, self._reached[feature_map.num_hops])

    def stored(self, feature_map: FeatureMap) -> Array:
        """Nodes that had a row in the version before, ascending."""
        if feature_map.name not in self._stored:
            query = "SELECT node FROM phi WHERE map = ? ORDER BY node"  # by the index alone, without reading the rows
            found = self.connection.execute(query, (feature_map.name,)).fetchall() if self.valid else []
            self._stored[feature_map.name] = np.array(found, np.int64).reshape(-1)
        return self._stored[feature_map.name]

    def load(self, feature_map: FeatureMap, nodes: Array, width: int, dtype: torch.dtype) -> Tensor:
        """Rows of stored nodes (ascending, none twice) as they were in the version before."""
        where = f"map = :map AND node {AMONG} ORDER BY node"
        found = (
            select(self.connection, "phi", where, map=feature_map.name, nodes=json_list(nodes)) if len(nodes) else []
        )
        if [row[1] for row in found] != nodes.tolist() or any(len(row[2]) != width * dtype.itemsize for row in found):
            raise damaged("a row of the table phi")
        if not found:
            return torch.empty(0, width, dtype=dtype)
        return torch.frombuffer(bytearray().join([row[2] for row in found]), dtype=dtype).view(-1, width)

    def put(self, feature_map: FeatureMap, new: Array, rows: Tensor) -> None:
        """Note rows of the nodes in the mask ``new``, which were computed."""
        if len(self.nodes) and self.unchanged(feature_map).mean() >= WORTH:
            self._new[feature_map.name] = self.nodes[new], rows.cpu()

    def worth_sums(self, feature_map: FeatureMap, width: int, count: int, num_classes: int) -> bool:
        """Whether sums over ``count`` training rows are stored: once they take less than the rows themselves."""
        small = num_classes * width <= 2 * count and 4 * num_classes * width**2 <= GRAM_BYTES
        stays = len(self.nodes) > 0 and self.unchanged(feature_map).mean() >= WORTH
        return small and stays and count > max(width, LOO_ROWS)

    def load_grams(self, feature_map: FeatureMap, width: int) -> tuple[Array, Tensor] | None:
        """The classes in the version before, and the upper triangle of ``Σ φφᵀ`` over the training nodes of each.

        None without them, and if nodes or training labels were removed or corrected since: then the sums are made
        again from rows, so that nothing is left of what was removed, not even by rounding.
        """
        gone = "removed > :base AND removed <= :v AND added <= :base"
        for where in (f"nodes WHERE {gone}", f"labels WHERE split = {SPLITS.index('train')} AND {gone}"):
            if self.connection.execute(f"SELECT 1 FROM {where} LIMIT 1", self._versions).fetchone() is not None:
                return None
        rows = select(self.connection, "gram", "map = :map ORDER BY class", map=feature_map.name) if self.valid else []
        if not rows:
            return None
        if any(len(row[2]) != 4 * width * (width + 1) for row in rows):
            raise damaged("a row of the table gram")
        grams = torch.frombuffer(bytearray().join([row[2] for row in rows]), dtype=torch.float64)
        if not bool(torch.isfinite(grams).all()):
            raise damaged("the table gram")
        return np.array([row[1] for row in rows], np.int64), grams.view(len(rows), -1)

    def put_grams(self, feature_map: FeatureMap, classes: Array, grams: Tensor) -> None:
        """Note the sums of all classes."""
        self._grams[feature_map.name] = classes, grams.cpu()

    def new_labels(self) -> Array:
        """Nodes with a training label that the version before did not have."""
        where = f"split = {SPLITS.index('train')} AND added > :base AND {VISIBLE}"
        return np.array([row[0] for row in select(self.connection, "labels", where, **self._versions)], np.int64)

    def write(self, version: int) -> None:
        """Make the rows and sums those of a version; call it in the transaction that writes the version."""
        for name in {row[0] for row in self.connection.execute("SELECT DISTINCT map FROM phi")}:
            query, values = "DELETE FROM phi WHERE map = :map", {"map": name}
            if self.valid and name in self._new:
                query += f" AND node {AMONG}"
                values["nodes"] = json_list(np.setdiff1d(self._stored[name], self.nodes))
            self.connection.execute(query, values)
        for name, (nodes, rows) in self._new.items():
            values_of = ((name, node, row.tobytes()) for node, row in zip(nodes.tolist(), rows.numpy(), strict=True))
            insert(self.connection, "phi", values_of, "REPLACE")
        kept = [f"{name} {c}" for name, (classes, _) in self._grams.items() for c in classes.tolist()]
        query = "DELETE FROM gram WHERE map || ' ' || class NOT IN (SELECT value FROM json_each(?))"
        self.connection.execute(query, (json_list(kept),))
        for name, (classes, grams) in self._grams.items():
            sums = ((name, c, gram.tobytes()) for c, gram in zip(classes.tolist(), grams.numpy(), strict=True))
            insert(self.connection, "gram", sums, end=IN_PLACE)
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
