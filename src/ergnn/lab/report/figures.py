"""Figures of stored runs: accuracy as tasks arrive, FM against e, matrices, forgetting; and of one run.

Each figure of the page is also written as a file (:func:`write_figures`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ergnn.config.registry import name_of
from ergnn.lab.report.rows import ResultRow, Setting, base_rows, main_backbone, main_rows
from ergnn.lab.report.tables import evolution_table, sensitivity_table
from ergnn.lab.result import RunResult
from ergnn.learning.metrics import AccuracyMatrix, Summary, accuracy_map, performance_after_each_task, summarize
from ergnn.pages.figure_files import converter, write_figure
from ergnn.pages.figures import (
    Drawing,
    Point,
    Series,
    dot_plot,
    line_chart,
    panels,
    ticks,
    value_ticks,
)
from ergnn.pages.table import Table, with_interval

MAX_CELLS = 4000
"""Maximum number of heat-map cells for one data set and setting; 23 tasks have 276 each."""
MAX_SETTINGS = 3
"""Maximum number of settings with figures; all settings have tables."""


@dataclass(frozen=True)
class Figure:
    """A drawing, its caption (a name and, after ``|``, a remark), and a table of its numbers."""

    drawing: Drawing
    caption: str = ""
    numbers: Table | None = None


@dataclass(frozen=True)
class DatasetFigures:
    """Figures of one data set, a note, and the rows that they show."""

    dataset: str
    figures: Sequence[Figure]
    rows: Sequence[ResultRow]
    note: str = ""


SettingFigures = list[tuple[Setting, list[DatasetFigures]]]


def growth(dataset: str, rows: Sequence[ResultRow]) -> DatasetFigures | None:
    """Build figure 2: average accuracy over the tasks seen so far, after each task, with and without replay."""
    shown = [row for row in main_rows(rows) if not row.special and row.matrix.num_tasks > 1]
    if not shown:
        return None
    series = [
        _series(row, row.figure_name, ((i, v, f"after task {i}") for i, v in enumerate(row.after_each_task, 1)))
        for row in shown
    ]
    tasks = max(row.matrix.num_tasks for row in shown)
    drawing = line_chart(
        series,
        label=f"{dataset}: average accuracy over the tasks seen so far, after each of {tasks} tasks",
        x_name="tasks learned",
        y_name="AA over the tasks so far (%)",
        x_ticks=[*range(1, tasks + 1, max(1, tasks // 12))],
        y_ticks=value_ticks(series, (0.0, 100.0)),
    )
    numbers = evolution_table([(row.name, row) for row in shown])
    return DatasetFigures(dataset, [Figure(drawing, "", numbers)], shown)


def sweep(dataset: str, rows: Sequence[ResultRow]) -> DatasetFigures | None:
    """Build figure 3: FM against e, and joint training, which stores everything."""
    backbone = main_backbone(rows)
    by_selector: dict[str, list[ResultRow]] = {}
    for row in rows:
        if row.method == "replay" and row.backbone == backbone:
            by_selector.setdefault(row.short_name, []).append(row)
    swept = [sorted(group, key=lambda row: row.per_class) for group in by_selector.values() if len(group) > 1]
    if not swept:
        return None
    sizes = sorted({row.per_class for group in swept for row in group})
    series = [
        _series(group[0], group[0].figure_name, ((r.per_class, r.fm, f"e = {r.per_class}") for r in group))
        for group in swept
    ]
    joint = [row for row in rows if row.method == "joint" and row.backbone == backbone]
    for row in joint:
        points = [Point(e, 100 * row.fm.mean, None, f"{row.short_name}: {with_interval(row.fm)}") for e in sizes]
        series.append(Series(row.figure_name, row.look, [points[0], points[-1]]))
    drawing = line_chart(
        series,
        label=f"{dataset}: forgetting mean against the number e of stored nodes per class",
        x_name="e, nodes per class (log scale)",
        y_name="FM (%)",
        x_ticks=sizes,
        log_x=True,
    )
    shown = [row for group in swept for row in group] + joint
    numbers = sensitivity_table([(row.short_name, row) for row in shown])
    note = "Joint training stores all nodes: the limit of more memory." if joint else ""
    return DatasetFigures(dataset, [Figure(drawing, "", numbers)], shown, note)


def matrices(dataset: str, rows: Sequence[ResultRow]) -> DatasetFigures | None:
    """Build heat maps of the mean accuracy matrix of each row, all on one scale."""
    shown, cells = [], 0
    for row in base_rows(rows):
        cells += row.matrix.num_tasks * (row.matrix.num_tasks + 1) // 2
        if cells <= MAX_CELLS:
            shown.append(row)
    if not shown:
        return None
    low = float(np.floor(10 * min(float(np.nanmin(row.matrix.values)) for row in shown)) / 10)
    figures = []
    for row in shown:
        measures = f"PM {100 * row.pm.mean:.1f} · FM {100 * row.fm.mean:.1f}".replace("-", "−")
        caption = f"{row.name}{' · LEAKY' if row.is_leaky else ''}|{measures}"
        label = f"{row.name} on {dataset}, accuracy in percent on tasks 1, 2, …"
        figures.append(Figure(accuracy_map(row.matrices, label, _task_names(row.matrix), low), caption))
    note = f"Row i: after learning task i. Column j: on task j. Scale: {100 * low:.0f} to 100 %."
    return DatasetFigures(dataset, figures, shown, note)


def forgetting(dataset: str, rows: Sequence[ResultRow]) -> DatasetFigures | None:
    """Build dot plots of the accuracy lost on each task between learning it and the end."""
    shown = [row for row in base_rows(rows) if row.matrix.num_tasks > 1]
    if not shown:
        return None
    series = [
        _series(row, row.name, ((j, drop, f"points lost on task {j}") for j, drop in enumerate(row.drops, 1)))
        for row in shown
    ]
    lost = [point.y for one in series for point in one.points]
    drawing = dot_plot(
        series,
        label=f"{dataset}: points of accuracy lost on each task by the end of the stream",
        x_name="accuracy lost by the end, in points; the number is the task",
        x_ticks=ticks(min(0.0, *lost), max(1.0, *lost), 6),
    )
    header = ["points lost", *(f"task {j}" for j in range(1, max(row.matrix.num_tasks for row in shown)))]
    numbers = Table(header, [[row.name, *map(with_interval, row.drops)] for row in shown])
    return DatasetFigures(dataset, [Figure(drawing, "", numbers)], shown)


KINDS: dict[str, Callable[[str, Sequence[ResultRow]], DatasetFigures | None]] = {
    "growth": growth,
    "sweep": sweep,
    "matrices": matrices,
    "forgetting": forgetting,
}


def drawn_settings(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings that get figures."""
    return [s for s in settings if not s.is_image][:MAX_SETTINGS] + [s for s in settings if s.is_image][:1]


