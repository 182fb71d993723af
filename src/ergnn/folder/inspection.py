"""Figures of a version: accuracy since each update, buffer, drift, calibration, unknown classes; checks of all."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ergnn.config.errors import FolderError
from ergnn.data.partial import Array, PartialGraph, find_all, read_subgraph
from ergnn.data.tables.node_tables import SPLITS
from ergnn.folder import database
from ergnn.folder.database import VISIBLE
from ergnn.folder.encoding import describe_columns
from ergnn.folder.graph import StoredGraph
from ergnn.folder.network import CHUNK
from ergnn.folder.snapshot import Snapshot, open_snapshot, read_staged
from ergnn.folder.why import audit_labels
from ergnn.learning.evaluation import forgetting, measures
from ergnn.learning.watch import (
    NUM_HOPS,
    SAMPLES,
    Drift,
    UnknownScore,
    calibration,
    drift_test,
    node_aspects,
    unknown_rows,
)

ROWS = 1000
"""Nodes per role (training, validation, any) that calibration and the score of unknown classes use at most."""
MIN_NODES = 10
"""Nodes per side that a test of drift needs."""
DOUBTS, INSPECTED = 20, 2000
"""Labels that look wrong to list, in a folder with at most so many training labels."""
TRAIN = SPLITS.index("train")
WHY_ACCURACY_FALLS = {
    True: "nothing is forgotten, learning all updates at once gives the same model; more classes may compete, and "
    "later labels and edges change the predictions of earlier nodes",
    False: "the network may have forgotten, and more classes may compete; ergnn evaluate --task-known shows the "
    "accuracy among the classes of a node's own update",
}
"""Why accuracy on the held-out nodes of an update may fall after it was learned; by whether the learner is exact."""


def inspect_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """All figures of a version, as numbers and text.

    ``overall``, ``warnings``, ``per_class`` and ``confusion`` (true class, predicted class, nodes) are those of the
    held-out nodes that an update scores (at most ``eval_samples``), with the model of this version.
    """
    version, records = snapshot.version, snapshot.records
    watch = watch_snapshot(snapshot)  # first: it also scores the held-out nodes
    held_out = snapshot.predict_held_out(snapshot.settings.eval_samples)
    confusion = held_out.confusion()
    return {
        "folder": str(snapshot.root),
        "version": version.number,
        "settings": snapshot.settings.settings(),
        "names": snapshot.version.columns.told(),
        "graph": {
            "nodes": version.nodes,
            "edges": version.edges,
            "weighted": bool(version.state.get("weighted")),
            "labeled": version.labeled,
            "features": version.state["num_features"],
            "forgotten": version.next_node - version.nodes,
        },
        "columns": describe_columns(version.state),
        "classes": snapshot.classes,
        "updates": [{**r, "forgetting": f} for r, f in zip(records, forgetting(records), strict=True)],
        "measures": measures(records),
        "overall": held_out.overall(),
        "warnings": held_out.warnings(),
        "exact": snapshot.learner.exact,
        "why_accuracy_falls": WHY_ACCURACY_FALLS[snapshot.learner.exact],
        "watch": watch,
        "per_class": held_out.per_class(),
        "confusion": [[int(i), int(j), int(confusion[i, j])] for i, j in zip(*confusion.nonzero(), strict=True)],
        "doubts": _doubts(snapshot),
        "buffer": buffer_rows(snapshot),
    }


def _doubts(snapshot: Snapshot) -> dict[str, Any] | None:
    """The training labels that look wrong; None without a closed form, and with many labels, where it takes long."""
    labels = len(snapshot.graph.split("train")[0])
    if not (snapshot.learner.exact and snapshot.learner.num_tasks and labels <= INSPECTED):
        return None
    report = audit_labels(snapshot, DOUBTS)
    return {**report, "rows": [row for row in report["rows"] if row["class"] != row["label"]]}


def buffer_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Remembered nodes: id, class, update, and the selector's score and rank, if any."""
    update_of = {record["task"]: record["update"] for record in snapshot.records if record["task"] is not None}
    rows = []
    for learned in snapshot.learner.buffer.experiences:
        names, update = snapshot.graph.names(learned.nodes.cpu().numpy()), update_of.get(learned.task, learned.task) + 1
        columns = (learned.labels.tolist(), learned.scores.tolist(), learned.ranks.tolist())
        for name, label, score, rank in zip(names, *columns, strict=True):
            row = {"id": name, "class": snapshot.classes[label], "update": update, "score": None, "rank": None}
            rows.append(row if math.isnan(score) else {**row, "score": score, "rank": rank + 1})
    return rows


