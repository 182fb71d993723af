"""Versions of a folder: which are kept, and what is stored with each."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from safetensors.torch import load
from torch import Tensor

from ergnn.config.errors import BusyError, FolderError
from ergnn.folder.database import FILE, VISIBLE, damaged, from_json, insert, read_number, select, to_json

VERSIONED = ("adjacency", "labels", "nodes", "updates")
"""Tables with rows that versions add and remove."""
LOG_LINES = 10_000


@dataclass(frozen=True)
class Version:
    """Sizes of a version, and its ``state``: number and names of features, and what the learner stores as JSON.

    The fields are the columns of the table ``versions``, in their order.
    """

    number: int = 0
    time: str = ""
    nodes: int = 0
    next_node: int = 0
    edges: int = 0
    labeled: int = 0
    remembered: int = 0
    classes: int = 0
    updates: int = 0
    state: dict[str, Any] = field(default_factory=dict)


def current_version(connection: sqlite3.Connection) -> tuple[int, int]:
    """The current version, and the largest number ever used."""
    rows = select(connection, "current")
    if not rows:
        raise damaged("the number of the current version")
    return rows[0][1], rows[0][2]


def kept_versions(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in select(connection, "versions", "1 ORDER BY version")]


def read_version(connection: sqlite3.Connection, number: int) -> Version:
    rows = select(connection, "versions", "version = :v", v=number)
    if not rows:
        kept = ", ".join(map(str, kept_versions(connection)))
        raise FolderError(f"version {number} is not kept; versions {kept} are")
    *values, state = rows[0]
    return Version(*[*values, from_json(state)])


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def drop_after(connection: sqlite3.Connection, version: int) -> None:
    """Delete everything after a version: versions that were rolled back, and an unfinished update."""
    query = "SELECT 1 FROM versions WHERE version > ? UNION ALL SELECT 1 FROM progress"
    if connection.execute(query, (version,)).fetchone() is None:
        return  # do not scan the tables
    connection.execute("DELETE FROM progress")
    connection.execute("DELETE FROM remembered WHERE version > ?", (version,))
    for table in VERSIONED:
        connection.execute(f"DELETE FROM {table} WHERE added > ?", (version,))
        connection.execute(f"UPDATE {table} SET removed = NULL WHERE removed > ?", (version,))
    connection.execute("DELETE FROM versions WHERE version > ?", (version,))
    connection.execute("DELETE FROM classes WHERE added > ?", (version,))


def drop_before(connection: sqlite3.Connection, version: int) -> None:
    """Delete older versions, and rows that no other version has."""
    connection.execute("DELETE FROM versions WHERE version < ?", (version,))
    for table in VERSIONED:
        connection.execute(f"DELETE FROM {table} WHERE removed <= ?", (version,))


def forgotten_nodes(connection: sqlite3.Connection, version: int) -> dict[str, list[bytes]]:
    """Ids of nodes that a version or an earlier one has removed, and their features (columns, values), as stored."""
    there = f"SELECT id FROM nodes WHERE {VISIBLE}"
    query = f"SELECT id, columns, features FROM nodes WHERE removed <= :v AND id NOT IN ({there})"
    traces: dict[str, list[bytes]] = {}
    for name, columns, values in connection.execute(query, {"v": version}):
        traces.setdefault(name, []).extend(data for data in (columns, values) if data is not None)
    return traces


def drop_cache(connection: sqlite3.Connection, version: int | None = None) -> None:
    """Delete cached rows of φ, unless they are those of a version."""
    if version is None or connection.execute("SELECT version FROM row_cache").fetchall() != [(version,)]:
        for table in ("phi", "row_cache"):
            connection.execute(f"DELETE FROM {table}")


def shrink(connection: sqlite3.Connection) -> None:
    """Return pages to the file system if more than a fifth of them are free."""
    if 5 * read_number(connection, "PRAGMA freelist_count") > read_number(connection, "PRAGMA page_count"):
        connection.execute("PRAGMA incremental_vacuum").fetchall()


def scrub(connection: sqlite3.Connection, root: Path) -> None:
    """Rewrite the database without traces of deleted rows, and empty the write-ahead log."""
    connection.execute("VACUUM")
    connection.execute("PRAGMA busy_timeout = 5000")
    if read_number(connection, "PRAGMA wal_checkpoint(TRUNCATE)"):
        cause = "another process is reading, so deleted rows are still in the write-ahead log"
        raise BusyError(f"{root}: {cause}; run `ergnn forget --purge` again once it is done")


def inspect_storage(connection: sqlite3.Connection, root: Path, version: int) -> dict[str, Any]:
    """Versions, sizes in bytes, and the newest lines of the log."""
    blobs = connection.execute("SELECT kind, length(data) FROM blobs WHERE version = ?", (version,))
    log, query = [], "SELECT time, action, details FROM log ORDER BY rowid DESC LIMIT ?"
    for time, action, text in connection.execute(query, (LOG_LINES,)).fetchall()[::-1]:
        try:
            log.append({"time": str(time), "action": str(action), **json.loads(text)})
        except (ValueError, TypeError, RecursionError):  # nothing depends on the log
            continue
    sizes = {"database": (root / FILE).stat().st_size, **dict(blobs)}
    return {"versions": kept_versions(connection), "bytes": sizes, "log": log}


def put_blob(connection: sqlite3.Connection, version: int, kind: str, data: bytes) -> None:
    insert(connection, "blobs", [(version, kind, data)], "REPLACE")


def get_tensors(connection: sqlite3.Connection, version: int, kind: str) -> dict[str, Tensor]:
    """The tensors of a safetensors blob; none if there is no blob."""
    rows = select(connection, "blobs", "version = :version AND kind = :kind", version=version, kind=kind)
    return dict(load(rows[0][2])) if rows else {}


def add_log(connection: sqlite3.Connection, action: str, **details: Any) -> None:
    connection.execute("INSERT INTO log VALUES (?, ?, ?)", (now(), action, to_json(details)))
