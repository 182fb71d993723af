"""Rows of φ that an update cannot have changed, and sums over them, so that neither need be computed again.

Both are those of one version. Where there are none for a version, all are computed: nothing depends on them.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ergnn.analytic import FeatureMap, RidgeSolution
from ergnn.analytic.features import CONSTANT
from ergnn.analytic.ridge import LOO_ROWS, Targets, Trial, loo_rows, solve, solve_sums
from ergnn.data.partial import Array, LabeledGraph
from ergnn.data.tables.node_tables import SPLITS
from ergnn.folder.database import VISIBLE, damaged, insert, select
from ergnn.folder.graph import AMONG, StoredGraph, json_list

MIN_UNCHANGED = 0.5
"""Rows under a map are stored if an update leaves at least this share of them as they are."""

GRAM_BYTES = 1 << 26
"""Sums under a map are stored if they take at most this many bytes, and fewer than the rows."""

IN_PLACE = "ON CONFLICT (map, class) DO UPDATE SET data = excluded.data, checksum = excluded.checksum"
"""Overwrites the pages of a row of the same size, where deleting it first would write them twice."""


class RowCache:
    """Rows of φ of the nodes that a solve needs, as they were in the version before.

    Args:
        graph: the graph of the next version.
        base: the version before.
        changed: nodes within 0, 1, … hops of what changed since then; empty if that is unknown.
        layout: what else the rows depend on: rows of another layout are not used.
        nodes: the nodes, ascending.
        label: their classes, −1 for a node that is only scored.
    """

    def __init__(
        self, graph: StoredGraph, base: int, changed: list[Array], layout: str, nodes: Array, label: Array
    ) -> None:
        self.connection, self.changed, self.layout = graph.connection, changed, layout
        self.nodes, self.label, self.train = nodes, label, label >= 0
        self.versions = {"base": base, "v": graph.version.number}
        self.valid = select(self.connection, "row_cache") == [(1, base, layout)]
        train = np.flatnonzero(self.train)
        self.ids = name_hashes(graph, self.nodes[train])
        self.left_out = train[loo_rows(self.ids).numpy()]
        self.labels = torch.from_numpy(label[train])
        self.maps: list[MapRows] = []

    def add_map(self, feature_map: FeatureMap, width: int, dtype: torch.dtype) -> MapRows:
        """Decide which rows under a map, of ``width`` columns, are computed."""
        self.maps.append(MapRows(self, feature_map, width, dtype))
        return self.maps[-1]

    def write(self, version: int) -> None:
        """Make the rows and sums those of a version; call it in the transaction that writes the version."""
        stored = {rows.name: rows for rows in self.maps if rows.is_stored}
        for (name,) in self.connection.execute("SELECT DISTINCT map FROM phi").fetchall():
            query, values = "DELETE FROM phi WHERE map = :map", {"map": name}
            if self.valid and name in stored:
                query += f" AND node {AMONG}"
                stale = stored[name].compute & ~stored[name].present
                values["nodes"] = json_list(np.setdiff1d(stored[name].stored, self.nodes[~stale]))
            self.connection.execute(query, values)
        classes = {rows.name: rows.grams[0].tolist() for rows in self.maps if rows.grams is not None}
        query = "DELETE FROM gram WHERE map || ' ' || class NOT IN (SELECT value FROM json_each(?))"
        self.connection.execute(query, (json_list([f"{name} {c}" for name, cs in classes.items() for c in cs]),))
        for rows in self.maps:
            rows.write()
        insert(self.connection, "row_cache", [(1, version, self.layout)], "REPLACE")


def name_hashes(graph: LabeledGraph, nodes: Array) -> Tensor:
    """64-bit hashes of the ids of nodes, which do not depend on the order in which nodes arrived."""
    names = graph.names(nodes)
    hashes = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return torch.from_numpy(np.frombuffer(hashes, np.int64).copy())


class MapRows:
    """The rows of φ under one map that a solve needs, as masks over the nodes of a cache.

    Where sums of the version before are known, only training rows that are new or have changed are added to them (and
    the earlier ones subtracted), and only the rows that leave-one-out needs are read.

    Attributes:
        stored: nodes that had a row in the version before, ascending.
        is_stored: whether rows are stored: if the update leaves enough of them as they are.
        compute: rows to compute.
        load: rows to read, which still hold.
        add: training rows to add to the sums.
        subtract: training rows whose earlier values are in the sums.
        summed: whether the head is solved from sums.
        known: classes and sums of the version before; None to sum all rows.
        rows: rows of the nodes in ``present``.
        grams: classes and new sums.
    """

    def __init__(self, cache: RowCache, feature_map: FeatureMap, width: int, dtype: torch.dtype) -> None:
        self.cache, self.name, self.width, self.dtype = cache, feature_map.name, width, dtype
        nodes, train, hops = cache.nodes, cache.train, feature_map.num_hops
        query = "SELECT node FROM phi WHERE map = ? ORDER BY node"  # by the index alone, without reading the rows
        rows = cache.connection.execute(query, (self.name,)).fetchall() if cache.valid else []
        self.stored = np.array(rows, np.int64).reshape(-1)
        unchanged = np.zeros(len(nodes), bool)
        if hops < len(cache.changed):
            unchanged = ~np.isin(nodes, cache.changed[hops])
        self.is_stored = len(nodes) > 0 and bool(unchanged.mean() >= MIN_UNCHANGED)
        was_stored = np.isin(nodes, self.stored)
        self.unchanged = self.load = was_stored & unchanged
        self.compute, self.add, self.subtract = ~self.load, train, np.zeros(len(nodes), bool)
        self.rows, self.present = torch.empty(len(nodes), width, dtype=dtype), np.zeros(len(nodes), bool)
        self.grams: tuple[Array, Tensor] | None = None
        classes, count = np.unique(cache.label[train]), int(train.sum())
        small = len(classes) * width <= 2 * count and 4 * len(classes) * width**2 <= GRAM_BYTES
        self.summed = small and self.is_stored and count > max(width, LOO_ROWS)
        self.known = self.load_grams() if self.summed else None
        if self.known is None:
            return
        new = train & np.isin(nodes, self._new_labels())
        changed = train & ~new & ~unchanged
        if not np.isin(self.known[0], classes).all() or (changed & ~was_stored).any():
            self.known = None
            return
        needed = ~train
        needed[cache.left_out] = True
        self.compute = new | changed | (needed & ~self.load)
        self.load, self.add, self.subtract = needed & ~self.compute, new | changed, changed

    def fetch(self, mask: Array, compute: Callable[[Array], Tensor]) -> None:
        """Read or compute the rows of some nodes, given a function that computes rows of nodes."""
        load, missing = mask & self.load & ~self.present, mask & self.compute & ~self.present
        for wanted, values in ((load, self._read(load)), (missing, compute(self.cache.nodes[missing]))):
            self.rows = self.rows.to(values.device)
            self.rows[torch.from_numpy(np.flatnonzero(wanted)).to(values.device)] = values
        self.present = self.present | load | missing

    def rows_of(self, nodes: Array) -> Tensor:
        """Return rows that were fetched, given their indices."""
        return self.rows[torch.from_numpy(nodes).to(self.rows.device)]

    def solve(self, trial: Trial, compute: Callable[[Array], Tensor]) -> RidgeSolution:
        """Solve for the head of all training nodes, and fetch what it takes and the rows of nodes that are scored."""
        if trial.kernel.s and self.summed:  # sums are those of the linear kernel
            self.load, self.compute = self.unchanged, ~self.unchanged
            self.summed = False
        self.fetch(self.compute | self.load, compute)
        cache, device = self.cache, self.rows.device
        train, labels = np.flatnonzero(cache.train), cache.labels.to(device)
        chosen = torch.from_numpy(np.searchsorted(train, cache.left_out)).to(device)
        if not self.summed:
            return solve(self.rows_of(train), labels, trial, chosen, ids=cache.ids.to(device))
        gram, sums = self._sums(device)
        return solve_sums(self.rows_of(cache.left_out), Targets(labels), chosen, gram, sums, trial.lam)

    def _sums(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """``Σ n_c^-½ φφᵀ`` over all training rows, and ``Σ φ`` over those of each class."""
        label = self.cache.label
        classes, sizes = np.unique(label[label >= 0], return_counts=True)
        upper = torch.triu_indices(self.width, self.width, device=device)
        grams = torch.zeros(len(classes), upper.size(1), dtype=torch.float64, device=device)
        if self.known is not None:
            grams[torch.from_numpy(np.searchsorted(classes, self.known[0])).to(device)] = self.known[1].to(device)
        before = self._read(self.subtract).to(device)
        for gram, c in zip(grams, classes, strict=True):
            added = self.rows_of(np.flatnonzero(self.add & (label == c))).double()
            removed = before[torch.from_numpy(label[self.subtract] == c).to(device)].double()
            gram += (added.T @ added).addmm_(removed.T, removed, alpha=-1)[upper[0], upper[1]]
        self.grams = classes, grams.cpu()
        whole = grams.new_zeros(self.width, self.width)
        whole[upper[0], upper[1]] = torch.from_numpy(sizes).to(device).double().rsqrt() @ grams
        last = torch.arange(self.width, 0, -1, device=device).cumsum(0) - 1  # where rows of the triangle end
        return whole + whole.triu(1).T, grams[:, last] / CONSTANT

    def load_grams(self) -> tuple[Array, Tensor] | None:
        """The classes in the version before, and the upper triangle of ``Σ φφᵀ`` over the training nodes of each.

        None without them, and if nodes or training labels were removed or corrected since: then the sums are made
        again from rows, so that nothing is left of what was removed, not even by rounding.
        """
        connection = self.cache.connection
        gone = "removed > :base AND removed <= :v AND added <= :base"
        for where in (f"nodes WHERE {gone}", f"labels WHERE split = {SPLITS.index('train')} AND {gone}"):
            if connection.execute(f"SELECT 1 FROM {where} LIMIT 1", self.cache.versions).fetchone() is not None:
                return None
        rows = select(connection, "gram", "map = :map ORDER BY class", map=self.name) if self.cache.valid else []
        if not rows:
            return None
        known = trained_classes(connection, self.cache.versions["base"])
        size = 4 * self.width * (self.width + 1)
        if [c for _, c, _ in rows] != known or any(len(data) != size for _, _, data in rows):
            raise damaged("the table gram")
        grams = torch.frombuffer(bytearray().join([data for _, _, data in rows]), dtype=torch.float64)
        if not bool(torch.isfinite(grams).all()):
            raise damaged("the table gram")
        return np.array(known, np.int64), grams.view(len(rows), -1)

    def _new_labels(self) -> Array:
        """Nodes with a training label that the version before did not have."""
        where = f"split = {SPLITS.index('train')} AND added > :base AND {VISIBLE}"
        rows = select(self.cache.connection, "labels", where, **self.cache.versions)
        return np.array([node for node, *_ in rows], np.int64)

    def _read(self, mask: Array) -> Tensor:
        """Rows of stored nodes as they were in the version before."""
        nodes, where = self.cache.nodes[mask], f"map = :map AND node {AMONG} ORDER BY node"
        if not len(nodes):
            return torch.empty(0, self.width, dtype=self.dtype)
        rows = select(self.cache.connection, "phi", where, map=self.name, nodes=json_list(nodes))
        size = self.width * self.dtype.itemsize
        if [node for _, node, _ in rows] != nodes.tolist() or any(len(data) != size for _, _, data in rows):
            raise damaged("a row of the table phi")
        data = bytearray().join([data for _, _, data in rows])
        return torch.frombuffer(data, dtype=self.dtype).view(-1, self.width)

    def write(self) -> None:
        """Add the computed rows and the sums, in place of earlier ones."""
        if self.is_stored:
            computed = np.flatnonzero(self.compute & self.present)
            nodes, rows = self.cache.nodes[computed].tolist(), self.rows_of(computed).cpu().numpy()
            values = ((self.name, node, row.tobytes()) for node, row in zip(nodes, rows, strict=True))
            insert(self.cache.connection, "phi", values, "REPLACE")
        if self.grams is not None:
            classes, grams = self.grams
            sums = ((self.name, c, gram.tobytes()) for c, gram in zip(classes.tolist(), grams.numpy(), strict=True))
            insert(self.cache.connection, "gram", sums, end=IN_PLACE)


def trained_classes(connection: sqlite3.Connection, version: int) -> list[int]:
    """The classes with training labels in a version, ascending."""
    query = f"SELECT DISTINCT class FROM labels WHERE split = {SPLITS.index('train')} AND {VISIBLE} ORDER BY class"
    return [c for (c,) in connection.execute(query, {"v": version})]


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
