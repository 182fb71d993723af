"""Snapshots in the database: reading a version, and writing the next one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ergnn.config.errors import FolderError, InputError, truncate
from ergnn.data.tables.node_tables import SPLITS
from ergnn.folder import base_snapshot as snapshot
from ergnn.folder import database, versions
from ergnn.folder.database import VISIBLE, damaged, from_json, insert, reading_values, select, to_json
from ergnn.folder.graph import StoredGraph, write_update
from ergnn.folder.learners import StoredAnalytic, StoredNetwork
from ergnn.folder.settings import Settings
from ergnn.folder.update import Update
from ergnn.learning.evaluation import Record

FolderLearner = StoredNetwork | StoredAnalytic


@dataclass(frozen=True, eq=False)
class Snapshot(snapshot.Snapshot):
    """A version of a folder, which can be read while newer ones are written; a ``with`` statement closes it."""

    graph: StoredGraph
    learner: FolderLearner

    @property
    def connection(self) -> sqlite3.Connection:
        return self.graph.connection

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with database.wrap_errors(self.root):
            self.connection.close()
            if error is not None:
                raise error


def make_learner(settings: Settings) -> FolderLearner:
    """Create a learner that has learned nothing yet."""
    try:
        return StoredAnalytic(settings) if settings.closed_form else StoredNetwork(settings)
    except TypeError as error:
        raise InputError(f"invalid settings: {error}") from None


def read_settings(connection: sqlite3.Connection) -> Settings:
    """Read the settings; those that an earlier version did not have get their defaults."""
    with reading_values("the settings"):
        return Settings.from_settings({name: json.loads(text) for name, text in select(connection, "settings")})


def open_snapshot(root: Path, number: int | None = None, connection: sqlite3.Connection | None = None) -> Snapshot:
    """Read a version, by default the current one; a writer passes its connection."""
    if connection is None:
        connection = database.connect(root)
        try:
            return open_snapshot(root, number, connection)
        except BaseException:
            connection.close()
            raise
    settings = read_settings(connection)
    learner = make_learner(settings)
    number = versions.current_version(connection)[0] if number is None else number
    with reading_values(f"version {number}"):
        version = versions.read_version(connection, number)
        learner.read(connection, version)
        classes = _numbered(connection, "classes", "added <= :v ORDER BY class", number, version.classes)
        updates = _numbered(connection, "updates", f"{VISIBLE} ORDER BY number", number, version.updates)
        names = [row[1] for row in classes]
        if not set(learner.classes()) <= set(range(len(names))):
            raise FolderError(f"{root}: the learner has a class without a name: the database is damaged")
        records = [{"update": row[0], "name": row[2]} for row in updates]
        records = [
            check_record({**own, **from_json(row[3]), **own}, names) for own, row in zip(records, updates, strict=True)
        ]
        return Snapshot(root, settings, version, names, records, StoredGraph(connection, version), learner)


def check_record(record: Record, classes: list[str]) -> Record:
    """Refuse a record of an update that does not count its nodes, or that names unknown classes."""
    if not all(type(record["members"][split]) is int for split in SPLITS):
        raise TypeError("a record does not count its nodes")
    if not set(record.get("classes", ())) <= set(classes):
        raise ValueError("a record names an unknown class")
    return record


def _numbered(connection: sqlite3.Connection, table: str, where: str, version: int, count: int) -> list[database.Row]:
    """Rows that are numbered from 0."""
    rows = select(connection, table, where, v=version)
    if len(rows) != count or [row[0] for row in rows] != list(range(len(rows))):
        raise damaged(f"the table {table}")
    return rows


def stage_update(base: Snapshot, update: Update, name: str, digest: str) -> dict[str, Any]:
    """Add an update to the database as part of the next version, which is not current yet."""
    record, fields = base.grown(update, name)
    fields["state"] = {**fields["state"], "digest": digest}
    number, names = versions.current_version(base.connection)[1] + 1, [*base.classes, *update.classes]
    staged = {"version": number, "digest": digest, "record": record, "classes": names, "fields": fields}
    with database.transaction(base.connection):
        versions.drop_after(base.connection, base.version.number)
        write_update(base.connection, base.graph, update, number, record["update"])
        insert(base.connection, "progress", [(1, number, to_json(staged))])
    return staged


def read_staged(connection: sqlite3.Connection) -> dict[str, Any] | None:
    """The update that is not finished, if any."""
    with reading_values("the unfinished update"):
        staged = [from_json(row[2]) for row in select(connection, "progress")]
    return staged[0] if staged else None


def write_snapshot(snapshot: Snapshot, number: int, records: Iterable[Record] = (), **values: Any) -> None:
    """Make a learner, with the graph as it is in the database, the next version; call it in a transaction.

    Args:
        snapshot: a snapshot with this learner.
        number: number of the version.
        records: records of updates that are new or have changed.
        values: fields of the version that differ from the snapshot's.
    """
    connection, learner = snapshot.connection, snapshot.learner
    state = {**snapshot.version.state, **values.pop("state", {}), "learner": learner.state()}
    sizes = {**values, "remembered": len(learner.buffer)}
    version = replace(snapshot.version, **sizes, number=number, time=versions.now(), state=state)
    insert(connection, "versions", [(*list(vars(version).values())[:-1], to_json(state))])
    versions.set_current(connection, number, number)
    learner.write(connection, number)
    write_records(connection, records, number)
    versions.drop_before(connection, versions.kept_versions(connection)[-snapshot.settings.keep :][0])


def write_records(connection: sqlite3.Connection, records: Iterable[Record], version: int) -> None:
    """Add records of updates, or replace them, from a version on."""
    for record in records:
        rest = {key: value for key, value in record.items() if key not in ("update", "name")}
        query = "UPDATE updates SET removed = ? WHERE number = ? AND removed IS NULL"
        connection.execute(query, (version, record["update"]))
        insert(connection, "updates", [(record["update"], version, record["name"], to_json(rest))])


def clear_class_names(snapshot: Snapshot) -> None:
    """Remove the names of classes that neither a label nor the model has; their numbers stay in use.

    Call it in a transaction, with the only version that is kept.
    """
    connection, number = snapshot.connection, snapshot.version.number
    used = {row[0] for row in connection.execute("SELECT DISTINCT class FROM labels")} | set(snapshot.learner.classes())
    gone = {c: name for c, name in enumerate(snapshot.classes) if c not in used}
    for c in gone:
        connection.execute("DELETE FROM classes WHERE class = ?", (c,))
    insert(connection, "classes", ((c, f"(removed class {c})", number) for c in gone))
    names = set(gone.values())
    for record in snapshot.records:
        notes = [note for note in record["notes"] if not any(truncate(name) in note for name in names)]
        kept = [name for name in record["classes"] if name not in names]
        if (kept, notes) != (record["classes"], record["notes"]):
            connection.execute("DELETE FROM updates WHERE number = ?", (record["update"],))
            write_records(connection, [{**record, "classes": kept, "notes": notes}], number)
