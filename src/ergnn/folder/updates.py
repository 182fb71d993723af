"""What an update brings: tables checked against the graph that is there, and the rows that they become."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from ergnn.data.formats.limits import truncate
from ergnn.data.formats.tables import EdgeTable, NodeTable, align_features
from ergnn.errors import InputError
from ergnn.folder.database import insert, to_json
from ergnn.folder.graph import AMONG, SPLITS, Array, StoredGraph, json_list
from ergnn.folder.settings import Settings

if TYPE_CHECKING:
    from ergnn.folder.snapshot import Snapshot

DENSE_FROM = 0.1
"""Features are stored as a dense matrix if at least this share of the first update's is not zero."""


@dataclass(frozen=True, eq=False)
class Update:
    """An update in the numbers of the graph.

    Args:
        ids: of the new nodes, whose numbers follow those of the graph.
        features: of the new nodes, dense or in CSR form.
        edges: ``[2, m]`` new sources and targets.
        labels: newly labeled nodes in ascending order, their classes and splits.
        corrected: nodes that have another label now, in ascending order, and their classes.
        classes: names of the new classes, whose numbers follow the known ones.
        state: ``num_features``, ``dense`` and ``feature_names`` from now on.
    """

    ids: list[str]
    features: Any
    edges: Array
    labels: tuple[Array, Array, Array]
    corrected: tuple[Array, Array]
    classes: list[str]
    state: dict[str, Any]

    @property
    def counts(self) -> dict[str, int]:
        """New nodes and edges, newly labeled nodes by split, and corrected labels."""
        splits = {split: int((self.labels[2] == i).sum()) for i, split in enumerate(SPLITS)}
        counts = {"nodes": len(self.ids), "edges": self.edges.shape[1], **splits}
        return {**counts, "corrected": len(self.corrected[0])}


def tables_digest(nodes: NodeTable | None, edges: EdgeTable | None) -> str:
    """A digest that only equal tables share."""
    total = hashlib.sha256()
    columns: list[Any] = []
    if nodes is not None:
        x = scipy.sparse.csr_matrix(nodes.features)
        columns += [nodes.ids, nodes.labels, nodes.split, x.indptr, x.indices, x.data, nodes.feature_names]
    columns += [None] if edges is None else [edges.source, edges.target]
    for column in columns:
        numbers = isinstance(column, np.ndarray) and column.dtype != object
        data = column.tobytes() if numbers else to_json(None if column is None else list(column)).encode()
        total.update(hashlib.sha256(data).digest())
    return total.hexdigest()


def prepare_update(snapshot: Snapshot, nodes: NodeTable | None, edges: EdgeTable | None) -> Update:
    """Check tables against the graph that is there, and number what they bring."""
    graph, settings, state = snapshot.graph, snapshot.settings, snapshot.version.state
    nodes = NodeTable(np.empty(0, object)) if nodes is None else nodes
    known = graph.find(list(nodes.ids))
    fresh = np.flatnonzero(known < 0)
    names = state.get("feature_names")
    nodes = align_features(nodes, names, "the update")
    if names is None and nodes.feature_names is not None:
        names = list(nodes.feature_names)
    width = _num_features(settings, state, nodes, len(fresh))
    features = scipy.sparse.csr_matrix(nodes.features)
    features.sort_indices()
    features.resize(len(nodes), width)
    _check_known(graph, nodes, known, features)
    numbers = known.copy()
    numbers[fresh] = graph.next_node + np.arange(len(fresh))
    settings.limits.check("nodes", graph.next_node + len(fresh), "the graph with this update")
    ids = [str(nodes.ids[i]) for i in fresh]
    pairs = _edges(graph, settings.directed, ids, edges)
    settings.limits.check("edges", snapshot.version.edges + pairs.shape[1], "the graph with this update")
    new_classes, labels, corrected = _labels(snapshot, nodes, numbers)
    dense, rows = state["dense"], features[fresh]
    if dense is None and len(fresh):
        dense = bool(rows.nnz >= DENSE_FROM * len(fresh) * width)
    after = {"num_features": width, "dense": dense, "feature_names": names}
    return Update(ids, rows.toarray() if dense else rows, pairs, labels, corrected, new_classes, after)


