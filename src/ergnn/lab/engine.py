"""Run the units that are missing in a store, on this machine or on a cluster, and store them as they finish.

An *engine* only computes: units in, results out, in any order. Only this module writes to the store, so a unit that was
computed twice (after a worker was lost) is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

from ergnn.config.errors import ErgnnError, InputError, UnknownNameError
from ergnn.lab.engines.local import LocalEngine
from ergnn.lab.engines.ray_cluster import RayEngine
from ergnn.lab.store import RunStore
from ergnn.lab.units import Computed, Unit, units_of

__all__ = ["ENGINES", "Engine", "Outcome", "Unit", "make_engine", "run_units", "units_of"]

Engine = Callable[[Sequence[Unit]], Generator[Computed, None, None]]
ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a unit; ``error`` is empty on success."""

    unit: Unit
    seconds: float
    error: str = ""


def make_engine(
    name: str = "local",
    *,
    jobs: int | None = None,
    address: str | None = None,
    task_cpus: float | None = None,
    task_gpus: float | None = None,
    keep: bool = False,
) -> Engine:
    """Create an engine by name (see :class:`LocalEngine`, :class:`RayEngine`); options of the other are an error."""
    if name not in ENGINES:
        raise UnknownNameError("engine", name, ENGINES)
    if name == "ray":
        return RayEngine(address, jobs, 1.0 if task_cpus is None else task_cpus, task_gpus)
    for option, value in (("address", address), ("task_cpus", task_cpus), ("task_gpus", task_gpus)):
        if value is not None:
            raise InputError(f"{option} is {value!r}; it is an option of the engine ray; this engine is local")
    return LocalEngine(1 if jobs is None else jobs, keep)


def run_units(
    units: Sequence[Unit],
    store_path: str,
    jobs: int = 1,
    on_done: Callable[[Outcome], None] | None = None,
    *,
    engine: Engine | None = None,
    accept: Callable[[Computed], str] | None = None,
) -> list[Outcome]:
    """Run units and store their results; a unit that fails does not stop the others.

    Args:
        store_path: file or URL of the store.
        jobs: number of units at a time, in processes of this machine.
        on_done: called with each finished unit.
        engine: used instead of those processes.
        accept: returns the reason why results must not be stored, or an empty string.
    """
    outcomes = []
    with RunStore(store_path) as store, closing((engine or LocalEngine(jobs))(units)) as stream:
        for computed in stream:
            error = computed.error or ("" if accept is None else accept(computed))
            if not error:
                try:
                    store.put_all(computed.unit.config, computed.results, origin=computed.origin)
                except ErgnnError as failure:
                    error = str(failure)
            outcomes.append(Outcome(computed.unit, computed.seconds, error))
            if on_done is not None:
                on_done(outcomes[-1])
    return outcomes
