"""The database of a folder: connections, one writer, transactions, rows with checksums, and versions.

Readers see the version that was current when they opened the database and are never blocked (SQLite's WAL mode). A
writer holds the folder's lock until it is done, since learning takes many transactions.
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
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from ergnn.config.errors import BusyError, ErgnnError, FolderError, similar_file
from ergnn.data.tables.columns import Columns

APPLICATION_ID = 0x65726E6E
"""``ernn`` in ASCII, which identifies a learner's database."""
FILE, LOCK = "learner.sqlite", "writer.lock"
WAIT = 60.0
"""Seconds to wait for a lock of another connection."""
VISIBLE = "added <= :v AND (removed IS NULL OR removed > :v)"
"""Whether a row belongs to version ``:v``."""
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, SafetensorError)
"""Errors of reading a damaged value."""
VERSIONED = ("adjacency", "labels", "nodes", "updates")
"""Tables with rows that versions add and remove."""
LOG_LINES = 10_000
Row = tuple[Any, ...]


def checksum(*values: Any) -> int:
    """CRC-32 of the values of a row; a NULL at its end does not count, since schemas have added columns there."""
    if values[-1] is None:
        return checksum(*values[:-1])
    parts = [value if type(value) is bytes else b"" if value is None else str(value).encode() for value in values]
    return zlib.crc32(b"\x1f".join(parts))


@cache
def columns() -> dict[str, str]:
    """The columns of each table that its checksums cover, in their order: all but ``removed`` and ``checksum``."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript("".join(migrations()))
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE TABLE%checksum%'").fetchall()
        infos = {table: connection.execute(f"PRAGMA table_info({table})").fetchall() for (table,) in tables}
    return {t: ", ".join(row[1] for row in rows if row[1] not in ("removed", "checksum")) for t, rows in infos.items()}


def insert(connection: sqlite3.Connection, table: str, rows: Iterable[Row], verb: str = "INSERT") -> None:
    """Add rows with their checksums."""
    names = columns()[table]
    places = ", ".join("?" * (names.count(",") + 2))
    statement = f"{verb} INTO {table} ({names}, checksum) VALUES ({places})"
    connection.executemany(statement, ((*row, checksum(*row)) for row in rows))


def select(connection: sqlite3.Connection, table: str, where: str = "1", **values: Any) -> list[Row]:
    """Rows with valid checksums; ``where`` may end with the order."""
    full = connection.execute(f"SELECT {columns()[table]}, checksum FROM {table} WHERE {where}", values).fetchall()
    rows = [row[:-1] for row in full]
    if any(total != checksum(*row) for (*_, total), row in zip(full, rows, strict=True)):
        raise damaged(f"a row of the table {table}")
    return rows


def check_database(connection: sqlite3.Connection) -> list[str]:
    """Errors of a database: those that SQLite finds, and rows of any version that do not match their checksums."""
    wrong = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    for table, number, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        wrong.append(f"{table}: row {number} names a missing row of {parent}")
    for table, names in columns().items():
        for total, *row in connection.execute(f"SELECT checksum, {names} FROM {table}"):
            if total != checksum(*row):
                key = ", ".join(f"{k} {str(v)[:60]}" for k, v in zip(names.split(", ")[:2], row, strict=False))
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
    """Refuse invalid values, even if their checksum is valid."""
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
    """Convert errors of SQLite and of the file system to a message of one line."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # a damaged schema may not even be text
        text = getattr(error, "strerror", None) or str(error)
        if "locked" in text or "busy" in text:
            raise BusyError(f"{root}: the database is locked by another program; try again once it is done") from None
        disk = any(word in text for word in ("full", "I/O error", "readonly", "unable to open"))
        if not disk and not isinstance(error, OSError):
            raise FolderError(f"{root}: the database is damaged ({text}); `ergnn inspect --check` says where") from None
        directory = next(path for path in (root, *root.absolute().parents) if path.is_dir())
        if shutil.disk_usage(directory).free < 65_536:  # SQLite then says "disk I/O error" of its shared memory
            text = "the disk is full"
        advice = "the last version is as it was before, and the same command works once the cause is gone"
        raise FolderError(f"{root}: could not be written or read ({text}); {advice}") from None


def database_path(root: Path) -> Path:
    """The path of a folder's database, which must be a regular file."""
    path = root / FILE
    if not root.is_dir():
        if root.is_file():
            raise FolderError(f"{root}: is a file, not a folder")
        hint = f"`ergnn init {shlex.quote(str(root))}` creates a learner there"
        raise FolderError(f"{root}: no such folder{similar_file(root)}; {hint}")
    if not os.path.lexists(path):
        raise FolderError(f"{root}: holds no learner (there is no {FILE} in it); `ergnn init` creates one")
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise FolderError(f"{path}: is not a regular file")
    return path


