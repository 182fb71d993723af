"""A version with its graph, its updates and its learner."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.data.formats.limits import truncate
from ergnn.errors import InputError
from ergnn.evaluation import Record
from ergnn.folder import database, versions
from ergnn.folder.analytic_learner import AnalyticLearner
from ergnn.folder.database import VISIBLE, FolderError, damaged, from_json, insert, reading_values, select, to_json
from ergnn.folder.graph import Array, StoredGraph
from ergnn.folder.network_learner import Checkpoints, NetworkLearner
from ergnn.folder.settings import Settings, read_settings
from ergnn.folder.versions import Version
from ergnn.methods import METHODS

FolderLearner = NetworkLearner | AnalyticLearner


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a folder knows in one version; it stays readable while newer ones come, until it is closed.

    Args:
        root: the folder.
        settings: the folder's settings.
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
        nodes, classes = self.graph.members(update, split)
        with reading_values("the updates"):
            if len(nodes) != self.records[update]["members"][split]:
                raise damaged(f"the {split} nodes of update {update + 1}")
        return nodes, classes

    def pooled_members(self, updates: Iterable[int], split: str) -> tuple[Array, Array]:
        """The labeled nodes of a split of several updates, and their classes."""
        nodes, classes = (np.concatenate(part) for part in zip(*(self.members(u, split) for u in updates), strict=True))
        return nodes, classes

    def held_out(self, samples: int | None = None) -> tuple[Array, Array, Array]:
        """The test nodes of all updates, their classes and updates.

        Args:
            samples: the most nodes in all; if there are more, each update gives its share in an order drawn by seed and
                update, so that a smaller sample is part of a larger one.
        """
        nodes, classes, updates = self.graph.split("test")
        counts = np.bincount(updates, minlength=len(self.records))
        with reading_values("the updates"):
            if counts.tolist() != [record["members"]["test"] for record in self.records]:
                raise damaged("the test nodes")
        share = len(nodes) if samples is None else max(1, samples // max(1, int((counts > 0).sum())))
        parts = [np.empty(0, np.int64)]
        for number in np.flatnonzero(counts):
            mine = np.flatnonzero(updates == number)
            if len(mine) > share:
                mine = mine[np.random.default_rng([self.settings.seed, int(number)]).permutation(len(mine))[:share]]
            parts.append(mine)
        order = np.concatenate(parts)
        return nodes[order], classes[order], updates[order]

    def learn(self, updates: Iterable[int], checkpoints: Checkpoints | None = None) -> Record:
        """Let the learner learn updates that are in the graph as one task; returns what to add to the record."""
        return self.learner.learn(self, list(updates), checkpoints)


def make_learner(settings: Settings) -> FolderLearner:
    """A learner that has learned nothing yet, by the kind of its method."""
    method = METHODS.resolve(str(settings.learner.method))
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
    settings = read_settings(connection)
    learner = make_learner(settings)
    number = versions.current_version(connection)[0] if number is None else number
    with reading_values(f"version {number}"):
        version = versions.read_version(connection, number)
        learner.read(connection, version)
        classes = _numbered(connection, "classes", "added <= :v ORDER BY class", number, version.classes)
        updates = _numbered(connection, "updates", f"{VISIBLE} ORDER BY number", number, version.updates)
        if not set(learner.classes()) <= set(range(len(classes))):
            raise FolderError(f"{root}: the learner has a class without a name: the database is damaged")
        names = [row[1] for row in classes]
        records = [{"update": row[0], "name": row[2], **from_json(row[3])} for row in updates]
        return Snapshot(root, settings, version, names, records, StoredGraph(connection, version), learner)


def _numbered(connection: sqlite3.Connection, table: str, where: str, version: int, count: int) -> list[database.Row]:
    """Rows that are numbered from 0."""
    rows = select(connection, table, where, v=version)
    if len(rows) != count or [row[0] for row in rows] != list(range(len(rows))):
        raise damaged(f"the table {table}")
    return rows


def write_records(connection: sqlite3.Connection, records: list[Record], version: int) -> None:
    """Add records of updates, or replace them, from a version on."""
    for record in records:
        number, name = record["update"], record["name"]
        rest = {key: value for key, value in record.items() if key not in ("update", "name")}
        query = "UPDATE updates SET removed = ? WHERE number = ? AND removed IS NULL"
        connection.execute(query, (version, number))
        insert(connection, "updates", [(number, version, name, to_json(rest))])


def clear_class_names(snapshot: Snapshot) -> None:
    """Take the names from classes that no label has and that the model does not know; their numbers stay in use.

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


def write_snapshot(snapshot: Snapshot, number: int, **values: Any) -> None:
    """Make a snapshot's learner, with the graph as it is in the database, the next version; call in a transaction.

    Args:
        number: of the version.
        values: fields of :class:`Version` that differ from the snapshot's.
    """
    state = {**snapshot.version.state, **values.pop("state", {}), "learner": snapshot.learner.state()}
    sizes = {**values, "remembered": len(snapshot.learner.buffer)}
    version = replace(snapshot.version, **sizes, number=number, time=versions.now(), state=state)
    versions.write_version(snapshot.connection, version)
    snapshot.learner.write(snapshot.connection, number)
