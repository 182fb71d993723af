"""Client side of the writer process."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import NoneType
from typing import Any

from ergnn.config.errors import BusyError, FolderError, truncate
from ergnn.data.tables import Limits
from ergnn.folder.spool import Job
from ergnn.serve.worker import MESSAGES

LINE = 1 << 26
"""Maximum length in bytes of a message of the writer."""
LOG = logging.getLogger("ergnn.serve")


class Writer:
    """A process that writes to a folder, one job at a time.

    Args:
        root: the learner's folder.
        limits: limits on the tables of an update.
        plugins: files and modules with registered entries that the folder uses.
        lock: descriptor of the lock that is held while a job is learned; the process inherits it.
    """

    def __init__(self, root: Path, limits: Limits, plugins: Sequence[str], lock: int) -> None:
        self._arguments = [str(root), json.dumps(asdict(limits)), *plugins]
        self._lock, self._number = lock, 0
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader
        self._sender: asyncio.StreamWriter

    async def run(self, kind: str, job: Job | None = None, **details: Any) -> dict[str, Any]:
        """Run a request and update the progress of its job; returns the ``result``, or why the job was ``refused``.

        The answer is empty if the process died, or was ended since it broke the protocol. A :class:`FolderError` is the
        reason why the request has to wait; it is a :class:`BusyError` if another process writes to the folder.
        """
        answer: dict[str, Any] = {}
        try:
            await self.start()
            self._number += 1
            request = {"number": self._number, "kind": kind, **details}
            self._sender.write(json.dumps(request).encode() + b"\n")
            while not answer:
                message = parse_message(await self._line(), self._number)
                if "phase" not in message:
                    answer = message
                elif job is not None:
                    job.phase, job.epoch, job.epochs = message["phase"], message.get("epoch", 0), message.get("epochs")
                    job.share = min(job.epoch / job.epochs, 1.0) if job.epochs else None
        except (asyncio.IncompleteReadError, ConnectionError):
            LOG.error("the writer ended unexpectedly")
        except (ValueError, asyncio.LimitOverrunError) as error:
            LOG.error("the writer broke its protocol and is ended: %s", error)
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
        command = [sys.executable, "-m", "ergnn.serve.worker", str(its.fileno()), *self._arguments]
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


def parse_message(line: bytes, number: int) -> dict[str, Any]:
    """A message of the writer about the request with a number; anything else is a ``ValueError``."""
    try:
        message = json.loads(line)
        (kind,) = MESSAGES.keys() & message.keys()
        complete = kind != "phase" or {type(message.get(key)) for key in ("epoch", "epochs")} in ({int}, {NoneType})
        if complete and message["number"] == number and isinstance(message[kind], MESSAGES[kind]):
            return dict(message)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        pass
    raise ValueError(f"{truncate(line.decode(errors='replace'))} is no message about request {number}")
