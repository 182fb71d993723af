"""The writer: a process that runs the jobs of a spool, and the server's side of it.

    python -m ergnn.serve.writer DESCRIPTOR FOLDER LIMITS_JSON [PLUGIN ...]

Messages are lines of JSON on a socket of their own (``DESCRIPTOR``), so that output of plug-ins is no message. A
request is ``{"kind": kind, …}``; every message about it has one of the keys ``phase`` (progress), ``result`` (success),
``busy`` (another process writes to the folder), ``delayed`` (a problem of the folder or the machine: the job is tried
again) and ``refused`` (an error of the job). The process exits when the socket is closed, even while it learns, so that
it does not outlive the server. An interrupted update is stored in the folder, and the same job continues it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from ergnn.config.errors import BusyError, ErgnnError, FolderError, InputError, listed
from ergnn.config.files import write_file
from ergnn.config.imports import import_plugin
from ergnn.data.tables import Limits
from ergnn.folder import LearnerFolder
from ergnn.folder.spool import IDS, Job
from ergnn.serve.requests import read_upload

NICE = 5
"""Niceness of the process: requests have priority."""
LINE = 1 << 26
"""Maximum length in bytes of a message."""
LOG = logging.getLogger("ergnn.serve")
Report = Callable[..., None]


class Writer:
    """A process that writes to a folder, one job at a time; it inherits the descriptor ``lock`` of the lock of jobs."""

    def __init__(self, root: Path, limits: Limits, plugins: Sequence[str], lock: int) -> None:
        self._arguments, self._lock = [str(root), json.dumps(asdict(limits)), *plugins], lock
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader
        self._sender: asyncio.StreamWriter

    async def run(self, kind: str, job: Job | None = None, **details: Any) -> dict[str, Any]:
        """Run a request and update the progress of its job; returns the ``result``, or why the job was ``refused``.

        The answer is empty if the process died. A :class:`FolderError` is the reason why the request has to wait; it is
        a :class:`BusyError` if another process writes to the folder.
        """
        answer: dict[str, Any] = {}
        try:
            await self.start()
            self._sender.write(json.dumps({"kind": kind, **details}).encode() + b"\n")
            while not answer:
                message = json.loads(await self._line())
                if "phase" not in message:
                    answer = message
                elif job is not None:
                    job.phase, job.epoch, job.epochs = message["phase"], message.get("epoch", 0), message.get("epochs")
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            LOG.error("the writer ended unexpectedly")
        finally:
            if not answer:
                await self.close()
        if "busy" in answer:
            raise BusyError(answer["busy"])
        if "delayed" in answer:
            raise FolderError(answer["delayed"])
        return answer

    async def start(self) -> None:
        """Start the process, unless it runs."""
        if self._child is not None and self._child.returncode is None:
            return
        await self.close()
        mine, its = socket.socketpair()
        command = [sys.executable, "-m", "ergnn.serve.writer", str(its.fileno()), *self._arguments]
        with its:
            self._reader, self._sender = await asyncio.open_connection(sock=mine, limit=LINE)
            self._child = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=2, pass_fds=(its.fileno(), self._lock)
            )

    async def _line(self) -> bytes:
        """The next line; the end of the process counts even if a child of its own holds the socket open."""
        assert self._child is not None
        reading = asyncio.ensure_future(self._reader.readuntil())
        ended = asyncio.ensure_future(self._child.wait())
        try:
            await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=1)
                self._reader.feed_eof()
            return await reading
        finally:
            ended.cancel()
            reading.cancel()

    async def close(self) -> None:
        """Kill the process; the same job continues its work later."""
        if self._child is None:
            return
        if self._child.returncode is None:
            with suppress(ProcessLookupError):
                self._child.kill()
            await self._child.wait()
        self._sender.close()
        self._child = None


def observe(folder: LearnerFolder, request: dict[str, Any], limits: Limits, report: Report) -> dict[str, Any]:
    report(phase="reading")
    with folder.snapshot() as snapshot:
        epochs = snapshot.learner.epochs
    tables, numbers = read_upload(Path(request["directory"]), limits, folder.columns), count()

    def on_epoch() -> None:
        report(phase="training", epoch=next(numbers), epochs=epochs)

    if epochs is None:
        report(phase="solving")
    else:
        on_epoch()
    return dict(folder.observe(*tables, name=request["name"], on_epoch=on_epoch))


def forget(folder: LearnerFolder, request: dict[str, Any], limits: Limits, report: Report) -> dict[str, Any]:
    """Forget nodes, and report unknown ids. The first attempt stores these: after a crash, the others may be gone."""
    path = Path(request["directory"]) / IDS
    wanted = json.loads(path.read_bytes())
    ids = wanted["ids"]
    with folder.snapshot() as snapshot:
        nodes = dict(zip(ids, snapshot.graph.find(ids).tolist(), strict=True))
    known = [name for name, node in nodes.items() if node >= 0]
    if "unknown" not in wanted:
        wanted["unknown"] = [name for name, node in nodes.items() if node < 0]
        write_file(path, json.dumps(wanted).encode())
    unknown = wanted["unknown"]
    if unknown and len(unknown) == len(ids):
        raise InputError(f"none of the {len(unknown)} nodes is in the graph: {listed(unknown)}")
    report(phase="forgetting")
    done = folder.forget(known, retrain=wanted["retrain"]) if known else {"nodes": len(ids) - len(unknown)}
    return {**done, "unknown": unknown}


def discard(folder: LearnerFolder, request: dict[str, Any], limits: Limits, report: Report) -> dict[str, Any]:
    """Discard an interrupted update of the server; one of ``ergnn observe`` stays."""
    return {"discarded": folder.discard(request["digest"])}


def main(descriptor: str, root: str, limits_json: str, *plugins: str) -> None:
    """Run requests until the socket is closed."""
    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)
    requests: queue.Queue[dict[str, Any]] = queue.Queue()

    def receive() -> None:
        try:
            for line in channel.makefile("rb"):  # an error if a server that was killed had messages to read
                requests.put(json.loads(line))
        finally:
            os._exit(0)

    def report(**message: Any) -> None:
        channel.sendall(json.dumps(message).encode() + b"\n")

    threading.Thread(target=receive, daemon=True).start()
    os.nice(NICE)
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")

    from ergnn.engine.hardware import set_threads

    set_threads(None)
    for name in plugins:
        import_plugin(name)
    limits = Limits(**json.loads(limits_json))
    runners = {"observe": observe, "forget": forget, "discard": discard}
    while True:
        request = requests.get()
        try:
            report(result=runners[request["kind"]](LearnerFolder(root), request, limits, report))
        except BusyError as error:
            report(busy=str(error))
        except (FolderError, OSError) as error:
            report(delayed=str(error))
        except ErgnnError as error:
            report(**{"delayed" if isinstance(error.__context__, OSError) else "refused": str(error)})


if __name__ == "__main__":
    main(*sys.argv[1:])