def watch_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Drift of the last update, calibration, and the share of its nodes that belong to no known class.

    Each is None where there are too few nodes.
    """
    drift = None
    for record in snapshot.records:
        drift = record.get("input_drift")
        if drift is not None:  # refuses what is none
            drift = asdict(Drift(**{**drift, "p": {name: float(p) for name, p in drift["p"].items()}}))
    return {"drift": drift, "calibration": _calibration(snapshot), "unknown": _unknown(snapshot)}


def update_drift(snapshot: Snapshot, first_new: int) -> dict[str, Any] | None:
    """Compare the nodes of an update that was just learned with all earlier ones, in the graph as it is now.

    Held-out nodes are compared; of an update that has too few, nodes without a training label, and then predictions
    are left out. Degrees and neighborhoods are those in the same graph, and predictions those of the same model. So
    nodes that arrive in a random order are exchangeable, and the share of false alarms is that of
    :func:`ergnn.learning.watch.drift_test`.
    """
    rng = np.random.default_rng([snapshot.settings.seed, first_new])
    nodes = snapshot.held_out(snapshot.settings.eval_samples)[0]
    sides = [nodes[nodes < first_new], nodes[nodes >= first_new]]
    scored = min(map(len, sides)) >= MIN_NODES and snapshot.learner.num_tasks > 0
    if scored:
        sides = [np.sort(rng.permutation(side)[:SAMPLES]) for side in sides]
    else:
        ends = (0, first_new, snapshot.graph.next_node)
        sides = [sample_nodes(snapshot.graph, rng, start, stop) for start, stop in pairwise(ends)]
    if min(map(len, sides)) < MIN_NODES:
        return None
    both, count = aspects(snapshot, snapshot.graph, np.concatenate(sides), scored), len(sides[0])
    halves = ({name: rows[half] for name, rows in both.items()} for half in (slice(count), slice(count, None)))
    return asdict(drift_test(*halves, seed=snapshot.settings.seed))


def sample_nodes(graph: StoredGraph, rng: np.random.Generator, start: int, stop: int, most: int = SAMPLES) -> Array:
    """Up to ``most`` nodes of a range of numbers that have no training label, drawn at random; ascending."""
    size = stop - start
    drawn = start + (rng.choice(size, 4 * most, replace=False) if size > 4 * most else rng.permutation(size))
    if graph.num_nodes < graph.next_node:  # nodes were forgotten
        drawn = drawn[np.isin(drawn, graph.nodes())]
    label, split, _ = graph.labels(drawn)
    return np.sort(drawn[(label < 0) | (split != TRAIN)][:most])


def aspects(snapshot: Snapshot, graph: PartialGraph, nodes: Array, predictions: bool) -> dict[str, Any]:
    """Aspects of some nodes (ascending), with or without predictions."""
    local = read_subgraph(graph, nodes, 1, snapshot.settings.limits)
    rows = node_aspects(local.graph, local.local_ids(nodes).numpy())
    if predictions:
        rows["predictions"] = snapshot.probabilities(graph, nodes)[:, snapshot.learner.classes()]
    return rows


def _members(snapshot: Snapshot, split: str, most: int) -> tuple[Array, Array]:
    """Up to ``most`` nodes of a split of all updates whose class was learned, drawn by seed, and their classes."""
    nodes, classes, _ = snapshot.graph.split(split)
    mine = np.flatnonzero(np.isin(classes, snapshot.learner.classes()))
    chosen = np.random.default_rng(snapshot.settings.seed).permutation(mine)[:most]
    return nodes[chosen], classes[chosen]


def _calibration(snapshot: Snapshot) -> dict[str, Any] | None:
    """By validation nodes and the held-out nodes that an update scores, of classes that were learned."""
    test, truth, _ = snapshot.held_out(snapshot.settings.eval_samples)
    known = np.isin(truth, snapshot.learner.classes())
    test, truth = test[known], truth[known]
    val, classes = _members(snapshot, "val", ROWS)
    if not len(val) or not len(test):
        return None
    out = snapshot.probabilities(snapshot.graph, np.concatenate([val, test]))  # at once: their neighborhoods overlap
    return calibration((out[: len(val)], classes), (out[len(val) :], truth))


def fit_unknown(snapshot: Snapshot) -> UnknownScore | None:
    """The score of unknown classes, with a threshold from validation nodes; None without labels."""
    (train, classes), (val, _) = (_members(snapshot, split, ROWS) for split in ("train", "val"))
    rng = np.random.default_rng(snapshot.settings.seed)
    background = sample_nodes(snapshot.graph, rng, 0, snapshot.graph.next_node, ROWS)
    if not len(train) or not len(background):
        return None
    groups = [train, background, val]
    rows = rows_of(snapshot, snapshot.graph, np.concatenate(groups)).split([len(nodes) for nodes in groups])
    return UnknownScore.fit(rows[0], torch.from_numpy(classes), rows[1]).with_threshold(rows[2])


def rows_of(snapshot: Snapshot, graph: PartialGraph, nodes: Array) -> torch.Tensor:
    """The rows of some nodes that :class:`UnknownScore` reads."""
    local = read_subgraph(graph, nodes, NUM_HOPS, snapshot.settings.limits)
    return unknown_rows(local.graph, local.local_ids(nodes))


def unknown_nodes(snapshot: Snapshot, graph: PartialGraph, ids: Sequence[str]) -> list[bool | None]:
    """Whether each node seems to belong to no class that was learned; None without enough validation nodes."""
    fitted = fit_unknown(snapshot)
    if fitted is None or fitted.threshold == math.inf:
        return [None] * len(ids)
    nodes, index = np.unique(find_all(graph, ids), return_inverse=True)
    chunks = [nodes[start : start + CHUNK] for start in range(0, len(nodes), CHUNK)]
    scores = [fitted.score(rows_of(snapshot, graph, chunk)).numpy() for chunk in chunks]
    return (np.concatenate([*scores, np.empty(0)]) > fitted.threshold)[index].tolist()


def _unknown(snapshot: Snapshot) -> dict[str, Any] | None:
    fitted = fit_unknown(snapshot)
    if fitted is None:
        return None
    new = snapshot.records[-1]["counts"]["nodes"]
    rng, stop = np.random.default_rng(snapshot.settings.seed), snapshot.graph.next_node
    nodes = sample_nodes(snapshot.graph, rng, stop - new, stop)
    return fitted.count(rows_of(snapshot, snapshot.graph, nodes)) if len(nodes) else None


def check_versions(connection: sqlite3.Connection, root: Path) -> list[str]:
    """Errors of versions that checksums do not show: rows that are missing, or that a wrong version has removed."""
    newest, staged = database.current_version(connection)[1], read_staged(connection)
    wrong, last = [], newest if staged is None else int(staged["version"])
    for table in database.VERSIONED:
        query = f"SELECT count(*) FROM {table} WHERE added > :last OR removed > :last OR removed <= added"
        if count := connection.execute(query, {"last": last}).fetchone()[0]:
            wrong.append(f"{table}: {count} row(s) belong to versions that do not exist")
    for number in database.kept_versions(connection):
        try:
            wrong += [f"version {number}: {text}" for text in _check_version(open_snapshot(root, number, connection))]
        except FolderError as error:
            wrong.append(f"version {number}: {error}")
    return wrong


def _check_version(snapshot: Snapshot) -> Iterator[str]:
    version, graph = snapshot.version, snapshot.graph
    nodes = graph.nodes()
    source = graph.neighbors(nodes)[1]  # raises an error unless every node has one list of neighbors
    labeled = int((graph.labels(nodes)[0] >= 0).sum())
    sizes = {"nodes": len(nodes), "edges": len(source), "labeled": labeled}
    for name, count in sizes.items():
        if count != getattr(version, name):
            yield f"{count} {name}, {getattr(version, name)} are recorded"
    ids = graph.names(nodes)
    if len(set(ids)) < len(ids) or (graph.find(ids) != nodes).any():
        yield "several nodes have the same id"
    if not np.isin(source, nodes).all():
        yield "an edge comes from a node that is not there"
    for name in SPLITS:
        snapshot.split(name)  # raises an error unless updates have as many labels as recorded
    for table, count in {"adjacency": len(nodes), "labels": labeled}.items():
        query = f"SELECT count(*) FROM {table} WHERE {VISIBLE}"
        rows = snapshot.connection.execute(query, {"v": version.number}).fetchone()[0]
        if rows != count:
            yield f"{table}: {rows} rows do not fit the nodes"
