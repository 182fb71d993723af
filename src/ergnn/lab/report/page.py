"""The HTML page of a run store: every stored row in tables, and the figures that the rows allow.

The file is self-contained, with style, script and figures. It is built from the store, never from a live model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from ergnn.config.errors import InputError
from ergnn.config.files import write_file
from ergnn.lab.report.figures import KINDS, MAX_SETTINGS
from ergnn.lab.report.rows import ResultRow, dataset_order, result_rows, settings_of
from ergnn.lab.report.tables import Section, caveats, cost_table, render_sections, result_table
from ergnn.lab.result import StoredRun
from ergnn.lab.store import RunStore
from ergnn.pages.page import render_page
from ergnn.pages.table import FORMATS, duration

MIN_RUNS = 5
"""A note says that intervals are unreliable with fewer runs."""


def stored_runs(store_path: str | Path) -> list[StoredRun]:
    """Read all runs of a store, which must exist and contain at least one."""
    with RunStore(store_path, create=False) as store:
        runs, name = store.runs(), store.path
    if not runs:
        raise InputError(
            f"{name}: no finished runs to report; create some with `ergnn reproduce` or `ergnn run --store`"
        )
    return runs


def write_page(store_path: str | Path, out: str | Path, title: str | None = None, command: str = "") -> Path:
    """Write the page of a run store, or only its tables if the file is called ``.md``, ``.tex`` or ``.txt``.

    Args:
        store_path: the SQLite file, or the URL of a server; it must exist and contain at least one finished run.
        out: output file.
        title: title of the page; by default derived from its content.
        command: command that computed the results, shown at the top.
    """
    runs, path = stored_runs(store_path), Path(out)
    formats = {f".{suffix}": format for format, suffix in FORMATS.items()}
    if path.suffix in formats:
        text = render_sections(result_sections(settings_of(result_rows(runs))), formats[path.suffix], command)
    else:
        text = report_page(runs, title=title, command=command)
    write_file(path, text.encode())
    return path


def report_page(runs: Sequence[StoredRun], title: str | None = None, command: str = "") -> str:
    """Render the HTML page of some stored runs."""
    settings = settings_of(result_rows(runs))
    datasets = sorted({run.dataset for run in runs}, key=dataset_order)
    costs = [Section(label, cost_table([*chain(*groups.values())])) for label, groups in settings.items()]
    return render_page(
        "report.html",
        title=title or f"Continual learning on {', '.join(datasets)}",
        command=command,
        facts=_facts(runs, datasets),
        sections={"Tables": result_sections(settings, MAX_SETTINGS), "Cost": costs},
    )


def result_sections(settings: Mapping[str, Mapping[str, Sequence[ResultRow]]], drawn: int = 0) -> list[Section]:
    """Build one section per setting and data set; the first ``drawn`` settings have figures."""
    sections = []
    for number, (label, groups) in enumerate(settings.items()):
        for dataset, rows in groups.items():
            table = result_table(
                [(row.name, row, row.paper) for row in rows], scale=1 if rows[0].is_image else 100, count_runs=True
            )
            notes = [*caveats(rows), *dict.fromkeys(note for row in rows for run in row.runs for note in run.notes)]
            if any(len(row.runs) < MIN_RUNS for row in rows):
                notes.append(f"Intervals of fewer than {MIN_RUNS} runs are unreliable.")
            figures = [one for draw in KINDS.values() for one in draw(dataset, rows)] if number < drawn else []
            commands = [(row.name, row.command) for row in rows]
            sections.append(Section(f"{dataset} · {label}", table, notes, commands, figures))
    return sections


def _facts(runs: Sequence[StoredRun], datasets: Sequence[str]) -> list[tuple[str, str]]:
    machines = {(run.machine.get("cores"), run.machine.get("cpu"), run.machine.get("device")) for run in runs}
    days = sorted({run.finished_at[:10] for run in runs})
    return [
        ("runs", f"{len(runs):,}"),
        ("seeds", f"{len({run.seed for run in runs}):,}"),
        ("class orders", f"{len({(run.config.get('class_order'), run.order) for run in runs}):,}"),
        ("data sets", ", ".join(datasets)),
        ("compute time", duration(sum(run.seconds for run in runs))),
        ("machine", "; ".join(sorted(f"{cores} cores, {cpu}, {device}" for cores, cpu, device in machines))),
        ("code", ", ".join(sorted({run.code_version for run in runs}))),
        ("finished", days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"),
    ]
