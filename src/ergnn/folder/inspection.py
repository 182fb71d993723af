"""What a folder knows about itself: graph, buffer, accuracy since each update, drift, bytes, versions."""

from __future__ import annotations

import json
import math
import sqlite3
from typing import Any

import numpy as np

from ergnn.folder.database import FILE, checksum
from ergnn.folder.scoring import forgetting, predict_held_out
from ergnn.folder.snapshot import Record, Snapshot
from ergnn.folder.versions import kept_versions
from ergnn.folder.watching import watch_snapshot
from ergnn.metrics import AccuracyMatrix, average_accuracy, forgetting_mean, performance_mean

LOG_LINES = 10_000
"""The newest lines of the log that are shown."""


def inspect_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Everything worth knowing, as plain numbers and text.

    ``per_class`` and ``confusion`` (true class, predicted class, nodes) are of the held-out nodes that an update
    scores, ``eval_samples`` at most, by the model of this version.
    """
    version, records = snapshot.version, snapshot.records
    held_out = predict_held_out(snapshot, snapshot.settings.eval_samples)
    confusion = held_out.confusion()
    return {
        "folder": str(snapshot.root),
        "version": version.number,
        "versions": kept_versions(snapshot.connection),
        "settings": snapshot.settings.settings(),
        "graph": {
            "nodes": version.nodes,
            "edges": version.edges,
            "labeled": version.labeled,
            "features": version.state["num_features"],
            "forgotten": version.next_node - version.nodes,
        },
        "classes": snapshot.classes,
        "bytes": _bytes(snapshot),
        "updates": [{**r, "forgetting": lost} for r, lost in zip(records, forgetting(records), strict=True)],
        "watch": watch_snapshot(snapshot),
        "measures": measures(records),
        "per_class": held_out.per_class(),
        "confusion": [[int(i), int(j), int(confusion[i, j])] for i, j in zip(*confusion.nonzero(), strict=True)],
        "buffer": buffer_rows(snapshot),
        "log": _log(snapshot.connection),
    }


def _bytes(snapshot: Snapshot) -> dict[str, int]:
    query = "SELECT kind, length(data) FROM blobs WHERE version = ?"
    blobs = dict(snapshot.connection.execute(query, (snapshot.version.number,)))
    return {"database": (snapshot.root / FILE).stat().st_size, **blobs}


def buffer_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Remembered nodes: id, class, update, and the selector's score and rank, if any."""
    update_of = {record["task"]: record["update"] for record in snapshot.records if record["task"] is not None}
    rows = []
    for part in snapshot.learner.buffer.experiences:
        names = snapshot.graph.names(part.nodes.cpu().numpy())
        columns = (part.labels.tolist(), part.scores.tolist(), part.ranks.tolist())
        for name, label, score, rank in zip(names, *columns, strict=True):
            update = update_of.get(part.task, part.task) + 1
            scored = {"score": None, "rank": None} if math.isnan(score) else {"score": score, "rank": rank + 1}
            rows.append({"id": name, "class": snapshot.classes[label], "update": update, **scored})
    return rows


def accuracy_matrix(records: list[Record]) -> tuple[list[int], AccuracyMatrix] | None:
    """Updates that had held-out nodes when they came, and the accuracy on each since then."""
    scored = [r["update"] for r in records if any(update == r["update"] for update, _, _ in r["scores"])]
    rows = []
    for number in scored:
        found = {update: right / of for update, right, of in records[number]["scores"]}
        rows.append([found.get(update, np.nan) for update in scored])
    values = np.array(rows).reshape(len(scored), len(scored))
    if not scored or np.isnan(values[np.tril_indices(len(scored))]).any():
        return None
    return scored, AccuracyMatrix(values)


def measures(records: list[Record]) -> dict[str, float]:
    """Performance mean, forgetting mean and average accuracy of the updates so far, and accuracy over all nodes now."""
    found = accuracy_matrix(records)
    if found is None:
        return {}
    matrix, scores = found[1], records[-1]["scores"]
    if not any(of for _, _, of in scores):  # all held-out nodes were forgotten
        return {}
    return {
        "pm": performance_mean(matrix),
        "fm": forgetting_mean(matrix),
        "aa": average_accuracy(matrix),
        "accuracy": sum(right for _, right, _ in scores) / sum(of for _, _, of in scores),
    }


def _log(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    query = "SELECT time, action, details FROM log ORDER BY rowid DESC LIMIT ?"
    rows = connection.execute(query, (LOG_LINES,)).fetchall()[::-1]
    out = []
    for time, action, text in rows:
        try:
            out.append({"time": str(time), "action": str(action), **json.loads(text)})
        except (ValueError, TypeError, RecursionError):  # nothing depends on the log
            continue
    return out


def check_database(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with a database: SQLite's own checks, and the checksum of every row of every version."""
    wrong = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    wrong += [
        f"{row[0]}: row {row[1]} names a missing row of {row[2]}"
        for row in connection.execute("PRAGMA foreign_key_check")
    ]
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    for table in tables:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info('{table}')")]
        if "checksum" not in columns:
            continue
        summed = [name for name in columns if name not in ("removed", "checksum")]
        for *values, total in connection.execute(f"SELECT {', '.join(summed)}, checksum FROM {table}"):
            if total != checksum(*values):
                key = ", ".join(f"{name} {str(value)[:60]}" for name, value in zip(summed[:2], values[:2], strict=True))
                wrong.append(f"{table}: {key} does not match its checksum")
    return wrong
