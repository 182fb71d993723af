"""Tables and figures of stored runs, and the HTML page that has all of them.

The page is self-contained, with style, script and figures. It is built from the store, never from a live model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ergnn import __version__
from ergnn.config.errors import InputError
from ergnn.config.files import write_file
from ergnn.config.registry import name_of
from ergnn.lab.grid import PaperResult
from ergnn.lab.report.rows import ResultRow, base_rows, dataset_order, grouped, main_backbone, result_rows, settings_of
from ergnn.lab.result import RunResult, StoredRun
from ergnn.lab.store import RunStore, machine_facts
from ergnn.learning.metrics import Summary, accuracy_map
from ergnn.pages.figures import Drawing, Point, Series, line_chart, panels, value_ticks
from ergnn.pages.table import FORMATS, LEAKY, NOTHING, OWN_EDGES, Table, duration, percent, render_page

QUICK_MARK = "QUICK: few seeds and epochs, to check that everything works; do not quote."
MIN_RUNS = 5
"""A note says that intervals are unreliable with fewer runs."""
Figures = list[tuple[str, Drawing]]
"""Captions and drawings; a caption is a name and, after ``|``, a remark."""
MAX_CELLS = 4000
"""Maximum number of heat-map cells for one data set and setting; 23 tasks have 276 each."""
MAX_SETTINGS = 4
"""Maximum number of settings with figures; all settings have tables."""


@dataclass(frozen=True)
class Section:
    """A title, a table, the notes and commands below it, and figures, which only HTML pages show."""

    title: str
    table: Table | None
    notes: Sequence[str] = ()
    commands: Sequence[tuple[str, str]] = ()
    figures: Sequence[tuple[str, Drawing]] = ()

    def render(self, format: str) -> str:
        """Render as ``text``, ``markdown`` or ``latex``."""
        heading, note = {"text": ("", ""), "markdown": ("## ", "- "), "latex": ("% ", "% ")}[format]
        blocks = [heading + self.title]
        if self.table is not None:
            blocks.append(self.table.render(format))
        if self.notes:
            blocks.append("\n".join(note + line for line in self.notes))
        if self.commands:
            width = max(len(label) for label, _ in self.commands)
            blocks.append(_as_code([f"{label:<{width}}  {command}" for label, command in self.commands], format))
        return "\n\n".join(blocks)


def render_sections(sections: Sequence[Section], format: str, command: str = "") -> str:
    """Render sections, and the command that computed them, as ``text``, ``markdown`` or ``latex``."""
    text = "\n\n\n".join(section.render(format) for section in sections)
    return text + (f"\n\n{_as_code([command], format)}\n" if command else "\n")


def write_sections(folder: Path, name: str, sections: Sequence[Section], command: str) -> None:
    """Write sections as text, Markdown and LaTeX."""
    for format, suffix in FORMATS.items():
        write_file(folder / f"{name}.{suffix}", render_sections(sections, format, command).encode())


def write_json(folder: Path, command: str, **results: Any) -> None:
    """Write results, and which command, version and machine computed them, as ``results.json``."""
    origin = {"command": command, "code_version": __version__, "machine": machine_facts()}
    write_file(folder / "results.json", json.dumps({**origin, **results}, ensure_ascii=False).encode())


def _as_code(lines: Sequence[str], format: str) -> str:
    if format == "markdown":
        lines = ["```", *lines, "```"]
    return "\n".join(f"% {line}" for line in lines) if format == "latex" else "\n".join(lines)


def result_table(
    rows: Sequence[tuple[str, ResultRow | None, PaperResult | None]],
    *,
    order: Sequence[str] = ("pm", "fm", "aa"),
    scale: float = 100,
    marks: Mapping[str, str] | None = None,
    count_runs: bool = False,
) -> Table:
    """Build a table of measures, with the paper's numbers where it has them.

    Args:
        rows: labels, results (None without runs), and the paper's results.
        order: names of the measures.
        scale: 100 for percent, 1 for fractions as in the paper's table 4.
        marks: significance marks after FM, by row label.
        count_runs: whether the last column is the number of runs.
    """
    header, columns = ["%" if scale == 100 else ""], [[name for name, _, _ in rows]]
    for measure in order:
        ours = [None if row is None else row.summary(measure) for _, row, _ in rows]
        cells = [NOTHING if summary is None else summary.text(scale) for summary in ours]
        if measure == "fm" and marks:
            width = max(map(len, marks.values()))
            cells = [f"{cell} {marks.get(name, ''):<{width}}" for cell, (name, _, _) in zip(cells, rows, strict=True)]
        printed = [(paper or {}).get(measure) for _, _, paper in rows]
        title = measure.upper()
        if all(value is None for value in printed):
            header.append(f"{title} ours")
            columns.append(cells)
        else:
            header += [f"{title} paper", f"{title} ours", "diff"]
            differences = [_difference(*pair, scale) for pair in zip(ours, printed, strict=True)]
            columns += [[NOTHING if v is None else percent(v, scale) for v in printed], cells, differences]
    if count_runs:
        header.append("runs")
        columns.append([str(len(row.runs) if row else 0) for _, row, _ in rows])
    return Table(header, list(zip(*columns, strict=True)))


def _difference(ours: Summary | None, printed: float | None, scale: float) -> str:
    if ours is None or printed is None:
        return NOTHING
    text = percent(ours.mean - printed, scale)
    return text if text.startswith("-") else f"+{text}"


def cost_table(rows: Sequence[ResultRow]) -> Table:
    """Build a table of seconds per run, total seconds, and peak memory."""
    body: list[list[str]] = []
    for row in rows:
        seconds, nodes = sum(run.seconds for run in row.runs), sum(len(run.buffer_ids) for run in row.runs)
        peak = max(run.peak_memory_mb for run in row.runs)
        stored = f"{nodes / len(row.runs):,.0f}" if row.first.selector else NOTHING
        mean = seconds / len(row.runs)
        body.append([row.name, row.first.dataset, f"{mean:.2f}", f"{seconds:.1f}", f"{peak:,.0f}", stored])
    return Table(["row", "data set", "s per run", "s total", "peak MB", "stored nodes"], body)


def caveats(rows: Sequence[ResultRow]) -> list[str]:
    """Return notes on rows that used test labels or whose edges reveal labels."""
    notes = [f"leaky: {LEAKY}."] if any(row.is_leaky for row in rows) else []
    return notes + ([f"{OWN_EDGES}."] if any(row.reveals_labels for row in rows) else [])


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

    The store is an SQLite file or the URL of a server; it must contain at least one finished run. ``command`` computed
    the results, and is shown at the top.
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
            figures = [one for draw in KINDS for one in draw(dataset, rows)] if number < drawn else []
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


def growth(dataset: str, rows: Sequence[ResultRow]) -> Figures:
    """Draw figure 2: average accuracy over the tasks seen so far, after each task, of rows of one backbone and e."""
    backbone = main_backbone(rows)
    main = [row for row in base_rows(rows) if row.is_bound or row.backbone == backbone]
    shown = [row for row in main if not row.special and row.matrix.num_tasks > 1]
    if not shown:
        return []
    tasks = max(row.matrix.num_tasks for row in shown)
    series = [_series(row, ((i, v, f"after task {i}") for i, v in enumerate(row.after_each_task, 1))) for row in shown]
    drawing = line_chart(
        series,
        label=f"{dataset}: average accuracy over the tasks seen so far, after each of {tasks} tasks",
        x_name="tasks learned",
        y_name="AA over the tasks so far (%)",
        x_ticks=[*range(1, tasks + 1, max(1, tasks // 12))],
        y_ticks=value_ticks(series, (0.0, 100.0)),
    )
    return [("Accuracy as tasks arrive|over the tasks so far; bars are 95 % intervals", drawing)]


def sweep(dataset: str, rows: Sequence[ResultRow]) -> Figures:
    """Draw figure 3: FM against e, and joint training, which stores everything."""
    backbone = main_backbone(rows)
    replayed = [row for row in rows if row.first.method == "replay" and row.backbone == backbone]
    by_selector = grouped(replayed, lambda row: row.short_name)
    swept = [sorted(group, key=lambda row: row.per_class) for group in by_selector.values() if len(group) > 1]
    if not swept:
        return []
    sizes = sorted({row.per_class for group in swept for row in group})
    series = [
        _series(group[0], ((row.per_class, row.summary("fm"), f"e = {row.per_class}") for row in group))
        for group in swept
    ]
    for row in rows:
        if row.first.method == "joint" and row.backbone == backbone:
            fm = row.summary("fm")
            ends = [Point(e, 100 * fm.mean, None, f"{row.short_name}: {fm.text()}") for e in (sizes[0], sizes[-1])]
            series.append(Series(row.short_name, row.look, ends))
    drawing = line_chart(
        series,
        label=f"{dataset}: forgetting mean against the number e of stored nodes per class",
        x_name="e, nodes per class (log scale)",
        y_name="FM (%)",
        x_ticks=sizes,
        log_x=True,
    )
    return [("Forgetting against memory|FM with e stored nodes per class; joint training stores all nodes", drawing)]


def matrices(dataset: str, rows: Sequence[ResultRow]) -> Figures:
    """Draw the mean accuracy matrix of each row, all on one scale: on task j (column) after task i (row)."""
    shown, cells = [], 0
    for row in base_rows(rows):
        cells += row.matrix.num_tasks * (row.matrix.num_tasks + 1) // 2
        if cells <= MAX_CELLS:
            shown.append(row)
    low = np.floor(10 * min((float(np.nanmin(row.matrix.values)) for row in shown), default=0.0)) / 10
    figures = []
    for row in shown:
        pm, fm = (f"{100 * row.summary(name).mean:.1f}".replace("-", "−") for name in ("pm", "fm"))
        label = f"{row.name} on {dataset}, accuracy in percent on tasks 1, 2, …"
        figures.append((f"{row.name}|PM {pm} · FM {fm}", accuracy_map(row.matrices, label, low=low)))
    return figures


KINDS: tuple[Callable[[str, Sequence[ResultRow]], Figures], ...] = (growth, sweep, matrices)


def write_figures(settings: Mapping[str, Mapping[str, Sequence[ResultRow]]], folder: str | Path) -> list[Path]:
    """Write every figure of the page as SVG, and return the files.

    A file is named by kind and data set, and by a number if there are several settings.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for number, (label, groups) in enumerate(list(settings.items())[:MAX_SETTINGS], 1):
        for dataset, rows in groups.items():
            title, suffix = f"{dataset} · {label}", f"-{number}" if len(settings) > 1 else ""
            for draw in KINDS:
                if figures := draw(dataset, rows):
                    written.append(Path(folder) / f"{draw.__name__}-{dataset}{suffix}.svg")
                    panels(figures, label=title, title=title).save(written[-1])
    return written


def write_run_figure(result: RunResult, path: str | Path) -> None:
    """Draw the mean accuracy matrix of a run over seeds and class orders."""
    learner = result.config.learner
    title = f"{result.config.dataset} · {name_of(learner.backbone)} · {name_of(learner.method)}"
    metric = f"{result.members[0].matrix.metric} (%)|on each task (column) after each task (row)"
    heat = accuracy_map(result.matrices, f"{title}: accuracy in percent", side=300)
    panels([(metric, heat)], label=title, title=title).save(path)


def _series(row: ResultRow, values: Iterable[tuple[float, Summary, str]]) -> Series:
    """Make the points, in percent, of x, a summary and words for the hover text."""
    name, points = row.short_name, []
    for x, value, words in values:
        half = None if value.ci95 is None else 100 * value.ci95
        points.append(Point(x, 100 * value.mean, half, f"{name}, {words}: {value.text()}"))
    return Series(name, row.look, points)
