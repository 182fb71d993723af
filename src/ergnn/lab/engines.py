"""Engines compute units of work: in this process, in processes of this machine, or on a Ray cluster.

An engine only computes: units in, results out, in any order. :mod:`ergnn.lab.grid_runner` stores them.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.process
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from ergnn.config import imports
from ergnn.config.errors import ErgnnError, InputError, check_at_least, check_between
from ergnn.lab.config import RunConfig
from ergnn.lab.result import Member, SeedResult
from ergnn.lab.run import StreamCache, run_members
from ergnn.lab.store import Origin

STREAMS = StreamCache()
"""The streams of the last unit: many units have the same."""
RETRIES = 3
"""Number of retries of a unit whose worker or machine was lost."""
OBJECT_STORE = 128 * 2**20
"""Bytes for task results in a cluster that is started here; results are small."""
CONNECT_SECONDS = 10.0
"""How long to wait for the cluster to accept a connection."""
FORWARDED = ("ERGNN_DATA", "ERGNN_DOWNLOAD", "ERGNN_OFFLINE")
"""Environment variables forwarded to tasks."""


@dataclass(frozen=True)
class Unit:
    """Some members of a resolved configuration, computed and stored together."""

    config: RunConfig
    members: Sequence[Member]


@dataclass(frozen=True)
class Outcome:
    """The results of a unit and their origin; ``error`` is empty on success."""

    unit: Unit
    seconds: float
    error: str = ""
    results: Sequence[SeedResult] = ()
    origin: Origin | None = None


Engine = Callable[[Sequence[Unit]], Generator[Outcome, None, None]]


def compute(unit: Unit) -> Outcome:
    """Run the members of a unit together in this process; an error becomes part of the result.

    If the memory of a GPU does not suffice, the members are run in smaller batches.
    """
    start, batch = time.perf_counter(), len(unit.members)
    results: list[SeedResult] = []
    try:
        while len(results) < len(unit.members):
            left = unit.members[len(results) :]
            try:
                for finished in run_members(unit.config, left, batch=batch, cache=STREAMS):
                    results += finished
            except torch.OutOfMemoryError:
                if batch == 1:
                    raise
                batch = (batch + 1) // 2
            _free_memory()  # the error, whose traceback holds tensors, is gone
    except (ErgnnError, ImportError) as error:
        return Outcome(unit, time.perf_counter() - start, str(error))
    except Exception as error:  # an error of one row must not stop the others
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # after a fault of the GPU, this ends the process and shows both errors
        return Outcome(unit, time.perf_counter() - start, f"{type(error).__name__}: {error}")
    finally:
        _free_memory()
    return Outcome(unit, time.perf_counter() - start, "", results, Origin.here(str(unit.config.learner.device)))


def _free_memory() -> None:
    """Return cached memory of a GPU, which neither other processes nor new recordings of steps can use."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


Worker = tuple[Connection, multiprocessing.process.BaseProcess]


class LocalEngine:
    """``jobs`` units at a time, in processes with one thread each; a single job runs in this process.

    The processes wait for the next call, and end with the engine.
    """

    def __init__(self, jobs: int = 1) -> None:
        check_at_least(1, jobs=jobs)
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
    process = context.Process(target=_work, args=(theirs, list(imports.imported)), daemon=True)
    process.start()
    theirs.close()
    return connection, process


def _work(connection: Connection, imported: Sequence[str]) -> None:
    """Worker process: receive units and send results until the connection is closed."""
    torch.set_num_threads(1)
    for name in imported:
        imports.import_plugin(name)
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


class RayEngine:
    """Run each unit as a Ray task; results come back to this process.

    Args:
        address: cluster address for ``ray.init`` (``auto``, ``host:6379``, ``ray://host:10001``); by default
            ``RAY_ADDRESS``, and without it a local cluster is started and shut down with the work.
        jobs: number of units at a time; by default as many as the cluster can run (a local cluster: one per core).
        cpus: cores per unit, also its number of threads; by default 1.
        gpus: GPUs per unit, may be fractional; by default 1 for a unit on ``cuda``, else 0.
    """

    def __init__(
        self, address: str | None = None, jobs: int | None = None, cpus: float | None = None, gpus: float | None = None
    ) -> None:
        cpus = 1.0 if cpus is None else cpus
        check_at_least(1, jobs=jobs)
        check_between(0, inf, task_cpus=cpus)
        check_at_least(0, task_gpus=gpus)
        self.address, self.jobs, self.cpus, self.gpus = address, jobs, cpus, gpus
        self._ray: Any = imports.extra("ray", "ray", "the engine ray")

    def __call__(self, units: Sequence[Unit]) -> Generator[Outcome, None, None]:
        if not units:
            return
        needs = [self._gpus(unit) for unit in units]
        with self._cluster(sum(needs) > 0):
            task = self._ray.remote(_compute)
            waiting = list(zip(units, needs, strict=True))[::-1]
            running: dict[Any, tuple[Unit, float]] = {}
            while waiting or running:
                while waiting and (self.jobs is None or len(running) < self.jobs):
                    unit, gpus = waiting.pop()
                    options = {"num_cpus": self.cpus, "num_gpus": gpus, "max_retries": RETRIES}
                    running[task.options(**options).remote(unit, self.cpus)] = unit, time.monotonic()
                (ready, *_), _ = self._ray.wait(list(running), num_returns=1)
                unit, start = running.pop(ready)
                try:
                    outcome = self._ray.get(ready)
                except self._ray.exceptions.RayError as error:
                    reason = " ".join(str(error).split())
                    outcome = Outcome(unit, time.monotonic() - start, f"its task was lost ({reason})")
                yield outcome

    def _gpus(self, unit: Unit) -> float:
        device = torch.device(unit.config.learner.device)
        if device.type == "cuda" and device.index is not None:
            raise InputError(f"device is {unit.config.learner.device!r}; a Ray cluster assigns GPUs itself: use cuda")
        if self.gpus is not None:
            return self.gpus
        return 1.0 if device.type == "cuda" else 0.0

    @contextmanager
    def _cluster(self, needs_gpu: bool) -> Iterator[None]:
        """Connect to a cluster or start one; an existing connection is kept."""
        if self._ray.is_initialized():
            yield
            return
        forwarded = {name: os.environ[name] for name in FORWARDED if name in os.environ}
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        options["runtime_env"] = {"env_vars": forwarded}
        address = self.address or os.environ.get("RAY_ADDRESS")
        if address is None or address == "local":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cores = self.cpus * (self.jobs or os.cpu_count() or 1)
            address = "local"
            options.update(num_cpus=max(1, round(cores)), include_dashboard=False, object_store_memory=OBJECT_STORE)
        try:
            _check_reachable(address)
            self._ray.init(address=address, **options)
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"cannot use a Ray cluster at {address!r} ({reason})") from None
        try:
            have = self._ray.cluster_resources()
            if needs_gpu and not have.get("GPU"):
                raise InputError("the Ray cluster has no GPU; use --device cpu, or another cluster")
            if have.get("CPU", 0.0) < self.cpus:
                raise InputError(f"task_cpus is {self.cpus}; the Ray cluster has {have.get('CPU', 0.0):g} in total")
            yield
        finally:
            self._ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise an OSError if the address does not accept connections; Ray would retry for many minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if separator and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


def _compute(unit: Unit, cpus: float) -> Outcome:
    torch.set_num_threads(max(1, int(cpus)))
    return compute(unit)
