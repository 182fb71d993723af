"""The database of a folder: connections, one writer, transactions, rows with checksums.

Readers see the version that was current when they opened the database and are never blocked (SQLite's WAL mode). A
writer holds the folder's lock for as long as it works, since learning takes many transactions.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import sqlite3
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from ergnn.errors import ErgnnError, InputError

APPLICATION_ID = 0x65726E6E
"""``ernn`` in ASCII, which marks a learner's database."""
FILE, LOCK = "learner.sqlite", "writer.lock"
WAIT = 60.0
"""Seconds to wait for another connection's short lock."""
VISIBLE = "added <= :v AND (removed IS NULL OR removed > :v)"
"""Whether a row belongs to version ``:v``."""
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError, ArithmeticError)
"""What reading a damaged value may raise."""
COLUMNS = {
    "settings": "name, value",
    "versions": "version, time, nodes, next_node, edges, labeled, remembered, classes, updates, state",
    "current": "one, version, newest",
    "classes": "class, name, added",
    "updates": "number, added, name, record",
    "nodes": "node, id, added, columns, features",
    "labels": "node, class, split, number, added",
    "adjacency": "node, added, neighbors",
    "remembered": "version, place, task, node, class, score, rank",
    "blobs": "version, kind, data",
    "progress": "one, version, staged",
    "checkpoint": "one, state, tensors",
    "phi": "map, node, data",
    "gram": "map, class, data",
    "row_cache": "one, version, layout",
}
"""The columns of each table that its checksums cover: all but ``removed`` and ``checksum``, in the table's order."""

Row = tuple[Any, ...]


class FolderError(InputError):
    """A learner's folder that is missing, damaged, busy, or of another format."""


class BusyError(FolderError):
    """Another process is writing."""


def checksum(*values: Any) -> int:
    """CRC-32 of the values of a row."""
    if not {bytes, type(None)}.isdisjoint(map(type, values)):
        parts = [value if type(value) is bytes else b"" if value is None else str(value).encode() for value in values]
        return zlib.crc32(b"\x1f".join(parts))
    return zlib.crc32("\x1f".join(map(str, values)).encode())  # the same, faster


def insert(
    connection: sqlite3.Connection, table: str, rows: Iterable[Row], verb: str = "INSERT", end: str = ""
) -> None:
    """Add rows with their checksums; ``end`` is the end of the statement."""
    columns = COLUMNS[table]
    places = ", ".join("?" * (columns.count(",") + 2))
    statement = f"{verb} INTO {table} ({columns}, checksum) VALUES ({places}) {end}"
    connection.executemany(statement, ((*row, checksum(*row)) for row in rows))


def select(connection: sqlite3.Connection, table: str, where: str = "1", **values: Any) -> list[Row]:
    """Rows whose checksums are right; ``where`` may end with the order."""
    found = connection.execute(f"SELECT {COLUMNS[table]}, checksum FROM {table} WHERE {where}", values).fetchall()
    rows = [row[:-1] for row in found]
    if any(full[-1] != checksum(*row) for full, row in zip(found, rows, strict=True)):
        raise damaged(f"a row of the table {table}")
    return rows


