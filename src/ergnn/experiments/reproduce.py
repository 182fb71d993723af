"""Run what the paper's tables and figures need; :mod:`ergnn.report.reproduced` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ergnn.errors import InputError, UnknownNameError
from ergnn.experiments.cells import Cell, Options, cells
from ergnn.experiments.engine import Engine, Outcome, run_units, units_of
from ergnn.experiments.grid import EXPERIMENTS, PAPER, Experiment
from ergnn.experiments.store import RunStore
from ergnn.experiments.units import Computed

STORE = "runs.sqlite"
STAND_IN = "stand in its place"
"""In the notes of streams whose data set was not there."""


@dataclass(frozen=True)
class Reproduced:
    """What a call of :func:`reproduce` did.

    Attributes:
        planned: the cells of each experiment, by its name.
        store: the file or URL of the run store.
        failed: units that could not be run.
        done: number of units that this call ran; the others were finished before.
    """

    planned: dict[str, list[Cell]]
    store: str
    failed: list[Outcome]
    done: int

    def errors(self) -> dict[str, str]:
        """Why a cell could not be run, by its command."""
        return {
            cell.command: outcome.error
            for cells in self.planned.values()
            for cell in cells
            for outcome in self.failed
            if cell.given is not None and outcome.unit.config == cell.config
        }


def experiments_named(name: str) -> list[Experiment]:
    """One experiment, or those of the paper for ``all``."""
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
    """Run what is not finished yet.

    Args:
        experiments: see :func:`experiments_named`.
        out: the folder for ``runs.sqlite``.
        options: see :class:`Options`.
        jobs: processes at a time.
        engine: computes in place of those processes, see :func:`ergnn.experiments.engine.make_engine`.
        store: another file, or the URL of a server, in place of ``runs.sqlite``.
        resume: go on with the store that is there; without it a store with runs in it is an error.
        on_plan: told how many units of work there are to do.
        on_done: told of each unit when it is finished.
    """
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; it must be 1 or more")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / STORE) if store is None else store
    with RunStore(path) as opened:
        if len(opened) and not resume:
            raise InputError(
                f"{opened.path} holds {len(opened)} finished runs; --resume goes on with them, another "
                f"{'--out' if store is None else '--store'} starts afresh"
            )
        planned = {experiment.name: cells(experiment, options) for experiment in experiments}
        stand_ins = _stand_ins([cell for each in planned.values() for cell in each])
        _check_same_data(opened, stand_ins)
        wanted = [cell.config for each in planned.values() for cell in each if cell.given is not None]
        units = units_of(opened, wanted)
    if on_plan is not None:
        on_plan(len(units))
    outcomes = run_units(units, path, jobs, on_done, engine=engine, accept=partial(_other_data, stand_ins))
    failed = [outcome for outcome in outcomes if outcome.error]
    return Reproduced(planned, path, failed, len(outcomes) - len(failed))


def _stand_ins(cells: Sequence[Cell]) -> dict[str, bool]:
    """By data set, whether other data stand in for it here."""
    return {cell.dataset: STAND_IN in " ".join(cell.notes) for cell in cells if cell.given is not None}


def _other_data(stand_ins: Mapping[str, bool], computed: Computed) -> str:
    """Why results are not to be kept: a machine of a cluster may lack a data set, or have what is not here."""
    dataset, origin = computed.unit.config.dataset, computed.origin
    for result in computed.results:
        there = STAND_IN in " ".join(result.notes)
        if there != stand_ins[dataset]:
            host = "a worker" if origin is None else origin.machine.get("host", "a worker")
            return f"{dataset} is {'not on' if there else 'only on'} {host}; every machine must have the same data"
    return ""


def _check_same_data(store: RunStore, now: Mapping[str, bool]) -> None:
    """Runs on data that stood in for other data must not be taken for runs on those."""
    for run in store.runs(dataset=list(now)):
        then = STAND_IN in " ".join(run.notes)
        if then != now[run.dataset]:
            what = "data that stood in for it" if then else "the data set itself, which is not here now"
            raise InputError(f"{store.path}: its runs of {run.dataset} are on {what}; use another --out")
