"""Graph, buffer, accuracy since each update, drift, calibration and unknown classes of a version."""

from __future__ import annotations

import math
from typing import Any

from ergnn.evaluation import forgetting, measures
from ergnn.incremental.prediction import predict_held_out
from ergnn.incremental.snapshot import Snapshot
from ergnn.incremental.watching import watch_snapshot


def inspect_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """All figures of a version, as numbers and text.

    ``per_class`` and ``confusion`` (true class, predicted class, nodes) are those of the held-out nodes that an update
    scores (at most ``eval_samples``), with the model of this version.
    """
    version, records = snapshot.version, snapshot.records
    held_out = predict_held_out(snapshot, snapshot.settings.eval_samples)
    confusion = held_out.confusion()
    return {
        "folder": str(snapshot.root),
        "version": version.number,
        "settings": snapshot.settings.settings(),
        "graph": {
            "nodes": version.nodes,
            "edges": version.edges,
            "labeled": version.labeled,
            "features": version.state["num_features"],
            "forgotten": version.next_node - version.nodes,
        },
        "classes": snapshot.classes,
        "updates": [{**r, "forgetting": f} for r, f in zip(records, forgetting(records), strict=True)],
        "measures": measures(records),
        "watch": watch_snapshot(snapshot),
        "per_class": held_out.per_class(),
        "confusion": [[int(i), int(j), int(confusion[i, j])] for i, j in zip(*confusion.nonzero(), strict=True)],
        "buffer": buffer_rows(snapshot),
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
