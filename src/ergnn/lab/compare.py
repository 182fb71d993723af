"""Run methods × data sets × scenarios × edges × seeds × class orders, with equal memory and equal search.

Each method runs in three stages: its memory is scaled to the budget (:func:`fit_memory`), its hyper-parameters are
searched on validation nodes of the first tasks, and the chosen configuration is run with the reported seeds and class
orders. The first two use other seeds, class orders and splits than the last, and a store of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ergnn.lab.contenders import CompareOptions, Entry, Trial, members, plan, trial_settings
from ergnn.lab.grid_runner import GridRunner
from ergnn.learning.metrics import average_accuracy

SEARCH = "search.sqlite"
"""File of the store of probes and trials in an output folder."""
MAX_PROBES = 8
"""Sizes to measure at most; bytes are nearly linear in the size, so that two or three are usual."""
FULL = 0.95
"""A memory of this share of the budget is large enough."""


class Compared(NamedTuple):
    """The result of :func:`compare`; ``left_out`` has the reason of each unavailable condition."""

    entries: list[Entry]
    left_out: dict[str, str]


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
    runner: GridRunner,
    on_planned: Callable[[Sequence[Entry], Mapping[str, str]], None] = lambda entries, left_out: None,
) -> Compared:
    """Run everything that is not finished yet; ``on_planned`` is called with the plan before."""
    entries, left_out = plan(options)
    on_planned(entries, left_out)
    for dataset in dict.fromkeys(entry.condition.dataset for entry in entries):
        available = [entry for entry in entries if entry.condition.dataset == dataset and entry.config is not None]
        _fit_all(available, runner)
        _search_all([entry for entry in available if not entry.reason], options, runner)
        _run_all([entry for entry in available if not entry.reason], options, runner)
    return Compared(entries, left_out)


def _fit_all(entries: Sequence[Entry], runner: GridRunner) -> None:
    """Scale all memories, one probe each at a time; probes train for one epoch."""
    searches = [(entry, fit_memory(entry)) for entry in entries if entry.sizes is not None]
    asked = [(entry, search, next(search)) for entry, search in searches]
    while asked:
        configs = [entry.resolved({**ask, "epochs": 1}) for entry, _, ask in asked]
        again = []
        for (entry, search, _), (reason, runs) in zip(asked, runner("memory probes", configs, SEARCH), strict=True):
            if reason:
                entry.reason = reason
                continue
            try:
                again.append((entry, search, search.send(max(run.buffer_bytes for run in runs))))
            except StopIteration as end:
                entry.memory = end.value
        asked = again


def _search_all(entries: Sequence[Entry], options: CompareOptions, runner: GridRunner) -> None:
    """Score all trials on validation nodes of the first tasks; a single trial is not run."""
    tried = []
    for entry in entries:
        assert entry.config is not None
        points = trial_settings(entry.space, entry.config.resolved().flat(), options.trials, entry.method)
        tried += [(entry, point) for point in points] if len(points) > 1 else []
    first = {"first_tasks": options.search_tasks, "score": "val"}
    configs = [entry.resolved({**entry.memory, **first, **point}) for entry, point in tried]
    for (entry, point), (reason, runs) in zip(tried, runner("trials", configs, SEARCH), strict=True):
        if reason:
            entry.reason = entry.reason or reason
        else:
            entry.trials.append(Trial(point, float(np.mean([average_accuracy(run.matrix) for run in runs]))))


def _run_all(entries: Sequence[Entry], options: CompareOptions, runner: GridRunner) -> None:
    """Run the chosen configurations with the reported seeds and class orders."""
    who = (options.first_seed, options.seeds, options.class_orders)
    configs = [
        entry.resolved({**entry.memory, **entry.chosen, **members(entry.condition.scenario, *who)}) for entry in entries
    ]
    for entry, config, finished in zip(entries, configs, runner("runs", configs), strict=True):
        entry.config, (entry.reason, entry.runs) = config, finished
