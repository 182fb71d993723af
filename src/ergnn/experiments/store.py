"""The run store: every finished run in one SQLite file, so that none is ever repeated.

A *member* is one seed and class order of a configuration, a row of the table ``runs``. Its key is a SHA-256 of
the canonical JSON of all that decides its numbers (see :func:`member_key`). Several processes may write at once
(write-ahead log); a row is there whole or not at all, so that a killed process loses only what was in flight.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from ergnn.errors import InputError
from ergnn.experiments.config import RunConfig
from ergnn.experiments.keys import READS, STORE_SCHEMA, member_config, member_key
from ergnn.experiments.provenance import code_version, machine_facts
from ergnn.experiments.run import SeedResult, members_of, peak_memory_mb, summary
from ergnn.experiments.stored_run import COLUMNS, JSON_COLUMNS, StoredRun

__all__ = ["RunStore", "StoredRun"]

BUSY_SECONDS = 60.0
"""How long to wait for another process's write."""


class RunStore:
    """Finished runs in one SQLite file.

    Args:
        path: the file; made, with its folder, where it is not there.
        create: whether it may be made; otherwise a missing file is an error.

    >>> with RunStore(":memory:") as store:
    ...     len(store.missing(RunConfig(seeds=3).resolved()))
    3
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.path = str(path)
        if self.path != ":memory:":
            if not create and not Path(path).is_file():
                raise InputError(f"{path}: there is no such run store")
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            # autocommit: each statement is a transaction of its own
            self._db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise InputError(f"{path}: cannot be opened as a run store ({error})") from None
        try:
            with self._errors():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def missing(self, config: RunConfig) -> list[tuple[int, int]]:
        """Seed and class order of the members of a resolved configuration that are not finished yet."""
        members = members_of(config)
        done = self._finished([member_key(config, *member) for member in members])
        return [member for member in members if member_key(config, *member) not in done]

    def put(
        self, config: RunConfig, result: SeedResult, *, seconds: float | None = None, memory_mb: float | None = None
    ) -> bool:
        """Keep a finished member; False where it was kept before, which changes nothing."""
        given = result if seconds is None else replace(result, seconds=seconds)
        return self.put_all(config, [given], memory_mb=memory_mb) == 1

    def put_all(self, config: RunConfig, results: Sequence[SeedResult], *, memory_mb: float | None = None) -> int:
        """Keep finished members, all or none of them; how many were not there before.

        Members that were trained side by side belong together: where a batch is kept whole, what a killed program
        left undone is done later in the same batches, to the same last digit.
        """
        memory = peak_memory_mb(config.device) if memory_mb is None else memory_mb
        rows = [_row(config, result, memory) for result in results]
        columns, marks = ", ".join(COLUMNS), ", ".join(f":{name}" for name in COLUMNS)
        insert = f"INSERT INTO runs ({columns}) VALUES ({marks}) ON CONFLICT (key) DO NOTHING"
        with self._errors(), self._transaction():
            before = self._db.total_changes
            self._db.executemany(insert, rows)
            return self._db.total_changes - before

    def runs(self, **filters: Any) -> list[StoredRun]:
        """Stored runs, sorted; each filter is a column or a field of the configuration, with a value or several.

        ``store.runs(dataset="cora", selector=["mf", "mf*"], epochs=200)``; ``order`` is the class order's number.
        """
        with self._errors(), closing(self._db.execute(f"SELECT {', '.join(COLUMNS)} FROM runs")) as rows:
            found = [StoredRun.from_row(row) for row in rows]
        for name, wanted in filters.items():
            values = wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
            found = [run for run in found if _value(run, name) in values]
        return sorted(found, key=_sort_key)

    def results(self, config: RunConfig) -> list[SeedResult]:
        """The members of a resolved configuration, all of which must be finished."""
        keys = [member_key(config, *member) for member in members_of(config)]
        rows = self._finished(keys)
        absent = [member for key, member in zip(keys, members_of(config), strict=True) if key not in rows]
        if absent:
            seed, order = absent[0]
            raise InputError(
                f"{self.path}: {len(absent)} of {len(keys)} runs of {config.dataset}, {config.backbone}, "
                f"{config.method} are not finished, such as seed {seed}, class order {order}"
            )
        return [rows[key].seed_result() for key in keys]

    def result(self, config: RunConfig) -> dict[str, Any]:
        """What :func:`ergnn.experiments.run.run` would give, from finished runs alone; seconds are summed."""
        results = self.results(config)
        rows = self._finished([member_key(config, r.seed, r.order) for r in results]).values()
        memory = max(row.peak_memory_mb for row in rows)
        return summary(config, results, sum(result.seconds for result in results), memory)

    def __len__(self) -> int:
        with self._errors():
            return int(self._db.execute("SELECT COUNT(*) FROM runs").fetchone()[0])

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _finished(self, keys: Sequence[str]) -> dict[str, StoredRun]:
        found = {}
        for start in range(0, len(keys), 500):  # SQLite's least limit on parameters is 999
            part = list(keys[start : start + 500])
            marks = ", ".join("?" * len(part))
            query = f"SELECT {', '.join(COLUMNS)} FROM runs WHERE key IN ({marks})"
            with self._errors(), closing(self._db.execute(query, part)) as rows:
                for row in rows:
                    run = StoredRun.from_row(row)
                    found[run.key] = run
        return found

    def _prepare(self) -> None:
        _write_ahead(self._db)
        self._db.execute("PRAGMA synchronous = NORMAL")
        with self._transaction():
            self._db.execute("CREATE TABLE IF NOT EXISTS store (schema INTEGER NOT NULL)")
            schema = self._db.execute("SELECT schema FROM store").fetchone()
            if schema is None:
                columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
                self._db.execute(f"CREATE TABLE runs ({columns})")
                self._db.execute("INSERT INTO store VALUES (?)", (STORE_SCHEMA,))
            elif schema[0] != STORE_SCHEMA:
                raise InputError(f"{self.path}: a run store of schema {schema[0]}; this version reads {STORE_SCHEMA}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; waits for whoever writes."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise InputError(f"{self.path}: not a run store that can be used ({error})") from error


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to a write-ahead log; SQLite does not wait for others here by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _row(config: RunConfig, result: SeedResult, memory_mb: float) -> dict[str, Any]:
    reads = READS.get(config.method, ())
    row = {
        "key": member_key(config, result.seed, result.order),
        "config": member_config(config),
        "dataset": config.dataset,
        "backbone": config.backbone,
        "method": config.method,
        "selector": config.selector if "selector" in reads else None,
        "per_class": config.per_class if "per_class" in reads else None,
        "protocol": config.protocol,
        "head": config.head,
        "edges": config.edges,
        "seed": result.seed,
        "class_order": result.order,
        "split": result.split,
        "classes": result.classes,
        "class_names": result.class_names,
        "matrix": result.matrix.to_list(),
        "metric": result.matrix.metric,
        "buffer_ids": result.buffer_ids,
        "buffer_bytes": result.buffer_bytes,
        "history": result.history,
        "leaky": result.leaky,
        "notes": result.notes,
        "seconds": result.seconds,
        "peak_memory_mb": memory_mb,
        "code_version": code_version(),
        "machine": machine_facts(config.device),
        "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    texts = {name: json.dumps(row[name], default=_plain) for name in JSON_COLUMNS if row[name] is not None}
    return {**row, **texts}


def _value(run: StoredRun, name: str) -> Any:
    if hasattr(run, name):
        return getattr(run, name)
    if name not in RunConfig.__dataclass_fields__:
        raise InputError(f"runs cannot be filtered by {name!r}; use a column or a field of the configuration")
    return run.config.get(name)


def _sort_key(run: StoredRun) -> tuple[Any, ...]:
    kind = (run.dataset, run.protocol, run.backbone, run.method, run.selector or "", run.per_class or 0)
    return (*kind, json.dumps(run.config, sort_keys=True), run.order, run.seed)


def _plain(value: Any) -> Any:
    """NumPy and torch numbers as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON")
