"""A learner in a folder."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from ergnn.data.formats.limits import truncate
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.errors import ErgnnError, InputError
from ergnn.evaluation import HeldOut, Record, Score
from ergnn.folder import database, versions
from ergnn.folder.database import FolderError, from_json, insert, reading_values, select, transaction, wrap_errors
from ergnn.folder.graph import SPLITS, Array, StoredGraph
from ergnn.folder.network_learner import CHUNK, Checkpoints
from ergnn.folder.prediction import learn_offline, predict_held_out, predictions
from ergnn.folder.settings import Settings, read_settings, write_settings
from ergnn.folder.snapshot import (
    Snapshot,
    clear_class_names,
    make_learner,
    open_snapshot,
    write_records,
    write_snapshot,
)
from ergnn.folder.updates import Update, prepare_update, tables_digest, write_update
from ergnn.folder.versions import Version
from ergnn.folder.watching import update_drift, watch_snapshot


class LearnerFolder:
    """A graph that grows, a model that learns along, and all that is needed to go on, in one database.

    Every method that changes something adds a version in one transaction; every method that asks something reads the
    version that is current when it is called, or an older one that is kept.

    Args:
        root: the folder; :meth:`create` makes one.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        database.connect(self.root).close()

    @classmethod
    def create(cls, root: str | Path, settings: Settings | None = None) -> LearnerFolder:
        """Make a folder for a learner that has learned nothing yet."""
        root, settings = Path(root), settings or Settings()
        learner = make_learner(settings)
        state = {"num_features": settings.num_features, "dense": None, "feature_names": None, "digest": ""}
        empty = Version(0, versions.now(), 0, 0, 0, 0, 0, 0, 0, state)
        with database.created(root) as connection:
            write_settings(connection, settings)
            write_snapshot(Snapshot(root, settings, empty, [], [], StoredGraph(connection, empty), learner), 0)
        return cls(root)

    @property
    def settings(self) -> Settings:
        with wrap_errors(self.root), closing(database.connect(self.root)) as connection:
            return read_settings(connection)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """What the folder knows, by default now; use it in a ``with`` statement, which closes the database."""
        with wrap_errors(self.root):
            return open_snapshot(self.root, version)

    def observe(
        self,
        nodes: NodeTable | None = None,
        edges: EdgeTable | None = None,
        *,
        name: str = "",
        checkpoint_seconds: float = 5.0,
        on_epoch: Callable[[], None] | None = None,
    ) -> Record:
        """Add new nodes, edges and labels, and learn the labeled nodes; returns the update's record.

        An update that was interrupted goes on if it is given again. One that is in the folder already is left alone
        (its record has ``"again": True``).

        Args:
            nodes: new nodes, and known ones that have a label now.
            edges: between nodes, new or known.
            name: of the update; by default ``update 1``, ``update 2``, …
            checkpoint_seconds: time between checkpoints.
            on_epoch: called after every epoch.
        """
        digest = tables_digest(nodes, edges)
        with self._writing() as (base, staged):
            if staged is not None and staged["digest"] != digest:
                raise self._unfinished(staged, "another one comes")
            if staged is None:
                if base.records and base.version.state["digest"] == digest:
                    return {**base.records[-1], "again": True}
                if nodes is None and edges is None:
                    raise InputError("an update needs nodes, or edges, or both")
                update = prepare_update(base, nodes, edges)
                staged = self._stage(base, update, name or f"update {len(base.records) + 1}", digest)
            return self._finish(base, staged, Checkpoints(base.connection, checkpoint_seconds, on_epoch))

    def resume(self, *, checkpoint_seconds: float = 5.0, on_epoch: Callable[[], None] | None = None) -> Record | None:
        """Go on with an update that was interrupted; None if there is none."""
        with self._writing() as (base, staged):
            if staged is None:
                return None
            return self._finish(base, staged, Checkpoints(base.connection, checkpoint_seconds, on_epoch))

    def discard(self) -> str | None:
        """Drop an update that was interrupted; returns its name."""
        with self._writing() as (base, staged):
            if staged is None:
                return None
            self._drop_unfinished(base.connection)
            return str(staged["record"]["name"])

    def _stage(self, base: Snapshot, update: Update, name: str, digest: str) -> dict[str, Any]:
        """Add an update to the database as part of the next version, which is not current yet."""
        old, counts, names = base.version, update.counts, [*base.classes, *update.classes]
        alone = [c for c, count in Counter(update.labels[1].tolist()).items() if count == 1 and c >= len(base.classes)]
        sizes = {"nodes": old.nodes + counts["nodes"], "edges": old.edges + counts["edges"]}
        record: Record = {
            "update": old.updates,
            "name": name,
            "counts": counts,
            "members": {split: counts[split] for split in SPLITS},
            "notes": [f"class {truncate(names[c])} has one labeled node, so that it cannot be scored" for c in alone],
            "graph": sizes,
        }
        fields = {
            **sizes,
            "next_node": old.next_node + counts["nodes"],
            "labeled": old.labeled + len(update.labels[0]),
            "classes": len(names),
            "updates": old.updates + 1,
            "state": {**update.state, "digest": digest},
        }
        number = versions.current_version(base.connection)[1] + 1
        staged = {"version": number, "digest": digest, "record": record, "classes": names, "fields": fields}
        with transaction(base.connection):
            versions.drop_after(base.connection, old.number)
            write_update(base.connection, base.graph, update, number, old.updates)
            insert(base.connection, "progress", [(1, number, database.to_json(staged))])
        return staged

    def _finish(self, base: Snapshot, staged: dict[str, Any], checkpoints: Checkpoints) -> Record:
        """Learn a staged update, score, and make it the current version."""
        start, connection = perf_counter(), base.connection
        with reading_values("the unfinished update"):
            number, values, record = staged["version"], staged["fields"], dict(staged["record"])
            graph = StoredGraph(connection, replace(base.version, number=number, **values))
            grown = replace(base, graph=graph, classes=list(staged["classes"]), records=[*base.records, record])
            name, update = str(record["name"]), int(record["update"])
        try:
            record |= grown.learn([update], checkpoints)
        except ErgnnError as error:
            if not isinstance(error, FolderError):  # it would not be learned next time either
                self._drop_unfinished(connection)
            raise
        record["remembered"] = len(grown.learner.buffer)
        record["scores"] = predict_held_out(grown, base.settings.eval_samples).scores()
        record["input_drift"] = update_drift(grown, base.version.next_node)
        with transaction(connection):
            connection.execute("DELETE FROM progress")
            write_snapshot(grown, number, **values)
            write_records(connection, [record], number)
            versions.keep_versions(connection, base.settings.keep)
            seconds = round(perf_counter() - start, 3)
            versions.add_log(connection, "observe", update=update + 1, name=name, seconds=seconds)
        versions.shrink(connection)
        return record

    def predict(
        self,
        ids: Sequence[str] | None = None,
        *,
        nodes: NodeTable | None = None,
        edges: EdgeTable | None = None,
        classes: Sequence[str] | None = None,
        chunk: int = CHUNK,
        version: int | None = None,
    ) -> Iterator[tuple[list[str], list[str], Array]]:
        """Ids, class names and probabilities ``[n, classes]``, a chunk at a time.

        Args:
            ids: nodes to predict; by default all of ``nodes``.
            nodes: nodes, of which those that are not in the graph are there for this prediction only.
            edges: of those, for this prediction only.
            classes: only these compete (the task is known); by default all that were learned.
            chunk: the most nodes that are yielded at a time.
            version: an older version that is kept.
        """
        snapshot = self.snapshot(version)

        def chunks() -> Iterator[tuple[list[str], list[str], Array]]:
            with wrap_errors(self.root), snapshot:
                yield from predictions(snapshot, ids, nodes, edges, classes, chunk)

        return chunks()

    def classes_of(self, update: int, version: int | None = None) -> list[str]:
        """The classes that an update taught (updates count from 0)."""
        with self.snapshot(version) as snapshot:
            records = snapshot.records
        if not 0 <= update < len(records):
            raise InputError(f"update {update + 1} has not been observed; {len(records)} have, from 1")
        classes: list[str] = records[update]["classes"]
        if not classes:
            raise InputError(f"update {update + 1} taught no class; it had no labeled nodes")
        return classes

    def evaluate(self, version: int | None = None, *, task_known: bool = False) -> list[tuple[Record, Score]]:
        """Each update's record, and its score now on all nodes that were held out of it.

        Args:
            version: an older version that is kept.
            task_known: whether only the classes of a node's own update compete.
        """
        found = self.predict_held_out(version, task_known=task_known)
        return [(found.records[score[0]], score) for score in found.scores()]

    def predict_held_out(
        self, version: int | None = None, *, task_known: bool = False, offline: bool = False
    ) -> HeldOut:
        """Predictions of all held-out nodes: scores per update and per class, and the confusion matrix.

        Args:
            version: an older version that is kept.
            task_known: whether only the classes of a node's own update compete.
            offline: predict by a learner that is trained on the labels of all updates at once; the folder stays as it
                is. See :func:`ergnn.folder.prediction.learn_offline`.
        """
        with wrap_errors(self.root), self.snapshot(version) as snapshot:
            learned = learn_offline(snapshot) if offline and snapshot.learner.num_tasks else snapshot
            return predict_held_out(learned, task_known=task_known)

    def inspect(self, version: int | None = None) -> dict[str, Any]:
        """Graph, buffer, accuracy since each update, drift, bytes, versions and history."""
        from ergnn.folder.inspection import inspect_snapshot

        with wrap_errors(self.root), self.snapshot(version) as snapshot:
            return inspect_snapshot(snapshot)

    def watch(self, version: int | None = None) -> dict[str, Any]:
        """Drift, calibration and unknown classes; see :func:`ergnn.folder.watching.watch_snapshot`."""
        with wrap_errors(self.root), self.snapshot(version) as snapshot, reading_values("the records"):
            return watch_snapshot(snapshot)

    def check(self) -> list[str]:
        """Verify every checksum and SQLite's own structures; returns what is wrong."""
        with wrap_errors(self.root), closing(database.connect(self.root)) as connection:
            return database.check_database(connection)

    def forget(self, ids: Sequence[str], *, retrain: bool = False) -> dict[str, Any]:
        """Remove nodes from the graph and the buffer; see :func:`ergnn.folder.forgetting.forget_nodes`."""
        from ergnn.folder.forgetting import forget_nodes

        with self._writing() as (base, staged):
            if staged is not None:
                raise self._unfinished(staged, "anything is forgotten")
            with transaction(base.connection):
                report = forget_nodes(base, [str(text) for text in ids], retrain)
                versions.keep_versions(base.connection, base.settings.keep)
                versions.add_log(base.connection, "forget", nodes=report["nodes"], retrained=retrain)
                kept = versions.kept_versions(base.connection)
            return {**report, "older_versions": [number for number in kept if number != report["version"]]}

    def drop_versions(self) -> list[int]:
        """Keep the current version only, and leave no trace of what only others had; returns their numbers."""
        with database.writing(self.root) as connection:
            with transaction(connection):
                current = versions.current_version(connection)[0]
                dropped = [number for number in versions.kept_versions(connection) if number != current]
                versions.drop_after(connection, current)
                versions.drop_before(connection, current)
                clear_class_names(open_snapshot(self.root, connection=connection))
            versions.scrub(connection, self.root)
            return dropped

    def export(
        self, out: str | Path, *, format: str = "safetensors", graph: bool = False, version: int | None = None
    ) -> list[Path]:
        """Write the model for use elsewhere; see :func:`ergnn.folder.exporting.export_snapshot`.

        Args:
            out: a folder, or a file with the suffix of the format.
            format: ``safetensors``, ``onnx`` or ``torch``.
            graph: write the graph, too.
        """
        from ergnn.folder.exporting import export_snapshot

        with wrap_errors(self.root), self.snapshot(version) as snapshot:
            return export_snapshot(snapshot, out, graph, format)

    def rollback(self, version: int | None = None) -> int:
        """Make an older version (by default the one before) the current one; returns its number.

        Newer versions can be returned to until something is observed or forgotten.
        """
        with database.writing(self.root) as connection:
            current, newest = versions.current_version(connection)
            kept = versions.kept_versions(connection)
            older = [number for number in kept if number < current]
            if version is None and not older:
                raise FolderError(f"{self.root}: version {current} is the oldest that is kept")
            wanted = older[-1] if version is None else version
            versions.read_version(connection, wanted)
            with transaction(connection):
                versions.drop_after(connection, kept[-1])  # an update that is not finished
                versions.set_current(connection, wanted, newest)
                versions.add_log(connection, "rollback", version=wanted)
        return wanted

    @contextmanager
    def _writing(self) -> Iterator[tuple[Snapshot, dict[str, Any] | None]]:
        """The current version on the only writer's connection, and the update that is not finished."""
        with database.writing(self.root) as connection:
            with reading_values("the unfinished update"):
                staged = [from_json(row[2]) for row in select(connection, "progress")]
            yield open_snapshot(self.root, connection=connection), staged[0] if staged else None

    def _drop_unfinished(self, connection: sqlite3.Connection) -> None:
        with transaction(connection):
            versions.drop_after(connection, versions.current_version(connection)[0])

    def _unfinished(self, staged: dict[str, Any], what: str) -> FolderError:
        name = staged["record"]["name"]
        return FolderError(
            f"{self.root}: {name!r} has begun and is not finished; go on with it (observe --resume), or drop it "
            f"(observe --discard), before {what}"
        )