def connect(root: Path, *, write: bool = False) -> sqlite3.Connection:
    """Connect to a folder's database, and migrate it to the newest schema; one that cannot be written is only read."""
    path = database_path(root)
    with wrap_errors(root):
        writable = write or (os.access(root, os.W_OK) and os.access(path, os.W_OK))
        connection = _connect(path, "rw") if writable else _connect_read_only(path)
        try:
            schema, newest = read_number(connection, "PRAGMA user_version"), len(migrations())
            if read_number(connection, "PRAGMA application_id") != APPLICATION_ID or schema < 1:
                raise FolderError(f"{path}: is not a learner's database")
            if schema > newest:
                text = f"has schema {schema}; this version of ergnn reads schemas up to {newest}"
                raise FolderError(f"{path}: {text}. It was written by a newer ergnn: install that one")
            if schema < newest:
                if not writable:  # migrate a copy
                    stored, connection = connection, _connect(Path("memory"), "memory")
                    stored.backup(connection)
                    stored.close()
                migrate(connection)
            if not write:
                connection.execute("PRAGMA query_only = ON")
                connection.execute("BEGIN")
        except BaseException:
            connection.close()
            raise
    return connection


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Connect without creating files: with the write-ahead log of a process that writes, or else to the file alone."""
    log, shared = (path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))
    alone = not (log.exists() and (shared.exists() or log.stat().st_size))
    return _connect(path, "ro&immutable=1" if alone else "ro")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, timeout=WAIT, isolation_level=None, uri=True, check_same_thread=False)
    for name in ("foreign_keys", "cell_size_check", "secure_delete"):
        connection.execute(f"PRAGMA {name} = ON")
    # The schema of an untrusted database must not call functions.
    for setting in ("trusted_schema = OFF", "synchronous = FULL", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def read_number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


def migrations() -> list[str]:
    """Scripts that migrate schema ``i`` to ``i + 1``; an empty database has schema 0."""
    folder = files("ergnn.folder") / "migrations"
    return [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir(), key=lambda path: path.name)]


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate a database to the newest schema in one transaction."""
    with transaction(connection):
        for number, script in enumerate(migrations(), start=1):
            if number > read_number(connection, "PRAGMA user_version"):
                for statement in script.split(";\n"):  # `executescript` would end the transaction
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")


@contextmanager
def created(root: Path) -> Iterator[sqlite3.Connection]:
    """Create a database, which exists once the block ends without an error; otherwise the folder is not changed."""
    existed, beside = root.exists(), root / f"{FILE}.new"
    if existed and (not root.is_dir() or any(not path.name.startswith(beside.name) for path in root.iterdir())):
        known = os.path.lexists(root / FILE)
        hint = f"; it holds a learner: `ergnn observe {shlex.quote(str(root))} …` updates it" if known else ""
        raise FolderError(f"{root}: already exists and is not an empty folder{hint}")
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
    """Connect as the only writer; the operating system releases the lock if the process is killed."""
    database_path(root)
    opener = lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o644)  # noqa: E731
    with wrap_errors(root), open(root / LOCK, "a+", encoding="utf-8", errors="replace", opener=opener) as lock:
        lock.seek(0)
        holder = lock.read(200).strip() or "another process"
        with locked(lock, f"{root}: is being written by {holder}; wait until it is done (reading is possible)"):
            lock.truncate(0)
            print(f"process {os.getpid()} on {socket.gethostname()}", file=lock, flush=True)
            with closing(connect(root, write=True)) as connection:
                yield connection
            lock.truncate(0)


@contextmanager
def locked(file: Any, message: str, *, wait: bool = False) -> Iterator[None]:
    """Lock a file for this process; if another one has it, wait or raise a :class:`BusyError`."""
    import fcntl  # not on Windows, where everything else can be imported

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise BusyError(message) from None
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits, or rolls back after an error
        yield


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

    @property
    def columns(self) -> Columns:
        """The names of columns that a folder remembers."""
        with reading_values("the names of columns"):
            return Columns().recall(self.state.get("names", {}))


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


def get_tensors(connection: sqlite3.Connection, version: int, kind: str) -> dict[str, Tensor]:
    """The tensors of a safetensors blob; none if there is no blob."""
    rows = select(connection, "blobs", "version = :version AND kind = :kind", version=version, kind=kind)
    return dict(load(rows[0][2])) if rows else {}


def add_log(connection: sqlite3.Connection, action: str, **details: Any) -> None:
    connection.execute("INSERT INTO log VALUES (?, ?, ?)", (now(), action, to_json(details)))
