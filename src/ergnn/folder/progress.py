"""An update on its way: what it brings is in the folder before learning begins, and learning leaves checkpoints.

    progress/update.json             the update's number, name, counts and classes, sealed
    progress/update.safetensors      its segment
    progress/checkpoint.json         the newest checkpoint: epoch, and checksum of the tensors, sealed
    progress/000040.safetensors      its tensors

An update that was killed goes on from the newest checkpoint and ends as if nothing had happened.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import scipy.sparse

from ergnn.callbacks import Callback
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.folder import files
from ergnn.folder.files import FolderError
from ergnn.folder.graph_store import layout_of
from ergnn.folder.segment import FileSegment, write_segment
from ergnn.folder.state import pack, unpack
from ergnn.folder.tensors import from_bytes, to_bytes
from ergnn.folder.update import Update
from ergnn.folder.versions import SCHEMA, check_entry, check_schema, open_segment
from ergnn.methods import LearnerView
from ergnn.training import TaskProgress


@dataclass(frozen=True)
class Staged:
    """An update that is in the folder but not learnt yet.

    Args:
        base: the version that it comes after.
        update: its number.
        name: what the user calls it.
        digest: of the tables that it was made of.
        counts, classes, num_features, dense: see :class:`Update`.
        segment: the manifest's entry for its segment.
    """

    base: int
    update: int
    name: str
    digest: str
    counts: dict[str, int]
    classes: list[str]
    num_features: int
    dense: bool | None
    segment: dict[str, Any]


def tables_digest(nodes: NodeTable | None, edges: EdgeTable | None) -> str:
    """What two equal updates have in common, and no others."""
    total = hashlib.sha256()
    columns: list[Any] = []
    if nodes is not None:
        x = scipy.sparse.csr_matrix(nodes.features)
        columns += [nodes.ids, nodes.labels, nodes.split, x.indptr, x.indices, x.data]
    columns += [None] if edges is None else [edges.source, edges.target]
    for column in columns:
        text = column is None or column.dtype == object
        data = files.to_json({"v": None if column is None else list(column)}) if text else column.tobytes()
        total.update(hashlib.sha256(data).digest())
    return total.hexdigest()


def stage(root: Path, update: Update, base: int, number: int, name: str, digest: str) -> Staged:
    """Put an update into the folder, all at once."""
    beside = root / "progress.new"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    segment = write_segment(beside / "update.safetensors", layout_of(update.arrays))
    rest = (update.counts, update.classes, update.num_features, update.dense)
    staged = Staged(base, number, name, digest, *rest, segment)
    files.write_file(beside / "update.json", files.seal({"schema": SCHEMA, **asdict(staged)}))
    files.sync_folder(beside)
    beside.rename(root / "progress")
    files.sync_folder(root)
    return staged


def read_staged(root: Path) -> Staged | None:
    """The update that is on its way, if there is one."""
    path = root / "progress" / "update.json"
    if not path.parent.is_dir():
        return None
    body = files.unseal(files.read_file(path, files.MOST_JSON), path)
    check_schema(body, path)
    kinds: dict[str, Any] = {"name": str, "digest": str, "counts": dict, "classes": list, "segment": dict}
    found = {key: files.field(body, key, kind, path) for key, kind in kinds.items()}
    found |= {key: files.number(body, key, path) for key in ("base", "update", "num_features")}
    if not all(isinstance(c, str) for c in found["classes"]) or body.get("dense") not in (None, True, False):
        raise FolderError(f"{path}: is malformed")
    found["segment"] = check_entry(found["segment"], path)
    return Staged(**found, dense=body.get("dense"))


def open_staged(root: Path, staged: Staged) -> FileSegment:
    return open_segment(root / "progress" / "update.safetensors", staged.segment)


def discard(root: Path) -> None:
    """Forget what is on its way."""
    gone = root / "progress.old"
    shutil.rmtree(gone, ignore_errors=True)
    if (root / "progress").is_dir():
        (root / "progress").rename(gone)
        files.sync_folder(root)
    shutil.rmtree(gone, ignore_errors=True)


class Checkpoints(Callback):
    """Checkpoints of an update that is being learnt.

    Args:
        root: the folder.
        seconds: time between two of them; 0 writes one after every epoch.
    """

    def __init__(self, root: Path, seconds: float) -> None:
        self.folder, self.seconds = root / "progress", seconds
        self._last = monotonic()

    def on_epoch_end(self, learner: LearnerView, progress: TaskProgress) -> None:
        if monotonic() - self._last < self.seconds:
            return
        tensors: dict[str, Any] = {}
        state = pack(progress.state_dict(), tensors)
        data = to_bytes(tensors)
        path = self.folder / f"{progress.epoch:06d}.safetensors"
        files.write_file(path, data)
        body = {"schema": SCHEMA, "name": path.name, "bytes": len(data), "sha256": files.checksum(data), "state": state}
        files.replace_file(self.folder / "checkpoint.json", files.seal(body))
        for old in self.folder.glob("[0-9]*.safetensors"):
            if old != path:
                old.unlink()
        self._last = monotonic()

    def read(self, most: int) -> dict[str, Any] | None:
        """The newest checkpoint; None if there is none, or none that is whole: learning then begins anew."""
        path = self.folder / "checkpoint.json"
        try:
            body = files.unseal(files.read_file(path, files.MOST_JSON), path)
            check_schema(body, path)
            name = files.field(body, "name", str, path)
            if not name.removesuffix(".safetensors").isdecimal():
                return None
            data = files.read_file(self.folder / name, most, body["bytes"], body["sha256"])
            return unpack(files.field(body, "state", dict, path), from_bytes(data, path)[0], path)
        except (FolderError, KeyError):
            return None
