"""Run the units of work that are missing in a store: in this process, in local processes, or on a Ray cluster.

An engine only computes: units in, results out, in any order. :func:`run_units` alone stores them, so that a unit that
was computed twice (after a worker was lost) is stored once.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from math import inf
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from ergnn.config import imports
from ergnn.config.errors import ErgnnError, InputError, check_at_least, check_between
from ergnn.lab.config import RunConfig, member_key
from ergnn.lab.result import Member, SeedResult, StoredRun
from ergnn.lab.run import BATCH, StreamCache, members_of, run_members
from ergnn.lab.store import RunStore, origin_here

STREAMS = StreamCache()
"""The streams of the last unit of a Ray worker: many units have the same."""
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
    origin: Mapping[str, Any] | None = None


Engine = Callable[[Sequence[Unit]], Generator[Outcome, None, None]]


def compute(unit: Unit, streams: StreamCache | None = None) -> Outcome:
    """Run the members of a unit together in this process; an error becomes part of the result.

    If the memory of a GPU does not suffice, the members are run in smaller batches.
    """
    start, batch = time.perf_counter(), len(unit.members)
    results: list[SeedResult] = []
    error = ""
    try:
        while len(results) < len(unit.members):
            left = unit.members[len(results) :]
            try:
                for finished in run_members(unit.config, left, batch=batch, cache=streams):
                    results += finished
            except torch.OutOfMemoryError:
                if batch == 1:
                    raise
                batch = (batch + 1) // 2
            _free_memory()  # the error, whose traceback holds tensors, is gone
    except (ErgnnError, ImportError) as reason:
        error = str(reason)
    except Exception as reason:  # an error of one row must not stop the others
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # after a fault of the GPU, this ends the process and shows both errors
        error = f"{type(reason).__name__}: {reason}"
    finally:
        _free_memory()
    seconds = time.perf_counter() - start
    if error:
        return Outcome(unit, seconds, error)
    return Outcome(unit, seconds, "", results, origin_here(str(unit.config.learner.device)))


def _free_memory() -> None:
    """Return cached memory of a GPU, which neither other processes nor new recordings of steps can use."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


class LocalEngine:
    """``jobs`` units at a time, in processes with one thread each; a single job runs in this process.

    The processes wait for the next call, and end with the engine.
    """

    def __init__(self, jobs: int = 1) -> None:
        check_at_least(1, jobs=jobs)
        self.jobs = jobs
        self._idle: list[tuple[Connection, BaseProcess]] = []

    def __call__(self, units: Sequence[Unit]) -> Generator[Outcome, None, None]:
        if self.jobs == 1:
            streams = StreamCache()
            yield from (compute(unit, streams) for unit in units)
            return
        waiting = list(reversed(units))
        running: dict[Any, tuple[Connection, BaseProcess, Unit]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    connection, process = self._idle.pop() if self._idle else _new_worker()
                    unit = waiting.pop()
                    running[connection] = connection, process, unit
                    connection.send(unit)
                for ready in wait(list(running)):
                    connection, process, unit = running.pop(ready)
                    try:
                        outcome = connection.recv()
                        self._idle.append((connection, process))
                    except EOFError:
                        process.join()
                        outcome = Outcome(unit, 0.0, f"its process ended with exit status {process.exitcode}")
                    yield outcome
        finally:
            for _, process, _ in running.values():
                process.terminate()


def _new_worker() -> tuple[Connection, BaseProcess]:
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
    streams = StreamCache()
    try:
        while True:
            connection.send(compute(connection.recv(), streams))
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
    return compute(unit, STREAMS)


def units_of(store: RunStore, configs: Sequence[RunConfig], batch: int = BATCH) -> list[Unit]:
    """Return the unfinished members in fixed batches, each member once.

    Batches are formed before finished members are removed, so that a resumed program uses the same batches as an
    uninterrupted one.
    """
    units: list[Unit] = []
    planned: set[str] = set()
    for config in configs:
        absent = set(store.missing(config))
        members = members_of(config)
        for start in range(0, len(members), batch):
            keys = {member_key(config, *member): member for member in members[start : start + batch]}
            unfinished = [member for key, member in keys.items() if member in absent and key not in planned]
            planned |= keys.keys()
            if unfinished:
                units.append(Unit(config, unfinished))
    return units


def run_units(
    units: Sequence[Unit],
    store: RunStore,
    on_done: Callable[[Outcome], None] = lambda outcome: None,
    engine: Engine | None = None,
) -> list[Outcome]:
    """Run units and store their results; ``on_done`` is called with each. One that fails does not stop the others."""
    outcomes = []
    with closing((engine or LocalEngine())(units)) as computed:
        for outcome in computed:
            error = outcome.error
            if not error:
                try:
                    store.put_all(outcome.unit.config, outcome.results, outcome.origin)
                except ErgnnError as failure:
                    error = str(failure)
            outcomes.append(replace(outcome, error=error, results=()))
            on_done(outcomes[-1])
    return outcomes


class GridRunner:
    """Runs configurations into the store of an output folder, as far as they are missing there.

    Args:
        out: folder, which is created.
        store: another file, or the URL of a server, instead of ``runs.sqlite``.
        resume: continue with a store that has runs; otherwise it is an error.
        engine: computes the units; by default this process.
        batch: number of members that are trained together.
        run: False to use stored runs only.
        on_plan: called with the name of a stage and the number of units to run.
        on_done: called with each finished unit.

    Attributes:
        outcomes: of all units that were run.
    """

    def __init__(
        self,
        out: str | Path,
        store: str | None = None,
        resume: bool = False,
        *,
        engine: Engine | None = None,
        batch: int = BATCH,
        run: bool = True,
        on_plan: Callable[[str, int], None] = lambda stage, units: None,
        on_done: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self.out, self.engine, self.batch, self.run = Path(out), engine, batch, run
        self.on_plan, self.on_done = on_plan, on_done
        self.outcomes: list[Outcome] = []
        self.out.mkdir(parents=True, exist_ok=True)
        self.store = str(self.out / "runs.sqlite") if store is None else store
        with RunStore(self.store) as opened:
            if len(opened) and run and not resume:
                raise InputError(
                    f"{opened.path} contains {len(opened)} finished runs; use --resume to continue, or another "
                    f"{'--out' if store is None else '--store'} to start again"
                )

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.error]

    def __call__(
        self, stage: str, configs: Sequence[RunConfig], store: str | None = None
    ) -> list[tuple[str, list[StoredRun]]]:
        """Return the runs of each resolved configuration, or the reason why there are none, and an empty list.

        Args:
            store: another file of the output folder, instead of the store.
        """
        results: list[tuple[str, list[StoredRun]]] = []
        with RunStore(self.store if store is None else self.out / store) as opened:
            units = units_of(opened, configs, self.batch) if self.run else []
            self.on_plan(stage, len(units))
            self.outcomes += run_units(units, opened, self.on_done, self.engine)
            for config in configs:
                runs = opened.finished(config)
                missing = len(members_of(config)) - len(runs)
                error = next((outcome.error for outcome in self.failed if outcome.unit.config == config), "")
                reason = (error or f"{missing} runs are not finished") if missing else ""
                results.append((reason, [] if reason else list(runs.values())))
        return results
