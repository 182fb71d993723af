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

from ergnn.lab.contenders import CompareOptions, Entry, Trial, members, plan, trial_settings
from ergnn.lab.engines import Engine, Outcome
from ergnn.lab.grid_runner import GridRunner, open_grid
from ergnn.lab.run import BATCH
from ergnn.learning.metrics import average_accuracy

SEARCH_STORE = "search.sqlite"
MAX_PROBES = 8
"""Sizes to measure at most; bytes are nearly linear in the size, so that two or three are usual."""
FULL = 0.95
"""A memory of this share of the budget is large enough."""


@dataclass(frozen=True)
class Compared:
    """The result of :func:`compare`; ``left_out`` has the reason of each unavailable condition."""

    entries: list[Entry]
    left_out: dict[str, str]
    store: str
    failed: list[Outcome]


def fit_memory(entry: Entry) -> Generator[dict[str, Any], int, dict[str, Any]]:
    """Yield settings to measure and receive their bytes; return those of the largest memory within the budget.

    A method with the option ``budget_bytes`` removes what is too much itself, and is given the largest size. If the
    smallest memory of every mode is above the budget, it is returned nevertheless.

    Bytes must not decrease with the size. The next size is where the line through the last two measurements meets the
    budget, limited to the sizes that are still possible. The search ends early at :data:`FULL` of the budget.
    """
    assert entry.sizes is not None
    (option, largest), budget = entry.sizes, entry.budget
    for mode in entry.modes:
        smallest = yield {**mode, option: 1}
        if smallest > budget:
            continue
        if entry.limits_itself:
            full = {**mode, option: largest, "budget_bytes": budget}
            if (yield full) <= budget:
                return full
        low, low_bytes, high, slope = 1, smallest, largest + 1, max(float(smallest), 1.0)
        for _ in range(MAX_PROBES):
            if high - low <= 1 or low_bytes >= FULL * budget:
                break
            size = min(max(low + int((budget - low_bytes) / slope), low + 1), high - 1)
            measured = yield {**mode, option: size}
            slope = max((measured - low_bytes) / (size - low), 1.0)
            if measured > budget:
                high = size
            else:
                low, low_bytes = size, measured
        return {**mode, option: low}
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
    on_plan: Callable[[str, int], None] | None = None,
    on_done: Callable[[Outcome], None] | None = None,
) -> Compared:
    """Run everything that is not finished yet.

    Args:
        options: see :class:`CompareOptions`.
        out: folder for the store of reported runs, and for ``search.sqlite``, that of probes and trials.
        engine, batch, run, on_plan, on_done: see :class:`ergnn.lab.grid_runner.GridRunner`.
        store, resume: see :func:`ergnn.lab.grid_runner.open_grid`.
        on_planned: called with the plan before anything is run.
    """
    entries, left_out = plan(options)
    path = open_grid(out, store, resume or not run)
    if on_planned is not None:
        on_planned(entries, left_out)
    searching, reporting = (
        GridRunner(to, engine, batch=batch, run=run, on_plan=on_plan, on_done=on_done)
        for to in (str(Path(out) / SEARCH_STORE), path)
    )
    for dataset in dict.fromkeys(entry.condition.dataset for entry in entries):
        available = [entry for entry in entries if entry.condition.dataset == dataset and entry.config is not None]
        _fit_all(available, searching)
        _search_all([entry for entry in available if not entry.reason], options, searching)
        _run_all([entry for entry in available if not entry.reason], options, reporting)
    return Compared(entries, left_out, path, [*searching.failed, *reporting.failed])


def _fit_all(entries: Sequence[Entry], stage: GridRunner) -> None:
    """Scale all memories, one probe each at a time; probes train for one epoch."""
    searches = [(entry, fit_memory(entry)) for entry in entries if entry.sizes is not None]
    asked = [(entry, search, next(search)) for entry, search in searches]
    while asked:
        probes = stage("memory probes", [entry.resolved({**ask, "epochs": 1}) for entry, _, ask in asked])
        again = []
        for (entry, search, _), runs in zip(asked, probes, strict=True):
            if isinstance(runs, str):
                entry.reason = runs
                continue
            try:
                again.append((entry, search, search.send(max(run.buffer_bytes for run in runs))))
            except StopIteration as end:
                entry.memory = end.value
        asked = again


def _search_all(entries: Sequence[Entry], options: CompareOptions, stage: GridRunner) -> None:
    """Score all trials on validation nodes of the first tasks; a single trial is not run."""
    tried = []
    for entry in entries:
        assert entry.config is not None
        points = trial_settings(entry.space, entry.config.resolved().flat(), options.trials, entry.method)
        tried += [(entry, point) for point in points] if len(points) > 1 else []
    first = {"first_tasks": options.search_tasks, "score": "val"}
    configs = [entry.resolved({**entry.memory, **first, **point}) for entry, point in tried]
    for (entry, point), runs in zip(tried, stage("trials", configs), strict=True):
        if isinstance(runs, str):
            entry.reason = entry.reason or runs
        else:
            entry.trials.append(Trial(point, float(np.mean([average_accuracy(run.matrix) for run in runs]))))


def _run_all(entries: Sequence[Entry], options: CompareOptions, stage: GridRunner) -> None:
    """Run the chosen configurations with the reported seeds and class orders."""
    who = (options.first_seed, options.seeds, options.class_orders)
    for entry in entries:
        chosen = {**entry.memory, **entry.chosen, **members(entry.condition.scenario, *who)}
        entry.config = entry.resolved(chosen)
    configs = [entry.config for entry in entries if entry.config is not None]
    for entry, runs in zip(entries, stage("runs", configs), strict=True):
        if isinstance(runs, str):
            entry.reason = runs
        else:
            entry.runs = runs