def check_database(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with a database: SQLite's own checks, and the checksum of every row of every version."""
    wrong = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    for table, number, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        wrong.append(f"{table}: row {number} names a missing row of {parent}")
    for table, columns in COLUMNS.items():
        for total, *row in connection.execute(f"SELECT checksum, {columns} FROM {table}"):
            if total != checksum(*row):
                key = ", ".join(f"{k} {str(v)[:60]}" for k, v in zip(columns.split(", ")[:2], row, strict=False))
                wrong.append(f"{table}: {key} does not match its checksum")
    return wrong


def to_json(value: Any) -> str:
    """Canonical JSON: equal values give equal text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_json(text: str) -> dict[str, Any]:
    """A JSON object."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise FolderError("a JSON object was expected: the database is damaged")
    return value


def damaged(what: str) -> FolderError:
    return FolderError(f"{what} does not match its checksum: the database is damaged (`ergnn inspect --check`)")


@contextmanager
def reading_values(what: str) -> Iterator[None]:
    """Refuse values that no intact database holds, also where their checksum is right."""
    try:
        yield
    except FolderError:
        raise
    except ErgnnError as error:
        raise FolderError(f"{what} cannot be used: {error}") from None
    except MALFORMED as error:
        text = f"{type(error).__name__}: {str(error)[:200]}"
        raise FolderError(f"{what} cannot be read ({text}): the database is damaged") from None


@contextmanager
def wrap_errors(root: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into one line for the user."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # a damaged schema may not even be text
        text = getattr(error, "strerror", None) or str(error)
        if "locked" in text or "busy" in text:
            raise BusyError(f"{root}: the database is locked by another program; try again once it is done") from None
        disk = any(word in text for word in ("full", "I/O error", "readonly", "unable to open"))
        if not disk and not isinstance(error, OSError):
            raise FolderError(f"{root}: the database is damaged ({text}); `ergnn inspect --check` says where") from None
        place = next(path for path in (root, *root.absolute().parents) if path.is_dir())
        if shutil.disk_usage(place).free < 65_536:  # SQLite then says "disk I/O error" of its shared memory
            text = "the disk is full"
        raise FolderError(
            f"{root}: could not be written or read ({text}); the last version is as it was before, and the same "
            "command works once the cause is gone"
        ) from None


def database_path(root: Path) -> Path:
    """The database of a folder, if there is one that can be read."""
    path = root / FILE
    if root.is_file():
        raise FolderError(f"{root}: is a file; a folder that `ergnn init` made is needed")
    if not root.is_dir():
        hint = f"`ergnn init {shlex.quote(str(root))}` makes a learner there"
        raise FolderError(f"{root}: no such folder; {hint}")
    if not os.path.lexists(path):
        if (root / "segments").is_dir() and (root / "versions").is_dir():
            raise FolderError(
                f"{root}: has the format of an earlier ergnn, which this version does not read; make a new folder "
                "(`ergnn init`) and observe the same files again, or `ergnn export` it with the earlier version"
            )
        raise FolderError(f"{root}: holds no learner (there is no {FILE} in it); `ergnn init` makes one")
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise FolderError(f"{path}: is not a plain file")
    return path


def connect(root: Path, *, write: bool = False) -> sqlite3.Connection:
    """A connection to a folder's database, migrated to the newest schema."""
    path = database_path(root)
    with wrap_errors(root):
        connection = _connect(path, "rw")
        try:
            found, newest = read_number(connection, "PRAGMA user_version"), len(migrations())
            if read_number(connection, "PRAGMA application_id") != APPLICATION_ID or found < 1:
                raise FolderError(f"{path}: is not a learner's database")
            if found > newest:
                raise FolderError(
                    f"{path}: has schema {found}; this version of ergnn reads schemas up to {newest}. "
                    "It was written by a newer ergnn: install that one"
                )
            if found < newest:
                migrate(connection)
            if not write:
                connection.execute("PRAGMA query_only = ON")
                connection.execute("BEGIN")
        except BaseException:
            connection.close()
            raise
    return connection


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, timeout=WAIT, isolation_level=None, uri=True, check_same_thread=False)
    for setting in (
        "foreign_keys = ON",
        "trusted_schema = OFF",  # a stranger's database must not run functions
        "cell_size_check = ON",
        "synchronous = FULL",
        "secure_delete = ON",
        "temp_store = MEMORY",
    ):
        connection.execute(f"PRAGMA {setting}")
    return connection


def read_number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


def migrations() -> list[str]:
    """Scripts that lead from schema ``i`` to ``i + 1``; an empty database has schema 0."""
    folder = files("ergnn.folder") / "migrations"
    return [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir(), key=lambda path: path.name)]


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate a database to the newest schema in one transaction."""
    with transaction(connection):
        for number, script in enumerate(migrations(), start=1):
            if number > read_number(connection, "PRAGMA user_version"):
                statement = ""
                for line in script.splitlines(keepends=True):  # `executescript` would end the transaction
                    statement += line
                    if sqlite3.complete_statement(statement):
                        connection.execute(statement)
                        statement = ""
                connection.execute(f"PRAGMA user_version = {number}")


@contextmanager
def created(root: Path) -> Iterator[sqlite3.Connection]:
    """A new database, which exists once the block ends without an error; else the folder is as it was before."""
    existed, beside = root.exists(), root / f"{FILE}.new"
    if existed and (not root.is_dir() or any(not path.name.startswith(beside.name) for path in root.iterdir())):
        raise FolderError(f"{root}: already exists and is not an empty folder")
    try:
        with wrap_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            for path in root.iterdir():
                path.unlink()  # left by an `init` that was killed
            with closing(_connect(beside, "rwc")) as connection:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                migrate(connection)
                with transaction(connection):
                    yield connection
            os.replace(beside, root / FILE)  # closing the last connection has emptied the write-ahead log
    except BaseException:
        for path in root.glob(f"{beside.name}*"):
            path.unlink()
        if not existed and root.is_dir():
            root.rmdir()
        raise


@contextmanager
def writing(root: Path) -> Iterator[sqlite3.Connection]:
    """The only writer's connection; the system frees the lock when the process ends, however it ends."""
    import fcntl  # not on Windows, where everything else can be imported

    database_path(root)
    with wrap_errors(root), open(root / LOCK, "a+", encoding="utf-8", errors="replace", opener=_no_link) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read(200).strip() or "another process"
            raise BusyError(
                f"{root}: is being written by {holder}; wait until it is done (reading goes on meanwhile)"
            ) from None
        lock.truncate(0)
        print(f"process {os.getpid()} on {socket.gethostname()}", file=lock, flush=True)
        with closing(connect(root, write=True)) as connection:
            yield connection
        lock.truncate(0)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
