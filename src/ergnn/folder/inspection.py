"""Graph, buffer, accuracy since each update, drift, bytes and versions of a folder."""

from __future__ import annotations

import json
import math
import sqlite3
from typing import Any

from ergnn.evaluation import forgetting, measures
from ergnn.folder.database import FILE, reading_values
from ergnn.folder.snapshot import Snapshot
from ergnn.folder.versions import kept_versions
from ergnn.incremental.prediction import predict_held_out
from ergnn.incremental.watching import watch_snapshot

LOG_LINES = 10_000
"""Maximum number of lines of the log, the newest."""


def inspect_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """All figures of a version, as numbers and text.

    ``per_class`` and ``confusion`` (true class, predicted class, nodes) are those of the held-out nodes that an update
    scores (at most ``eval_samples``), with the model of this version.
    """
    version, records, connection = snapshot.version, snapshot.records, snapshot.connection
    held_out = predict_held_out(snapshot, snapshot.settings.eval_samples)
    confusion = held_out.confusion()
    with reading_values("the records"):
        watched = watch_snapshot(snapshot)
        lost, means, buffer = forgetting(records), measures(records), buffer_rows(snapshot)
    blobs = connection.execute("SELECT kind, length(data) FROM blobs WHERE version = ?", (version.number,))
    return {
        "folder": str(snapshot.root),
        "version": version.number,
        "versions": kept_versions(connection),
        "settings": snapshot.settings.settings(),
        "graph": {
            "nodes": version.nodes,
            "edges": version.edges,
            "labeled": version.labeled,
            "features": version.state["num_features"],
            "forgotten": version.next_node - version.nodes,
        },
        "classes": snapshot.classes,
        "bytes": {"database": (snapshot.root / FILE).stat().st_size, **dict(blobs)},
        "updates": [{**r, "forgetting": f} for r, f in zip(records, lost, strict=True)],
        "measures": means,
        "watch": watched,
        "per_class": held_out.per_class(),
        "confusion": [[int(i), int(j), int(confusion[i, j])] for i, j in zip(*confusion.nonzero(), strict=True)],
        "buffer": buffer,
        "log": _log(connection),
    }


def buffer_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Remembered nodes: id, class, update, and the selector's score and rank, if any."""
    update_of = {record["task"]: record["update"] for record in snapshot.records if record["task"] is not None}
    rows = []
    for part in snapshot.learner.buffer.experiences:
        names, update = snapshot.graph.names(part.nodes.cpu().numpy()), update_of.get(part.task, part.task) + 1
        columns = (part.labels.tolist(), part.scores.tolist(), part.ranks.tolist())
        for name, label, score, rank in zip(names, *columns, strict=True):
            scored = {"score": None, "rank": None} if math.isnan(score) else {"score": score, "rank": rank + 1}
            rows.append({"id": name, "class": snapshot.classes[label], "update": update, **scored})
    return rows


def _log(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    query = "SELECT time, action, details FROM log ORDER BY rowid DESC LIMIT ?"
    out = []
    for time, action, text in connection.execute(query, (LOG_LINES,)).fetchall()[::-1]:
        try:
            out.append({"time": str(time), "action": str(action), **json.loads(text)})
        except (ValueError, TypeError, RecursionError):  # nothing depends on the log
            continue
    return out
