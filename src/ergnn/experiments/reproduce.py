"""``ergnn reproduce``: the paper's tables and figures, from nothing but their names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ergnn.errors import InputError, UnknownNameError
from ergnn.experiments.cells import Cell, Options, cells, datasets_of
from ergnn.experiments.data_table import data_page
from ergnn.experiments.engine import Engine, Outcome, run_units, units_of
from ergnn.experiments.grid import EXPERIMENTS, FIGURE_2, FIGURE_3, TABLE_1, Experiment
from ergnn.experiments.provenance import code_version, machine_facts
from ergnn.experiments.store import RunStore
from ergnn.experiments.tables import (
    Filled,
    Page,
    evolution_pages,
    fill,
    measure_pages,
    paired_tests_of,
    sensitivity_pages,
)
from ergnn.experiments.units import Computed

STORE = "runs.sqlite"
FORMATS = {"text": "txt", "markdown": "md", "latex": "tex"}
STAND_IN = "stand in its place"
"""In the notes of streams whose data set was not there."""
QUICK_MARK = "QUICK: few seeds and epochs, to see that all works; not to be quoted."


@dataclass(frozen=True)
class Reproduced:
    """What a call of :func:`reproduce` did.

    Attributes:
        pages: the tables, in order.
        failed: what could not be run although it should have been.
        done: units of work that this call did; the rest was finished before.
        html: the page, where it could be made.
    """

    pages: list[Page]
    failed: list[Outcome]
    done: int
    html: Path | None


def experiments_named(name: str) -> list[Experiment]:
    """One experiment, or every one for ``all``."""
    if name == "all":
        return list(EXPERIMENTS.values())
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
    command: str = "",
    on_plan: Callable[[int], None] | None = None,
    on_done: Callable[[Outcome], None] | None = None,
) -> Reproduced:
    """Run what is not finished yet, then write tables, results and page into a folder.

    Args:
        experiments: see :func:`experiments_named`.
        out: the folder: ``runs.sqlite``, tables as ``.txt``, ``.md`` and ``.tex``, ``results.json``, ``report.html``.
        options: see :class:`Options`.
        jobs: processes at a time.
        engine: computes in place of those processes, see :func:`ergnn.experiments.engine.make_engine`.
        store: another file, or the URL of a server, in place of ``runs.sqlite``.
        resume: go on with the store that is there; without it a store with runs in it is an error.
        command: how this was called, to be shown with the results.
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
    with RunStore(path) as opened:
        pages = _write(opened, experiments, planned, options, failed, folder, command)
    return Reproduced(pages, failed, len(outcomes) - len(failed), _html(path, folder / "report.html", command))


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


def _write(
    store: RunStore,
    experiments: Sequence[Experiment],
    planned: dict[str, list[Cell]],
    options: Options,
    failed: Sequence[Outcome],
    folder: Path,
    command: str,
) -> list[Page]:
    pages: list[Page] = []
    results: dict[str, Any] = {
        "command": command,
        "quick": options.quick,
        "code_version": code_version(),
        "machine": machine_facts(),
        "experiments": {},
    }
    for experiment in experiments:
        if experiment is TABLE_1:
            own, data = [data_page(datasets_of(experiment, options))], {}
        else:
            filled = fill(store, planned[experiment.name], _errors(planned[experiment.name], failed))
            tests = paired_tests_of(experiment, filled)
            own = _pages(experiment, filled, tests)
            data = {"rows": [f.to_dict() for f in filled], "tests": [test.to_dict() for test in tests]}
        marks = [QUICK_MARK] if options.quick else []
        own = [Page(p.title, p.table, [*marks, *p.notes], p.commands) for p in own]
        results["experiments"][experiment.name] = data
        name = experiment.name + (f"-{options.protocol}" if _is_other(experiment, options.protocol) else "")
        for format, ending in FORMATS.items():
            text = "\n\n\n".join(page.render(format) for page in own) + (
                f"\n\n{_note(format, command)}" if command else ""
            )
            (folder / f"{name}.{ending}").write_text(text + "\n", encoding="utf-8")
        pages += own
    (folder / "results.json").write_text(json.dumps(results, ensure_ascii=False, indent=1), encoding="utf-8")
    return pages


def _pages(experiment: Experiment, filled: Sequence[Filled], tests: Sequence[Any]) -> list[Page]:
    if experiment.name == FIGURE_2.name:
        return evolution_pages(experiment, filled)
    if experiment.name == FIGURE_3.name:
        return sensitivity_pages(experiment, filled)
    return measure_pages(experiment, filled, tests)


def _note(format: str, command: str) -> str:
    return {"text": f"{command}", "markdown": f"```\n{command}\n```", "latex": f"% {command}"}[format]


def _is_other(experiment: Experiment, protocol: str | None) -> bool:
    return protocol is not None and tuple(experiment.protocols) != (protocol,)


def _errors(cells: Sequence[Cell], failed: Sequence[Outcome]) -> dict[str, str]:
    """By command, why a cell could not be run."""
    errors = {}
    for cell in cells:
        for outcome in failed:
            if cell.given is not None and outcome.unit.config == cell.config:
                errors[cell.command] = outcome.error
    return errors


def _html(store: str, out: Path, command: str) -> Path | None:
    """The page, where its template engine is installed."""
    if find_spec("jinja2") is None:
        return None
    with RunStore(store) as opened:
        if not len(opened):
            return None
    return Path(import_module("ergnn.report.page").write_page(store, out, command=command))
