"""The database of a folder: opening it, one writer, transactions, checksums.

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
from contextlib import contextmanager
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
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError, OverflowError)
"""What reading a damaged value may raise."""


class FolderError(InputError):
    """A learner's folder that is missing, damaged, busy, or of another format."""


class BusyError(FolderError):
    """Another process is writing."""


def checksum(*values: Any) -> int:
    """CRC-32 of the values of a row."""
    parts = [value if type(value) is bytes else b"" if value is None else str(value).encode() for value in values]
    return zlib.crc32(b"\x1f".join(parts))


def insert(
    connection: sqlite3.Connection, table: str, columns: str, rows: Iterable[tuple[Any, ...]], verb: str = "INSERT"
) -> None:
    """Add rows with their checksums; ``columns`` are all but ``removed`` and ``checksum``, in the table's order."""
    places = ", ".join("?" * (columns.count(",") + 2))
    statement = f"{verb} INTO {table} ({columns}, checksum) VALUES ({places})"
    connection.executemany(statement, ((*row, checksum(*row)) for row in rows))


def to_json(value: Any) -> str:
    """Canonical JSON: equal values give equal text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_json(text: str) -> dict[str, Any]:
    """A JSON object."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise FolderError("a JSON object was expected: the database is damaged")
    return value


@contextmanager
def wrap_errors(root: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into one line for the user."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # a damaged schema may not even be text
        text = getattr(error, "strerror", None) or str(error)
        if "locked" in text or "busy" in text:
            raise BusyError(f"{root}: the database is locked by another program; try again once it is done") from None
        if isinstance(error, OSError) or any(
            word in text for word in ("full", "I/O error", "readonly", "unable to open")
        ):
            text = "the disk is full" if _is_full(root) else text  # SQLite says "disk I/O error" of its shared memory
            raise FolderError(
                f"{root}: could not be written or read ({text}); the last version is as it was before, and the same "
                "command works once the cause is gone"
            ) from None
        raise FolderError(f"{root}: the database is damaged ({text}); `ergnn inspect --check` says where") from None


def _is_full(root: Path) -> bool:
    place = next(path for path in (root, *root.absolute().parents) if path.is_dir())
    return shutil.disk_usage(place).free < 65_536  # what SQLite needs for its shared memory


def database_path(root: Path) -> Path:
    """The database of a folder, if there is one that can be read."""
    path = root / FILE
    if root.is_file():
        raise FolderError(f"{root}: is a file; a folder that `ergnn init` made is needed")
    if not root.is_dir():
        raise FolderError(
            f"{root}: there is no such folder; `ergnn init {shlex.quote(str(root))}` makes a learner there"
        )
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
    """A connection to a folder's database, brought to the newest schema."""
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
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", timeout=WAIT, isolation_level=None, uri=True, check_same_thread=False
    )
    for name, value in {
        "foreign_keys": "ON",
        "trusted_schema": "OFF",  # a stranger's database must not run functions
        "cell_size_check": "ON",
        "synchronous": "FULL",
        "secure_delete": "ON",
        "temp_store": "MEMORY",
    }.items():
        connection.execute(f"PRAGMA {name} = {value}")
    return connection


def read_number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


def migrations() -> list[str]:
    """Scripts that lead from schema ``i`` to ``i + 1``; an empty database has schema 0."""
    folder = files("ergnn.folder") / "migrations"
    return [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir(), key=lambda path: path.name)]


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a database to the newest schema, all at once."""
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
    """A new database, which is there once the block ends well; otherwise the folder is as it was before."""
    made = not root.exists()
    beside = root / f"{FILE}.new"
    if not made and (not root.is_dir() or any(not path.name.startswith(beside.name) for path in root.iterdir())):
        raise FolderError(f"{root}: is there already, and is not an empty folder")
    try:
        with wrap_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            for path in root.iterdir():
                path.unlink()  # left by an `init` that was killed
            connection = _connect(beside, "rwc")
            try:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                migrate(connection)
                with transaction(connection):
                    yield connection
            finally:
                connection.close()  # the last connection: all is in one file now
            os.replace(beside, root / FILE)
    except BaseException:
        for path in root.glob(f"{beside.name}*"):
            path.unlink()
        if made and root.is_dir():
            root.rmdir()
        raise


@contextmanager
def writing(root: Path) -> Iterator[sqlite3.Connection]:
    """The only writer's connection; the system frees the lock when the process ends, however it ends."""
    import fcntl  # not on Windows, where everything else can be imported

    database_path(root)
    with wrap_errors(root):
        handle = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "another process"
                raise BusyError(
                    f"{root}: is being written by {holder}; wait until it is done (reading goes on meanwhile)"
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            connection = connect(root, write=True)
            try:
                yield connection
            finally:
                connection.close()
            os.ftruncate(handle, 0)
        finally:
            os.close(handle)


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


def damaged(what: str) -> FolderError:
    return FolderError(f"{what} does not match its checksum: the database is damaged (`ergnn inspect --check`)")


@contextmanager
def reading_values(what: str) -> Iterator[None]:
    """Refuse values that no intact database holds."""
    try:
        yield
    except ErgnnError:
        raise
    except MALFORMED as error:
        text = f"{type(error).__name__}: {str(error)[:200]}"
        raise FolderError(f"{what}: the database is damaged ({text})") from None
