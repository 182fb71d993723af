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


@dataclass(frozen=True, kw_only=True)
class StoredRun(SeedResult):
    """The result of one seed and class order, with its configuration and origin.

    Attributes:
        key: SHA-256 of the configuration, seed and class order.
        config: the fields of :class:`RunConfig` that determine the results, without seed and class order.
        selector, per_class: None if the method has no buffer.
        history: one object per task: ``classes``, ``trained_on``, ``train_seconds``, ``select_seconds``, ``selection``,
            ``test_nodes``.
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
    peak_memory_mb: float
    code_version: str
    machine: dict[str, Any]
    finished_at: str

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
        values = {**vars(self), "matrix": self.matrix.to_list(), "metric": self.metric, "class_order": self.order}
        return {name: values[name] for name in COLUMNS}


_TYPES = {f.name: str(f.type) for f in fields(StoredRun)} | {"class_order": "int", "metric": "str"}
COLUMNS = {
    name: _TYPES[name]
    for name in (
        *("key", "config", "dataset", "backbone", "method", "selector", "per_class", "protocol", "head", "edges"),
        *("seed", "class_order", "split", "classes", "class_names", "matrix", "buffer_ids", "buffer_bytes", "history"),
        *("leaky", "notes", "seconds", "peak_memory_mb", "code_version", "machine", "finished_at", "data", "metric"),
    )
}
"""Columns of the table and their types; values other than scalars are stored as JSON."""


def scalar_type(kind: str) -> str | None:
    """Return the scalar type of a column without its ``| None``; None for a JSON column."""
    plain = kind.removesuffix(" | None")
    return plain if plain in ("str", "int", "float", "bool") else None