def _num_features(settings: Settings, state: dict[str, Any], nodes: NodeTable, fresh: int) -> int:
    """Features per node; sparse text may end before the last one, and known nodes may come without any."""
    expected = state["num_features"] if state["num_features"] is not None else settings.num_features
    found = nodes.num_features
    if expected is None:
        if not fresh or not found:
            raise InputError("the first update must bring nodes with features")
        expected = found
    if not (found == expected or (nodes.is_sparse and found < expected) or not (fresh or found)):
        raise InputError(f"the nodes have {found} features; this learner's have {expected}")
    settings.limits.check("features", expected, "the graph")
    return int(expected)


def _check_known(graph: StoredGraph, nodes: NodeTable, known: Array, features: Any) -> None:
    """Nodes that come again must come with the features that they had, or with none at all."""
    again = np.flatnonzero(known >= 0)
    if not again.size or not nodes.num_features:
        return
    order = again[np.argsort(known[again])]
    old = scipy.sparse.csr_matrix(graph.features(known[order]))
    changed = np.flatnonzero(np.diff((old != features[order]).tocsr().indptr))
    if changed.size:
        raise InputError(
            f"node {truncate(nodes.ids[order[changed[0]]])} is in the graph already, with other features; features of "
            f"known nodes cannot change ({changed.size} node(s))"
        )


