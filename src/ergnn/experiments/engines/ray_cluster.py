"""Units as tasks of a Ray cluster: one that is there, or one of this machine that lasts as long as the work."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ergnn.data.formats.boundary import extra
from ergnn.errors import InputError
from ergnn.experiments.units import Computed, Unit, compute

RETRIES = 3
"""How often a unit is done again whose worker or machine was lost."""
OBJECT_STORE = 128 * 2**20
"""Bytes for what tasks give back, in a cluster that is started here: results are small."""
KNOCK_SECONDS = 10.0
"""How long to wait for a cluster's machine to answer."""
CARRIED = ("ERGNN_DATA", "ERGNN_DOWNLOAD", "ERGNN_OFFLINE")
"""Variables of the environment that tasks get from here."""


class RayEngine:
    """Each unit a task with its resources; results come back to this process.

    Args:
        address: of a cluster, as ``ray.init`` takes it (``auto``, ``host:6379``, ``ray://host:10001``); by default
            ``RAY_ADDRESS``, and without that a cluster of this machine is started, which ends with the work.
        jobs: units at a time; by default as many as the cluster has room for (started here: one a core).
        cpus: cores a unit, which are also its threads.
        gpus: GPUs a unit, or a part of one; by default 1 for a unit on ``cuda``, and none for others.
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

    def __call__(self, units: Sequence[Unit]) -> Generator[Computed, None, None]:
        if not units:
            return
        needs = [self._gpus(unit) for unit in units]
        with self._cluster(sum(needs) > 0):
            task = self._ray.remote(_compute)
            waiting = list(zip(units, needs, strict=True))[::-1]
            at_work: dict[Any, tuple[Unit, float]] = {}
            while waiting or at_work:
                while waiting and (self.jobs is None or len(at_work) < self.jobs):
                    unit, gpus = waiting.pop()
                    options = {"num_cpus": self.cpus, "num_gpus": gpus, "max_retries": RETRIES}
                    at_work[task.options(**options).remote(unit, self.cpus)] = unit, time.monotonic()
                (ready, *_), _ = self._ray.wait(list(at_work), num_returns=1)
                unit, start = at_work.pop(ready)
                try:
                    computed = self._ray.get(ready)
                except self._ray.exceptions.RayError as error:
                    reason = " ".join(str(error).split())
                    computed = Computed(unit, time.monotonic() - start, f"its task was lost ({reason})")
                yield computed

    def _gpus(self, unit: Unit) -> float:
        device = torch.device(unit.config.device)
        if device.type == "cuda" and device.index is not None:
            raise InputError(f"device is {unit.config.device!r}; a Ray cluster hands out the GPUs itself: use cuda")
        if self.gpus is not None:
            return self.gpus
        return 1.0 if device.type == "cuda" else 0.0

    @contextmanager
    def _cluster(self, needs_gpu: bool) -> Iterator[None]:
        """Connect, or start; what was there before stays there after."""
        if self._ray.is_initialized():
            yield
            return
        carried = {name: os.environ[name] for name in CARRIED if name in os.environ}
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        options["runtime_env"] = {"env_vars": carried}
        address = self.address or os.environ.get("RAY_ADDRESS")
        if address is None or address == "local":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cores = self.cpus * (self.jobs or os.cpu_count() or 1)
            address = "local"
            options.update(num_cpus=max(1, round(cores)), include_dashboard=False, object_store_memory=OBJECT_STORE)
        try:
            _knock(address)
            self._ray.init(address=address, **options)
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"no Ray cluster can be used at {address!r} ({reason})") from None
        try:
            have = self._ray.cluster_resources()
            if needs_gpu and not have.get("GPU"):
                raise InputError("the Ray cluster has no GPU; use --device cpu, or another cluster")
            if have.get("CPU", 0.0) < self.cpus:
                raise InputError(f"task_cpus is {self.cpus}; the Ray cluster has {have.get('CPU', 0.0):g} in all")
            yield
        finally:
            self._ray.shutdown()


def _knock(address: str) -> None:
    """Raise an OSError where nobody listens; Ray itself would go on trying for many minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if separator and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


def _compute(unit: Unit, cpus: float) -> Computed:
    torch.set_num_threads(max(1, int(cpus)))
    return compute(unit)
