"""Run the experiments of the paper's tables and figures, one configuration per row, data set and protocol.

:mod:`ergnn.lab.report.experiments` writes the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ergnn.config.errors import ErgnnError, check_choice
from ergnn.config.learner_config import PROTOCOLS
from ergnn.data.datasets import DATASETS
from ergnn.lab.config import RunConfig, command_of
from ergnn.lab.engines import GridRunner
from ergnn.lab.grid import CLASS_INCREMENTAL, PAPER, TABLE_4, Experiment, GridRow, PaperResult, paper_result
from ergnn.lab.options import Options
from ergnn.lab.published import PUBLISHED
from ergnn.lab.report.rows import ResultRow
from ergnn.lab.result import StoredRun
from ergnn.lab.run import StreamCache, check_run

EXPERIMENTS = {experiment.name: experiment for experiment in (*PAPER, CLASS_INCREMENTAL, *PUBLISHED)}
QUICK_SEEDS = 3
QUICK_OMITS = (2, 10)
"""Values of e that a quick figure 3 omits."""


@dataclass
class GridCell:
    """A row on one data set with one protocol: a configuration and its runs, or the reason why they are unavailable.

    Attributes:
        paper: the printed numbers of this row.
        config: the resolved configuration; None if it is unavailable.
        command: computes this cell alone.
    """

    experiment: str
    row: GridRow
    dataset: str
    protocol: str
    paper: PaperResult | None = None
    config: RunConfig | None = None
    command: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()
    runs: Sequence[StoredRun] = ()

    @cached_property
    def result(self) -> ResultRow | None:
        """All runs as a row of a table; None without runs."""
        return ResultRow(self.runs) if self.runs else None

    @property
    def label(self) -> str:
        return self.row.label + (" (leaky)" if self.result and self.result.is_leaky else "")

    @property
    def group(self) -> str:
        return f"{self.dataset} · {self.protocol}"

    def to_dict(self) -> dict[str, Any]:
        """Return the row, the paper's numbers and ours, and the command, for JSON."""
        values = {name: getattr(self, name) for name in ("experiment", "dataset", "protocol", "paper", "command")}
        values |= {"row": self.row.label, "block": self.row.block, "reason": self.reason}
        if self.result:
            values |= {name: vars(self.result.summary(name)) for name in ("pm", "fm", "aa")}
            values |= {
                "after_each_task": [vars(summary) for summary in self.result.after_each_task],
                "split": self.runs[0].split,
                "leaky": self.result.is_leaky,
                "notes": list(self.runs[0].notes),
                "seconds": sum(run.seconds for run in self.runs),
            }
        return values


def cells(experiment: Experiment, options: Options) -> list[GridCell]:
    """Return every row on every data set and protocol, available or not."""
    streams = StreamCache()
    protocols = (options.protocol,) if options.protocol else experiment.protocols
    for protocol in protocols:
        check_choice("protocol", protocol, PROTOCOLS)
    rows = [row for row in experiment.rows if not (options.quick and row.settings.get("per_class") in QUICK_OMITS)]
    return [
        _cell(experiment, row, dataset, protocol, options, streams)
        for protocol in protocols
        for dataset in datasets_of(experiment, options)
        for row in rows
    ]


def _cell(
    experiment: Experiment, row: GridRow, dataset: str, protocol: str, options: Options, streams: StreamCache
) -> GridCell:
    settings = experiment.settings(row, dataset)
    paper = row.published.get(dataset) if experiment.sources else paper_result(dataset, **settings)
    cell = GridCell(experiment.name, row, dataset, protocol, paper)
    if not row.settings:
        return replace(cell, reason="not implemented")
    settings |= _members(experiment, protocol, dataset, options, settings.get("seeds", 10))
    settings |= experiment.quick if options.quick else {}
    try:
        given = RunConfig(dataset=dataset, protocol=protocol, device=options.device, **settings)
        preset, _ = check_run(given.resolved(), streams)
    except (ErgnnError, ImportError) as error:
        return replace(cell, reason=str(error))
    # the split actually used: stored runs on a public and on a seeded split must not be confused
    given = replace(given, split=preset.split)
    return replace(cell, config=given.resolved(), command=command_of(given), notes=preset.notes)


def datasets_of(experiment: Experiment, options: Options) -> Sequence[str]:
    """Return the requested data sets that belong to the experiment; a third-party data set counts as a graph."""
    if options.datasets is None:
        return experiment.quick_datasets if options.quick and experiment.quick_datasets else experiment.datasets
    named = [DATASETS.resolve(name) for name in options.datasets]
    images = experiment is not TABLE_4
    return [name for name in named if (name in TABLE_4.datasets) != images]


def _members(experiment: Experiment, protocol: str, dataset: str, options: Options, usual: int) -> dict[str, Any]:
    many = protocol == "clean" and not options.quick and "class_order" not in experiment.common
    orders = options.class_orders or (10 if many else 1)
    if dataset in TABLE_4.datasets:  # its tasks are permutations, which depend on the seed
        orders = 1
    seeds = options.seeds or (min(usual, QUICK_SEEDS) if options.quick else usual)
    members: dict[str, Any] = {"seeds": seeds, "first_seed": options.first_seed}
    if orders > 1:
        members.update(class_order="shuffled", orders=orders, split="seeded")
    if options.split is not None:
        members["split"] = options.split
    return members


def reproduce(experiments: Sequence[Experiment], options: Options, runner: GridRunner) -> dict[str, list[GridCell]]:
    """Run everything that is not finished yet; return the cells of each experiment by its name."""
    planned = {experiment.name: cells(experiment, options) for experiment in experiments}
    available = [cell for grid in planned.values() for cell in grid if cell.config]
    configs = [cell.config for cell in available if cell.config]
    for cell, finished in zip(available, runner("runs", configs), strict=True):
        cell.reason, cell.runs = finished
    return planned
