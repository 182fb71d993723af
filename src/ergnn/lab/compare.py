"""Run methods × data sets × scenarios × edges × seeds × class orders, with equal memory and equal search.

Each method runs in three stages: its memory is scaled to the budget (:func:`fit_memory`), its hyper-parameters are
searched on validation nodes of the first tasks, and the chosen configuration is run with the reported seeds and class
orders. The first two use other seeds, class orders and splits than the last, and a store of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.config.errors import InputError
from ergnn.lab.config import RunConfig
from ergnn.lab.contenders import CompareOptions, Entry, Trial, members, plan
from ergnn.lab.engine import Engine, Outcome, Unit, run_units, units_of
from ergnn.lab.reproduce import STORE
from ergnn.lab.search import largest_within, trial_settings
from ergnn.lab.store import RunStore
from ergnn.lab.stored_run import StoredRun
from ergnn.lab.units import BATCH
from ergnn.learning.metrics import average_accuracy

SEARCH_STORE = "search.sqlite"


@dataclass(frozen=True)
class Compared:
    """The result of :func:`compare`; ``left_out`` has the reason of each unavailable condition."""

    entries: list[Entry]
    left_out: dict[str, str]
    store: str
    failed: list[Outcome]


class Stage:
    """Runs configurations into a store, as far as they are missing there.

    Args:
        store: file or URL.
        engine: computes units.
        batch: number of members that are trained together.
        run: False to use stored runs only.
        on_plan: called with the name of a stage and its units.
        on_done: called with each finished unit.
    """

    def __init__(
        self,
        store: str,
        engine: Engine | None,
        batch: int,
        run: bool,
        on_plan: Callable[[str, Sequence[Unit]], None] | None,
        on_done: Callable[[Outcome], None] | None,
    ) -> None:
        self.store, self.engine, self.batch, self.run = store, engine, batch, run
        self.on_plan, self.on_done = on_plan, on_done
        self.failed: list[Outcome] = []

    def __call__(self, name: str, configs: Sequence[RunConfig]) -> list[list[StoredRun] | str]:
        """Return the runs of each configuration, or the reason why they are unavailable."""
        wanted = [config.resolved() for config in configs]
        with RunStore(self.store) as store:
            units = units_of(store, wanted, self.batch) if self.run else []
        if units and self.on_plan is not None:
            self.on_plan(name, units)
        outcomes = run_units(units, self.store, on_done=self.on_done, engine=self.engine) if units else []
        failed = [outcome for outcome in outcomes if outcome.error]
        self.failed += failed
        found: list[list[StoredRun] | str] = []
        with RunStore(self.store) as store:
            for config in wanted:
                missing = len(store.missing(config))
                error = next((each.error for each in failed if each.unit.config == config), "")
                found.append((error or f"{missing} runs are not finished") if missing else store.members(config))
        return found


def fit_memory(entry: Entry) -> Generator[dict[str, Any], int, dict[str, Any]]:
    """Yield settings to measure and receive their bytes; return those of the largest memory within the budget.

    A method with the option ``budget_bytes`` removes what is too much itself, and is given the largest size. If the
    smallest memory of every mode is above the budget, it is returned nevertheless.
    """
    assert entry.sizes is not None
    option, largest = entry.sizes
    for mode in entry.modes:
        smallest = yield {**mode, option: 1}
        if smallest > entry.budget:
            continue
        if entry.limits_itself:
            full = {**mode, option: largest, "budget_bytes": entry.budget}
            if (yield full) <= entry.budget:
                return full
        search = largest_within(entry.budget, largest, smallest)
        try:
            size = next(search)
            while True:
                size = search.send((yield {**mode, option: size}))
        except StopIteration as end:
            return {**mode, option: end.value}
    return {**entry.modes[-1], option: 1}


def compare(
    options: CompareOptions,
    out: str | Path,
    *,
    engine: Engine | None = None,
    batch: int = BATCH,
    store: str | None = None,
    resume: bool = False,
    run: bool = True,
    on_planned: Callable[[Sequence[Entry], Mapping[str, str]], None] | None = None,
    on_plan: Callable[[str, Sequence[Unit]], None] | None = None,
    on_done: Callable[[Outcome], None] | None = None,
) -> Compared:
    """Run everything that is not finished yet.

    Args:
        options: see :class:`CompareOptions`.
        out: folder for ``runs.sqlite`` (reported runs) and ``search.sqlite`` (probes and trials).
        engine, batch, on_plan, on_done: see :class:`Stage`.
        store: another file, or the URL of a server, instead of ``runs.sqlite``.
        resume: continue with an existing store; otherwise a store that contains runs is an error.
        run: False to use stored runs only.
        on_planned: called with the plan before anything is run.
    """
    entries, left_out = plan(options)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / STORE) if store is None else store
    with RunStore(path) as opened:
        if len(opened) and run and not resume:
            raise InputError(
                f"{opened.path} contains {len(opened)} finished runs; use --resume to continue, or another "
                f"{'--out' if store is None else '--store'} to start again"
            )
    if on_planned is not None:
        on_planned(entries, left_out)
    searching = Stage(str(folder / SEARCH_STORE), engine, batch, run, on_plan, on_done)
    reporting = Stage(path, engine, batch, run, on_plan, on_done)
    for dataset in dict.fromkeys(entry.condition.dataset for entry in entries):
        own = [entry for entry in entries if entry.condition.dataset == dataset and entry.config is not None]
        _fit_all(own, searching)
        _search_all([entry for entry in own if not entry.reason], options, searching)
        _run_all([entry for entry in own if not entry.reason], options, reporting)
    return Compared(entries, left_out, path, [*searching.failed, *reporting.failed])


def _fit_all(entries: Sequence[Entry], stage: Stage) -> None:
    """Scale all memories, one probe each at a time; probes train for one epoch."""
    searches = [(entry, fit_memory(entry)) for entry in entries if entry.sizes is not None]
    asked = [(entry, search, next(search)) for entry, search in searches]
    while asked:
        found = stage("memory probes", [entry.with_settings({**ask, "epochs": 1}) for entry, _, ask in asked])
        again = []
        for (entry, search, _), runs in zip(asked, found, strict=True):
            if isinstance(runs, str):
                entry.reason = runs
                continue
            try:
                again.append((entry, search, search.send(max(run.buffer_bytes for run in runs))))
            except StopIteration as end:
                entry.memory = end.value
        asked = again


def _search_all(entries: Sequence[Entry], options: CompareOptions, stage: Stage) -> None:
    """Score all trials on validation nodes of the first tasks; a single trial is not run."""
    tried = []
    for entry in entries:
        assert entry.config is not None
        points = trial_settings(entry.space, entry.config.resolved().flat(), options.trials, entry.method)
        tried += [(entry, point) for point in points] if len(points) > 1 else []
    first = {"first_tasks": options.search_tasks, "score": "val"}
    configs = [entry.with_settings({**entry.memory, **first, **point}) for entry, point in tried]
    for (entry, point), runs in zip(tried, stage("trials", configs), strict=True):
        if isinstance(runs, str):
            entry.reason = entry.reason or runs
        else:
            entry.trials.append(Trial(point, float(np.mean([average_accuracy(run.matrix) for run in runs]))))


def _run_all(entries: Sequence[Entry], options: CompareOptions, stage: Stage) -> None:
    """Run the chosen configurations with the reported seeds and class orders."""
    who = (options.first_seed, options.seeds, options.class_orders)
    for entry in entries:
        chosen = {**entry.memory, **entry.chosen, **members(entry.condition.scenario, *who)}
        entry.config = entry.with_settings(chosen)
    configs = [entry.config for entry in entries if entry.config is not None]
    for entry, found in zip(entries, stage("runs", configs), strict=True):
        if isinstance(found, str):
            entry.reason = found
        else:
            entry.runs = found
