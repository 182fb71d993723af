"""Write the results of ``ergnn reproduce``: tables as text, Markdown and LaTeX, ``results.json`` and the HTML page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ergnn.config.files import write_file
from ergnn.lab.grid import TABLE_1, Experiment
from ergnn.lab.provenance import code_version, machine_facts
from ergnn.lab.report.experiment_sections import CellResult, data_section, experiment_sections, paired_tests_of
from ergnn.lab.report.page import write_page
from ergnn.lab.report.sections import QUICK_MARK, Section, write_sections
from ergnn.lab.reproduce import Options, Reproduced, datasets_of
from ergnn.lab.store import RunStore


@dataclass(frozen=True)
class Written:
    """The tables in order, and the HTML page (None if there are no runs)."""

    sections: list[Section]
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
    folder, written = Path(out), []
    results: dict[str, Any] = {
        "command": command,
        "quick": options.quick,
        "code_version": code_version(),
        "machine": machine_facts(),
        "experiments": {},
    }
    for experiment in experiments:
        sections, results["experiments"][experiment.name] = _experiment(experiment, done, options)
        is_other = options.protocol is not None and tuple(experiment.protocols) != (options.protocol,)
        name = experiment.name + (f"-{options.protocol}" if is_other else "")
        write_sections(folder, name, sections, command)
        written += sections
    write_file(folder / "results.json", json.dumps(results, ensure_ascii=False, indent=1).encode())
    with RunStore(done.store) as store:
        has_runs = len(store) > 0
    html = write_page(done.store, folder / "report.html", command=command) if has_runs else None
    return Written(written, html)


def _experiment(experiment: Experiment, done: Reproduced, options: Options) -> tuple[list[Section], dict[str, Any]]:
    """Build the sections of one experiment, and its entry in ``results.json``."""
    entry: dict[str, Any] = {}
    if experiment is TABLE_1:
        sections = [data_section(datasets_of(experiment, options))]
    else:
        results = [CellResult(cell) for cell in done.cells[experiment.name]]
        tests = paired_tests_of(experiment, results)
        sections = experiment_sections(experiment, results, tests)
        entry = {"rows": [result.to_dict() for result in results], "tests": [test.to_dict() for test in tests]}
    if options.quick:
        sections = [replace(section, notes=[QUICK_MARK, *section.notes]) for section in sections]
    return sections, entry
