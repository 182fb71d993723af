"""A learner in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ergnn.config.errors import ErgnnError, FolderError, InputError, did_you_mean, truncate
from ergnn.config.files import write_file
from ergnn.data.partial import Array, find_all
from ergnn.data.tables import Columns, read_tables
from ergnn.data.tables.node_tables import SPLITS, EdgeTable, NodeTable
from ergnn.folder import database
from ergnn.folder import snapshot as snapshots
from ergnn.folder.certificate import clear_names, make_certificate, unused_classes, verify_certificate
from ergnn.folder.database import Version, insert, reading_values, to_json, transaction, wrap_errors
from ergnn.folder.graph import StoredGraph, remove_nodes
from ergnn.folder.inspection import check_versions, inspect_snapshot, unknown_nodes, update_drift, watch_snapshot
from ergnn.folder.network import CHUNK, Checkpoints
from ergnn.folder.settings import CHANGEABLE, Settings
from ergnn.folder.snapshot import Snapshot, fitted_version, make_learner, open_snapshot, relearned, write_snapshot
from ergnn.folder.spool import purge_spool
from ergnn.folder.update import check_labels, prepare_update, tables_digest
from ergnn.learning.evaluation import HeldOut, Record, Score
from ergnn.learning.resolve import resolve

USUAL = Columns()


class LearnerFolder:
    """A growing graph and a model that learns from it, in one database.

    Every method that changes the folder adds a version in one transaction. Every method that reads it uses the version
    that is current when it starts to read, or an older one that is kept.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        database.connect(self.root).close()

    @classmethod
    def create(cls, root: str | Path, settings: Settings | None = None, columns: Columns = USUAL) -> LearnerFolder:
        """Create a folder for a new learner; it remembers names of ``columns`` for all tables that it reads."""
        root, settings = Path(root), settings or Settings()
        resolve(settings.config)  # a closed form does not look at its backbone
        learner, state = make_learner(settings), {"num_features": settings.num_features, "digest": ""}
        empty = Version(state={**state, "dense": None, "feature_names": None, "names": columns.told()})
        with database.created(root) as connection:
            insert(connection, "settings", ((name, to_json(value)) for name, value in settings.settings().items()))
            write_snapshot(Snapshot(root, connection, settings, empty, [], [], StoredGraph(connection, empty), learner))
        return cls(root)

    @property
    def settings(self) -> Settings:
        with wrap_errors(self.root), closing(database.connect(self.root)) as connection:
            return snapshots.read_settings(connection)

    @property
    def columns(self) -> Columns:
        """Names of columns that the folder remembers, since it was created or from its first update."""
        with wrap_errors(self.root), closing(database.connect(self.root)) as connection:
            return database.read_version(connection, database.current_version(connection)[0]).columns

    def set(self, values: Mapping[str, Any]) -> Settings:
        """Change settings of :data:`ergnn.folder.settings.CHANGEABLE` by name; returns all settings."""
        for name in values:
            if name not in CHANGEABLE:
                guess = did_you_mean(name, CHANGEABLE)
                raise InputError(f"{name} cannot be changed in a folder{guess}; these can: {', '.join(CHANGEABLE)}")
        with database.writing(self.root) as connection, transaction(connection):
            settings = snapshots.read_settings(connection).with_settings(values)
            make_learner(settings)
            rows = ((name, to_json(value)) for name, value in settings.settings().items() if name in values)
            insert(connection, "settings", rows, "REPLACE")
            database.add_log(connection, "set", **values)
        return settings

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Open a version, by default the current one; use it in a ``with`` statement."""
        with wrap_errors(self.root):
            return open_snapshot(self.root, version)

    def observe(
        self,
        nodes: Any = None,
        edges: Any = None,
        *,
        name: str = "",
        columns: Columns = USUAL,
        checkpoint_seconds: float = 5.0,
        on_epoch: Callable[[], None] | None = None,
    ) -> Record:
        """Add new nodes, edges and labels, and learn the labeled nodes; returns the record of the update.

        An interrupted update continues if it is passed again. The newest update is not added twice: its record then has
        ``"again": True``.

        Args:
            nodes: new nodes, and known ones with new labels or, in folders with a closed form, other features: a data
                frame, the path of a file, or whatever else :func:`ergnn.data.tables.read_nodes` reads.
            edges: edges between new or known nodes, likewise.
            name: name of the update; by default ``update 1``, ``update 2``, …
            columns: names of columns that differ from the defaults; those of the first update are remembered.
            checkpoint_seconds: seconds between checkpoints.
            on_epoch: called after every epoch.
        """
        nodes, edges = self._tables(nodes, edges, columns)
        digest = tables_digest(nodes, edges)
        with self._writing("adding another one", digest) as (base, staged):
            if staged is None:
                if base.records and base.version.state["digest"] == digest:
                    return {**base.records[-1], "again": True}
                if nodes is None and edges is None:
                    raise InputError("an update needs nodes, or edges, or both")
                update = prepare_update(base, nodes, edges)
                check_labels(base, nodes)
                if not base.records:
                    update.layout["names"] = columns.recall(base.version.columns.told()).told()
                staged = snapshots.stage_update(base, update, name, digest)
            return self._finish(base, staged, Checkpoints(base.connection, checkpoint_seconds, on_epoch))

    def resume(self, *, checkpoint_seconds: float = 5.0, on_epoch: Callable[[], None] | None = None) -> Record | None:
        """Continue an interrupted update; returns None if there is none."""
        with self._writing() as (base, staged):
            if staged is None:
                return None
            return self._finish(base, staged, Checkpoints(base.connection, checkpoint_seconds, on_epoch))

    def discard(self, digest: str | None = None) -> str | None:
        """Discard an interrupted update (only with a :func:`~ergnn.folder.update.tables_digest`); returns its name."""
        with self._writing() as (base, staged):
            if staged is None or digest not in (None, staged["digest"]):
                return None
            self._discard(base)
            return str(staged["record"]["name"])

    def _finish(self, base: Snapshot, staged: dict[str, Any], checkpoints: Checkpoints) -> Record:
        """Learn a staged update, score it, and make it the current version."""
        start, connection, update = perf_counter(), base.connection, base.version.updates
        with reading_values("the unfinished update"):
            version = replace(base.version, **{**staged["fields"], "number": staged["version"]})
            classes, graph = list(staged["classes"]), StoredGraph(connection, version)
            record = snapshots.check_record({**staged["record"], "update": update}, classes)
            grown = replace(base, version=version, graph=graph, classes=classes, records=[*base.records, record])
        try:
            record |= grown.learner.learn(grown, [update], checkpoints)
        except ErgnnError as error:
            if not isinstance(error, FolderError):  # learning it again would fail again
                self._discard(base)
            raise
        record["remembered"] = len(grown.learner.buffer)
        held_out = grown.predict_held_out(base.settings.eval_samples)
        record |= {"scores": held_out.scores(), "overall": held_out.overall()}
        record["notes"] = [*record["notes"], *held_out.warnings()]
        record["input_drift"] = update_drift(grown, base.version.next_node)
        with transaction(connection):
            connection.execute("DELETE FROM progress")
            write_snapshot(grown, [record])
            seconds = round(perf_counter() - start, 3)
            database.add_log(connection, "observe", update=update + 1, name=str(record["name"]), seconds=seconds)
        database.shrink(connection)
        return record

    def predict(
        self,
        ids: Sequence[str] | None = None,
        *,
        nodes: Any = None,
        edges: Any = None,
        classes: Sequence[str] | None = None,
        version: int | None = None,
    ) -> Iterator[tuple[list[str], list[str], Array]]:
        """Predict ids, class names and probabilities ``[n, classes]``, in chunks.

        Args:
            ids: nodes to predict; by default all of ``nodes``.
            nodes: nodes, as for :meth:`observe`; those not in the graph are added for this prediction only.
            edges: edges to add for this prediction only.
            classes: classes that compete; by default all that were learned.
            version: a stored version; by default the current one.
        """
        nodes, edges = self._tables(nodes, edges)
        with self.snapshot(version) as snapshot:
            ids, names, out = snapshot.predict(ids, nodes, edges, classes)
        for start in range(0, len(ids), CHUNK):
            yield ids[start : start + CHUNK], names, out[start : start + CHUNK]

    def _tables(self, nodes: Any, edges: Any, columns: Columns = USUAL) -> tuple[NodeTable | None, EdgeTable | None]:
        """Read tables from what :func:`ergnn.data.tables.read_nodes` reads."""
        return read_tables(nodes, edges, columns.recall(self.columns.told()), self.settings.limits)

    def find_unknown(
        self, nodes: NodeTable, edges: EdgeTable | None = None, version: int | None = None
    ) -> list[bool | None]:
        """Whether each node seems to belong to no class that was learned; None without enough validation nodes.

        Of nodes of known classes, 5 % are reported as unknown (:class:`ergnn.learning.watch.UnknownScore`). Arguments
        are those of :meth:`predict`.
        """
        with self.snapshot(version) as snapshot:
            return unknown_nodes(snapshot, snapshot.extended(nodes, edges), list(nodes.ids))

    def evaluate(self, version: int | None = None, *, task_known: bool = False) -> list[tuple[Record, Score]]:
        """Record of each update, and its current score on all nodes that were held out of it.

        Arguments are those of :meth:`predict_held_out`.
        """
        held_out = self.predict_held_out(version, task_known=task_known)
        return [(held_out.records[score[0]], score) for score in held_out.scores()]

    def predict_held_out(self, version: int | None = None, *, task_known: bool = False) -> HeldOut:
        """Predict all held-out nodes: scores per update, per class and over all, and the confusion matrix.

        Args:
            version: a stored version; by default the current one.
            task_known: whether only the classes of a node's own update compete.
        """
        with self.snapshot(version) as snapshot:
            return snapshot.predict_held_out(task_known=task_known)

    def inspect(self, version: int | None = None) -> dict[str, Any]:
        """Graph, buffer, accuracy since each update, drift, bytes, versions and history."""
        with self.snapshot(version) as snapshot, reading_values("the records"):
            stored = database.inspect_storage(snapshot.connection, self.root, snapshot.version.number)
            return {**inspect_snapshot(snapshot), **stored}

    def watch(self, version: int | None = None) -> dict[str, Any]:
        """Drift, calibration and unknown classes; see :func:`ergnn.folder.inspection.watch_snapshot`."""
        with self.snapshot(version) as snapshot, reading_values("the records"):
            return watch_snapshot(snapshot)

    def check(self) -> list[str]:
        """Verify every checksum and the structure of the database; returns the errors."""
        with wrap_errors(self.root), closing(database.connect(self.root)) as connection:
            try:
                return database.check_database(connection) or check_versions(connection, self.root)
            except FolderError as error:
                return [str(error)]

    def forget(
        self,
        ids: Sequence[str],
        *,
        retrain: bool = False,
        purge: bool = False,
        certificate: str | Path | None = None,
    ) -> dict[str, Any]:
        """Remove nodes from the graph and the buffer; returns a report.

        Args:
            ids: the nodes. With ``purge``, those that are not in the graph are skipped, as an earlier call may have
                removed them; without any, everything is purged that was forgotten before.
            retrain: learn all updates again without them; a closed form does so in any case.
            purge: delete older versions and everything else that is left of the nodes, see :meth:`purge`.
            certificate: a file to certify the purge in, see :mod:`ergnn.folder.certificate`.
        """
        ids = [str(text) for text in ids]
        if certificate is not None and not purge:
            raise InputError("a certificate is about a purge; use both, --purge and --certificate")
        with self.snapshot() as snapshot:
            before, exact = snapshot.version.number, snapshot.learner.exact
            present = [name for name, node in zip(ids, snapshot.graph.find(ids), strict=True) if node >= 0]
        if certificate is not None and not exact and not retrain:
            raise InputError("a network still depends on nodes that it was trained on; certify with --retrain")
        report: dict[str, Any] = {"version": before, "edges": 0, "nodes": 0, "exact": exact, "retrained": False}
        if present or not purge:
            report = self._forget(present if purge else ids, retrain)
        if not purge:
            return report
        traces = self.purge(ids)
        if certificate is not None:
            with self.snapshot() as snapshot:
                certified = make_certificate(snapshot, before, traces)
            with database.writing(self.root) as connection, transaction(connection):
                database.add_log(connection, "purge", nodes=len(traces), certificate=certified["digest"])
            write_file(Path(certificate), json.dumps(certified, indent=1).encode())
        return {**report, "skipped": len(ids) - len(present), "purged": len(traces), "older_versions": []}

    def _forget(self, ids: Sequence[str], retrain: bool) -> dict[str, Any]:
        with self._writing("forgetting nodes") as (base, _):
            connection, old, exact = base.connection, base.version, base.learner.exact
            nodes = np.unique(find_all(base.graph, ids))
            if not len(nodes):
                raise InputError("no nodes are given; there is nothing to forget")
            label, split, update = base.graph.labels(nodes)
            trained = (label >= 0) & (split == SPLITS.index("train"))
            remembered = int(np.isin(base.learner.buffer.nodes.cpu().numpy(), nodes).sum())
            number, retrained = database.current_version(connection)[1] + 1, retrain and not exact
            with transaction(connection):
                database.drop_after(connection, old.number)
                edges = remove_nodes(connection, base.graph, nodes, number, base.settings.directed)
                version = replace(
                    old,
                    number=number,
                    nodes=old.nodes - len(nodes),
                    edges=old.edges - edges,
                    labeled=old.labeled - int((label >= 0).sum()),
                    state={**old.state, "digest": ""},
                )
                graph = StoredGraph(connection, fitted_version(connection, version, exact))
                counts = zip(
                    *(np.bincount(graph.split(name)[2], minlength=old.updates) for name in SPLITS), strict=True
                )
                members = (dict(zip(SPLITS, map(int, of), strict=True)) for of in counts)
                records = [{**r, "members": m} for r, m in zip(base.records, members, strict=True)]
                after = replace(base, version=graph.version, graph=graph, records=records)
                if retrained:
                    after = relearned(after)
                else:
                    after.learner.forget(after, nodes)
                held_out = after.predict_held_out(base.settings.eval_samples)
                if after.records:
                    newest = {"scores": held_out.scores(), "overall": held_out.overall()}
                    after.records[-1].update(newest, remembered=len(after.learner.buffer))
                changed = [now for now, before in zip(after.records, base.records, strict=True) if now != before]
                write_snapshot(after, changed)
                database.add_log(connection, "forget", nodes=len(nodes), retrained=retrain)
            return {
                "version": number,
                "nodes": len(nodes),
                "edges": edges,
                "trained_in": sorted({int(u) + 1 for u in update[trained]}),
                "held_out": int(((label >= 0) & ~trained).sum()),
                "remembered": remembered,
                "retrained": retrained,
                "exact": exact,
                "parameters_depend": bool(trained.any()) and not retrained and not exact,
                "scores": held_out.scores(),
                "older_versions": [kept for kept in database.kept_versions(connection) if kept != number],
            }

    def purge(self, ids: Sequence[str] = ()) -> dict[str, list[bytes]]:
        """Delete all versions but the current one, and what is left of forgotten nodes anywhere in the folder.

        That includes updates that wait in the spool of ``ergnn serve``: those that name the nodes fail. If it fails, is
        killed, or another process is reading or writing, the same call completes it. ``ids`` are further nodes that are
        not in the graph. Returns the ids of the nodes, and their features as they were stored, if they still were.
        """
        with self._writing("purging") as (base, _):
            connection = base.connection
            present = [name for name, node in zip(ids, base.graph.find(ids), strict=True) if node >= 0]
            if present:
                raise InputError(f"node {truncate(present[0])} is in the graph; forget it before purging")
            traces: dict[str, list[bytes]] = {name: [] for name in ids}
            traces |= database.forgotten_nodes(connection, base.version.number)
            purge_spool(self.root, list(traces), list(unused_classes(base).values()), base.version.columns)
            with transaction(connection):
                database.drop_after(connection, base.version.number)
                database.drop_before(connection, base.version.number)
                database.drop_cache(connection, base.version.number)
                clear_names(base, traces)
            database.scrub(connection, self.root)
            return traces

    def verify(self, certificate: str | Path) -> dict[str, str | None]:
        """Check a certificate of :meth:`forget` again; returns each statement, and what contradicts it, if anything."""
        with self.snapshot() as snapshot:
            return verify_certificate(snapshot, Path(certificate))

    def export(
        self, out: str | Path, *, format: str = "safetensors", graph: bool = False, version: int | None = None
    ) -> list[Path]:
        """Write the model to files; see :func:`ergnn.folder.export.export_snapshot`."""
        from ergnn.folder.export import export_snapshot

        with self.snapshot(version) as snapshot:
            return export_snapshot(snapshot, out, graph, format)

    def rollback(self, version: int | None = None) -> int:
        """Make an older version (by default the one before) the current one; returns its number.

        Newer versions can be returned to until something is observed or forgotten.
        """
        with database.writing(self.root) as connection:
            current, newest = database.current_version(connection)
            kept = database.kept_versions(connection)
            wanted = max((number for number in kept if number < current), default=None) if version is None else version
            if wanted is None:
                raise FolderError(f"{self.root}: version {current} is the oldest that is kept")
            database.read_version(connection, wanted)
            with transaction(connection):
                database.drop_after(connection, kept[-1])  # an unfinished update
                insert(connection, "current", [(1, wanted, newest)], "REPLACE")
                database.add_log(connection, "rollback", version=wanted)
        return wanted

    @contextmanager
    def _writing(self, action: str = "", digest: str = "") -> Iterator[tuple[Snapshot, dict[str, Any] | None]]:
        """The current version on the connection of the only writer, and the unfinished update.

        An action is refused while an update is unfinished, unless the update has this digest.
        """
        with database.writing(self.root) as connection:
            base, staged = open_snapshot(self.root, connection=connection), snapshots.read_staged(connection)
            if action and staged is not None and staged["digest"] != digest:
                advice = f"continue it (observe --resume) or discard it (observe --discard) before {action}"
                raise FolderError(f"{self.root}: update {staged['record']['name']!r} is unfinished; {advice}")
            yield base, staged

    def _discard(self, base: Snapshot) -> None:
        with transaction(base.connection):
            database.drop_after(base.connection, base.version.number)
