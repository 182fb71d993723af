"""What a folder knows about itself: graph, buffer, accuracy since each update, drift, bytes, versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.folder.scoring import forgetting
from ergnn.folder.snapshot import Snapshot
from ergnn.metrics import AccuracyMatrix, average_accuracy, forgetting_mean, performance_mean

MOST_LOG = 4 << 20


def inspect_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Everything worth knowing, as plain numbers and text."""
    version, store = snapshot.version, snapshot.store
    records = [version.record(update) for update in range(len(version.record_entries))]
    lost = forgetting(records)
    return {
        "folder": str(version.root),
        "version": version.number,
        "versions": sorted(version.current.manifests),
        "settings": snapshot.settings.to_dict(),
        "graph": {
            "nodes": store.count("name"),
            "edges": store.count("edge"),
            "labelled": store.count("label"),
            "features": version.state["num_features"],
            "forgotten": store.num_nodes - store.count("name"),
            "segments": len(store.segments),
        },
        "classes": snapshot.classes,
        "bytes": version.sizes,
        "updates": [{**record, "forgetting": value} for record, value in zip(records, lost, strict=True)],
        "measures": measures(records),
        "buffer": buffer_rows(snapshot, records),
        "log": read_log(version.root),
    }


def buffer_rows(snapshot: Snapshot, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remembered nodes: id, class, update, the selector's score, and rank among those of its class and update."""
    update_of = {record["task"]: record["update"] for record in records if record["task"] is not None}
    buffer = snapshot.learner.method.buffer
    assert buffer is not None
    rows = []
    for part in buffer.experiences:
        ids = snapshot.store.names(part.nodes.numpy())
        for name, label, score, rank in zip(
            ids, part.labels.tolist(), part.scores.tolist(), part.ranks.tolist(), strict=True
        ):
            update = update_of.get(part.task, part.task) + 1
            rows.append(
                {"id": name, "class": snapshot.classes[label], "update": update, "score": score, "rank": rank + 1}
            )
    return rows


def accuracy_matrix(records: list[dict[str, Any]]) -> tuple[list[int], AccuracyMatrix] | None:
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


def measures(records: list[dict[str, Any]]) -> dict[str, float]:
    """Performance mean, forgetting mean and average accuracy of the updates so far."""
    found = accuracy_matrix(records)
    if found is None:
        return {}
    matrix = found[1]
    return {"pm": performance_mean(matrix), "fm": forgetting_mean(matrix), "aa": average_accuracy(matrix)}


def read_log(root: Path) -> list[dict[str, Any]]:
    """When what was done; lines that were cut off by a kill are left out."""
    try:
        with open(root / "log.jsonl", "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - MOST_LOG))
            lines = file.read().splitlines()
    except OSError:
        return []
    out = []
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            out.append(entry)
    return out
