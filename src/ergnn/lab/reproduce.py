"""Run the experiments of the paper's tables and figures; :mod:`ergnn.lab.report.reproduced` writes the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ergnn.config.errors import InputError, UnknownNameError
from ergnn.lab.cells import Cell, Options, cells
from ergnn.lab.engine import Engine, Outcome, run_units, units_of
from ergnn.lab.grid import CLASS_INCREMENTAL, PAPER, Experiment
from ergnn.lab.published import PUBLISHED
from ergnn.lab.store import RunStore
from ergnn.lab.units import Computed

STORE = "runs.sqlite"
EXPERIMENTS = {experiment.name: experiment for experiment in (*PAPER, CLASS_INCREMENTAL, *PUBLISHED)}


@dataclass(frozen=True)
class Reproduced:
    """The result of :func:`reproduce`.

    Attributes:
        planned: the cells of each experiment, by name.
        store: file or URL of the run store.
        failed: units that failed.
        done: number of units that this call ran; the others were already finished.
    """

    planned: dict[str, list[Cell]]
    store: str
    failed: list[Outcome]
    done: int

    def errors(self) -> dict[str, str]:
        """Return the error messages of failed cells, by command."""
        return {
            cell.command: outcome.error
            for cells in self.planned.values()
            for cell in cells
            for outcome in self.failed
            if cell.given is not None and outcome.unit.config == cell.config
        }


def experiments_named(name: str) -> list[Experiment]:
    """Return one experiment, or those of the paper for ``all``."""
    if name == "all":
        return list(PAPER)
    if name not in EXPERIMENTS:
        raise UnknownNameError("result", name, [*EXPERIMENTS, "all"])
    return [EXPERIMENTS[name]]


def reproduce(
    experiments: Sequence[Experiment],
    out: str | Path,
    options: Options,
    *,
    jobs: int = 1,
    engine: Engine | None = None,
    store: str | None = None,
    resume: bool = False,
    on_plan: Callable[[int], None] | None = None,
    on_done: Callable[[Outcome], None] | None = None,
) -> Reproduced:
    """Run the units that are not finished yet.

    Args:
        experiments: see :func:`experiments_named`.
        out: folder for ``runs.sqlite``.
        options: see :class:`Options`.
        jobs: number of processes.
        engine: engine to use instead of local processes, see :func:`ergnn.lab.engine.make_engine`.
        store: another file, or the URL of a server, instead of ``runs.sqlite``.
        resume: continue with an existing store; otherwise a store that contains runs is an error.
        on_plan: called with the number of units to run.
        on_done: called with each finished unit.
    """
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; it must be 1 or more")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / STORE) if store is None else store
    with RunStore(path) as opened:
        if len(opened) and not resume:
            raise InputError(
                f"{opened.path} contains {len(opened)} finished runs; use --resume to continue, or another "
                f"{'--out' if store is None else '--store'} to start again"
            )
        planned = {experiment.name: cells(experiment, options) for experiment in experiments}
        data = {cell.dataset: cell.data for each in planned.values() for cell in each if cell.given is not None}
        _check_same_data(opened, data)
        wanted = [cell.config for each in planned.values() for cell in each if cell.given is not None]
        units = units_of(opened, wanted)
    if on_plan is not None:
        on_plan(len(units))
    outcomes = run_units(units, path, jobs, on_done, engine=engine, accept=partial(_other_data, data))
    failed = [outcome for outcome in outcomes if outcome.error]
    return Reproduced(planned, path, failed, len(outcomes) - len(failed))


def _other_data(data: Mapping[str, str], computed: Computed) -> str:
    """Explain why results must not be stored: machines of a cluster may have different data for the same name."""
    dataset, origin = computed.unit.config.dataset, computed.origin
    for result in computed.results:
        if result.data not in (None, data[dataset]):
            host = "a worker" if origin is None else origin.machine.get("host", "a worker")
            return (
                f"{dataset} is {result.data!r} on {host}, but {data[dataset]!r} here; every machine must have the same "
                "data"
            )
    return ""


def _check_same_data(store: RunStore, data: Mapping[str, str]) -> None:
    """Raise an error if stored runs used a substitute for a data set, or this machine does."""
    for run in store.runs(dataset=list(data)):
        if run.data not in (None, data[run.dataset]):
            raise InputError(
                f"{store.path}: its runs of {run.dataset} used {run.data!r}, but this machine has "
                f"{data[run.dataset]!r}; use another --out"
            )
