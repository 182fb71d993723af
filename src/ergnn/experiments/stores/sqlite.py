"""Runs in one SQLite file; several processes may write at once (write-ahead log)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ergnn.errors import InputError
from ergnn.experiments.keys import STORE_SCHEMA
from ergnn.experiments.stored_run import COLUMNS
from ergnn.experiments.stores.migrations import MIGRATIONS, MIGRATIONS_TABLE, wrong_schema

BUSY_SECONDS = 60.0
"""How long to wait for another process's write."""


class SqliteTable:
    """See :class:`ergnn.experiments.stores.RunTable`."""

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.name = str(path)
        if self.name != ":memory:":
            if not create and not Path(path).is_file():
                raise InputError(f"{path}: there is no such run store")
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            # autocommit: each statement is a transaction of its own
            self._db = sqlite3.connect(self.name, timeout=BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise InputError(f"{path}: cannot be opened as a run store ({error})") from None
        try:
            with self._errors():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def insert(self, rows: Sequence[Mapping[str, Any]]) -> int:
        columns, marks = ", ".join(COLUMNS), ", ".join(f":{name}" for name in COLUMNS)
        statement = f"INSERT INTO runs ({columns}) VALUES ({marks}) ON CONFLICT (key) DO NOTHING"
        with self._errors(), self._transaction():
            before = self._db.total_changes
            self._db.executemany(statement, rows)
            return self._db.total_changes - before

    def select(self, where: Mapping[str, Sequence[Any]]) -> list[Sequence[Any]]:
        tests = [f"{name} IN ({', '.join('?' * len(values))})" for name, values in where.items()]
        query = f"SELECT {', '.join(COLUMNS)} FROM runs" + (f" WHERE {' AND '.join(tests)}" if tests else "")
        values = [value for values in where.values() for value in values]
        with self._errors(), closing(self._db.execute(query, values)) as rows:
            return list(rows)

    def count(self) -> int:
        with self._errors():
            return int(self._db.execute("SELECT COUNT(*) FROM runs").fetchone()[0])

    def close(self) -> None:
        self._db.close()

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
                raise InputError(wrong_schema(self.name, schema[0], STORE_SCHEMA))
            self._migrate()

    def _migrate(self) -> None:
        self._db.execute(MIGRATIONS_TABLE)
        taken = {row[0] for row in self._db.execute("SELECT number FROM migrations")}
        for step in MIGRATIONS:
            if step.number not in taken:
                self._db.execute(step.statement)
                now = datetime.now(timezone.utc).isoformat(timespec="seconds")
                self._db.execute("INSERT INTO migrations VALUES (?, ?, ?)", (step.number, step.what, now))

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
            raise InputError(f"{self.name}: not a run store that can be used ({error})") from error


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
