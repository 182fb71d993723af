"""The spool of a folder: updates that ``ergnn serve`` has accepted, on disk until they are learned.

Each job is a folder of ``spool/`` whose name is its number, with ``job.json``, and the tables of the update or the ids
to forget. It is written under a temporary name and renamed, so that it is complete or absent. Its files are deleted
once it is learned, refused, or deleted by the user; ``job.json`` has the outcome and is kept for the newest jobs.

Three files are locks, which the operating system releases if a process is killed. ``.lock``: one server. ``.learning``:
the server and its writer work on a job. ``.changes``: jobs are added, deleted or purged; its time is that of the last
purge.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ergnn.config.errors import BusyError, ErgnnError, truncate
from ergnn.config.files import write_file
from ergnn.data.tables import Columns, Limits, read_edges, read_nodes
from ergnn.data.tables.node_tables import canonical
from ergnn.data.tables.sources import GZ, read_bytes
from ergnn.folder.database import locked, now

SPOOL, JOB, IDS, INCOMING = "spool", "job.json", "ids.json", ".new-"
SERVING, LEARNING, CHANGES = ".lock", ".learning", ".changes"
JSON_LINES = ".jsonl"
TABLES = ("nodes", "edges", "update")
"""Names of tables without their suffix; ``update`` has nodes and edges."""
KINDS = ("observe", "forget")
STATES = ("queued", "running", "done", "failed", "deleted", "unreadable")
USUAL = Columns()
OUTCOMES = 100
"""Number of finished jobs whose outcome is kept."""
PURGED = "the update names nodes that were purged; send it again without them"
REMOVED = "the reason was removed by a purge, as it may name purged nodes"


@dataclass
class Job:
    """An update, or nodes to forget.

    Args:
        number: id of the job; never used again.
        kind: ``observe`` or ``forget``.
        name: name of the update.
        state: ``queued``, ``running``, ``done``, ``failed``, ``deleted``, or ``unreadable`` (set aside).
        created, finished: UTC times.
        attempts: number of times the writer has run it.
        phase: what happens to a running job: ``reading`` its tables, ``training`` a network or ``solving`` the closed
            form, ``forgetting`` nodes, and ``loading`` the new version.
        epoch, epochs: progress of training, if something is trained.
        version: the version that it created.
        result: record of the update, or report of the forgotten nodes.
        error: reason of a failure, in one line.
    """

    number: int
    kind: str
    name: str = ""
    state: str = "queued"
    created: str = field(default_factory=now)
    finished: str | None = None
    attempts: int = 0
    phase: str | None = None
    epoch: int = 0
    epochs: int | None = None
    version: int | None = None
    result: dict[str, Any] | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.state not in STATES or not isinstance(self.name, str):
            raise ValueError(f"kind {truncate(self.kind)}, state {truncate(self.state)} or the name is invalid")

    @property
    def is_finished(self) -> bool:
        return self.state not in ("queued", "running")

    def describe(self) -> dict[str, Any]:
        values = {**asdict(self), "phase": self.phase if self.state == "running" else None, "share": None}
        if values["phase"] == "training" and self.epochs:
            values["share"] = min(self.epoch / self.epochs, 1.0)
        if self.epochs is None:
            del values["epoch"], values["epochs"]
        return {"id": str(values.pop("number")), **values}


class Spool:
    """The jobs of a folder, in memory and on disk."""

    def __init__(self, root: Path) -> None:
        self.path = root / SPOOL
        self.path.mkdir(exist_ok=True)
        self.learning_lock = open(self.path / LEARNING, "a+")  # noqa: SIM115 (the writer inherits it)
        self.jobs: dict[int, Job] = {}
        self._last_purge = -1
        with self._changing():
            for directory in list(self.path.glob(f"{INCOMING}*")):
                shutil.rmtree(directory, ignore_errors=True)  # an upload that was interrupted
        for job in self.jobs.values():
            if not job.is_finished or (job.state == "failed" and self.holds_files(job)):
                job.state, job.attempts = "queued", 0
            elif job.state != "unreadable":
                _remove_files(self.directory(job))  # left by a server that was killed

    def close(self) -> None:
        self.learning_lock.close()

    def directory(self, job: Job) -> Path:
        return self.path / f"{job.number:08d}"

    def holds_files(self, job: Job) -> bool:
        """Whether the tables or ids of a job are still there."""
        return bool(_files(self.directory(job)))

    def unfinished(self) -> list[Job]:
        """Jobs in order of arrival."""
        return [job for _, job in sorted(self.jobs.items()) if not job.is_finished]

    def num_stored(self) -> int:
        """Number of jobs whose files are kept: unfinished ones, those that crashed the writer or are set aside."""
        unlearned = [job for job in self.jobs.values() if job.state not in ("done", "deleted")]
        return sum(not job.is_finished or self.holds_files(job) for job in unlearned)

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """Create a folder, which is removed unless it becomes a job."""
        directory = Path(tempfile.mkdtemp(prefix=INCOMING, dir=self.path))
        try:
            yield directory
        except FileNotFoundError:
            if directory.exists():
                raise
            raise BusyError("nodes were purged while the update arrived; send it again") from None
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def add(self, directory: Path, kind: str, name: str = "") -> Job:
        """Make an incoming folder a job; it is on disk when this returns."""
        for path in directory.iterdir():
            _sync(path)
        with self._changing():
            job = Job(max(self.jobs, default=0) + 1, kind, name)
            while self.directory(job).exists():  # e.g. restored from a backup
                job.number += 1
            _write(directory, job)
            _sync(directory)
            os.rename(directory, self.directory(job))
            _sync(self.path)
            self.jobs[job.number] = job
            return job

    def finish(self, job: Job, state: str, *, keep_files: bool = False, **outcome: Any) -> Job:
        """Store the outcome of a job, then delete its files, and the oldest outcomes; a purge has the last word."""
        with self._changing():
            if self.jobs[job.number].is_finished and state != "deleted":
                return self.jobs[job.number]
            job = replace(job, state=state, finished=now(), **outcome)
            if state == "deleted":
                _remove_files(self.directory(job))  # first, as the disk may be full
            _write(self.directory(job), job)
            if not keep_files:
                _remove_files(self.directory(job))
            self.jobs[job.number] = job
            ended = sorted(number for number, each in self.jobs.items() if each.state in ("done", "failed", "deleted"))
            for number in [number for number in ended if not self.holds_files(self.jobs[number])][:-OUTCOMES]:
                shutil.rmtree(self.directory(self.jobs.pop(number)))
            return job

    def refresh(self) -> None:
        """Read jobs that another process has purged."""
        with self._changing():
            pass

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Exclude purges while a job is learned; the writer shares the lock, also if it outlives the server."""
        with locked(self.learning_lock, "nodes are being purged from the spool"):
            self.refresh()
            yield

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change jobs as the only process; jobs are read again if there was a purge meanwhile."""
        with _changing(self.path):
            if (last_purge := _last_purge(self.path)) != self._last_purge:
                for directory in _directories(self.path):
                    job = _read(directory)
                    if job.is_finished or job.number not in self.jobs:
                        self.jobs[job.number] = job
                self._last_purge = last_purge
            yield


@contextmanager
def serving(root: Path) -> Iterator[None]:
    """Refuse a second server of the same folder."""
    (root / SPOOL).mkdir(exist_ok=True)
    with open(root / SPOOL / SERVING, "w") as file, locked(file, f"{root}: is being served by another process"):
        yield


def purge_spool(root: Path, ids: Collection[str], labels: Collection[str] = (), columns: Columns = USUAL) -> list[int]:
    """Remove nodes from the spool of a folder; returns the numbers of jobs that lost their tables.

    A job whose tables name one of the nodes fails, and its tables are deleted, as is everything that cannot be read.
    Ids are removed from jobs that forget nodes, and names of updates that contain an id or a label are removed, as are
    the reports of all finished jobs, which may name nodes. Uploads in progress are refused. After an error (e.g. a
    :class:`BusyError` while an update is learned) the same call completes the purge.
    """
    path, wanted, purged = root / SPOOL, frozenset(ids), list[int]()
    if not path.is_dir() or not wanted:
        return []
    busy = f"{root}: an update of `ergnn serve` is being learned; try again once it is done"
    with open(path / LEARNING, "a+") as file, locked(file, busy), _changing(path):
        os.utime(path / CHANGES, ns=(now_ns := max(time.time_ns(), _last_purge(path) + 1), now_ns))  # takes no room
        for directory in list(path.glob(f"{INCOMING}*")):
            shutil.rmtree(directory)
        for directory in _directories(path):
            job = after = _read(directory)
            if job.is_finished:
                after = replace(job, result=None, error=job.error and REMOVED)
            if any(text in job.name for text in (*wanted, *labels)):
                after = replace(after, name="")
            if _purge_files(directory, job, wanted, columns):
                purged.append(job.number)
                after = replace(after, state="failed", finished=now(), error=PURGED)
            if after != job:
                _write(directory, after)
    return purged


def spooled_ids(root: Path, columns: Columns) -> set[str]:
    """Ids that the tables and requests of a spool name, as far as they can be read."""
    ids: set[str] = set()
    for path in (path for directory in _directories(root / SPOOL) for path in _files(directory)):
        if path.name == IDS:
            ids |= set(json.loads(path.read_bytes())["ids"])
        elif path.name.partition(".")[0] in TABLES:
            ids |= _names(path, columns)
    return ids


def _purge_files(directory: Path, job: Job, ids: frozenset[str], columns: Columns) -> bool:
    """Remove ids from the files of a job; returns whether it lost its tables, which name a node or cannot be read."""
    files, is_readable = _files(directory), job.state != "unreadable"
    try:
        if files and is_readable and job.kind == "forget":
            request = json.loads((directory / IDS).read_bytes())
            for key in {"ids", "unknown"} & request.keys():
                request[key] = [name for name in request[key] if name not in ids]
            write_file(directory / IDS, json.dumps(request).encode())
            return False
        if files and is_readable and all(ids.isdisjoint(_names(path, columns)) for path in files):
            return False
    except (ErgnnError, ValueError, TypeError, AttributeError, RecursionError):
        pass  # it cannot be read
    _remove_files(directory)
    return bool(files) or not is_readable or not job.is_finished


def _names(path: Path, columns: Columns) -> set[str]:
    """Ids of the nodes of a table, or of the ends of its edges."""
    if path.name.removesuffix(GZ).endswith(JSON_LINES):
        rows = [json.loads(line) for line in read_bytes(path, Limits()).splitlines() if line.strip()]
        return {canonical(row[key]) or "" for row in rows for key in ("id", "source", "target") if key in row}
    if path.name.startswith("nodes"):
        return set(read_nodes(path, columns=replace(columns, features=[])).ids)
    edges = read_edges(path, columns=columns)
    return {*edges.source, *edges.target}


@contextmanager
def _changing(spool: Path) -> Iterator[None]:
    with open(spool / CHANGES, "a+") as file, locked(file, "", wait=True):
        yield


def _last_purge(spool: Path) -> int:
    """The time of the last purge, in nanoseconds."""
    return (spool / CHANGES).stat().st_mtime_ns


def _directories(spool: Path) -> list[Path]:
    """The folders of jobs, in the order of their numbers."""
    jobs = [path for path in spool.glob("*") if re.fullmatch("[0-9]{8,18}", path.name) and path.is_dir()]
    return sorted(jobs, key=lambda path: int(path.name))


def _files(directory: Path) -> list[Path]:
    """The files of a job: its tables or ids, and what a crash left behind."""
    return [path for path in directory.iterdir() if path.name != JOB]


def _remove_files(directory: Path) -> None:
    for path in _files(directory):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _read(directory: Path) -> Job:
    """Read a job, without fields that a newer version may have added; one that cannot be read is set aside."""
    number = int(directory.name)
    try:
        values = json.loads((directory / JOB).read_bytes())
        return Job(**{f.name: values[f.name] for f in fields(Job) if f.name in values} | {"number": number})
    except (OSError, ValueError, TypeError, RecursionError) as error:
        kind = "forget" if (directory / IDS).exists() else "observe"
        text = f"update {number} is set aside, as its {JOB} cannot be read ({type(error).__name__}); it can be deleted"
        return Job(number, kind, state="unreadable", error=text)


def _write(directory: Path, job: Job) -> None:
    write_file(directory / JOB, json.dumps(asdict(job)).encode())


def _sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