def _edges(graph: StoredGraph, directed: bool, ids: list[str], table: EdgeTable | None) -> Array:
    """New edges as ``[2, m]`` node numbers: both ways unless directed, none twice, none that exists already."""
    if table is None or not len(table):
        return np.empty((2, 0), np.int64)
    if table.weight is not None:
        raise InputError(
            "the edges have weights, which a folder does not use; to treat all edges alike, leave the column out with "
            "--ignore-column weight, in Python Columns(ignore=['weight'])"
        )
    number = {name: graph.next_node + i for i, name in enumerate(ids)}
    others = sorted({*table.source, *table.target} - number.keys())
    found = graph.find(others)
    if (found < 0).any():
        lost = others[int(np.flatnonzero(found < 0)[0])]
        raise InputError(
            f"an edge names node {truncate(lost)}, which is neither in the graph nor among the new nodes "
            f"({int((found < 0).sum())} such id(s))"
        )
    number.update(zip(others, found.tolist(), strict=True))
    sides = [np.fromiter(map(number.__getitem__, side), np.int64, len(table)) for side in (table.source, table.target)]
    total = graph.next_node + len(ids)
    keys = sides[1] * total + sides[0]
    if not directed:
        keys = np.concatenate([keys, sides[0] * total + sides[1]])
    keys = np.unique(keys)
    targets = np.unique(keys // total)
    targets = targets[targets < graph.next_node]
    row, source = graph.neighbors(targets)
    keys = np.setdiff1d(keys, targets[row] * total + source, assume_unique=True)
    return np.stack([keys % total, keys // total])


def _labels(
    snapshot: Snapshot, nodes: NodeTable, numbers: Array
) -> tuple[list[str], tuple[Array, Array, Array], tuple[Array, Array]]:
    """New class names, the newly labeled nodes in ascending order with class and split, and corrections with class."""
    graph, settings, classes = snapshot.graph, snapshot.settings, snapshot.classes
    before = np.full(len(nodes), -1, np.int64)
    old = np.flatnonzero(numbers < graph.next_node)
    before[old] = graph.labels(numbers[old])[0]
    rows = [i for i in np.argsort(numbers) if nodes.labels[i] is not None]
    new = [i for i in rows if before[i] < 0]
    other = [i for i in rows if before[i] >= 0 and classes[before[i]] != nodes.labels[i]]
    if other and settings.learner.method != "analytic":
        i = other[0]
        raise InputError(
            f"node {truncate(nodes.ids[i])} has label {truncate(classes[before[i]])} already; it cannot become "
            f"{truncate(nodes.labels[i])}, as a network has learned it (forget the node and observe it again)"
        )
    added = sorted({str(nodes.labels[i]) for i in (*new, *other)} - set(classes))
    place = {name: i for i, name in enumerate([*classes, *added])}
    labels, corrected = (np.array([place[nodes.labels[i]] for i in part], np.int64) for part in (new, other))
    found = numbers[np.array(new, np.int64)], labels, _splits(settings, nodes, new, labels)
    return added, found, (numbers[np.array(other, np.int64)], corrected)


def _splits(settings: Settings, nodes: NodeTable, rows: list[int], labels: Array) -> Array:
    """The split column's, or of each class the first shares in an order drawn by seed and id."""
    given = [nodes.split[i] for i in rows] if nodes.split is not None else []
    if any(split is not None for split in given):  # the column's other nodes are for training
        return np.array([0 if split is None else SPLITS.index(split) for split in given], np.int64)
    splits, seed = np.zeros(len(rows), np.int64), settings.seed
    drawn = [hashlib.blake2b(f"{seed}:{nodes.ids[i]}".encode(), digest_size=8).digest() for i in rows]
    order = np.array(sorted(range(len(rows)), key=drawn.__getitem__), np.int64)
    for label in np.unique(labels):
        mine = order[labels[order] == label]
        val, test = int(settings.val * len(mine)), int(settings.test * len(mine))
        splits[mine[:test]] = SPLITS.index("test")
        splits[mine[test : test + val]] = SPLITS.index("val")
    return splits


def write_update(connection: sqlite3.Connection, graph: StoredGraph, update: Update, version: int, number: int) -> None:
    """Add an update to the graph of the next version; older versions do not see it."""
    known = connection.execute("SELECT count(*) FROM classes").fetchone()[0]
    insert(connection, "classes", ((known + i, name, version) for i, name in enumerate(update.classes)))
    new = graph.next_node + np.arange(len(update.ids))
    columns, values = _blobs(update.features)
    insert(connection, "nodes", zip(new.tolist(), update.ids, repeat(version), columns, values, strict=False))
    nodes, classes = update.corrected
    remove_rows(connection, "labels", nodes, version)
    corrected = np.stack([nodes, classes, *graph.labels(nodes)[1:]])
    labeled = np.stack([*update.labels, np.full_like(update.labels[0], number)])
    labels = np.concatenate([labeled, corrected], axis=1).T.tolist()
    insert(connection, "labels", ((*row, version) for row in labels))
    targets = np.unique(update.edges[1])
    old = targets[targets < graph.next_node]
    row, source = graph.neighbors(old)
    edges = np.concatenate([np.stack([source, old[row]]), update.edges], axis=1)
    write_adjacency(connection, np.union1d(targets, new), edges, version)


def _blobs(features: Any) -> tuple[Iterable[bytes | None], Iterable[bytes]]:
    """Columns (None where all are stored) and values of each row."""
    if isinstance(features, np.ndarray):
        return repeat(None), (row.tobytes() for row in features.astype(np.float32))
    parts = (features.indices.astype(np.int32), features.data.astype(np.float32))
    columns, values = ([part[start:end].tobytes() for start, end in pairwise(features.indptr)] for part in parts)
    return columns, values


def remove_rows(connection: sqlite3.Connection, table: str, nodes: Array, version: int) -> None:
    """Rows of some nodes no longer belong to the graph from a version on."""
    query = f"UPDATE {table} SET removed = :v WHERE removed IS NULL AND node {AMONG}"
    connection.execute(query, {"v": version, "nodes": json_list(nodes)})


def write_adjacency(connection: sqlite3.Connection, nodes: Array, edges: Array, version: int) -> None:
    """Give nodes (ascending) new lists of neighbors from a version on: all ``edges`` ``[2, m]`` into them."""
    remove_rows(connection, "adjacency", nodes, version)
    order = np.lexsort(edges)
    sources, targets = edges[0][order].astype(np.int32), edges[1][order]
    lists = [part.tobytes() for part in np.split(sources, np.searchsorted(targets, nodes))[1:]]
    insert(connection, "adjacency", zip(nodes.tolist(), repeat(version), lists, strict=False))