def figures_of(kind: str, settings: Sequence[Setting]) -> SettingFigures:
    """Build the figures of one of :data:`KINDS`, by setting and data set."""
    by_setting = [
        (setting, [one for dataset in setting.datasets if (one := KINDS[kind](dataset, setting.of(dataset)))])
        for setting in settings
    ]
    return [(setting, figures) for setting, figures in by_setting if figures]


def write_figures(settings: Sequence[Setting], folder: str | Path) -> list[Path]:
    """Write every figure of the page as SVG, and as PDF where a converter is installed; return the files.

    A file is named by kind and data set, and by a number if there are several settings.
    """
    drawn, suffixes = drawn_settings(settings), ("svg", "pdf") if converter() else ("svg",)
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for kind in KINDS:
        for setting, datasets in figures_of(kind, drawn):
            number = f"-{drawn.index(setting) + 1}" if len(drawn) > 1 else ""
            for one in datasets:
                title = f"{one.dataset} · {setting.label}"
                drawing = panels([(f.caption, f.drawing) for f in one.figures], label=title, title=title)
                for suffix in suffixes:
                    written.append(Path(folder) / f"{kind}-{one.dataset}{number}.{suffix}")
                    write_figure(drawing, written[-1])
    return written


def write_run_figure(result: RunResult, path: str | Path) -> None:
    """Draw the mean accuracy matrix of a run, and mean accuracy on the tasks so far after each task.

    Bars are 95 % intervals over seeds and class orders.
    """
    after = np.array([performance_after_each_task(matrix) for matrix in result.matrices])
    tasks, learner = after.shape[1], result.learner
    title = f"{result.dataset} · {name_of(learner.backbone)} · {name_of(learner.method)}"
    points = _points((i + 1, summarize(after[:, i]), f"after task {i + 1}") for i in range(tasks))
    curve = line_chart(
        [Series("", "c-mf", points)],
        label=f"{title}: mean over the tasks so far, after each task",
        x_name="after task",
        y_name="mean over tasks so far (%)",
        x_ticks=list(range(1, tasks + 1, -(-tasks // 10))),
    )
    metric = f"{result.members[0].matrix.metric} (%)|on each task (column) after each task (row)"
    heat = accuracy_map(result.matrices, f"{title}: accuracy in percent", _task_names(result.matrix), side=300)
    drawing = panels([(metric, heat), ("", curve)], label=title, title=title)
    write_figure(drawing, path)


def _task_names(matrix: AccuracyMatrix) -> list[str]:
    return [f"task {i + 1}" for i in range(matrix.num_tasks)]


def _series(row: ResultRow, label: str, values: Iterable[tuple[float, Summary, str]]) -> Series:
    return Series(label, row.look, _points((x, value, f"{row.short_name}, {words}") for x, value, words in values))


def _points(values: Iterable[tuple[float, Summary, str]]) -> list[Point]:
    """Make points, in percent, of x, a summary and words for the hover text."""
    return [
        Point(x, 100 * value.mean, None if value.ci95 is None else 100 * value.ci95, f"{words}: {with_interval(value)}")
        for x, value, words in values
    ]
