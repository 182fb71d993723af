"""Tables that extend a graph: checked against the graph that is there, and numbered."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from ergnn.config.errors import InputError, listed, truncate
from ergnn.data.partial import Array
from ergnn.data.tables.columns import label_hint
from ergnn.data.tables.node_tables import SPLITS, EdgeTable, NodeTable, align_features, bad_row
from ergnn.folder.encoding import coded_nodes
from ergnn.folder.settings import Settings

if TYPE_CHECKING:
    from ergnn.folder.graph import StoredGraph
    from ergnn.folder.snapshot import Snapshot

DENSE_FROM = 0.1
"""Features are stored as a dense matrix if at least this share of those of the first update is nonzero."""

MAX_NODE = 2**31 - 1
"""Numbers of nodes are stored in 32 bits; those of forgotten nodes are not used again."""

NEW_CLASSES = 10
"""At most this many new classes of an update are named in its notes."""

SIMILAR = 0.8
"""Class names with at least this ratio of equal characters may be misspellings (:mod:`difflib`)."""

MIN_NUMBERS, DISTINCT = 10, 0.9
"""Fractions are numbers to predict if there are at least 10, and more than 90 % of them are distinct."""

DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, eq=False)
class Update:
    """New nodes, edges and labels, by node number.

    A node whose features change gets a new number. Edges and labels of the update still name it by its old one.

    Args:
        ids: ids of the changed and of the new nodes, whose numbers follow those of the graph.
        features: features of these nodes, dense or in CSR form.
        edges: ``[2, m]`` sources and targets of new edges, and of known ones with a larger weight than before.
        weights: weights of these edges, or None if all are 1.
        reweighted: how many of the edges are known.
        labels: newly labeled nodes in ascending order, their classes and splits.
        corrected: nodes with another label than before, in ascending order, and their classes.
        classes: names of the new classes, whose numbers follow the known ones.
        ignored: columns of the edges that are not read.
        odd: notes on columns of the nodes.
        changed: old numbers of the nodes whose features change, in ascending order.
        layout: ``num_features``, ``dense`` and ``feature_names`` from now on.
    """

    ids: list[str]
    features: Any
    edges: Array
    weights: Array | None
    reweighted: int
    labels: tuple[Array, Array, Array]
    corrected: tuple[Array, Array]
    classes: list[str]
    layout: dict[str, Any]
    ignored: tuple[str, ...]
    odd: tuple[str, ...]
    changed: Array

    @property
    def counts(self) -> dict[str, int]:
        """New nodes and edges, newly labeled nodes by split, corrected labels, and nodes with other features."""
        return {
            "nodes": len(self.ids) - len(self.changed),
            "edges": self.edges.shape[1] - self.reweighted,
            **{split: int((self.labels[2] == i).sum()) for i, split in enumerate(SPLITS)},
            **{"corrected": len(self.corrected[0]), "changed": len(self.changed), "reweighted": self.reweighted},
        }

    def notes(self, known: Sequence[str]) -> list[str]:
        """What the user should know: classes that cannot be scored or are new, and columns that are not read."""
        counts = Counter(np.concatenate([self.labels[1], self.corrected[1]]).tolist())
        labeled, numbered = Counter(self.labels[1].tolist()), list(enumerate(self.classes, len(known)))
        single = [name for c, name in numbered if labeled[c] == 1]
        lines = [f"class {truncate(name)} has one labeled node and cannot be scored" for name in single[:NEW_CLASSES]]
        if len(single) > NEW_CLASSES:
            which = f"{len(single):,} classes, such as {truncate(single[0])}, have one labeled node"
            lines = [f"{which}; are the labels numbers to predict, or ids?"]
        lines += list(self.odd)
        if not known and not self.edges.size:
            lines.append("there are no edges: nodes are predicted from their columns alone")
        if "-1" in self.classes:
            lines.append("class '-1' is a class like any other; where it means no label, leave the label empty")
        names = {*known, *self.classes}
        if several := [name for name in self.classes if _is_several(name, names)]:
            lines.append(f"is {truncate(several[0])} several classes? a node has one class (docs/not-for.md)")
        if len(known) + len(numbered) == 1:
            lines.append("there is one class only, so that every node is predicted to be of it")
        for name, count in Counter(name.casefold() for name in self.classes).items() if not known else ():
            if count > 1:
                lines.append(f"{count} classes differ from {name!r} in case only; are they one?")
        for c, name in numbered[:NEW_CLASSES] if known else ():
            text = f"new class: {short_name(name)} ({counts[c]:,} node{'' if counts[c] == 1 else 's'})"
            similar = similar_class(name, known)
            lines.append(text if similar is None else f"{text}; similar to {short_name(similar)}, is it a typo?")
        if known and len(self.classes) > NEW_CLASSES:
            lines.append(f"{len(self.classes) - NEW_CLASSES:,} more new classes")
        if self.reweighted:
            lines.append(f"{self.reweighted:,} known edges (each way counted) have a larger weight now")
        if self.ignored:
            lines.append(f"columns of the edges that are not used: {', '.join(self.ignored)[:200]}")
        return lines


def _is_several(name: str, classes: set[str]) -> bool:
    """Whether the name of a class is a list, or joins names of which one at least is a class."""
    parts = re.split(r"\s*[;,|]\s*", name)
    return name.startswith("[") or (len(parts) > 1 and not classes.isdisjoint(parts))


def short_name(name: str) -> str:
    """A class name in a note, without quotes."""
    return truncate(name)[1:-1]


def similar_class(name: str, known: Sequence[str]) -> str | None:
    """The known class that a new one may be a misspelling of; not one that differs in digits only."""
    spelled = {other.casefold(): other for other in known}
    matches = difflib.get_close_matches(name.casefold(), spelled, cutoff=SIMILAR)
    letters = DIGITS.sub("", name)
    return next((spelled[match] for match in matches if DIGITS.sub("", spelled[match]) != letters), None)


def check_labels(snapshot: Snapshot, nodes: NodeTable | None) -> None:
    """Refuse a first update without labels to learn, and labels that are numbers to predict."""
    if nodes is None:
        nodes = NodeTable(np.empty(0, object))
    labels, is_first = [label for label in nodes.labels if label is not None], not snapshot.version.updates
    if is_first and not labels:
        raise InputError(
            f"{nodes.where}: no node of the first update has a label, so there is nothing to learn; add a column "
            "'label' with the class of some nodes, or name it with --label-column"
            f"{label_hint(nodes.columns or nodes.feature_names or ())}"
        )
    if is_first and nodes.split is not None and set(nodes.split[nodes.labels != None]) <= set(SPLITS[1:]):  # noqa: E711
        raise InputError(f"{nodes.where}: all labels are held out by the column 'split'; some must be 'train'")
    distinct = set(labels)
    if len(labels) >= MIN_NUMBERS and len(distinct) > DISTINCT * len(labels) and _are_fractions(distinct):
        raise InputError(
            f"{nodes.where}: the labels look like numbers to predict ({listed(sorted(distinct), 3)}: {len(distinct):,} "
            f"distinct values of {len(labels):,}), and ergnn predicts classes; group them first, e.g. with "
            "pandas.qcut(label, 5), or use a regression model"
        )


def _are_fractions(texts: set[str]) -> bool:
    """Whether all texts are numbers, and at least half of them not whole."""
    try:
        return sum(not float(text).is_integer() for text in texts) >= len(texts) / 2
    except ValueError:
        return False


def tables_digest(nodes: NodeTable | None, edges: EdgeTable | None) -> str:
    """A digest that only equal tables share."""
    total = hashlib.sha256()
    columns: list[Any] = []
    if nodes is not None:
        x = scipy.sparse.csr_matrix(nodes.features)
        columns += [nodes.ids, nodes.labels, nodes.split, x.indptr, x.indices, x.data, nodes.feature_names]
        if nodes.columns and not nodes.num_features:
            columns += [nodes.columns, *(map(str, column.to_pylist()) for column in nodes.columns.values())]
    columns += [None] if edges is None else [edges.source, edges.target]
    columns += [] if edges is None or edges.weight is None else [edges.weight]
    for column in columns:
        if isinstance(column, np.ndarray) and column.dtype != object:
            data = column.tobytes()
        else:
            values = None if column is None else list(column)
            data = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
        total.update(hashlib.sha256(data).digest())
    return total.hexdigest()


def prepare_update(
    snapshot: Snapshot, nodes: NodeTable | None, edges: EdgeTable | None, *, for_prediction: bool = False
) -> Update:
    """Check tables against the graph of a snapshot, and number what they add."""
    graph, settings, classes, layout = snapshot.graph, snapshot.settings, snapshot.classes, snapshot.version.state
    limits = settings.limits
    names = layout.get("feature_names")
    nodes, coded = coded_nodes(snapshot, NodeTable(np.empty(0, object)) if nodes is None else nodes)
    odd = coded.pop("notes", ())
    nodes = align_features(nodes, names, nodes.where)
    if names is None and nodes.feature_names is not None:
        names = list(nodes.feature_names)
    known = graph.find(list(nodes.ids))
    fresh = np.flatnonzero(known < 0)
    needed = [kind[0] for kind in layout.get("kinds") or () if kind[1] != "ignore"] or names or ()
    width = _num_features(layout.get("stored_width") or layout["num_features"], nodes, len(fresh), needed)
    limits.check("features", width, "the graph")
    features = scipy.sparse.csr_matrix(nodes.features)
    features.resize(len(nodes), width)
    changed = _changed(graph, nodes, known, features)
    if len(changed) and (for_prediction or not snapshot.learner.exact):
        why = "observe the change before predicting" if for_prediction else "a network has learned the old ones"
        raise InputError(
            f"node {truncate(nodes.ids[changed[0]])} is already in the graph with other features; they cannot change "
            f"here, {why} ({len(changed)} node(s))"
        )
    numbers, first = known.copy(), graph.next_node + len(changed)
    numbers[fresh] = first + np.arange(len(fresh))
    limits.check("nodes", graph.num_nodes + len(fresh), "the graph with this update")
    if first + len(fresh) > MAX_NODE:
        raise InputError(f"{graph.next_node:,} nodes have been numbered; a folder has {MAX_NODE:,} numbers in all")
    written = np.concatenate([changed, fresh])
    ids = [str(nodes.ids[i]) for i in written]
    number_of_new = dict(zip(ids[len(changed) :], numbers[fresh].tolist(), strict=True))
    if edges is not None and edges.weight is not None and not snapshot.learner.exact:
        raise InputError(
            f"the edges have weights, which method {settings.learner.method!r} does not use; use method analytic, or "
            "ignore them with --ignore-column weight, in Python Columns(ignore=['weight'])"
        )
    pairs, weights, reweighted = _edges(graph, settings.directed, number_of_new, edges)
    if reweighted and for_prediction:
        raise InputError(f"{reweighted:,} edge(s) are in the graph with smaller weights; observe the change first")
    limits.check("edges", graph.num_edges + pairs.shape[1] - reweighted, "the graph with this update")
    before = graph.labels(known)[0]
    labeled = [i for i in np.argsort(numbers) if nodes.labels[i] is not None]
    new = [i for i in labeled if before[i] < 0]
    other = [i for i in labeled if before[i] >= 0 and classes[before[i]] != nodes.labels[i]]
    if other and not snapshot.learner.exact:
        i = other[0]
        raise InputError(
            f"node {truncate(nodes.ids[i])} already has label {truncate(classes[before[i]])}; it cannot become "
            f"{truncate(nodes.labels[i])}, as a network has learned it (forget the node and observe it again)"
        )
    added = sorted({str(nodes.labels[i]) for i in (*new, *other)} - set(classes))
    number_of = {name: i for i, name in enumerate([*classes, *added])}
    labels, corrected = (np.array([number_of[nodes.labels[i]] for i in rows], np.int64) for rows in (new, other))
    splits = _splits(settings, nodes, new, labels)
    dense, rows = layout["dense"], features[written]
    if dense is None and len(fresh):
        dense = not nodes.is_sparse if coded else bool(rows.nnz >= DENSE_FROM * len(fresh) * width)
    weighted = {} if weights is None else {"weighted": True}
    plain = {"num_features": layout["num_features"] or width, "feature_names": names}
    return Update(
        ids,
        rows.toarray() if dense else rows,
        pairs,
        weights,
        reweighted,
        (numbers[np.array(new, np.int64)], labels, splits),
        (numbers[np.array(other, np.int64)], corrected),
        added,
        {"dense": dense, **weighted, **({"stored_width": width, **coded} if coded else plain)},
        () if edges is None else edges.ignored,
        odd,
        known[changed],
    )


def _num_features(expected: int | None, nodes: NodeTable, fresh: int, names: Sequence[str]) -> int:
    """Features per node; sparse text may end before the last one, and known nodes may come without any."""
    given = nodes.num_features
    if expected is None:
        if not fresh or not given:
            raise InputError("the first update must contain nodes with features")
        return given
    if not (given == expected or (nodes.is_sparse and given < expected) or not (fresh or given)):
        if names and not given:
            raise InputError(f"{nodes.where}: new nodes need the columns of earlier ones: {listed(names)}")
        raise InputError(f"{nodes.where}: the nodes have {given} features; {expected} are required")
    return int(expected)


def _changed(graph: StoredGraph, nodes: NodeTable, known: Array, features: Any) -> Array:
    """Rows of the known nodes that come with other features than before, in the order of their numbers."""
    again = np.flatnonzero(known >= 0)
    if not again.size or not nodes.num_features:
        return np.empty(0, np.int64)
    order = again[np.argsort(known[again])]
    old = scipy.sparse.csr_matrix(graph.stored_features(known[order]))
    return order[np.diff((old != features[order]).tocsr().indptr) > 0]


def _edges(
    graph: StoredGraph, directed: bool, fresh: dict[str, int], table: EdgeTable | None
) -> tuple[Array, Array | None, int]:
    """New edges as ``[2, m]`` node numbers, their weights, and how many are in the graph with a smaller weight.

    They are unique, and in both directions unless directed. Of an edge that is given several times, the largest weight
    counts, so that the order of updates does not matter.
    """
    if table is None or not len(table):
        return np.empty((2, 0), np.int64), None, 0
    sides = []
    for words, codes in table.ends:
        numbers = np.array([fresh.get(str(word), -1) for word in words], np.int64)
        old = np.flatnonzero(numbers < 0)
        numbers[old] = graph.find([str(words[i]) for i in old.tolist()])
        sides.append(numbers[codes])
        unknown = np.unique(codes[sides[-1] < 0])
        if unknown.size:
            first, count = truncate(words[int(unknown[0])]), f"{unknown.size} such id(s)"
            problem = f"an edge names node {first}, which is neither in the graph nor a new node ({count})"
            raise bad_row(table.where, int(np.flatnonzero(codes == unknown[0])[0]), problem)
    total = max(fresh.values(), default=graph.next_node) + 1
    keys = [sides[1] * total + sides[0], *([] if directed else [sides[0] * total + sides[1]])]
    key, index = np.unique(np.concatenate(keys), return_inverse=True)
    given = np.ones(len(key), np.float32)
    if table.weight is not None:
        for wrong in np.flatnonzero(~((table.weight >= 0) & np.isfinite(table.weight))).tolist():
            problem = f"an edge has weight {table.weight[wrong]:g}; weights must be finite, 0 or more"
            raise bad_row(table.where, wrong, problem)
        given = np.zeros(len(key), np.float32)
        np.maximum.at(given, index, np.tile(table.weight, len(keys)))
    targets = np.unique(key // total)
    targets = targets[targets < graph.next_node]
    row, source, weight = graph.neighbors(targets)
    known = targets[row] * total + source
    before = np.full(len(key), -1, np.float32)
    there = np.isin(known, key)
    before[np.searchsorted(key, known[there])] = 1 if weight is None else weight[there]
    chosen = given > before
    weights = None if table.weight is None and weight is None else given[chosen]
    key, larger = key[chosen], int((before[chosen] >= 0).sum())
    return np.stack([key % total, key // total]), weights, larger


def _splits(settings: Settings, nodes: NodeTable, rows: list[int], labels: Array) -> Array:
    """The given splits, or of each class the first shares in an order drawn by seed and id."""
    given = [nodes.split[i] for i in rows] if nodes.split is not None else []
    if any(split is not None for split in given):  # other nodes of the column are for training
        return np.array([0 if split is None else SPLITS.index(split) for split in given], np.int64)
    splits = np.zeros(len(rows), np.int64)
    drawn = [hashlib.blake2b(f"{settings.seed}:{nodes.ids[i]}".encode(), digest_size=8).digest() for i in rows]
    order = np.array(sorted(range(len(rows)), key=drawn.__getitem__), np.int64)
    for label in np.unique(labels):
        mine = order[labels[order] == label]
        num_val, num_test = int(settings.val * len(mine)), int(settings.test * len(mine))
        splits[mine[:num_test]] = SPLITS.index("test")
        splits[mine[num_test : num_test + num_val]] = SPLITS.index("val")
    return splits
