"""Client side of the writer process."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ergnn.data.tables import Limits
from ergnn.serve.jobs import Job

LINE = 1 << 26
"""Maximum length in bytes of a line of the writer's output."""


class Writer:
    """A process that writes to a folder, one job at a time; started when it is needed.

    Args:
        root: the learner's folder.
        limits: limits on the tables of an update.
        plugins: files and modules with registered entries that the folder uses.
    """

    def __init__(self, root: Path, limits: Limits, plugins: Sequence[str]) -> None:
        self._words = [str(root), json.dumps(asdict(limits)), *plugins]
        self._child: asyncio.subprocess.Process | None = None

    async def run(self, kind: str, place: Path, job: Job) -> dict[str, Any]:
        """Run a job and update its progress; the result is empty if the process died."""
        if self._child is None or self._child.returncode is not None:
            command, pipe = [sys.executable, "-m", "ergnn.serve.worker", *self._words], asyncio.subprocess.PIPE
            self._child = await asyncio.create_subprocess_exec(*command, limit=LINE, stdin=pipe, stdout=pipe)
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        with suppress(ConnectionError):
            child.stdin.write(json.dumps([kind, str(place)]).encode() + b"\n")
            await child.stdin.drain()
        async for line in child.stdout:
            message: dict[str, Any] = json.loads(line)
            if "epoch" not in message:
                return message
            job.epoch, job.epochs = message["epoch"], message["epochs"]
        await child.wait()
        return {}

    async def close(self) -> None:
        """Kill the process; the same job continues its work later."""
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):
                self._child.kill()
            await self._child.wait()
