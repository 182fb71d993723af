"""Where finished runs are kept: one table, in a SQLite file or on a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ergnn.errors import InputError

PREFIXES = ("postgresql://", "postgresql+psycopg://")


class RunTable(Protocol):
    """The table of runs of one store; its columns are those of :data:`ergnn.experiments.stored_run.COLUMNS`.

    Attributes:
        name: how messages name the store; it holds no password.
    """

    name: str

    def insert(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Add rows, all or none of them, less those whose key is there; how many were added."""
        ...

    def select(self, where: Mapping[str, Sequence[Any]]) -> list[Sequence[Any]]:
        """The rows whose columns have one of the values named for them; of no column, all."""
        ...

    def count(self) -> int:
        """How many rows there are."""
        ...

    def close(self) -> None: ...


def is_url(store: str | Path) -> bool:
    """Whether a store is named by the URL of a server, and not by a file."""
    return isinstance(store, str) and "://" in store


def open_table(store: str | Path, *, create: bool) -> RunTable:
    """The table of a store: of a PostgreSQL URL, or of a SQLite file (``:memory:`` is none).

    Args:
        create: whether it may be made; otherwise a missing one is an error.
    """
    if not is_url(store):
        from ergnn.experiments.stores.sqlite import SqliteTable

        return SqliteTable(store, create=create)
    url = str(store)
    if not url.startswith(PREFIXES):
        scheme = url.partition("://")[0]
        raise InputError(f"a run store cannot be at {scheme}://…; use a file, or a URL that begins with postgresql://")
    from ergnn.experiments.stores.postgresql import PostgresqlTable

    return PostgresqlTable(url, create=create)
