"""Runs on a PostgreSQL server, for many writers on many machines; the tables of :mod:`.sqlite` over again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib import import_module
from typing import Any

from ergnn.data.formats.boundary import extra
from ergnn.errors import InputError
from ergnn.experiments.keys import STORE_SCHEMA
from ergnn.experiments.stored_run import COLUMNS
from ergnn.experiments.stores.migrations import MIGRATIONS, MIGRATIONS_TABLE, wrong_schema

LOCK = 0x6572676E6E
"""Of the advisory lock under which tables are made and migrated: one program at a time."""


class PostgresqlTable:
    """See :class:`ergnn.experiments.stores.RunTable`.

    Args:
        url: ``postgresql://user:password@host:port/database?…``, as libpq has it.
        create: whether the tables may be made.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        self._sql: Any = extra("sqlalchemy", "postgresql", "a run store on PostgreSQL")
        extra("psycopg", "postgresql", "a run store on PostgreSQL")
        try:
            parsed = self._sql.engine.make_url(url).set(drivername="postgresql+psycopg")
        except self._sql.exc.ArgumentError:
            raise InputError("the run store's URL cannot be read; use postgresql://user@host:port/database") from None
        self.name = parsed.set(drivername="postgresql").render_as_string(hide_password=True)
        # one connection, asked whether it is still alive before each use: a unit of work may take hours
        self._engine = self._sql.create_engine(parsed, pool_size=1, max_overflow=0, pool_pre_ping=True)
        self._runs = _table(self._sql)
        try:
            self._prepare(create)
        except BaseException:
            self._engine.dispose()
            raise

    def insert(self, rows: Sequence[Mapping[str, Any]]) -> int:
        if not rows:
            return 0
        insert = import_module("sqlalchemy.dialects.postgresql").insert
        statement = insert(self._runs).on_conflict_do_nothing(index_elements=["key"]).returning(self._runs.c.key)
        # by key: two programs that bring the same rows wait for each other, and never each for the other
        ordered = sorted((dict(row) for row in rows), key=lambda row: str(row["key"]))
        with self._transaction() as connection:
            return len(connection.execute(statement, ordered).all())

    def select(self, where: Mapping[str, Sequence[Any]]) -> list[Sequence[Any]]:
        query = self._sql.select(self._runs).where(
            *(self._runs.c[name].in_(list(values)) for name, values in where.items())
        )
        with self._transaction() as connection:
            return [tuple(row) for row in connection.execute(query)]

    def count(self) -> int:
        with self._transaction() as connection:
            return int(connection.execute(self._sql.select(self._sql.func.count()).select_from(self._runs)).scalar())

    def close(self) -> None:
        self._engine.dispose()

    def _prepare(self, create: bool) -> None:
        text = self._sql.text
        with self._transaction() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK})
            if not self._sql.inspect(connection).has_table("store"):
                if not create:
                    raise InputError(f"{self.name}: there is no such run store")
                connection.execute(text("CREATE TABLE store (schema INTEGER NOT NULL)"))
                connection.execute(text("INSERT INTO store VALUES (:schema)"), {"schema": STORE_SCHEMA})
                self._runs.create(connection)
            schema = connection.execute(text("SELECT schema FROM store")).scalar()
            if schema != STORE_SCHEMA:
                raise InputError(wrong_schema(self.name, schema, STORE_SCHEMA))
            if not self._sql.inspect(connection).has_table("migrations"):  # who may only read makes nothing
                connection.execute(text(MIGRATIONS_TABLE))
            taken = set(connection.execute(text("SELECT number FROM migrations")).scalars())
            for step in MIGRATIONS:
                if step.number not in taken:
                    connection.execute(text(step.statement))
                    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
                    row = {"number": step.number, "what": step.what, "now": now}
                    connection.execute(text("INSERT INTO migrations VALUES (:number, :what, :now)"), row)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except self._sql.exc.SQLAlchemyError as error:
            reason = " ".join(str(getattr(error, "orig", None) or error).split())
            raise InputError(f"{self.name}: not a run store that can be used ({reason})") from error


def _table(sql: Any) -> Any:
    """The table of runs as SQLAlchemy has it: the same columns, with room for large numbers."""
    kinds = {"TEXT": sql.Text, "INTEGER": sql.BigInteger, "REAL": sql.Double}
    columns = []
    for name, kind in COLUMNS.items():
        first, _, rest = kind.partition(" ")
        columns.append(sql.Column(name, kinds[first], primary_key=rest == "PRIMARY KEY", nullable=rest == ""))
    return sql.Table("runs", sql.MetaData(), *columns)
