"""Compute units in this process, or in several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from ergnn.config import plugins
from ergnn.config.errors import InputError
from ergnn.lab.units import STREAMS, Computed, Unit, compute


class LocalEngine:
    """``jobs`` units at a time, in processes with one thread each; a single job runs in this process.

    Args:
        jobs: number of units at a time.
        keep: keep the processes for the next call, instead of ending them.
    """

    def __init__(self, jobs: int = 1, keep: bool = False) -> None:
        if jobs < 1:
            raise InputError(f"jobs is {jobs}; it must be 1 or more")
        self.jobs, self.keep = jobs, keep
        self._idle: list[tuple[Connection, Any]] = []

    def __call__(self, units: Sequence[Unit]) -> Generator[Computed, None, None]:
        if self.jobs == 1:
            try:
                for unit in units:
                    yield compute(unit)
            finally:
                STREAMS.clear()
        else:
            yield from _in_processes(units, min(self.jobs, len(units)), self._idle, self.keep)


def _in_processes(
    units: Sequence[Unit], jobs: int, idle: list[tuple[Connection, Any]], keep: bool
) -> Generator[Computed, None, None]:
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(units))
    running: dict[Connection, tuple[Any, Unit]] = {}

    def start_worker() -> None:
        if idle:
            return assign(*idle.pop())
        ours, theirs = context.Pipe()
        worker = context.Process(target=_work, args=(theirs, list(plugins.imported)), daemon=True)
        worker.start()
        theirs.close()
        return assign(ours, worker)

    def assign(connection: Connection, worker: Any) -> None:
        unit = waiting.pop()
        running[connection] = (worker, unit)
        connection.send((unit.config, list(unit.members)))

    try:
        for _ in range(jobs):
            start_worker()
        while running:
            for ready in wait(list(running)):
                connection = ready if isinstance(ready, Connection) else None
                assert connection is not None
                worker, unit = running.pop(connection)
                try:
                    computed = connection.recv()
                except EOFError:
                    worker.join()
                    computed = Computed(unit, 0.0, f"its process ended with exit status {worker.exitcode}")
                    if waiting:
                        start_worker()
                else:
                    if waiting:
                        assign(connection, worker)
                    elif keep:
                        idle.append((connection, worker))
                    else:
                        connection.close()
                        worker.join()
                yield computed
    finally:
        for worker, _ in running.values():
            worker.terminate()


def _work(connection: Connection, imported: Sequence[str]) -> None:
    """Worker process: receive units and send results until the connection is closed."""
    torch.set_num_threads(1)
    for name in imported:
        plugins.import_plugin(name)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        while True:
            connection.send(compute(Unit(*connection.recv())))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def _end_with_parent() -> None:
    """Stop a worker whose parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
