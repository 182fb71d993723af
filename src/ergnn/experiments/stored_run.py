"""One finished run as the store keeps it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ergnn.experiments.run import SeedResult
from ergnn.metrics import AccuracyMatrix

COLUMNS = {
    "key": "TEXT PRIMARY KEY",
    "config": "TEXT NOT NULL",
    "dataset": "TEXT NOT NULL",
    "backbone": "TEXT NOT NULL",
    "method": "TEXT NOT NULL",
    "selector": "TEXT",
    "per_class": "INTEGER",
    "protocol": "TEXT NOT NULL",
    "head": "TEXT NOT NULL",
    "edges": "TEXT NOT NULL",
    "seed": "INTEGER NOT NULL",
    "class_order": "INTEGER NOT NULL",
    "split": "TEXT NOT NULL",
    "classes": "TEXT NOT NULL",
    "class_names": "TEXT",
    "matrix": "TEXT NOT NULL",
    "metric": "TEXT NOT NULL",
    "buffer_ids": "TEXT NOT NULL",
    "buffer_bytes": "INTEGER NOT NULL",
    "history": "TEXT NOT NULL",
    "leaky": "INTEGER NOT NULL",
    "notes": "TEXT NOT NULL",
    "seconds": "REAL NOT NULL",
    "peak_memory_mb": "REAL NOT NULL",
    "code_version": "TEXT NOT NULL",
    "machine": "TEXT NOT NULL",
    "finished_at": "TEXT NOT NULL",
}
JSON_COLUMNS = ("config", "classes", "class_names", "matrix", "buffer_ids", "history", "notes", "machine")


@dataclass(frozen=True)
class StoredRun:
    """One member run as it was stored.

    Attributes:
        key: its SHA-256.
        config: all that decides its numbers but the seed and the class order: fields of :class:`RunConfig`.
        selector, per_class: None where the method remembers nothing.
        seed, order: which member it is.
        split: the split it really used, ``public`` or ``seeded``.
        classes: the global class ids of each task.
        class_names: names of all classes, by id, where they are known.
        matrix: scores after each task.
        buffer_ids: the nodes remembered at the end, in the order in which they came.
        history: one object a task: ``classes``, ``trained_on``, ``train_seconds``, ``select_seconds``, ``selection``.
        machine: ``host``, ``system``, ``cpu``, ``cores``, ``python``, ``torch``, ``device``.
        finished_at: UTC, ISO 8601.
    """

    key: str
    config: dict[str, Any]
    dataset: str
    backbone: str
    method: str
    selector: str | None
    per_class: int | None
    protocol: str
    head: str
    edges: str
    seed: int
    order: int
    split: str
    classes: list[list[int]]
    class_names: list[str] | None
    matrix: AccuracyMatrix
    buffer_ids: list[int]
    buffer_bytes: int
    history: list[dict[str, Any]]
    leaky: bool
    notes: list[str]
    seconds: float
    peak_memory_mb: float
    code_version: str
    machine: dict[str, Any]
    finished_at: str

    @classmethod
    def from_row(cls, values: Sequence[Any]) -> StoredRun:
        """From one row of the table, its columns as in ``COLUMNS``."""
        row = dict(zip(COLUMNS, values, strict=True))
        for name in JSON_COLUMNS:
            row[name] = None if row[name] is None else json.loads(row[name])
        row["matrix"] = AccuracyMatrix(row["matrix"], row.pop("metric"))
        row["order"], row["leaky"] = row.pop("class_order"), bool(row["leaky"])
        return cls(**row)

    @property
    def metric(self) -> str:
        return self.matrix.metric

    def to_dict(self) -> dict[str, Any]:
        """The columns of the table by name, fit for JSON."""
        own = {**vars(self), "matrix": self.matrix.to_list(), "metric": self.metric, "class_order": self.order}
        return {name: own[name] for name in COLUMNS}

    def seed_result(self) -> SeedResult:
        """The same as what :func:`ergnn.experiments.run.run_members` gave."""
        return SeedResult(
            self.seed,
            self.order,
            self.classes,
            self.matrix,
            self.buffer_ids,
            self.buffer_bytes,
            self.history,
            self.split,
            tuple(self.notes),
            None if self.class_names is None else tuple(self.class_names),
            self.leaky,
            self.seconds,
        )
