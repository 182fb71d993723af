"""The run store: finished runs, which are not repeated, in a SQLite file or on a PostgreSQL server.

A *member* is one seed and class order of a configuration: a row of the table ``runs``. Its key is the SHA-256 of the
canonical JSON of all settings that determine its results (see :func:`member_key`). Several processes may write at once;
rows are written in transactions, so that a killed process loses only unfinished work. The single row of the table
``store`` contains the schema version; a store of another version is rejected.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite

from ergnn import __version__
from ergnn.config.errors import InputError
from ergnn.lab.config import RunConfig, member_config, member_key
from ergnn.lab.result import COLUMNS, Member, RunResult, SeedResult, StoredRun
from ergnn.lab.run import members_of, peak_memory_mb
from ergnn.learning.metrics import AccuracyMatrix
from ergnn.learning.resolve import options_in_effect

SCHEMA_VERSION = 3
BUSY_SECONDS = 60.0
"""Seconds that SQLite waits for another process to finish writing."""
LOCK = 0x6572676E6E
"""PostgreSQL advisory lock under which tables are created."""
TYPES: dict[str, Any] = {"text": sql.Text, "json": sql.Text, "int": sql.BigInteger, "float": sql.Double}
METADATA = sql.MetaData()
STORE = sql.Table("store", METADATA, sql.Column("schema", sql.Integer, nullable=False))
RUNS = sql.Table(
    "runs",
    METADATA,
    *(
        sql.Column(name, TYPES[kind.rstrip("?")], primary_key=name == "key", nullable=kind.endswith("?"))
        for name, kind in COLUMNS.items()
    ),
    sql.Index("runs_by_dataset", "dataset"),
    sql.Index("runs_by_method", "method", "selector"),
)
JSON_COLUMNS = [name for name, kind in COLUMNS.items() if kind.startswith("json")]


class RunStore(AbstractContextManager["RunStore"]):
    """Finished runs in a SQLite file or on a PostgreSQL server.

    Args:
        path: the file, ``:memory:``, or ``postgresql://user:password@host:port/database``.
        create: create a missing file (with its folder) or missing tables; otherwise a missing store is an error.

    Attributes:
        path: the store's name in messages, without a password.

    >>> with RunStore(":memory:") as store:
    ...     len(store.missing(RunConfig(seeds=3).resolved()))
    3
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        url, self.path = _url(path)
        options: dict[str, Any] = {"connect_args": {"isolation_level": None, "timeout": BUSY_SECONDS}}
        self._is_sqlite = url.get_backend_name() == "sqlite"
        if not self._is_sqlite:  # one connection, tested before each use: a unit of work may take hours
            options = {"pool_size": 1, "max_overflow": 0, "pool_pre_ping": True}
        elif self.path != ":memory:":
            if not create and not Path(self.path).is_file():
                raise InputError(f"{self.path}: no such run store")
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._engine = sql.create_engine(url, **options)
        except ImportError as error:
            raise InputError(
                f"a run store on PostgreSQL needs psycopg ({error}); install it with: pip install 'ergnn[postgresql]'"
            ) from None
        try:
            self._open(create)
        except BaseException:
            self.close()
            raise

    def missing(self, config: RunConfig) -> list[Member]:
        """Return the seed and class order of the unfinished members of a resolved configuration."""
        finished = self.finished(config)
        return [member for member in members_of(config) if member not in finished]

    def put_all(self, config: RunConfig, results: Sequence[SeedResult], origin: Mapping[str, Any] | None = None) -> int:
        """Store finished members in one transaction, except those that are stored already; return how many were new.

        Members that were trained together are stored together, so an interrupted program resumes with the same batches
        and gives bitwise the same results.

        Args:
            origin: :func:`origin_here` of the process that computed them; by default of this one.
        """
        if not results:
            return 0
        origin = origin or origin_here(str(config.learner.device))
        # sorted, so that two processes that insert the same rows cannot deadlock
        rows = sorted((_row(config, result, origin) for result in results), key=lambda row: str(row["key"]))
        insert: Any = sqlite.insert if self._is_sqlite else postgresql.insert
        statement = insert(RUNS).on_conflict_do_nothing(index_elements=["key"]).returning(RUNS.c.key)
        with self._writing() as connection:
            return len(connection.execute(statement, rows).all())

    def runs(self, **filters: Any) -> list[StoredRun]:
        """Return sorted runs; a filter is a column with one value or several.

        ``store.runs(dataset="cora", selector=["mf", "mf*"])``; ``class_order`` is the number of the class order.
        """
        for name in filters.keys() - COLUMNS.keys():
            raise InputError(f"runs cannot be filtered by {name!r}; choose among: {', '.join(COLUMNS)}")
        tests = [
            RUNS.c[name].in_(wanted if isinstance(wanted, list | tuple) else [wanted])
            for name, wanted in filters.items()
        ]
        with self._errors(), self._engine.connect() as connection:
            rows = connection.execute(sql.select(RUNS).where(*tests)).mappings()
            return sorted((_stored_run(dict(row)) for row in rows), key=_sort_key)

    def finished(self, config: RunConfig) -> dict[Member, StoredRun]:
        """Return the finished runs of a resolved configuration, in the order of :func:`ergnn.lab.run.members_of`."""
        members = members_of(config)
        runs = self.runs(key=[member_key(config, *member) for member in members])
        by_member = {(run.seed, run.order): run for run in runs}
        return {member: by_member[member] for member in members if member in by_member}

    def result(self, config: RunConfig) -> RunResult:
        """Return the result of :func:`ergnn.lab.run.run`, from runs that are all finished; seconds are summed."""
        runs, count = tuple(self.finished(config).values()), len(members_of(config))
        if len(runs) < count:
            raise InputError(
                f"{self.path}: {count - len(runs)} of {count} runs of {config.dataset}, {config.learner.backbone}, "
                f"{config.learner.method} are not finished"
            )
        return RunResult(config, runs, sum(run.seconds for run in runs), max(run.peak_memory_mb for run in runs))

    def __len__(self) -> int:
        with self._errors(), self._engine.connect() as connection:
            return int(connection.execute(sql.select(sql.func.count()).select_from(RUNS)).scalar_one())

    def close(self) -> None:
        self._engine.dispose()

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _open(self, create: bool) -> None:
        """Check the schema version, or create the tables."""
        with self._writing() as connection:
            if not self._is_sqlite:
                connection.execute(sql.select(sql.func.pg_advisory_xact_lock(LOCK)))
            if not sql.inspect(connection).has_table("store"):
                if not create:
                    raise InputError(f"{self.path}: no such run store")
                METADATA.create_all(connection)
                connection.execute(STORE.insert().values(schema=SCHEMA_VERSION))
            version = connection.execute(sql.select(STORE.c.schema)).scalar_one()
            if version != SCHEMA_VERSION:
                raise InputError(
                    f"{self.path}: a run store of schema {version}; this version of ergnn reads {SCHEMA_VERSION}"
                )

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
        except sql.exc.SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            reason = " ".join(str(cause).split())
            if getattr(cause, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR")):
                raise InputError(
                    f"{self.path}: could not be written or read ({reason}; is the disk full?); stored runs are as they "
                    "were, and the same command works once the cause is gone"
                ) from error
            raise InputError(f"{self.path}: not a usable run store ({reason})") from error


def _url(store: str | Path) -> tuple[Any, str]:
    """Return the SQLAlchemy URL, and the name for messages."""
    text = str(store)
    scheme, separator, _ = text.partition("://")
    if isinstance(store, Path) or not separator:
        return sql.URL.create("sqlite", database=text), text
    if scheme not in ("postgresql", "postgresql+psycopg"):
        raise InputError(f"a run store cannot be at {scheme}://…; use a file, or a URL that starts with postgresql://")
    try:
        url = sql.make_url(text).set(drivername="postgresql+psycopg")
    except sql.exc.ArgumentError:
        raise InputError("cannot parse the URL of the run store; use postgresql://user@host:port/database") from None
    return url, url.set(drivername="postgresql").render_as_string(hide_password=True)


def _row(config: RunConfig, result: SeedResult, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all columns; those that are not scalars as JSON."""
    learner, options = config.learner, options_in_effect(config.learner)
    values: dict[str, Any] = {
        **vars(result),
        **origin,
        "key": member_key(config, result.seed, result.order),
        "config": member_config(config),
        **{name: getattr(config, name) for name in ("dataset", "protocol", "edges")},
        **{name: getattr(learner, name) for name in ("backbone", "method", "head")},
        **{name: options.get(name) for name in ("selector", "per_class")},
        "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    row = StoredRun(**values).to_dict() | {"leaky": int(result.leaky)}
    return row | {name: json.dumps(row[name], default=_plain) for name in JSON_COLUMNS if row[name] is not None}


def _stored_run(row: dict[str, Any]) -> StoredRun:
    """Build a run from the values of all columns."""
    row |= {name: json.loads(row[name]) for name in JSON_COLUMNS if row[name] is not None}
    row["matrix"] = AccuracyMatrix(row["matrix"], row.pop("metric"))
    row["order"], row["leaky"] = row.pop("class_order"), bool(row["leaky"])
    return StoredRun(**row)


def _sort_key(run: StoredRun) -> tuple[Any, ...]:
    kind = (run.dataset, run.protocol, run.backbone, run.method, run.selector or "", run.per_class or 0)
    return (*kind, json.dumps(run.config, sort_keys=True), run.order, run.seed)


def _plain(value: Any) -> Any:
    """Convert NumPy and torch values for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


def origin_here(device: str) -> dict[str, Any]:
    """Return the columns that describe a computation in this process."""
    facts = {"code_version": __version__, "machine": machine_facts(device)}
    return {**facts, "peak_memory_mb": peak_memory_mb(device)}


@cache
def machine_facts(device: str = "cpu") -> dict[str, Any]:
    """Return facts about the machine that are needed to interpret times and memory."""
    import torch

    cuda = torch.device(device).type == "cuda"
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
    }
