"""The run store: finished runs, which are not repeated.

A *member* is one seed and class order of a configuration: a row of the table ``runs``, in a SQLite file or on a
PostgreSQL server. Its key is the SHA-256 of the canonical JSON of all settings that determine its results (see
:func:`member_key`). Several processes may write at once; rows are written in transactions, so that a killed process
loses only unfinished work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from ergnn.config.errors import InputError
from ergnn.lab.config import DEFAULTS, RunConfig
from ergnn.lab.database import RunTable
from ergnn.lab.keys import member_config, member_key
from ergnn.lab.provenance import code_version, machine_facts
from ergnn.lab.result import Member, RunResult, SeedResult
from ergnn.lab.run import members_of, peak_memory_mb, run_result
from ergnn.lab.stored_run import COLUMNS, StoredRun, scalar_type
from ergnn.learning.resolve import default_options, options_in_effect
from ergnn.methods import METHODS

__all__ = ["Origin", "RunStore", "StoredRun"]

SEARCHED = ("dataset", "backbone", "method", "selector", "protocol", "head", "edges", "seed", "split")
"""Columns that the database filters by; other filters are applied here."""


@dataclass(frozen=True)
class Origin:
    """Code version, machine and peak memory of a computation; :meth:`here` is this process."""

    code_version: str
    machine: Mapping[str, Any]
    peak_memory_mb: float

    @classmethod
    def here(cls, device: str) -> Origin:
        return cls(code_version(), machine_facts(device), peak_memory_mb(device))


class RunStore:
    """Finished runs in a SQLite file or on a PostgreSQL server.

    Args:
        path: the file, or ``postgresql://user:password@host/database``.
        create: create a missing file (with its folder) or missing tables; otherwise a missing store is an error.

    >>> with RunStore(":memory:") as store:
    ...     len(store.missing(RunConfig(seeds=3).resolved()))
    3
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self._table = RunTable(path, create=create)
        self.path = self._table.name

    def missing(self, config: RunConfig) -> list[Member]:
        """Return the seed and class order of the unfinished members of a resolved configuration."""
        finished = self._finished(config)
        return [member for member in members_of(config) if member not in finished]

    def put_all(self, config: RunConfig, results: Sequence[SeedResult], origin: Origin | None = None) -> int:
        """Store finished members in one transaction, except those that are stored already; return how many were new.

        Members that were trained together are stored together, so an interrupted program resumes with the same batches
        and gives bitwise the same results.

        Args:
            origin: where they were computed; by default in this process.
        """
        origin = Origin.here(str(config.learner.device)) if origin is None else origin
        return self._table.insert([_row(config, result, origin) for result in results])

    def runs(self, **filters: Any) -> list[StoredRun]:
        """Return sorted runs. A filter is a column or a field of the configuration, with one value or several.

        ``store.runs(dataset="cora", selector=["mf", "mf*"], epochs=200)``; ``order`` is the number of the class order.
        """
        wanted = {name: _values(value) for name, value in filters.items()}
        searched = {name: values for name, values in wanted.items() if name in SEARCHED and None not in values}
        runs = [StoredRun.from_row(row) for row in self._table.select(searched)]
        for name, values in wanted.items():
            runs = [run for run in runs if _value(run, name) in values]
        return sorted(runs, key=_sort_key)

    def members(self, config: RunConfig) -> list[StoredRun]:
        """Return the runs of a resolved configuration, all of which must be finished."""
        members, finished = members_of(config), self._finished(config)
        absent = [member for member in members if member not in finished]
        if absent:
            seed, order = absent[0]
            raise InputError(
                f"{self.path}: {len(absent)} of {len(members)} runs of {config.dataset}, {config.learner.backbone}, "
                f"{config.learner.method} are not finished, such as seed {seed}, class order {order}"
            )
        return [finished[member] for member in members]

    def result(self, config: RunConfig) -> RunResult:
        """Return the result of :func:`ergnn.lab.run.run`, from finished runs; seconds are summed."""
        runs = self.members(config)
        return run_result(config, runs, sum(run.seconds for run in runs), max(run.peak_memory_mb for run in runs))

    def __len__(self) -> int:
        return self._table.count()

    def close(self) -> None:
        self._table.close()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _finished(self, config: RunConfig) -> dict[Member, StoredRun]:
        """Return the finished runs of a resolved configuration, by seed and class order."""
        keys, runs = [member_key(config, *member) for member in members_of(config)], []
        for start in range(0, len(keys), 500):  # databases limit the number of parameters
            runs += [StoredRun.from_row(row) for row in self._table.select({"key": keys[start : start + 500]})]
        return {(run.seed, run.order): run for run in runs}


def _row(config: RunConfig, result: SeedResult, origin: Origin) -> dict[str, Any]:
    """Return the values of all columns; those that are not scalars as JSON."""
    learner, options = config.learner, options_in_effect(config.learner)
    row = {
        **vars(result),
        **vars(origin),
        "key": member_key(config, result.seed, result.order),
        "config": member_config(config),
        "dataset": config.dataset,
        "backbone": learner.backbone,
        "method": learner.method,
        "selector": options.get("selector"),
        "per_class": options.get("per_class"),
        "protocol": config.protocol,
        "head": learner.head,
        "edges": config.edges,
        "class_order": result.order,
        "matrix": result.matrix.to_list(),
        "metric": result.matrix.metric,
        "leaky": int(result.leaky),
        "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    is_json = {name for name, kind in COLUMNS.items() if scalar_type(kind) is None and row[name] is not None}
    return {name: json.dumps(row[name], default=_plain) if name in is_json else row[name] for name in COLUMNS}


def _values(wanted: Any) -> list[Any]:
    return list(wanted) if isinstance(wanted, list | tuple | set | frozenset) else [wanted]


def _value(run: StoredRun, name: str) -> Any:
    if hasattr(run, name):
        return getattr(run, name)
    known = {**DEFAULTS, **default_options(run.method)} if run.method in METHODS else DEFAULTS
    if name not in {**known, **run.config}:
        raise InputError(f"runs cannot be filtered by {name!r}; use a column or a field of the configuration")
    return run.config.get(name, known.get(name))


def _sort_key(run: StoredRun) -> tuple[Any, ...]:
    kind = (run.dataset, run.protocol, run.backbone, run.method, run.selector or "", run.per_class or 0)
    return (*kind, json.dumps(run.config, sort_keys=True), run.order, run.seed)


def _plain(value: Any) -> Any:
    """Convert NumPy and torch values for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")
