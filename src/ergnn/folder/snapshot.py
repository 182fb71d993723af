"""A version with its graph, its updates and its learner, ready to be asked."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.data.formats.limits import truncate
from ergnn.errors import InputError, UnknownNameError
from ergnn.folder import database, versions
from ergnn.folder.analytic_learner import AnalyticLearner
from ergnn.folder.database import VISIBLE, FolderError, checksum, damaged
from ergnn.folder.graph import Array, StoredGraph
from ergnn.folder.learning import NETWORK_METHODS, Checkpoints, FolderLearner, NetworkLearner
from ergnn.folder.settings import Settings, read_settings
from ergnn.folder.versions import Version

Record = dict[str, Any]
"""What is known of an update: name, counts, classes, task, scores, drift."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a folder knows in one version; it stays readable while newer ones come, until it is closed.

    Args:
        root: the folder.
        version: the row of the version.
        classes: names of the classes.
        records: of the updates.
        graph: the graph.
        learner: the learner, whose nodes are numbers of the whole graph.
    """

    root: Path
    settings: Settings
    version: Version
    classes: list[str]
    records: list[Record]
    graph: StoredGraph
    learner: FolderLearner

    @property
    def connection(self) -> sqlite3.Connection:
        return self.graph.connection

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def members(self, update: int, split: str) -> tuple[Array, Array]:
        """The labeled nodes of an update's split, and their classes."""
        with database.reading_values("the updates"):
            count = int(self.records[update]["members"][split])
        return self.graph.members(update, split, count)

    def held_out(self, samples: int | None = None) -> tuple[Array, Array, Array]:
        """The test nodes of all updates, their classes and updates; at most ``samples`` in all."""
        from ergnn.folder.scoring import _sample

        parts = {number: self.members(number, "test") for number in range(len(self.records))}
        parts = {number: found for number, found in parts.items() if len(found[0])}
        if samples is not None and parts:
            share = max(1, samples // len(parts))
            parts = {number: _sample(found, share, self.settings.seed, number) for number, found in parts.items()}
        none = np.empty(0, np.int64)
        nodes, classes = (np.concatenate([none, *(found[i] for found in parts.values())]) for i in range(2))
        return nodes, classes, np.repeat(np.array(list(parts), np.int64), [len(found[0]) for found in parts.values()])

    def learn(self, update: int, checkpoints: Checkpoints | None = None) -> Record:
        """Let the learner learn an update that is in the graph; returns what is to be added to its record."""
        train, val = self.members(update, "train"), self.members(update, "val")
        return self.learner.learn(self.graph, update, train, val, self.classes, checkpoints)


def make_learner(settings: Settings) -> FolderLearner:
    """A learner that has learned nothing yet, by the kind of its method."""
    method, known = settings.learner.method, ("analytic", *NETWORK_METHODS)
    if method not in known:
        raise UnknownNameError("method", method, known)
    try:
        return AnalyticLearner(settings) if method == "analytic" else NetworkLearner(settings)
    except TypeError as error:
        raise InputError(f"the settings cannot be used: {error}") from None


def open_snapshot(root: Path, number: int | None = None, connection: sqlite3.Connection | None = None) -> Snapshot:
    """Read a version, by default the current one; a writer gives its connection."""
    if connection is None:
        connection = database.connect(root)
        try:
            return open_snapshot(root, number, connection)
        except BaseException:
            connection.close()
            raise
    version = versions.read_version(connection, versions.current_version(connection)[0] if number is None else number)
    settings = read_settings(connection)
    learner = make_learner(settings)
    learner.read(connection, version)
    graph = StoredGraph.of(connection, version)
    snapshot = Snapshot(
        root, settings, version, _classes(connection, version), read_records(connection, version), graph, learner
    )
    if not set(learner.classes()) <= set(range(len(snapshot.classes))):
        raise FolderError(f"{root}: the learner has a class without a name: the database is damaged")
    return snapshot


def _classes(connection: sqlite3.Connection, version: Version) -> list[str]:
    query = "SELECT class, name, added, checksum FROM classes WHERE added <= ? ORDER BY class"
    rows = connection.execute(query, (version.number,)).fetchall()
    if [row[0] for row in rows] != list(range(version.classes)) or any(row[3] != checksum(*row[:3]) for row in rows):
        raise damaged("the list of classes")
    return [row[1] for row in rows]


def read_records(connection: sqlite3.Connection, version: Version) -> list[Record]:
    """The records of the updates of a version."""
    query = f"SELECT number, added, name, record, checksum FROM updates WHERE {VISIBLE} ORDER BY number"
    rows = connection.execute(query, {"v": version.number}).fetchall()
    if [row[0] for row in rows] != list(range(version.updates)) or any(row[4] != checksum(*row[:4]) for row in rows):
        raise damaged("the list of updates")
    with database.reading_values("the updates"):
        return [{"update": number, "name": name, **database.from_json(text)} for number, _, name, text, _ in rows]


def write_records(connection: sqlite3.Connection, records: list[Record], version: int) -> None:
    """Add records of updates, or replace them, from a version on."""
    for record in records:
        number, name = record["update"], record["name"]
        rest = {key: value for key, value in record.items() if key not in ("update", "name")}
        query = "UPDATE updates SET removed = ? WHERE number = ? AND removed IS NULL"
        connection.execute(query, (version, number))
        database.insert(
            connection, "updates", "number, added, name, record", [(number, version, name, database.to_json(rest))]
        )


def clear_class_names(snapshot: Snapshot) -> None:
    """Take the names from classes that no label has and that the model does not know; their numbers stay in use.

    Call it in a transaction, with the only version that is kept.
    """
    connection, number = snapshot.connection, snapshot.version.number
    used = {row[0] for row in connection.execute("SELECT DISTINCT class FROM labels")} | set(snapshot.learner.classes())
    gone = {c: name for c, name in enumerate(snapshot.classes) if c not in used}
    for c in gone:
        connection.execute("DELETE FROM classes WHERE class = ?", (c,))
        database.insert(connection, "classes", "class, name, added", [(c, f"(removed class {c})", number)])
    names = set(gone.values())
    for record in snapshot.records:
        notes = [note for note in record["notes"] if not any(truncate(name) in note for name in names)]
        kept = [name for name in record["classes"] if name not in names]
        if (kept, notes) != (record["classes"], record["notes"]):
            connection.execute("DELETE FROM updates WHERE number = ?", (record["update"],))
            write_records(connection, [{**record, "classes": kept, "notes": notes}], number)


def write_snapshot(snapshot: Snapshot, number: int, **values: Any) -> Snapshot:
    """Make a snapshot's learner, with the graph as it is in the database, the next version; call in a transaction.

    Args:
        number: of the version.
        values: fields of :class:`Version` that differ from the snapshot's.
    """
    state = {**snapshot.version.state, **values.pop("state", {}), "learner": snapshot.learner.state()}
    remembered = len(snapshot.learner.buffer)
    version = replace(
        snapshot.version, **values, number=number, time=versions.now(), remembered=remembered, state=state
    )
    versions.write_version(snapshot.connection, version)
    snapshot.learner.write(snapshot.connection, number)
    return replace(snapshot, version=version)
