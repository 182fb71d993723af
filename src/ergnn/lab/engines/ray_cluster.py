"""Compute units as tasks of a Ray cluster: an existing one, or one started here for the duration of the work."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ergnn.config.errors import InputError
from ergnn.config.lazy import extra
from ergnn.lab.units import Outcome, Unit, compute

RETRIES = 3
"""Number of retries of a unit whose worker or machine was lost."""
OBJECT_STORE = 128 * 2**20
"""Bytes for task results in a cluster that is started here; results are small."""
CONNECT_SECONDS = 10.0
"""How long to wait for the cluster to accept a connection."""
FORWARDED = ("ERGNN_DATA", "ERGNN_DOWNLOAD", "ERGNN_OFFLINE")
"""Environment variables forwarded to tasks."""


class RayEngine:
    """Run each unit as a Ray task; results come back to this process.

    Args:
        address: cluster address for ``ray.init`` (``auto``, ``host:6379``, ``ray://host:10001``); by default
            ``RAY_ADDRESS``, and without it a local cluster is started and shut down with the work.
        jobs: number of units at a time; by default as many as the cluster can run (a local cluster: one per core).
        cpus: cores per unit, also its number of threads.
        gpus: GPUs per unit, may be fractional; by default 1 for a unit on ``cuda``, else 0.
    """

    def __init__(
        self, address: str | None = None, jobs: int | None = None, cpus: float = 1.0, gpus: float | None = None
    ) -> None:
        if jobs is not None and jobs < 1:
            raise InputError(f"jobs is {jobs}; it must be 1 or more")
        if not cpus > 0:
            raise InputError(f"task_cpus is {cpus}; it must be above 0")
        if gpus is not None and not gpus >= 0:
            raise InputError(f"task_gpus is {gpus}; it must be 0 or more")
        self.address, self.jobs, self.cpus, self.gpus = address, jobs, cpus, gpus
        self._ray: Any = extra("ray", "ray", "the engine ray")

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
