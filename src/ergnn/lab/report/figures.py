"""Figures of stored runs: accuracy as tasks arrive, FM against e, matrices; and of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ergnn.config.registry import name_of
from ergnn.lab.report.rows import ResultRow, base_rows, main_backbone
from ergnn.lab.result import RunResult
from ergnn.learning.metrics import AccuracyMatrix, Summary, accuracy_map, performance_after_each_task, summarize
from ergnn.pages.figure_files import converter
from ergnn.pages.figures import Drawing, Point, Series, line_chart, panels, value_ticks

Figures = list[tuple[str, Drawing]]
"""Captions and drawings; a caption is a name and, after ``|``, a remark."""
MAX_CELLS = 4000
"""Maximum number of heat-map cells for one data set and setting; 23 tasks have 276 each."""
MAX_SETTINGS = 4
"""Maximum number of settings with figures; all settings have tables."""


def growth(dataset: str, rows: Sequence[ResultRow]) -> Figures:
    """Draw figure 2: average accuracy over the tasks seen so far, after each task, of rows of one backbone and e."""
    backbone = main_backbone(rows)
    main = [row for row in base_rows(rows) if row.is_bound or row.backbone == backbone]
    shown = [row for row in main if not row.special and row.matrix.num_tasks > 1]
    if not shown:
        return []
    tasks = max(row.matrix.num_tasks for row in shown)
    series = [
        _series(row, row.short_name, ((i, v, f"after task {i}") for i, v in enumerate(row.after_each_task, 1)))
        for row in shown
    ]
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
    by_selector: dict[str, list[ResultRow]] = {}
    for row in rows:
        if row.method == "replay" and row.backbone == backbone:
            by_selector.setdefault(row.short_name, []).append(row)
    swept = [sorted(group, key=lambda row: row.per_class) for group in by_selector.values() if len(group) > 1]
    if not swept:
        return []
    sizes = sorted({row.per_class for group in swept for row in group})
    series = [
        _series(group[0], group[0].short_name, ((r.per_class, r.summary("fm"), f"e = {r.per_class}") for r in group))
        for group in swept
    ]
    for row in rows:
        if row.method == "joint" and row.backbone == backbone:
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
        figures.append(
            (f"{row.name}|PM {pm} · FM {fm}", accuracy_map(row.matrices, label, _task_names(row.matrix), low))
        )
    return figures


KINDS: dict[str, Callable[[str, Sequence[ResultRow]], Figures]] = {
    "growth": growth,
    "sweep": sweep,
    "matrices": matrices,
}


def write_figures(settings: Mapping[str, Mapping[str, Sequence[ResultRow]]], folder: str | Path) -> list[Path]:
    """Write every figure of the page as SVG, and as PDF where a converter is installed; return the files.

    A file is named by kind and data set, and by a number if there are several settings.
    """
    suffixes = ("svg", "pdf") if converter() else ("svg",)
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for number, (label, groups) in enumerate(list(settings.items())[:MAX_SETTINGS], 1):
        for dataset, rows in groups.items():
            title = f"{dataset} · {label}"
            for kind, draw in KINDS.items():
                if not (figures := draw(dataset, rows)):
                    continue
                drawing = panels(figures, label=title, title=title)
                for suffix in suffixes:
                    suffixed = f"-{number}" if len(settings) > 1 else ""
                    written.append(Path(folder) / f"{kind}-{dataset}{suffixed}.{suffix}")
                    drawing.save(written[-1])
    return written


def write_run_figure(result: RunResult, path: str | Path) -> None:
    """Draw the mean accuracy matrix of a run, and mean accuracy on the tasks so far after each task.

    Bars are 95 % intervals over seeds and class orders.
    """
    after = np.array([performance_after_each_task(matrix) for matrix in result.matrices])
    tasks, learner = after.shape[1], result.learner
    title = f"{result.dataset} · {name_of(learner.backbone)} · {name_of(learner.method)}"
    points = _points((i, summarize(values), f"after task {i}") for i, values in enumerate(after.T, 1))
    curve = line_chart(
        [Series("", "c-mf", points)],
        label=f"{title}: mean over the tasks so far, after each task",
        x_name="after task",
        y_name="mean over tasks so far (%)",
        x_ticks=list(range(1, tasks + 1, -(-tasks // 10))),
    )
    metric = f"{result.members[0].matrix.metric} (%)|on each task (column) after each task (row)"
    heat = accuracy_map(result.matrices, f"{title}: accuracy in percent", _task_names(result.matrix), side=300)
    panels([(metric, heat), ("", curve)], label=title, title=title).save(path)


def _task_names(matrix: AccuracyMatrix) -> list[str]:
    return [f"task {i + 1}" for i in range(matrix.num_tasks)]


def _series(row: ResultRow, label: str, values: Iterable[tuple[float, Summary, str]]) -> Series:
    return Series(label, row.look, _points((x, value, f"{row.short_name}, {words}") for x, value, words in values))


def _points(values: Iterable[tuple[float, Summary, str]]) -> list[Point]:
    """Make points, in percent, of x, a summary and words for the hover text."""
    return [
        Point(x, 100 * value.mean, None if value.ci95 is None else 100 * value.ci95, f"{words}: {value.text()}")
        for x, value, words in values
    ]
