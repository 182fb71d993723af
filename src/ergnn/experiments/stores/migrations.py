"""How the tables of a store came to be as they are: steps that only add.

The table ``store`` has one row with the number that is part of every key. Steps of :data:`MIGRATIONS` that were taken
are rows of the table ``migrations``. No step changes or removes a column, so that programs of an earlier version go
on with a store which a later one has opened.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Migration:
    """One step: its number, what it is good for, and the statement, the same for SQLite and PostgreSQL."""

    number: int
    what: str
    statement: str


MIGRATIONS = (
    Migration(1, "find runs by data set", "CREATE INDEX IF NOT EXISTS runs_by_dataset ON runs (dataset)"),
    Migration(2, "find runs by method", "CREATE INDEX IF NOT EXISTS runs_by_method ON runs (method, selector)"),
)

MIGRATIONS_TABLE = (
    "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, what TEXT NOT NULL, applied_at TEXT NOT NULL)"
)


def wrong_schema(name: str, found: int, known: int) -> str:
    return f"{name}: a run store of schema {found}; this version reads {known}"
