"""The running service: the served version, the queue of jobs, and the single writer that runs them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ergnn.config.errors import ErgnnError
from ergnn.data.tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder
from ergnn.folder.versions import now
from ergnn.serve.jobs import Job, Spool
from ergnn.serve.limits import ServeLimits, one_line
from ergnn.serve.live import LiveWatch
from ergnn.serve.metrics import Metrics
from ergnn.serve.model import ServedVersion, current_number, load_version
from ergnn.serve.writer import Writer

LOG = logging.getLogger("ergnn.serve")
ATTEMPTS = 3
"""Number of times a job that crashes the writer is started before it is discarded."""
POLL = 2.0
"""Seconds between checks for a new version."""
IDLE = 60.0
"""Seconds without a job after which the writer exits to free memory."""
T = TypeVar("T")


class Service:
    """Serves one folder.

    Args:
        root: the learner's folder.
        limits: limits on requests.
        plugins: files and modules with registered entries that the folder uses.
    """

    def __init__(self, root: Path, limits: ServeLimits | None = None, plugins: Sequence[str] = ()) -> None:
        self.folder, self.limits = LearnerFolder(root), limits or ServeLimits()
        self.metrics, self.spool = Metrics(), Spool(root)
        self.served: ServedVersion = load_version(self.folder)
        self.trouble = ""
        self._found: dict[str, Any] | None = None
        self._live: LiveWatch | None = None
        self._watching = False
        self._tasks: list[asyncio.Task[None]] = []
        self._answers, self._loads = ThreadPoolExecutor(2, "answer"), ThreadPoolExecutor(1, "load")
        self._wake: asyncio.Event
        self._swapping: asyncio.Lock
        self._writer = Writer(root, self.limits.tables, plugins)

    async def start(self) -> None:
        self._wake, self._swapping = asyncio.Event(), asyncio.Lock()
        for job in self.spool.unfinished():
            job.state, job.attempts = "queued", 0
        self._swap(self.served)
        self._tasks = [asyncio.create_task(work()) for work in (self._write, self._watch)]

    async def stop(self) -> None:
        """Stop the writer; its job continues when the folder is served again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._writer.close()
        self._answers.shutdown(wait=False, cancel_futures=True)
        self._loads.shutdown(wait=True, cancel_futures=True)

    async def answer(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function that takes longer than a millisecond in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._answers, work, *args)

    async def load(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function that reads the whole folder in a thread, one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._loads, work, *args)

    async def inspect(self) -> dict[str, Any]:
        """Result of ``ergnn inspect`` for the served version; computed once per version."""
        number = self.served.number
        if self._found is None or self._found["version"] != number:
            self._found = await self.load(self.folder.inspect, number)
            self.metrics.show(self._found)
            self._live = await self.load(self._start_watching, number)
        return self._found

    def _start_watching(self, number: int) -> LiveWatch:
        with self.folder.snapshot(number) as snapshot:
            live = LiveWatch(snapshot)
        self.metrics.show_live(live.summary())
        return live

    def watch(self, version: ServedVersion, nodes: NodeTable, edges: EdgeTable | None) -> None:
        """Compare new nodes of a request with the graph in the background; skipped while others are compared."""
        live = self._live
        if live is None or self._watching:
            return

        def work() -> None:
            try:
                live.add(version.snapshot, nodes=nodes, edges=edges)
                self.metrics.show_live(live.summary())
            except Exception:
                LOG.exception("nodes of a request could not be watched")
            finally:
                self._watching = False

        self._watching = True
        self._loads.submit(work)

    async def rollback(self, version: int | None) -> int:
        """Serve an older version; a running writer is not interrupted."""
        number = await self.load(self.folder.rollback, version)
        await self.refresh()
        self.metrics.updates.labels("rollback", "done").inc()
        return number

    async def submit(self, place: Path, kind: str, name: str = "") -> Job:
        """Queue a job whose files are in a folder of the spool."""
        job = await self.answer(self.spool.add, place, kind, name)
        self.metrics.waiting.set(len(self.spool.unfinished()))
        self._wake.set()
        return job

    def _swap(self, version: ServedVersion) -> None:
        """Serve a version: one assignment, since a request reads ``served`` once."""
        self.served = version
        self.metrics.version.set(version.number)
        self.metrics.loaded.set(time.time())
        self.metrics.waiting.set(len(self.spool.unfinished()))

    async def refresh(self) -> None:
        """Load and serve the current version, if it is not served yet."""
        async with self._swapping:
            if await self.load(current_number, self.folder) != self.served.number:
                self._swap(await self.load(load_version, self.folder))

    async def _watch(self) -> None:
        """Check for new versions, since other programs may write to the folder as well."""
        while True:
            try:
                await self.refresh()
                await self.inspect()
                self.trouble = ""
            except ErgnnError as error:
                if self.trouble != (text := one_line(error)):
                    LOG.error("the last good version is still served: %s", text)
                self.trouble = text
            await asyncio.sleep(POLL)

    async def _write(self) -> None:
        while True:
            self._wake.clear()
            try:
                for job in self.spool.unfinished():
                    await self._run_job(job)
            except Exception as error:  # e.g. a full disk: the job stays in the queue and is tried again
                LOG.exception("an update is delayed: %s", one_line(error))
                await asyncio.sleep(POLL)
                continue
            try:
                await asyncio.wait_for(self._wake.wait(), IDLE)
            except (TimeoutError, asyncio.TimeoutError):
                await self._writer.close()

    async def _run_job(self, job: Job) -> None:
        """Run a job; it is done once its version is served and its files are deleted."""
        place, outcome = self.spool.place(job), dict[str, Any]()
        while not outcome:
            job.state, job.attempts = "running", job.attempts + 1
            await self.answer(self.spool.save, job)
            start = time.monotonic()
            said = await self._writer.run(job.kind, place, job)
            self.metrics.learning.inc(time.monotonic() - start)
            if "result" in said:
                await self.refresh()
                outcome = {"state": "done", "result": said["result"], "version": self.served.number}
            elif "error" in said:
                outcome = {"state": "failed", "error": one_line(said["error"])}
            elif "busy" in said:
                job.state, job.attempts = "queued", job.attempts - 1
                await asyncio.sleep(POLL)
            elif job.attempts >= ATTEMPTS:
                await self._writer.run("discard", place, job)
                error = f"the writer ended unexpectedly {ATTEMPTS} times; the update was discarded"
                outcome = {"state": "failed", "error": error}
        job = replace(job, **outcome, finished=now())
        await self.answer(self.spool.save, job)
        self.metrics.updates.labels(job.kind, job.state).inc()
        self.metrics.waiting.set(len(self.spool.unfinished()))
