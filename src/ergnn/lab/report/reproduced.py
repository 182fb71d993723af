"""Write the results of ``ergnn reproduce``: tables as text, Markdown and LaTeX, ``results.json`` and the HTML page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ergnn.lab.grid import FIGURE_2, FIGURE_3, TABLE_1, Experiment
from ergnn.lab.provenance import code_version, machine_facts
from ergnn.lab.report.data_table import data_page
from ergnn.lab.report.experiment_tables import (
    Filled,
    Page,
    evolution_pages,
    fill,
    measure_pages,
    paired_tests_of,
    sensitivity_pages,
)
from ergnn.lab.report.page import write_page
from ergnn.lab.reproduce import Options, Reproduced, datasets_of
from ergnn.lab.statistics import PairedTest
from ergnn.lab.store import RunStore

SUFFIXES = {"text": "txt", "markdown": "md", "latex": "tex"}
QUICK_MARK = "QUICK: few seeds and epochs, to check that everything works; do not quote."


@dataclass(frozen=True)
class Written:
    """The tables in order, and the HTML page (None if there are no runs)."""

    pages: list[Page]
    html: Path | None


def write_results(
    done: Reproduced, experiments: Sequence[Experiment], out: str | Path, options: Options, command: str = ""
) -> Written:
    """Write tables, results and page of some experiments into a folder.

    Args:
        done: result of :func:`ergnn.lab.reproduce.reproduce` for the same experiments and options.
        out: output folder.
        command: the command, shown with the results.
    """
    folder, pages = Path(out), []
    results: dict[str, Any] = {
        "command": command,
        "quick": options.quick,
        "code_version": code_version(),
        "machine": machine_facts(),
        "experiments": {},
    }
    with RunStore(done.store) as store:
        stored = len(store)
        for experiment in experiments:
            own, results["experiments"][experiment.name] = _experiment(store, experiment, done, options)
            is_other = options.protocol is not None and tuple(experiment.protocols) != (options.protocol,)
            name = experiment.name + (f"-{options.protocol}" if is_other else "")
            for format, suffix in SUFFIXES.items():
                text = "\n\n\n".join(page.render(format) for page in own)
                note = {"text": command, "markdown": f"```\n{command}\n```", "latex": f"% {command}"}[format]
                text += f"\n\n{note}\n" if command else "\n"
                (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
            pages += own
    (folder / "results.json").write_text(json.dumps(results, ensure_ascii=False, indent=1), encoding="utf-8")
    html = write_page(done.store, folder / "report.html", command=command) if stored else None
    return Written(pages, html)


def _experiment(
    store: RunStore, experiment: Experiment, done: Reproduced, options: Options
) -> tuple[list[Page], dict[str, Any]]:
    """Build the pages of one experiment, and its part of ``results.json``."""
    data: dict[str, Any] = {}
    if experiment is TABLE_1:
        pages = [data_page(datasets_of(experiment, options))]
    else:
        filled = fill(store, done.planned[experiment.name], done.errors())
        tests = paired_tests_of(experiment, filled)
        pages = _pages(experiment, filled, tests)
        data = {"rows": [f.to_dict() for f in filled], "tests": [test.to_dict() for test in tests]}
    if options.quick:
        pages = [replace(page, notes=[QUICK_MARK, *page.notes]) for page in pages]
    return pages, data


def _pages(experiment: Experiment, filled: Sequence[Filled], tests: Sequence[PairedTest]) -> list[Page]:
    if experiment.name == FIGURE_2.name:
        return evolution_pages(experiment, filled)
    if experiment.name == FIGURE_3.name:
        return sensitivity_pages(experiment, filled)
    return measure_pages(experiment, filled, tests)
