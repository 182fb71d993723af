"""One stored run, and the columns of its table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ergnn.lab.result import SeedResult
from ergnn.learning.metrics import AccuracyMatrix, micro_accuracy

RENAMED = {"features": "input", "features_options": "input_options"}
"""Settings that version 0.1 stored under a different name."""


@dataclass(frozen=True)
class StoredRun:
    """One stored member.

    Attributes:
        key: SHA-256 of the configuration, seed and class order.
        config: the fields of :class:`RunConfig` that determine the results, without seed and class order.
        selector, per_class: None if the method has no buffer.
        seed, order: seed and number of the class order.
        split: the split that was used, ``public`` or ``seeded``.
        classes: global class ids of each task.
        class_names: names of all classes, by id, if known.
        matrix: scores after each task.
        buffer_ids: nodes in the buffer at the end, in order of insertion.
        history: one object per task: ``classes``, ``trained_on``, ``train_seconds``, ``select_seconds``, ``selection``,
            ``test_nodes``.
        machine: ``host``, ``system``, ``cpu``, ``cores``, ``python``, ``torch``, ``device``.
        finished_at: UTC, ISO 8601.
        data: the data actually used, e.g. ``permuted-digits`` instead of ``permuted-mnist``.
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
    data: str | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> StoredRun:
        """Build from a row of the table, by column name."""
        values = {
            name: json.loads(value) if value is not None and scalar_type(COLUMNS[name]) is None else value
            for name, value in row.items()
        }
        values["config"] = {RENAMED.get(name, name): value for name, value in values["config"].items()}
        values["matrix"] = AccuracyMatrix(values["matrix"], values.pop("metric"))
        values["order"], values["leaky"] = values.pop("class_order"), bool(values["leaky"])
        return cls(**values)

    @property
    def metric(self) -> str:
        return self.matrix.metric

    @property
    def micro_accuracy(self) -> float | None:
        """Accuracy at the end over the test nodes of all tasks together; None if an old run lacks their number."""
        if not all("test_nodes" in record for record in self.history):
            return None
        return micro_accuracy(self.matrix, [record["test_nodes"] for record in self.history])

    def to_dict(self) -> dict[str, Any]:
        """Return the values by column name, ready for JSON."""
        own = {**vars(self), "matrix": self.matrix.to_list(), "metric": self.metric, "class_order": self.order}
        return {name: own[name] for name in COLUMNS}

    def seed_result(self) -> SeedResult:
        """Return the result that :func:`ergnn.lab.run.run_members` returned."""
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
            self.data,
        )


COLUMNS = {{"order": "class_order"}.get(f.name, f.name): str(f.type) for f in fields(StoredRun)} | {"metric": "str"}
"""Columns of the table and their types: those of :class:`StoredRun`; other values than scalars are stored as JSON."""


def scalar_type(kind: str) -> str | None:
    """Return the scalar type of a column without its ``| None``; None for a JSON column."""
    plain = kind.removesuffix(" | None")
    return plain if plain in ("str", "int", "float", "bool") else None
