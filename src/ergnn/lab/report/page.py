"""The HTML page of a run store: every stored row in tables, and the figures that the rows allow.

The file is self-contained, with style, script and figures. It is built from the store, never from a live model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ergnn.config.errors import InputError
from ergnn.config.files import write_file
from ergnn.data import DATASETS
from ergnn.lab.grid import PAPER_TABLE_1
from ergnn.lab.published import protocol_of
from ergnn.lab.report.figures import KINDS, SettingFigures, drawn_settings, figures_of
from ergnn.lab.report.rows import ResultRow, Setting, dataset_order, main_backbone, result_rows, settings_of
from ergnn.lab.report.tables import cost_table, page_table, tables_text, tests_of
from ergnn.lab.result import StoredRun
from ergnn.lab.store import RunStore
from ergnn.pages.page import render_page
from ergnn.pages.table import Table, duration

TABLE_FORMATS = {".md": "markdown", ".tex": "latex", ".txt": "text"}


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
    if path.suffix in TABLE_FORMATS:
        text = tables_text(settings_of(result_rows(runs)), TABLE_FORMATS[path.suffix])
    else:
        text = report_page(runs, title=title, command=command)
    write_file(path, text.encode())
    return path


def report_page(runs: Sequence[StoredRun], title: str | None = None, command: str = "") -> str:
    """Render the HTML page of some stored runs."""
    settings = settings_of(result_rows(runs))
    drawn = drawn_settings(settings)
    figures = {kind: figures_of(kind, drawn) for kind in KINDS}
    papers = [row.paper or {} for setting in settings for row in setting.rows]
    in_paper = any("table" in paper for paper in papers)
    protocols = [protocol_of(name) for name in dict.fromkeys(p["experiment"] for p in papers if "experiment" in p)]
    return render_page(
        "report.html",
        title=title or _title(settings, in_paper),
        in_paper=in_paper,
        command=command,
        facts=_facts(runs, settings),
        warnings=_warnings(settings),
        data=_data_sets(runs),
        tables=_tables(settings, figures["sweep"]),
        figures=figures,
        left_out=[setting.label for setting in settings if setting not in drawn],
        costs=[(setting, cost_table(f"cost-{setting.id}", setting.rows)) for setting in settings],
        notes=[*_notes(runs), *((note, "published table") for one in protocols for note in one.notes)],
    )


def _title(settings: Sequence[Setting], in_paper: bool) -> str:
    if in_paper:
        return "ER-GNN, reproduced"
    datasets = sorted({row.dataset for setting in settings for row in setting.rows}, key=dataset_order)
    return f"Continual learning on {', '.join(datasets)}"


def _tables(settings: Sequence[Setting], swept: SettingFigures) -> dict[int, list[tuple[Setting, list[Table]]]]:
    """Map the number of a paper's table to our tables, by setting and data set; figure 3 shows rows with e > 1."""
    in_sweep = {id(row) for _, figures in swept for one in figures for row in one.rows}
    tables: dict[int, list[tuple[Setting, list[Table]]]] = {2: [], 3: [], 4: []}
    for setting in settings:
        tests = tests_of(setting.rows)
        for number, listed in tables.items():
            shown = []
            for dataset in setting.datasets:
                backbone = main_backbone(setting.of(dataset))
                rows = [
                    row
                    for row in setting.of(dataset)
                    if _table_of(row, backbone) == number
                    and (row.per_class == 1 or row.is_image or id(row) not in in_sweep)
                ]
                if rows:
                    name = f"table{number}-{dataset}-{setting.id}"
                    row_tests = tests.get(dataset, {}) if number != 3 else {}
                    shown.append(page_table(name, dataset, rows, row_tests, 1 if number == 4 else 100))
            if shown:
                listed.append((setting, shown))
    return tables


def _table_of(row: ResultRow, backbone: str) -> int:
    """Return the paper's table that a row belongs to."""
    if row.is_image:
        return 4
    return 3 if row.method == "replay" and row.backbone != backbone else 2


def _facts(runs: Sequence[StoredRun], settings: Sequence[Setting]) -> list[tuple[str, str]]:
    machines = sorted({_machine(run.machine) for run in runs})
    days = sorted({run.finished_at[:10] for run in runs})
    return [
        ("runs", f"{len(runs):,}"),
        ("rows", f"{sum(len(setting.rows) for setting in settings):,}"),
        ("seeds", f"{len({run.seed for run in runs}):,}"),
        ("class orders", f"{len({(run.config.get('class_order'), run.order) for run in runs}):,}"),
        ("data sets", ", ".join(sorted({run.dataset for run in runs}, key=dataset_order))),
        ("compute time", duration(sum(run.seconds for run in runs))),
        ("machine", "; ".join(machines)),
        ("code", ", ".join(sorted({run.code_version for run in runs}))),
        ("finished", days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"),
    ]


def _machine(facts: dict[str, Any]) -> str:
    device = "" if facts.get("device") in (None, "cpu") else f", {facts['device']}"
    return f"{facts.get('cores', '?')} cores, {facts.get('cpu', '')}{device}, torch {facts.get('torch', '?')}"


def _warnings(settings: Sequence[Setting]) -> list[tuple[str, str]]:
    """List each badge on the page, its meaning, and the number of rows that have it."""
    counts: dict[tuple[str, str], int] = {}
    for setting in settings:
        for row in setting.rows:
            for badge in row.badges:
                counts[badge] = counts.get(badge, 0) + 1
    return [(badge, f"{text} ({number} row{'s' * (number > 1)})") for (badge, text), number in sorted(counts.items())]


def _data_sets(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Build table 1: the size of each data set, the paper's counts if they differ, and the tasks learned."""
    known = {name: DATASETS.get(name) for name in DATASETS}
    rows = []
    for dataset in sorted({run.dataset for run in runs}, key=dataset_order):
        members = [run for run in runs if run.dataset == dataset]
        info, first = known.get(dataset), members[0]
        ours = (info.nodes, info.features, info.classes) if info else (None, None, None)
        ours = (*ours, len(first.classes), len(first.classes[0]))
        same = all(run.classes == first.classes for run in members)
        rows.append(
            {
                "name": dataset,
                "counts": list(zip(ours, PAPER_TABLE_1.get(dataset, ours), strict=True)),
                "edges": info.edges if info else None,
                "metric": first.matrix.metric,
                "splits": ", ".join(sorted({run.split for run in members})),
                "order": _order(first) if same else "differ between class orders",
            }
        )
    return rows


def _order(run: StoredRun) -> str:
    """Return the classes of the tasks, in order."""
    if all(group == run.classes[0] for group in run.classes[1:]):
        return "the same classes in every task"
    names = run.class_names or [str(c) for c in range(1 + max(map(max, run.classes)))]
    return " → ".join(", ".join(names[c].replace("_", " ") for c in group) for group in run.classes)


def _notes(runs: Sequence[StoredRun]) -> list[tuple[str, str]]:
    """Collect the distinct notes of the runs, with the data sets they belong to."""
    datasets: dict[str, set[str]] = {}
    for run in runs:
        for note in [f"{run.split} split", *run.notes]:
            datasets.setdefault(note, set()).add(run.dataset)
    return [(note, ", ".join(sorted(names))) for note, names in sorted(datasets.items())]
