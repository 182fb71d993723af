"""Compute units in this process, or in several processes of this machine."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import threading
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from ergnn.config import plugins
from ergnn.config.errors import InputError
from ergnn.lab.units import STREAMS, Outcome, Unit, compute

Worker = tuple[Connection, multiprocessing.process.BaseProcess]


class LocalEngine:
    """``jobs`` units at a time, in processes with one thread each; a single job runs in this process.

    The processes wait for the next call, and end with the engine.
    """

    def __init__(self, jobs: int = 1) -> None:
        if jobs < 1:
            raise InputError(f"jobs is {jobs}; it must be 1 or more")
        self.jobs = jobs
        self._idle: list[Worker] = []

    def __call__(self, units: Sequence[Unit]) -> Generator[Outcome, None, None]:
        if self.jobs == 1:
            try:
                for unit in units:
                    yield compute(unit)
            finally:
                STREAMS.clear()
        else:
            yield from self._in_processes(units)

    def _in_processes(self, units: Sequence[Unit]) -> Generator[Outcome, None, None]:
        waiting = list(reversed(units))
        running: dict[Any, tuple[Worker, Unit]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    worker, unit = self._idle.pop() if self._idle else _new_worker(), waiting.pop()
                    running[worker[0]] = worker, unit
                    worker[0].send(unit)
                for connection in wait(list(running)):
                    worker, unit = running.pop(connection)
                    try:
                        outcome = worker[0].recv()
                        self._idle.append(worker)
                    except EOFError:
                        worker[1].join()
                        outcome = Outcome(unit, 0.0, f"its process ended with exit status {worker[1].exitcode}")
                    yield outcome
        finally:
            for worker, _ in running.values():
                worker[1].terminate()


def _new_worker() -> Worker:
    context = multiprocessing.get_context("spawn")
    connection, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, list(plugins.imported)), daemon=True)
    process.start()
    theirs.close()
    return connection, process


def _work(connection: Connection, imported: Sequence[str]) -> None:
    """Worker process: receive units and send results until the connection is closed."""
    torch.set_num_threads(1)
    for name in imported:
        plugins.import_plugin(name)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        while True:
            connection.send(compute(connection.recv()))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def _end_with_parent() -> None:
    """Stop a worker whose parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
