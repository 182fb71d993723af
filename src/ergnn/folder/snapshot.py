"""A version of a folder: its graph, the records of its updates, and its learner; reading it, and writing the next."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.config.errors import FolderError, InputError, truncate
from ergnn.data.partial import Array, ExtendedGraph, PartialGraph, find_all
from ergnn.data.tables.node_tables import SPLITS, EdgeTable, NodeTable
from ergnn.folder import database
from ergnn.folder.database import VISIBLE, Version, damaged, from_json, insert, reading_values, select, to_json
from ergnn.folder.encoding import describe_columns, fitted_state
from ergnn.folder.graph import StoredGraph, write_update
from ergnn.folder.network import NetworkLearner
from ergnn.folder.settings import Settings
from ergnn.folder.solved import SolvedLearner
from ergnn.folder.update import Update, prepare_update
from ergnn.learning.evaluation import HeldOut, Record
from ergnn.learning.learner import Learner
from ergnn.methods import METHODS

FolderLearner = NetworkLearner | SolvedLearner


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A version of a folder, which can be read while newer ones are written; a ``with`` statement closes it."""

    root: Path
    connection: sqlite3.Connection
    settings: Settings
    version: Version
    classes: list[str]
    records: list[Record]
    graph: StoredGraph
    learner: FolderLearner

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with database.wrap_errors(self.root):
            self.connection.close()
            if error is not None:
                raise error

    def extended(self, nodes: NodeTable, edges: EdgeTable | None) -> PartialGraph:
        """The graph with nodes and edges of one prediction only; their labels are ignored."""
        unknown = nodes.ids[self.graph.find(list(nodes.ids)) < 0]
        has_features = nodes.num_features or nodes.is_sparse or nodes.columns or self.graph.structural
        if len(unknown) and not has_features:
            first, count = truncate(unknown[0]), f"{len(unknown)} such id(s)"
            raise InputError(f"node {first} is not in the graph and has no features here ({count})")
        bare = replace(nodes, labels=None, split=None, time=None, domain=None)
        update = prepare_update(self, bare, edges, for_prediction=True)
        if not update.ids and edges is None:  # known nodes, whose values are those of the graph
            return self.graph
        return ExtendedGraph(self.graph, update.ids, self.graph.encode(update.features), update.edges, update.weights)

    def predict(
        self,
        ids: Sequence[str] | None,
        nodes: NodeTable | None = None,
        edges: EdgeTable | None = None,
        classes: Sequence[str] | None = None,
    ) -> tuple[list[str], list[str], Array]:
        """Predict ids, class names and probabilities; see :meth:`ergnn.folder.LearnerFolder.predict`."""
        if not self.learner.num_tasks:
            raise InputError(f"{self.root}: nothing has been learned yet; observe labeled nodes first")
        if nodes is None and edges is not None:
            nodes = NodeTable(np.array(ids or (), object))  # known nodes with additional edges
        graph = self.graph if nodes is None else self.extended(nodes, edges)
        wanted = [str(text) for text in (nodes.ids if ids is None and nodes is not None else ids or ())]
        numbers = find_all(graph, wanted)
        known = {self.classes[c]: c for c in self.learner.classes()}
        names = list(dict.fromkeys(known if classes is None else classes))
        for name in names:
            if name not in known:
                raise InputError(f"class {truncate(name)} has not been learned; these have: {', '.join(known)[:300]}")
        columns = [known[name] for name in names]
        out = self.probabilities(graph, numbers)[:, columns]
        total = out.sum(1, keepdims=True)
        return wanted, names, np.divide(out, total, out=np.full_like(out, 1 / len(columns)), where=total > 0)

    def predict_held_out(self, samples: int | None = None, *, task_known: bool = False) -> HeldOut:
        """Predict the held-out nodes of every update."""
        nodes, truth, updates = self.held_out(samples) if self.learner.num_tasks else np.empty((3, 0), np.int64)
        out = self.probabilities(self.graph, nodes) if len(nodes) else np.empty((0, len(self.classes) + 1))
        if not task_known:
            return HeldOut(self.records, self.classes, updates, truth, out.argmax(1), out)
        competing = np.zeros((len(self.records), out.shape[1]))
        for record in self.records:
            competing[record["update"], [self.classes.index(name) for name in record["classes"]]] = 1
        out = out * competing[updates]
        total = out.sum(1, keepdims=True)
        shares = np.divide(out, total, out=np.full_like(out, np.nan), where=(competing[updates] > 0) & (total > 0))
        return HeldOut(self.records, self.classes, updates, truth, out.argmax(1), shares)

    def probabilities(self, graph: PartialGraph, nodes: Array) -> Array:
        """Probabilities ``[n, classes]`` of some nodes."""
        return self.learner.probabilities(graph, nodes, len(self.classes))

    def split(self, name: str) -> tuple[Array, Array, Array]:
        """Labeled nodes of a split, their classes and updates; as many of each update as its record says."""
        nodes, classes, updates = self.graph.split(name)
        counts = np.bincount(updates, minlength=len(self.records)).tolist()
        if counts != [record["members"][name] for record in self.records]:
            raise FolderError(f"the {name} nodes are not as recorded: the database is damaged")
        return nodes, classes, updates

    def members(self, updates: int | Sequence[int], split: str) -> tuple[Array, Array]:
        """Labeled nodes of a split of some updates, by update, and their classes."""
        nodes, classes, number = self.split(split)
        mine = np.argsort(number, kind="stable")
        mine = mine[np.isin(number[mine], updates)]
        return nodes[mine], classes[mine]

    def classes_of(self, update: int) -> list[str]:
        """Classes that were learned in an update."""
        if not 0 <= update < len(self.records):
            raise InputError(f"update {update + 1} has not been observed; updates are 1 to {len(self.records)}")
        classes: list[str] = self.records[update]["classes"]
        if not classes:
            raise InputError(f"no class was learned in update {update + 1}; it had no labeled nodes")
        return classes

    def held_out(self, samples: int | None = None) -> tuple[Array, Array, Array]:
        """The test nodes of all updates, their classes and updates.

        If there are more than ``samples``, each update contributes its share in an order drawn by seed and update, so
        that a smaller sample is part of a larger one.
        """
        nodes, classes, updates = self.split("test")
        scored = np.unique(updates)
        share = len(nodes) if samples is None else max(1, samples // max(1, len(scored)))
        chosen = [np.empty(0, np.int64)]
        for update in scored:
            rows = np.flatnonzero(updates == update)
            if len(rows) > share:
                rows = rows[np.random.default_rng([self.settings.seed, int(update)]).permutation(len(rows))[:share]]
            chosen.append(rows)
        order = np.concatenate(chosen)
        return nodes[order], classes[order], updates[order]


def make_learner(settings: Settings) -> FolderLearner:
    """Create a learner that has learned nothing yet: of rows if its method has a head for them, else a network."""
    config = settings.config
    try:
        method = METHODS.create(str(config.method), **config.method_options)
        head = method.row_head()
        return NetworkLearner(settings, Learner(config)) if head is None else SolvedLearner(settings, head)
    except TypeError as error:
        raise InputError(f"invalid settings: {error}") from None


def read_settings(connection: sqlite3.Connection, names: list[str] | None = None) -> Settings:
    """Read the settings; those that an earlier version did not have get their defaults."""
    with reading_values("the settings"):
        stored = {name: json.loads(text) for name, text in select(connection, "settings")}
        if names is not None and sorted(stored) != names:
            raise damaged("the table settings")
        return Settings.from_settings(stored)


def open_snapshot(root: Path, number: int | None = None, connection: sqlite3.Connection | None = None) -> Snapshot:
    """Read a version, by default the current one; a writer passes its connection."""
    if connection is None:
        connection = database.connect(root)
        try:
            return open_snapshot(root, number, connection)
        except BaseException:
            connection.close()
            raise
    number = database.current_version(connection)[0] if number is None else number
    with reading_values(f"version {number}"):
        version = database.read_version(connection, number)
    settings = read_settings(connection, version.state.get("settings"))
    learner = make_learner(settings)
    with reading_values(f"version {number}"):
        graph = StoredGraph(connection, version)
        learner.read(connection, graph)
        classes = _numbered(connection, "classes", "added <= :v ORDER BY class", number, version.classes)
        updates = _numbered(connection, "updates", f"{VISIBLE} ORDER BY number", number, version.updates)
        names = [row[1] for row in classes]
        if not set(learner.classes()) <= set(range(len(names))):
            raise FolderError(f"{root}: the learner has a class without a name: the database is damaged")
        records = []
        for update, _, name, text in updates:
            title = {"update": update, "name": name}
            records.append(check_record({**title, **from_json(text), **title}, names))
        return Snapshot(root, connection, settings, version, names, records, graph, learner)


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
    old, counts, connection = base.version, update.counts, base.connection
    new = replace(
        old,
        number=database.current_version(connection)[1] + 1,
        nodes=old.nodes + counts["nodes"],
        edges=old.edges + counts["edges"],
        next_node=old.next_node + len(update.ids),
        labeled=old.labeled + len(update.labels[0]),
        classes=old.classes + len(update.classes),
        updates=old.updates + 1,
        state={**old.state, **update.layout, "digest": digest},
    )
    record: Record = {
        "update": old.updates,
        "name": name or f"update {new.updates}",
        "counts": counts,
        "members": {split: counts[split] for split in SPLITS},
        "notes": update.notes(base.classes),
        "graph": {"nodes": new.nodes, "edges": new.edges},
    }
    with database.transaction(connection):
        database.drop_after(connection, old.number)
        write_update(connection, base.graph, update, new.number, old.updates, base.settings.directed)
        new = fitted_version(connection, new, base.learner.exact)
        if not describe_columns(old.state) and (columns := describe_columns(new.state)):
            record["columns"] = columns
        names = [*base.classes, *update.classes]
        staged = {"version": new.number, "digest": digest, "record": record, "classes": names, "fields": vars(new)}
        insert(connection, "progress", [(1, new.number, to_json(staged))])
    return staged


def fitted_version(connection: sqlite3.Connection, version: Version, refit: bool) -> Version:
    """A version with scales and categories of its own nodes; see :func:`~ergnn.folder.encoding.fitted_state`."""
    state = fitted_state(StoredGraph(connection, version), version.state, refit) if version.nodes else {}
    return replace(version, state=version.state | state)


def read_staged(connection: sqlite3.Connection) -> dict[str, Any] | None:
    """The update that is not finished, if any."""
    with reading_values("the unfinished update"):
        staged = [from_json(row[2]) for row in select(connection, "progress")]
    return staged[0] if staged else None


def write_snapshot(snapshot: Snapshot, records: Iterable[Record] = ()) -> None:
    """Make a snapshot, with the graph as it is in the database, the current version; call it in a transaction."""
    connection, learner, version = snapshot.connection, snapshot.learner, snapshot.version
    names = sorted(name for name, _ in select(connection, "settings"))
    state = {**version.state, "learner": learner.state(), "settings": names}
    version = replace(version, remembered=len(learner.buffer), time=database.now(), state=state)
    *sizes, _ = vars(version).values()
    insert(connection, "versions", [(*sizes, to_json(state))])
    insert(connection, "current", [(1, version.number, version.number)], "REPLACE")
    learner.write(connection, version.number)
    write_records(connection, records, version.number)
    database.drop_before(connection, database.kept_versions(connection)[-snapshot.settings.keep :][0])


def write_records(connection: sqlite3.Connection, records: Iterable[Record], version: int) -> None:
    """Add records of updates, or replace them, from a version on."""
    for record in records:
        rest = {key: value for key, value in record.items() if key not in ("update", "name")}
        query = "UPDATE updates SET removed = ? WHERE number = ? AND removed IS NULL"
        connection.execute(query, (version, record["update"]))
        insert(connection, "updates", [(record["update"], version, record["name"], to_json(rest))])


def relearned(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a new learner that learns its updates from scratch, in the graph as it is."""
    learner, records = make_learner(snapshot.settings), snapshot.records
    if learner.exact:
        learner.learn(snapshot, range(len(records)))
    else:
        records = [{**record, **learner.learn(snapshot, [update])} for update, record in enumerate(records)]
    return replace(snapshot, learner=learner, records=records)
