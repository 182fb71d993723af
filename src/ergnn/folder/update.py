"""What an update brings, in the folder's own numbers: new nodes, edges, labels, and who is held out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ergnn.data.formats.limits import shown
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.errors import InputError
from ergnn.folder.graph_store import SPLITS, GraphStore, make_arrays
from ergnn.folder.settings import Settings
from ergnn.folder.tensors import Array

DENSE_FROM = 0.1
"""Attributes are used as a dense matrix if at least this share of the first update's is not zero."""


@dataclass(frozen=True, eq=False)
class Update:
    """An update, ready to be stored.

    Args:
        arrays: of its segment.
        classes: names of all classes, known ones first.
        num_features: attributes a node.
        dense: whether attributes are used as a dense matrix.
        counts: of what is new: nodes, edges, and labelled nodes by split.
    """

    arrays: dict[str, Array]
    classes: list[str]
    num_features: int
    dense: bool
    counts: dict[str, int]


def make_update(
    store: GraphStore,
    settings: Settings,
    state: dict[str, Any],
    nodes: NodeTable | None,
    edges: EdgeTable | None,
    number: int,
) -> Update:
    """Check tables against the graph that is there, and number what they bring.

    Args:
        state: of the version before: ``classes``, ``num_features`` and ``dense``.
        number: of the update.
    """
    nodes = NodeTable(np.empty(0, object)) if nodes is None else nodes
    known = store.find(list(nodes.ids))
    fresh = np.flatnonzero(known < 0)
    num_features = _num_features(settings, state, nodes, len(fresh))
    features = scipy.sparse.csr_matrix(nodes.features)
    features.sort_indices()
    features.resize(len(nodes), num_features)
    _check_known(store, nodes, known, features)
    numbers = known.copy()
    numbers[fresh] = store.num_nodes + np.arange(len(fresh))
    total = store.num_nodes + len(fresh)
    settings.limits.check("nodes", total, "the graph with this update")
    new_ids = [str(nodes.ids[i]) for i in fresh]
    new_edges = _edges(store, settings, new_ids, edges)
    settings.limits.check("edges", store.count("edge") + new_edges.shape[1], "the graph with this update")
    classes, labelled = _labels(store, settings, state["classes"], nodes, numbers)
    rows = features[fresh]
    dense = state["dense"]
    if dense is None and len(fresh):
        dense = bool(rows.nnz >= DENSE_FROM * len(fresh) * num_features)
    x = (rows.indptr, rows.indices, rows.data)
    arrays = make_arrays(new_ids, x, store.num_nodes, number, new_edges, labelled)
    counts = {"nodes": len(fresh), "edges": new_edges.shape[1]}
    counts |= {split: int((labelled[2] == i).sum()) for i, split in enumerate(SPLITS)}
    return Update(arrays, classes, num_features, dense, counts)


def _num_features(settings: Settings, state: dict[str, Any], nodes: NodeTable, fresh: int) -> int:
    """Attributes a node; sparse text may end before the last one, and known nodes may come without any."""
    expected = state["num_features"] if state["num_features"] is not None else settings.features
    found = nodes.num_features
    if expected is None:
        if not fresh or not found:
            raise InputError("the first update must bring nodes with attributes")
        expected = found
    fits = found == expected or (nodes.is_sparse and found < expected) or not (fresh or found)
    if not fits:
        raise InputError(f"the nodes have {found} attributes; this learner's have {expected}")
    settings.limits.check("features", expected, "the graph")
    return int(expected)


def _check_known(store: GraphStore, nodes: NodeTable, known: Array, features: Any) -> None:
    """Nodes that come again must come with the attributes that they had, or with none at all."""
    again = np.flatnonzero(known >= 0)
    if not again.size or not nodes.num_features:
        return
    order = again[np.argsort(known[again])]
    pointers, col, value = store.rows(known[order])
    old = scipy.sparse.csr_matrix((value, col, pointers), (len(order), store.num_features))
    changed = np.flatnonzero(np.diff((old != features[order]).tocsr().indptr))
    if changed.size:
        raise InputError(
            f"node {shown(nodes.ids[order[changed[0]]])} is in the graph already, with other attributes; attributes of "
            f"known nodes cannot change ({changed.size} node(s))"
        )


