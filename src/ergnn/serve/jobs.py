"""Queued updates: each is a folder in ``spool/``, so that they survive a restart.

The folder of a job is written under a temporary name and renamed, so that it is complete or absent. Its tables are
deleted once they are learned or refused; its ``job.json`` has the outcome and is kept for the newest jobs.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ergnn.config.errors import BusyError, truncate
from ergnn.folder.versions import now

SPOOL, FILE, NEW = "spool", "job.json", ".new-"
LOG = logging.getLogger("ergnn.serve")
KEPT = 100
"""Number of finished jobs whose outcome is kept."""


@dataclass
class Job:
    """An update, or nodes to forget.

    Args:
        number: id of the job.
        kind: ``observe`` or ``forget``.
        name: name of the update.
        state: ``queued``, ``running``, ``done`` or ``failed``.
        created, finished: UTC times.
        attempts: number of times the writer started it.
        epoch, epochs: progress of learning, if it has epochs.
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
    epoch: int = 0
    epochs: int | None = None
    version: int | None = None
    result: dict[str, Any] | None = None
    error: str | None = None

    @property
    def is_finished(self) -> bool:
        return self.state in ("done", "failed")

    def describe(self) -> dict[str, Any]:
        found = asdict(self)
        return {"id": str(found.pop("number")), **found}


class Spool:
    """The jobs of a folder.

    Args:
        root: the learner's folder.
    """

    def __init__(self, root: Path) -> None:
        self.path = root / SPOOL
        self.path.mkdir(exist_ok=True)
        self.jobs: dict[int, Job] = {}
        self._lock = threading.Lock()
        for place in sorted(self.path.iterdir()):
            if place.name.startswith(NEW):
                shutil.rmtree(place)  # an incomplete upload
            elif place.name.isdigit() and (job := _read(place)) is not None:
                self.jobs[job.number] = job

    def place(self, job: Job) -> Path:
        return self.path / f"{job.number:08d}"

    def unfinished(self) -> list[Job]:
        """Jobs in order of arrival."""
        return [job for _, job in sorted(self.jobs.items()) if not job.is_finished]

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """Create a folder, which is removed unless it becomes a job."""
        place = Path(tempfile.mkdtemp(prefix=NEW, dir=self.path))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def add(self, place: Path, kind: str, name: str = "") -> Job:
        """Make an incoming folder a job; it is on disk when this returns."""
        for path in place.iterdir():
            _sync(path)
        with self._lock:
            job = Job(max(self.jobs, default=0) + 1, kind, name)
            _write(place, job)
            _sync(place)
            os.rename(place, self.place(job))
            _sync(self.path)
            self.jobs[job.number] = job
            return job

    def save(self, job: Job) -> None:
        """Store the state of a job; delete the tables of a finished job, and the oldest finished jobs."""
        _write(self.place(job), job)
        if job.is_finished:
            for path in self.place(job).iterdir():
                if path.name != FILE:
                    path.unlink()
        self.jobs[job.number] = job
        for number in [n for n, each in sorted(self.jobs.items()) if each.is_finished][:-KEPT]:
            shutil.rmtree(self.place(self.jobs.pop(number)))


@contextmanager
def serving(root: Path) -> Iterator[None]:
    """Refuse a second server of the same folder."""
    import fcntl  # unavailable on Windows

    (root / SPOOL).mkdir(exist_ok=True)
    with open(root / SPOOL / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{root}: is being served by another process") from None
        yield


def _read(place: Path) -> Job | None:
    try:
        values = json.loads((place / FILE).read_text(encoding="utf-8"))
        return Job(**{**values, "number": int(place.name)})
    except (OSError, ValueError, TypeError) as error:
        LOG.warning("%s: ignored, as it is not a job (%s)", place, truncate(str(error)))
        return None


def _write(place: Path, job: Job) -> None:
    beside = place / f"{FILE}.new"
    beside.write_text(json.dumps(asdict(job)), encoding="utf-8")
    _sync(beside)
    os.replace(beside, place / FILE)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
