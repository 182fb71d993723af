"""Functions and commands in processes of their own that start at once: a server imports everything, and forks."""

import ctypes
import multiprocessing
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

PR_SET_PDEATHSIG = 1
"""From ``sys/prctl.h``."""
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["ergnn.cli.main", "ergnn.data.tables", "ergnn.folder.learner_folder", __name__])


class Fork:
    """A function that runs in a process of its own, which ends with this one.

    Args:
        function: is called with a connection to send its result, and with ``arguments``.
    """

    def __init__(self, function: Callable[..., None], *arguments: object) -> None:
        self._result, send = PROCESSES.Pipe(duplex=False)
        self.process = PROCESSES.Process(target=_call, args=(function, send, *arguments))
        self.process.start()
        send.close()

    def result(self) -> Any:
        """Wait for the end; returns the result, or None of a process that was killed or has failed."""
        try:
            return self._result.recv()
        except EOFError:
            return None
        finally:
            self.process.join()


def _call(function: Callable[..., None], send: Connection, *arguments: object) -> None:
    import torch

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    torch.set_num_threads(1)
    function(send, *arguments)


def run_command(*args: object, kill_after: float | None = None, kill_at: int | None = None) -> dict[str, Any]:
    """Run an ``ergnn`` command; returns ``status`` (-9 if killed), ``seconds``, ``error`` and commit ``events``.

    ``kill_after`` kills it after some time, ``kill_at`` at the so-many-th event: just before or just after a commit.
    """
    start = time.monotonic()
    fork = Fork(_command, [str(a) for a in args], kill_at)
    if kill_after is not None:
        fork.process.join(kill_after)
        fork.process.kill()
    answer = fork.result() or {"status": fork.process.exitcode, "events": 0, "error": ""}
    return {**answer, "seconds": time.monotonic() - start}


def _command(send: Connection, args: list[str], kill_at: int | None) -> None:
    import ergnn.folder.database as database
    from ergnn.cli.main import main

    count, connect = 0, sqlite3.connect

    def event() -> None:
        nonlocal count
        count += 1
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    class Watched(sqlite3.Connection):
        def __exit__(self, *error: Any) -> Any:  # commits
            event()
            done = super().__exit__(*error)
            event()
            return done

    database.sqlite3.connect = lambda *args, **more: connect(*args, **more, factory=Watched)  # type: ignore[assignment]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with open(os.memfd_create("errors"), "w+") as errors:
        sys.stderr = errors
        status = main(args)
        errors.seek(0)
        send.send({"status": status, "events": count, "error": errors.read()})
