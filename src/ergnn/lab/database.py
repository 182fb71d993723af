"""The table of finished runs, on SQLite or PostgreSQL, using SQLAlchemy Core.

The single row of table ``store`` contains the schema version. A new store gets the tables as defined here; opening a
store of an earlier version applies the missing steps of :data:`MIGRATIONS`; a store of a later version is rejected.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ergnn.config.errors import InputError
from ergnn.lab.stored_run import COLUMNS, scalar_type

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE INDEX IF NOT EXISTS runs_by_dataset ON runs (dataset)",
        "CREATE INDEX IF NOT EXISTS runs_by_method ON runs (method, selector)",
        "DROP TABLE IF EXISTS migrations",
    ),
    (
        "ALTER TABLE runs ADD COLUMN data TEXT",
        "UPDATE runs SET data = CASE WHEN notes LIKE '%NOT MNIST%' THEN 'permuted-digits' ELSE dataset END",
    ),
)
"""Entry i migrates a store from schema i + 1 to i + 2, on both SQLite and PostgreSQL."""
SCHEMA_VERSION = 1 + len(MIGRATIONS)
BUSY_SECONDS = 60.0
"""Seconds that SQLite waits for another process to finish writing."""
LOCK = 0x6572676E6E
"""PostgreSQL advisory lock under which tables are created and migrated."""


class RunTable:
    """The table ``runs`` of one store; its columns are :data:`ergnn.lab.stored_run.COLUMNS`.

    Args:
        store: path of a SQLite file, ``:memory:``, or ``postgresql://user:password@host:port/database``.
        create: create a missing store; otherwise it is an error.

    Attributes:
        name: the store's name in messages, without a password.
    """

    def __init__(self, store: str | Path, *, create: bool = True) -> None:
        try:
            import sqlalchemy
        except ImportError as error:
            raise InputError(
                f"a run store needs SQLAlchemy ({error}); install it with: pip install sqlalchemy"
            ) from None
        self._sql: Any = sqlalchemy
        url, self.name = self._url(store)
        options: dict[str, Any] = {}
        self._is_sqlite = url.get_backend_name() == "sqlite"
        if not self._is_sqlite:  # one connection, tested before each use: a unit of work may take hours
            options = {"pool_size": 1, "max_overflow": 0, "pool_pre_ping": True}
        elif self.name != ":memory:":
            if not create and not Path(self.name).is_file():
                raise InputError(f"{self.name}: no such run store")
            Path(self.name).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._engine = sqlalchemy.create_engine(url, **options)
        except ImportError as error:
            raise InputError(
                f"a run store on PostgreSQL needs psycopg ({error}); install it with: pip install 'ergnn[postgresql]'"
            ) from None
        if self._is_sqlite:
            sqlalchemy.event.listen(self._engine, "connect", _configure_sqlite)
        self._runs = _runs_table(sqlalchemy)
        try:
            self._migrate(create)
        except BaseException:
            self._engine.dispose()
            raise

    def insert(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Insert all rows or none, except those whose key exists already; return how many were new."""
        from sqlalchemy.dialects import postgresql, sqlite

        if not rows:
            return 0
        insert: Any = sqlite.insert if self._is_sqlite else postgresql.insert
        statement = insert(self._runs).on_conflict_do_nothing(index_elements=["key"]).returning(self._runs.c.key)
        # sorted, so that two processes that insert the same rows cannot deadlock
        ordered = sorted((dict(row) for row in rows), key=lambda row: str(row["key"]))
        with self._writing() as connection:
            return len(connection.execute(statement, ordered).all())

    def select(self, where: Mapping[str, Sequence[Any]]) -> list[Mapping[str, Any]]:
        """Return the rows whose columns have one of the given values; all rows if ``where`` is empty."""
        tests = [self._runs.c[name].in_(list(values)) for name, values in where.items()]
        with self._errors(), self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(self._sql.select(self._runs).where(*tests)).mappings()]

    def count(self) -> int:
        query = self._sql.select(self._sql.func.count()).select_from(self._runs)
        with self._errors(), self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def close(self) -> None:
        self._engine.dispose()

    def _url(self, store: str | Path) -> tuple[Any, str]:
        """Return the SQLAlchemy URL, and the name for messages."""
        text = str(store)
        if not isinstance(store, str) or "://" not in text:
            return self._sql.URL.create("sqlite", database=text), text
        scheme = text.partition("://")[0]
        if scheme not in ("postgresql", "postgresql+psycopg"):
            raise InputError(
                f"a run store cannot be at {scheme}://…; use a file, or a URL that starts with postgresql://"
            )
        try:
            url = self._sql.make_url(text).set(drivername="postgresql+psycopg")
        except self._sql.exc.ArgumentError:
            raise InputError(
                "cannot parse the URL of the run store; use postgresql://user@host:port/database"
            ) from None
        return url, url.set(drivername="postgresql").render_as_string(hide_password=True)

    def _migrate(self, create: bool) -> None:
        sql, store = self._sql, self._runs.metadata.tables["store"]
        with self._writing() as connection:
            if not self._is_sqlite:
                connection.execute(sql.select(sql.func.pg_advisory_xact_lock(LOCK)))
            if not sql.inspect(connection).has_table("store"):
                if not create:
                    raise InputError(f"{self.name}: no such run store")
                store.metadata.create_all(connection)
                connection.execute(store.insert().values(schema=SCHEMA_VERSION))
            version = connection.execute(sql.select(store.c.schema)).scalar_one()
            if not 1 <= version <= SCHEMA_VERSION:
                raise InputError(
                    f"{self.name}: a run store of schema {version}; this version of ergnn reads 1 to {SCHEMA_VERSION}"
                )
            for statement in (statement for step in MIGRATIONS[version - 1 :] for statement in step):
                connection.execute(sql.text(statement))
            if version < SCHEMA_VERSION:
                connection.execute(store.update().values(schema=SCHEMA_VERSION))

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Open a transaction; SQLite takes its write lock at the start, since it does not wait for a later upgrade."""
        with self._errors(), self._engine.begin() as connection:
            if self._is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._sql.exc.SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            reason = " ".join(str(cause).split())
            if getattr(cause, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR")):
                raise InputError(
                    f"{self.name}: could not be written or read ({reason}; is the disk full?); stored runs are as they "
                    "were, and the same command works once the cause is gone"
                ) from error
            raise InputError(f"{self.name}: not a usable run store ({reason})") from error


def _runs_table(sql: Any) -> Any:
    kinds = {"str": sql.Text, "int": sql.BigInteger, "bool": sql.BigInteger, "float": sql.Double}
    columns = [
        sql.Column(name, kinds[scalar_type(kind) or "str"], primary_key=name == "key", nullable=kind.endswith("| None"))
        for name, kind in COLUMNS.items()
    ]
    indexes = [sql.Index("runs_by_dataset", "dataset"), sql.Index("runs_by_method", "method", "selector")]
    metadata = sql.MetaData()
    sql.Table("store", metadata, sql.Column("schema", sql.Integer, nullable=False))
    return sql.Table("runs", metadata, *columns, *indexes)


def _configure_sqlite(connection: Any, _: object) -> None:
    """Use explicit transactions and a write-ahead log, so that several processes may write at once."""
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * BUSY_SECONDS)}")
    deadline = time.monotonic() + BUSY_SECONDS
    while True:  # switching to WAL ignores the timeout
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    connection.execute("PRAGMA synchronous = NORMAL")