def _edges(store: GraphStore, settings: Settings, new_ids: list[str], table: EdgeTable | None) -> Array:
    """New edges as ``[2, m]`` node numbers: both ways unless directed, none twice, none that is there already."""
    if table is None or not len(table):
        return np.empty((2, 0), np.int64)
    names, place = np.unique(np.concatenate([table.source, table.target]).astype(str), return_inverse=True)
    fresh = {text: store.num_nodes + i for i, text in enumerate(new_ids)}
    found = store.find([str(name) for name in names])
    found = np.array([fresh.get(str(name), old) for name, old in zip(names, found, strict=True)], np.int64)
    if (found < 0).any():
        lost = str(names[np.flatnonzero(found < 0)[0]])
        raise InputError(
            f"an edge names node {shown(lost)}, which is neither in the graph nor among the new nodes "
            f"({int((found < 0).sum())} such id(s))"
        )
    pairs = found[place].reshape(2, -1)
    if not settings.directed:
        pairs = np.concatenate([pairs, pairs[::-1]], axis=1)
    pairs = np.unique(pairs, axis=1)
    old_targets = np.unique(pairs[1][pairs[1] < store.num_nodes])
    row, source = store.incoming(old_targets)
    there = np.stack([source, old_targets[row]])
    total = store.num_nodes + len(new_ids)
    return pairs[:, ~np.isin(pairs[0] * total + pairs[1], there[0] * total + there[1])]


def _labels(
    store: GraphStore, settings: Settings, classes: Sequence[str], nodes: NodeTable, numbers: Array
) -> tuple[list[str], tuple[Array, Array, Array]]:
    """All class names, and the newly labelled nodes with class and split, in the order of nodes."""
    rows = np.array([i for i, label in enumerate(nodes.labels) if label is not None], np.int64)
    old = rows[numbers[rows] < store.num_nodes]
    before = np.full(len(nodes), -1, np.int64)
    before[old] = store.labels(numbers[old])[0]
    for i in rows[before[rows] >= 0]:
        if classes[before[i]] != nodes.labels[i]:
            raise InputError(
                f"node {shown(nodes.ids[i])} has label {shown(classes[before[i]])} already; it cannot become "
                f"{shown(nodes.labels[i])} (forget the node and observe it again)"
            )
    rows = rows[before[rows] < 0]
    rows = rows[np.argsort(numbers[rows])]
    place = {name: i for i, name in enumerate(classes)}
    for label in sorted({str(nodes.labels[i]) for i in rows} - set(place)):
        place[label] = len(place)
    labels = np.array([place[nodes.labels[i]] for i in rows], np.int64)
    return list(place), (numbers[rows], labels, _splits(settings, nodes, rows, labels))


def _splits(settings: Settings, nodes: NodeTable, rows: Array, labels: Array) -> Array:
    """The split column's, or of each class the first shares in an order drawn by seed and id."""
    splits = np.zeros(len(rows), np.int64)
    given = np.zeros(len(rows), bool)
    if nodes.split is not None:
        for k, i in enumerate(rows):
            if nodes.split[i] is not None:
                splits[k], given[k] = SPLITS.index(nodes.split[i]), True
        if given.any():  # a column that names some nodes leaves the others to be learnt from
            return splits
    drawn = [hashlib.blake2b(f"{settings.seed}:{nodes.ids[i]}".encode(), digest_size=8).digest() for i in rows]
    order = np.array(sorted(range(len(rows)), key=lambda k: drawn[k]), np.int64)
    for label in np.unique(labels):
        mine = order[labels[order] == label]
        val, test = int(settings.val * len(mine)), int(settings.test * len(mine))
        splits[mine[:test]] = SPLITS.index("test")
        splits[mine[test : test + val]] = SPLITS.index("val")
    return splits
