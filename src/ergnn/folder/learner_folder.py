"""A learner in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Any

from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.errors import ErgnnError, InputError
from ergnn.folder.files import FolderError
from ergnn.folder.graph_store import GraphStore
from ergnn.folder.learning import commit_update, learn_update
from ergnn.folder.lock import writing
from ergnn.folder.model import hops_of, make_learner
from ergnn.folder.prediction import predictions
from ergnn.folder.progress import Checkpoints, Staged, discard, open_staged, read_staged, stage, tables_digest
from ergnn.folder.scoring import Score, score_updates
from ergnn.folder.settings import Settings
from ergnn.folder.snapshot import CHUNK, Snapshot, open_snapshot, snapshot_of
from ergnn.folder.state import pack_learner
from ergnn.folder.tensors import Array
from ergnn.folder.update import make_update
from ergnn.folder.versions import Current, open_version, read_current, tidy, write_current, write_version


class LearnerFolder:
    """A graph that grows, a model that learns along, and all that is needed to go on, in one folder.

    Every method that changes something writes a new version beside the old ones and then swaps it in; every method that
    asks something reads the version that is current when it is called.

    Args:
        root: the folder; :meth:`create` makes one.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        read_current(self.root)

    @classmethod
    def create(cls, root: str | Path, settings: Settings | None = None) -> LearnerFolder:
        """Make a folder for a learner that has learnt nothing yet."""
        root, settings = Path(root), settings or Settings()
        hops_of(settings)
        learner, weights, buffer = pack_learner(make_learner(settings))
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise FolderError(f"{root}: is there already, and is not an empty folder")
        try:
            (root / "segments").mkdir(parents=True)
            (root / "versions").mkdir()
        except OSError as error:
            raise FolderError(f"{root}: cannot be made ({error.strerror})") from None
        state: dict[str, Any] = {
            "classes": [],
            "num_features": settings.features,
            "dense": None,
            "input": "",
            "learner": learner,
        }
        with writing(root):
            write_version(root, 0, settings, state, weights, buffer, [], [], None)
        return cls(root)

    @property
    def settings(self) -> Settings:
        return open_version(self.root).settings

    def snapshot(self, version: int | None = None) -> Snapshot:
        """What the folder knows, by default now."""
        return open_snapshot(self.root, version)

    def observe(
        self,
        nodes: NodeTable | None = None,
        edges: EdgeTable | None = None,
        *,
        name: str = "",
        checkpoint_seconds: float = 5.0,
        on_epoch: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """Take in new nodes, edges and labels, and learn the labelled ones; returns the update's record.

        An update that was interrupted goes on if it is given again. One that is in the folder already is left alone
        (its record has ``"again": True``).

        Args:
            nodes: new nodes, and known ones that have a label now.
            edges: between nodes, new or known.
            name: for people; by default ``update 1``, ``update 2``, …
            checkpoint_seconds: how often learning leaves a checkpoint.
            on_epoch: called after every epoch.
        """
        digest = tables_digest(nodes, edges)
        with self._writing() as (base, staged):
            if staged is not None and staged.digest != digest:
                raise FolderError(
                    f"{self.root}: {staged.name!r} has begun and is not finished; go on with it (--resume), or drop it "
                    "(--discard), before another one comes"
                )
            count = len(base.version.record_entries)
            if staged is None:
                if count and base.version.state.get("input") == digest:
                    return {**base.version.record(count - 1), "again": True}
                if nodes is None and edges is None:
                    raise InputError("an update needs nodes, or edges, or both")
                state = base.version.state
                update = make_update(base.store, base.settings, state, nodes, edges, count)
                name = name or f"update {count + 1}"
                staged = stage(self.root, update, base.version.number, count, name, digest)
            return self._finish(base, staged, checkpoint_seconds, on_epoch)

    def resume(
        self, *, checkpoint_seconds: float = 5.0, on_epoch: Callable[[], None] | None = None
    ) -> dict[str, Any] | None:
        """Go on with an update that was interrupted; None if there is none."""
        with self._writing() as (base, staged):
            return None if staged is None else self._finish(base, staged, checkpoint_seconds, on_epoch)

    def discard(self) -> str | None:
        """Drop an update that was interrupted; returns its name."""
        with self._writing() as (_, staged):
            discard(self.root)
            return None if staged is None else staged.name

    def _finish(
        self, base: Snapshot, staged: Staged, checkpoint_seconds: float, on_epoch: Callable[[], None] | None
    ) -> dict[str, Any]:
        start = perf_counter()
        segment = open_staged(self.root, staged)
        store = GraphStore([*base.version.segments, segment], staged.num_features)
        grown = replace(base, store=store, classes=staged.classes, dense=bool(staged.dense))
        try:
            learnt = learn_update(grown, staged.update, Checkpoints(self.root, checkpoint_seconds), on_epoch)
        except ErgnnError as error:
            if not isinstance(error, FolderError):  # it would not be learnt next time either
                discard(self.root)
            raise
        record = commit_update(grown, staged, segment, learnt)
        discard(self.root)
        seconds, read = perf_counter() - start, sum(part.read_bytes for part in [*base.version.segments, segment])
        self._log("observe", update=staged.update, name=staged.name, seconds=round(seconds, 3), read_bytes=read)
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
            classes: only these compete (the task is known); by default all that were learnt.
        """
        return predictions(self.snapshot(version), ids, nodes, edges, classes, chunk)

    def classes_of(self, update: int, version: int | None = None) -> list[str]:
        """The classes that an update taught (updates count from 0)."""
        records = open_version(self.root, version)
        if not 0 <= update < len(records.record_entries):
            raise InputError(f"update {update + 1} has not been observed; {len(records.record_entries)} have, from 1")
        classes: list[str] = records.record(update)["classes"]
        if not classes:
            raise InputError(f"update {update + 1} taught no class; it had no labelled nodes")
        return classes

    def evaluate(self, version: int | None = None, *, task_known: bool = False) -> list[tuple[dict[str, Any], Score]]:
        """Each update's record, and its score now on all nodes that were held out of it.

        Args:
            task_known: whether only the classes of a node's own update compete.
        """
        snapshot = self.snapshot(version)
        scores = score_updates(snapshot, len(snapshot.version.record_entries), task_known=task_known)
        return [(snapshot.version.record(score[0]), score) for score in scores]

    def inspect(self, version: int | None = None) -> dict[str, Any]:
        """Graph, buffer, accuracy since each update, drift, bytes, versions and history."""
        from ergnn.folder.inspection import inspect_snapshot

        return inspect_snapshot(self.snapshot(version))

    def forget(self, ids: Sequence[str], *, retrain: bool = False) -> dict[str, Any]:
        """Remove nodes from the graph and the buffer; see :func:`ergnn.folder.forgetting.forget_nodes`."""
        from ergnn.folder.forgetting import forget_nodes

        with self._writing() as (base, staged):
            if staged is not None:
                raise FolderError(
                    f"{self.root}: {staged.name!r} has begun and is not finished; go on with it (observe --resume), or "
                    "drop it (observe --discard), before anything is forgotten"
                )
            report = forget_nodes(base, [str(text) for text in ids], retrain)
            self._log("forget", nodes=report["nodes"], retrained=retrain)
            return report

    def drop_versions(self) -> list[int]:
        """Keep the current version only, e.g. after nodes were forgotten; returns the numbers of the others."""
        with writing(self.root):
            current = read_current(self.root)
            alone = Current(current.version, current.newest, {current.version: current.manifests[current.version]})
            write_current(self.root, alone)
            tidy(self.root, alone)
            return [number for number in sorted(current.manifests) if number != current.version]

    def export(self, out: str | Path, *, graph: bool = False, version: int | None = None) -> list[Path]:
        """Write weights and what they mean; see :func:`ergnn.folder.exporting.export_snapshot`."""
        from ergnn.folder.exporting import export_snapshot

        return export_snapshot(self.snapshot(version), out, graph)

    def rollback(self, version: int | None = None) -> int:
        """Make an older version (by default the one before) the current one; returns its number."""
        with writing(self.root):
            current = read_current(self.root)
            older = [number for number in sorted(current.manifests) if number < current.version]
            if version is None and not older:
                raise FolderError(f"{self.root}: version {current.version} is the oldest that is kept")
            wanted = older[-1] if version is None else version
            open_version(self.root, wanted)
            discard(self.root)
            write_current(self.root, Current(wanted, current.newest, current.manifests))
            self._log("rollback", version=wanted)
        return wanted

    def _log(self, what: str, **entries: Any) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with open(self.root / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": now, "what": what, **entries}, ensure_ascii=False) + "\n")

    def _writing(self) -> _Writing:
        return _Writing(self.root)


class _Writing:
    """The lock, the current version, and the update that is on its way (one that the version is past is dropped)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = writing(root)

    def __enter__(self) -> tuple[Snapshot, Staged | None]:
        self._lock.__enter__()
        try:
            version = open_version(self.root)
            tidy(self.root, version.current)
            staged = read_staged(self.root)
            if staged is not None and staged.base != version.number:
                discard(self.root)
                staged = None
            return snapshot_of(version), staged
        except BaseException as error:
            self._lock.__exit__(type(error), error, None)
            raise

    def __exit__(self, *error: Any) -> bool | None:
        return self._lock.__exit__(*error)
