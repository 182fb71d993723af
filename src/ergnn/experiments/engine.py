"""Does what a run store lacks, in one process or in several; whatever is finished is kept at once."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from ergnn.errors import ErgnnError
from ergnn.experiments.config import RunConfig
from ergnn.experiments.keys import member_key
from ergnn.experiments.run import members_of, run_members
from ergnn.experiments.store import RunStore

BATCH = 10
"""Members trained side by side, and kept together."""


@dataclass(frozen=True)
class Unit:
    """Some members of a resolved configuration: the least that is done and kept as a whole."""

    config: RunConfig
    members: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Outcome:
    """What became of a unit; ``error`` is empty where it was finished."""

    unit: Unit
    seconds: float
    error: str = ""


def units_of(store: RunStore, configs: Sequence[RunConfig], batch: int = BATCH) -> list[Unit]:
    """What is not finished yet, in fixed batches, none of it twice.

    Batches are cut before the finished members are taken out, so that an interrupted program goes on in the very
    batches it would have done.
    """
    units, planned = [], set()
    for config in configs:
        absent = set(store.missing(config))
        members = members_of(config)
        for start in range(0, len(members), batch):
            part = []
            for member in members[start : start + batch]:
                key = member_key(config, *member)
                if member in absent and key not in planned:
                    planned.add(key)
                    part.append(member)
            if part:
                units.append(Unit(config, part))
    return units


def run_units(
    units: Sequence[Unit], store_path: str, jobs: int = 1, on_done: Callable[[Outcome], None] | None = None
) -> list[Outcome]:
    """Do the units, ``jobs`` at a time, each process with one thread; a unit that fails does not stop the others."""
    report = on_done or (lambda outcome: None)
    if jobs == 1:
        outcomes = []
        with RunStore(store_path) as store:
            for unit in units:
                outcomes.append(_do(unit, store))
                report(outcomes[-1])
        return outcomes
    return _run_in_processes(units, store_path, min(jobs, len(units)), report)


def _do(unit: Unit, store: RunStore) -> Outcome:
    start = time.perf_counter()
    try:
        for results in run_members(unit.config, unit.members, batch=len(unit.members)):
            store.put_all(unit.config, results)
    except (ErgnnError, ImportError) as error:
        return Outcome(unit, time.perf_counter() - start, str(error))
    except Exception as error:  # one row must not cost the others theirs
        return Outcome(unit, time.perf_counter() - start, f"{type(error).__name__}: {error}")
    return Outcome(unit, time.perf_counter() - start)


def _run_in_processes(
    units: Sequence[Unit], store_path: str, jobs: int, report: Callable[[Outcome], None]
) -> list[Outcome]:
    context = multiprocessing.get_context("spawn")
    waiting, outcomes = list(reversed(units)), []
    at_work: dict[Connection, tuple[Any, Unit]] = {}

    def hire() -> None:
        ours, theirs = context.Pipe()
        worker = context.Process(target=_work, args=(theirs, store_path), daemon=True)
        worker.start()
        theirs.close()
        assign(ours, worker)

    def assign(connection: Connection, worker: Any) -> None:
        unit = waiting.pop()
        at_work[connection] = (worker, unit)
        connection.send((unit.config, list(unit.members)))

    try:
        for _ in range(jobs):
            hire()
        while at_work:
            for ready in wait(list(at_work)):
                connection = ready if isinstance(ready, Connection) else None
                assert connection is not None
                worker, unit = at_work.pop(connection)
                try:
                    outcome = connection.recv()
                except EOFError:
                    worker.join()
                    outcome = Outcome(unit, 0.0, f"its process ended with exit status {worker.exitcode}")
                    if waiting:
                        hire()
                else:
                    if waiting:
                        assign(connection, worker)
                    else:
                        connection.close()
                        worker.join()
                outcomes.append(outcome)
                report(outcome)
    finally:
        for worker, _ in at_work.values():
            worker.terminate()
    return outcomes


def _work(connection: Connection, store_path: str) -> None:
    """A worker: units in, outcomes out, until the other end is closed or gone."""
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with RunStore(store_path) as store:
            while True:
                connection.send(_do(Unit(*connection.recv()), store))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def _end_with_parent() -> None:
    """A worker whose parent was killed stops too, instead of working on unseen."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
