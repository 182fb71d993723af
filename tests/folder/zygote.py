"""Commands in processes of their own that start at once: one process imports everything, and forks for each command.

    python zygote.py      reads {"args": […], "kill_after": seconds, "kill_at": count} a line, answers a line each

``kill_after`` sends SIGKILL after some time, ``kill_at`` at the so-many-th event: just before or just after a commit.
"""

import ctypes
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
"""From ``sys/prctl.h``."""


class Zygote:
    """The process, and a way to ask it."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def run(self, *args: object, kill_after: float | None = None, kill_at: int | None = None) -> dict[str, Any]:
        """Run an ``ergnn`` command; says ``status`` (-9 if killed), ``seconds``, ``error`` and commit ``events``."""
        order = {"args": [str(a) for a in args], "kill_after": kill_after, "kill_at": kill_at}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def _command(order: dict[str, Any], out: int) -> None:
    """In the child: run, write down how it went, and end without any clean-up of the parent's."""
    import ergnn.folder.database as database
    from ergnn.cli.main import main

    count = 0
    connect = sqlite3.connect

    def event() -> None:
        nonlocal count
        count += 1
        if count == order["kill_at"]:
            os.kill(os.getpid(), signal.SIGKILL)

    class Watched(sqlite3.Connection):
        def execute(self, statement: str, *args: Any) -> Any:
            if statement != "COMMIT":
                return super().execute(statement, *args)
            event()
            done = super().execute(statement, *args)
            event()
            return done

    database.sqlite3.connect = lambda *args, **more: connect(*args, **more, factory=Watched)  # type: ignore[assignment]
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    read, write = os.pipe()
    os.dup2(write, 2)
    os.set_blocking(read, False)
    status = main(order["args"])
    sys.stderr.flush()
    try:
        error = os.read(read, 60_000).decode("utf-8", "replace")
    except BlockingIOError:
        error = ""
    os.write(out, json.dumps({"status": status, "events": count, "error": error}).encode())


def _end_with_parent() -> None:
    """Let the kernel end this process with its parent, which may be killed while others still hold the pipe."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _serve() -> None:
    _end_with_parent()
    import torch

    import ergnn.cli.main
    import ergnn.data.tables
    import ergnn.folder.learner_folder
    import ergnn.pages.table

    torch.set_num_threads(1)
    ergnn.folder.learner_folder.make_learner(ergnn.folder.Settings())  # finds plug-ins, once
    for line in sys.stdin:
        order = json.loads(line)
        read, write = os.pipe()
        start = time.monotonic()
        child = os.fork()
        if not child:
            _end_with_parent()
            try:
                _command(order, write)
            except BaseException as error:
                os.write(write, json.dumps({"status": 1, "events": 0, "error": f"traceback: {error!r}"}).encode())
            os._exit(0)
        os.close(write)
        if order["kill_after"] is not None:
            time.sleep(order["kill_after"])
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(read, "rb") as file:
            said = file.read()
        answer = json.loads(said) if said else {"status": -9, "events": 0, "error": ""}
        answer["seconds"] = time.monotonic() - start
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
