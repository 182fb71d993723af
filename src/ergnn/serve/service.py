"""The running service: the served version, the queue of jobs, and the single writer that runs them."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio

from ergnn.config.errors import BusyError, ErgnnError
from ergnn.config.limits import ServeLimits
from ergnn.data.tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder
from ergnn.folder.spool import SPOOL, Job, Spool
from ergnn.folder.update import tables_digest
from ergnn.serve.guard import one_line
from ergnn.serve.live import LiveWatch
from ergnn.serve.metrics import Metrics
from ergnn.serve.model import ServedVersion, current_number, load_version
from ergnn.serve.requests import read_upload
from ergnn.serve.writer import Writer

LOG = logging.getLogger("ergnn.serve")
ATTEMPTS = 3
"""Number of times a job that crashes the writer is started before it fails."""
POLL = 2.0
"""Seconds between checks for a new version, and between attempts of a job that has to wait."""
READING, WAITING = "the last good version is still served", "accepted updates wait"
"""Kinds of trouble."""
T = TypeVar("T")


class Service:
    """Serves one folder; ``plugins`` are files and modules with registered entries that it uses."""

    def __init__(self, root: Path, limits: ServeLimits | None = None, plugins: Sequence[str] = ()) -> None:
        self.folder, self.limits = LearnerFolder(root), limits or ServeLimits()
        self.metrics, self.spool = Metrics(), Spool(root)
        self.served: ServedVersion = load_version(self.folder)
        self._troubles: dict[str, str] = {}
        self._digests: set[str] = set()
        self._live: LiveWatch | None = None
        self._compared: Future[None] | None = None
        self._answers, self._loads = ThreadPoolExecutor(2, "answer"), ThreadPoolExecutor(1, "load")  # one at a time
        self._inspections = ThreadPoolExecutor(1, "inspect")  # takes longer than to load a version
        self._wake, self._swapping = asyncio.Event(), asyncio.Lock()
        self._writer = Writer(root, self.limits.tables, plugins, self.spool.learning_lock.fileno())

    @asynccontextmanager
    async def running(self, app: object) -> AsyncIterator[None]:
        """Learn updates while an application runs; an unfinished one continues when the folder is served again."""
        self._swap(self.served)
        self.metrics.waiting.set_function(lambda: len(self.spool.unfinished()))
        tasks = [asyncio.create_task(work()) for work in (self._write, self._watch)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._writer.close()
            self._answers.shutdown(wait=False, cancel_futures=True)
            for threads in (self._loads, self._inspections):
                threads.shutdown(wait=True, cancel_futures=True)
            self.spool.close()

    def without_paths(self, error: object) -> str:
        """A message in one line, without paths of the server."""
        root, text = self.folder.root, str(error)
        for path in sorted({str(root), str(root.absolute()), str(root.resolve())} - {"."}, key=len, reverse=True):
            text = re.sub(rf"{re.escape(path)}/{SPOOL}/[^/\s]+/", "", text).replace(path, root.resolve().name)
        return one_line(text)

    def troubles(self) -> list[str]:
        """What keeps the service from its work, for ``/health``."""
        aside = [str(job.error) for job in self.spool.jobs.values() if job.state == "unreadable"]
        return [*self._troubles.values(), *aside]

    def _trouble(self, what: str, error: Exception | None) -> None:
        """Note an error, or its end; each is logged once."""
        text = "" if error is None else f"{what}: {self.without_paths(error)}"
        if text and self._troubles.get(what) != text:
            LOG.error("%s", text, exc_info=None if isinstance(error, (ErgnnError, OSError)) else error)
        self._troubles = {key: value for key, value in {**self._troubles, what: text}.items() if value}

    async def answer(self, work: Callable[..., T], *args: Any, threads: ThreadPoolExecutor | None = None) -> T:
        """Run a function that takes longer than a millisecond in a thread."""
        return await asyncio.get_running_loop().run_in_executor(threads or self._answers, work, *args)

    async def inspect(self) -> dict[str, Any]:
        """Result of ``ergnn inspect`` for the served version; computed once per version."""
        served, inspection = self.served, self.metrics.inspection
        if inspection is None or inspection["version"] != served.number:
            inspection = await self.answer(self.folder.inspect, served.number, threads=self._inspections)
            self.metrics.inspection = inspection
            self._live = await self.answer(LiveWatch, served, threads=self._inspections)
            self.metrics.live = self._live.summary
        return inspection

    def watch(self, version: ServedVersion, nodes: NodeTable, edges: EdgeTable | None) -> None:
        """Compare new nodes of a request with the graph in the background; skipped while others are compared."""
        live = self._live
        if live is None or (self._compared is not None and not self._compared.done()):
            return

        def work() -> None:
            try:
                live.add(version, nodes, edges)
            except Exception:
                LOG.exception("nodes of a request could not be watched")

        self._compared = self._inspections.submit(work)

    async def rollback(self, version: int | None) -> int:
        """Serve an older version; a running writer is not interrupted."""
        number = await self.answer(self.folder.rollback, version, threads=self._loads)
        await self.refresh()
        self.metrics.updates.labels("rollback", "done").inc()
        return number

    async def submit(self, directory: Path, kind: str, name: str = "") -> Job:
        """Queue a job whose files are in a folder of the spool; a time limit does not interrupt it."""
        with anyio.CancelScope(shield=True):
            job = await self.answer(self.spool.add, directory, kind, name)
        self._wake.set()
        return job

    async def delete(self, job: Job) -> Job:
        """Delete an update that has not been learned."""
        if job.state in ("running", "done", "deleted"):
            raise BusyError(
                f"update {job.number} is {job.state}; one that waits, failed or is set aside can be deleted"
            )
        job.state = "deleted"  # before anything is awaited, so that the writer does not start it
        self._digests |= await self.answer(self._digest, job)
        job = await self.answer(lambda: self.spool.finish(job, "deleted", error=None))
        self._wake.set()
        return job

    def _digest(self, job: Job) -> set[str]:
        """The digest of an update, by which it is found in the folder if it was interrupted."""
        try:
            columns = self.served.version.columns
            return {tables_digest(*read_upload(self.spool.directory(job), self.limits.tables, columns))}
        except (ErgnnError, OSError):
            return set()

    def _swap(self, version: ServedVersion) -> None:
        """Serve a version: one assignment, since a request reads ``served`` once."""
        self.served = version
        self.metrics.version.set(version.number)
        self.metrics.loaded.set(time.time())

    async def refresh(self) -> None:
        """Load and serve the current version, if it is not served yet."""
        async with self._swapping:
            if await self.answer(current_number, self.folder, threads=self._loads) != self.served.number:
                self._swap(await self.answer(load_version, self.folder, threads=self._loads))

    async def _watch(self) -> None:
        """Check for new versions, since other programs may write to the folder as well."""
        while True:
            try:
                await self.refresh()
                if not self.spool.unfinished():
                    await self.inspect()
                self._trouble(READING, None)
            except ErgnnError as error:
                self._trouble(READING, error)
            await asyncio.sleep(POLL)

    async def _write(self) -> None:
        while True:
            self._wake.clear()
            try:
                while jobs := self.spool.unfinished():
                    await self._run_job(jobs[0])
                    self._trouble(WAITING, None)
                with self.spool.learning():
                    await self._discard_interrupted()
                self._trouble(WAITING, None)
                await self._writer.start()  # so that it is ready when an update comes
                await self._wake.wait()
            except BusyError:  # another program writes to the folder
                await asyncio.sleep(POLL)
            except Exception as error:  # e.g. a full disk: the job stays in the queue and is tried again
                self._trouble(WAITING, error)
                await asyncio.sleep(POLL)

    async def _run_job(self, job: Job) -> None:
        """Start a job once; it is done when its version is served and its outcome is on disk."""
        with self.spool.learning():
            await self._discard_interrupted()
            if self.spool.jobs[job.number].is_finished:
                return  # purged or deleted meanwhile
            job.state, start = "running", time.monotonic()
            try:
                answer = await self._writer.run(job.kind, job, directory=str(self.spool.directory(job)), name=job.name)
                job.attempts += 1
                if "result" in answer:
                    job.phase = "loading"
                    await self._insist(self.refresh)
                    await self._finish(job, "done", result=answer["result"], version=self.served.number)
                elif "refused" in answer:
                    await self._finish(job, "failed", error=self.without_paths(answer["refused"]))
                elif job.attempts >= ATTEMPTS:
                    self._digests |= await self.answer(self._digest, job)
                    await self._discard_interrupted()
                    error = f"the writer ended unexpectedly {ATTEMPTS} times; it is tried again after a restart"
                    await self._finish(job, "failed", keep_files=True, error=error)
            finally:
                job.state = "queued"  # unless it is finished, which another object says
                self.metrics.learning.inc(time.monotonic() - start)

    async def _discard_interrupted(self) -> None:
        """Discard what the folder has of updates that were deleted or crashed the writer."""
        while self._digests:
            await self._writer.run("discard", digest=min(self._digests))
            self._digests.remove(min(self._digests))

    async def _finish(self, job: Job, state: str, **outcome: Any) -> None:
        finished = await self._insist(lambda: self.answer(lambda: self.spool.finish(job, state, **outcome)))
        self.metrics.updates.labels(job.kind, finished.state).inc()

    async def _insist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat what must succeed before the next job starts."""
        while True:
            try:
                return await work()
            except (ErgnnError, OSError) as error:
                self._trouble(WAITING, error)
                await asyncio.sleep(POLL)
