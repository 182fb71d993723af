"""Versions of a folder: what is kept, what is dropped, and what is stored with each."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ergnn.folder.database import (
    BusyError,
    FolderError,
    checksum,
    damaged,
    from_json,
    insert,
    read_number,
    reading_values,
    to_json,
)


@dataclass(frozen=True)
class Version:
    """A row of the table ``versions``."""

    number: int
    time: str
    nodes: int
    next_node: int
    edges: int
    labeled: int
    remembered: int
    classes: int
    updates: int
    state: dict[str, Any]


def current_version(connection: sqlite3.Connection) -> tuple[int, int]:
    """The current version, and the largest number ever used."""
    row = connection.execute("SELECT one, version, newest, checksum FROM current").fetchone()
    if row is None or row[3] != checksum(*row[:3]):
        raise damaged("the number of the current version")
    return row[1], row[2]


def set_current(connection: sqlite3.Connection, version: int, newest: int) -> None:
    insert(connection, "current", "one, version, newest", [(1, version, newest)], "REPLACE")


def kept_versions(connection: sqlite3.Connection) -> list[int]:
    rows = connection.execute("SELECT * FROM versions ORDER BY version").fetchall()
    if any(row[-1] != checksum(*row[:-1]) for row in rows):
        raise damaged("the list of versions")
    return [row[0] for row in rows]


def read_version(connection: sqlite3.Connection, number: int) -> Version:
    row = connection.execute("SELECT * FROM versions WHERE version = ?", (number,)).fetchone()
    if row is None:
        kept = ", ".join(map(str, kept_versions(connection)))
        raise FolderError(f"version {number} is not kept; versions {kept} are")
    with reading_values(f"version {number}"):
        *values, total = row
        if total != checksum(*values):
            raise damaged(f"version {number}")
        return Version(**dict(zip(Version.__annotations__, [*values[:-1], from_json(values[-1])], strict=True)))


def write_version(connection: sqlite3.Connection, version: Version) -> None:
    """Add a version and make it the current one."""
    row = (*vars(version).values(),)
    columns = "version, time, nodes, next_node, edges, labeled, remembered, classes, updates, state"
    insert(connection, "versions", columns, [(*row[:-1], to_json(version.state))])
    set_current(connection, version.number, version.number)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def drop_after(connection: sqlite3.Connection, version: int) -> None:
    """Delete all that came after a version: newer ones that were rolled back, and an update that is not finished."""
    query = "SELECT 1 FROM versions WHERE version > ? UNION ALL SELECT 1 FROM progress"
    if connection.execute(query, (version,)).fetchone() is None:
        return  # without reading whole tables
    connection.execute("DELETE FROM progress")
    connection.execute("DELETE FROM remembered WHERE version > ?", (version,))
    for table in ("adjacency", "labels", "nodes", "updates"):
        connection.execute(f"DELETE FROM {table} WHERE added > ?", (version,))
        connection.execute(f"UPDATE {table} SET removed = NULL WHERE removed > ?", (version,))
    connection.execute("DELETE FROM versions WHERE version > ?", (version,))
    connection.execute("DELETE FROM classes WHERE added > ?", (version,))


def drop_before(connection: sqlite3.Connection, version: int) -> None:
    """Delete older versions, and the rows that only they have."""
    connection.execute("DELETE FROM versions WHERE version < ?", (version,))
    for table in ("adjacency", "labels", "nodes", "updates"):
        connection.execute(f"DELETE FROM {table} WHERE removed <= ?", (version,))


def keep_versions(connection: sqlite3.Connection, count: int) -> None:
    """Delete all but the newest versions."""
    drop_before(connection, kept_versions(connection)[-count:][0])


def clear_class_names(connection: sqlite3.Connection, learned: Sequence[int]) -> None:
    """Take the names from classes that no label has and that the model does not know; their numbers stay in use."""
    rows = connection.execute("SELECT class, added FROM classes WHERE class NOT IN (SELECT class FROM labels)")
    for number, added in rows.fetchall():
        if number not in learned:
            name = f"(removed class {number})"
            values = (name, checksum(number, name, added), number)
            connection.execute("UPDATE classes SET name = ?, checksum = ? WHERE class = ?", values)


def shrink(connection: sqlite3.Connection) -> None:
    """Give pages back to the file system once more than a fifth of them are free."""
    if 5 * read_number(connection, "PRAGMA freelist_count") > read_number(connection, "PRAGMA page_count"):
        connection.execute("PRAGMA incremental_vacuum").fetchall()


def scrub(connection: sqlite3.Connection, root: Path) -> None:
    """Rewrite the database without a trace of deleted rows, and empty the write-ahead log."""
    connection.execute("VACUUM")
    connection.execute("PRAGMA busy_timeout = 5000")
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise BusyError(
            f"{root}: another process is reading; deleted rows stay in the write-ahead log until it is done and "
            "`ergnn forget --purge` runs again"
        )


def put_blob(connection: sqlite3.Connection, version: int, kind: str, data: bytes) -> None:
    """Store bytes with a version, e.g. weights, or statistics that are worth keeping."""
    insert(connection, "blobs", "version, kind, data", [(version, kind, data)], "REPLACE")


def get_blob(connection: sqlite3.Connection, version: int, kind: str) -> bytes | None:
    query = "SELECT data, checksum FROM blobs WHERE version = ? AND kind = ?"
    row = connection.execute(query, (version, kind)).fetchone()
    if row is None:
        return None
    if row[1] != checksum(version, kind, row[0]):
        raise damaged(f"blob {kind!r} of version {version}")
    return bytes(row[0])


def write_progress(connection: sqlite3.Connection, staged: dict[str, Any]) -> None:
    """Note that an update is in the database but not learned yet."""
    insert(connection, "progress", "one, version, staged", [(1, staged["version"], to_json(staged))])


def read_progress(connection: sqlite3.Connection) -> dict[str, Any] | None:
    """The update that is not finished, if there is one."""
    row = connection.execute("SELECT one, version, staged, checksum FROM progress").fetchone()
    if row is None:
        return None
    with reading_values("the unfinished update"):
        if row[3] != checksum(*row[:3]):
            raise damaged("the unfinished update")
        return from_json(row[2])


def add_log(connection: sqlite3.Connection, action: str, **details: Any) -> None:
    connection.execute("INSERT INTO log VALUES (?, ?, ?)", (now(), action, to_json(details)))
