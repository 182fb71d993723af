"""The figures of a set of rows: accuracy as tasks arrive, FM against e, matrices, forgetting, and selected nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ergnn.config.errors import ErgnnError
from ergnn.data import describe_datasets
from ergnn.data.stream import TaskStream
from ergnn.lab.config import RunConfig
from ergnn.lab.report.projection import MAX_EDGES, class_maps
from ergnn.lab.report.rows import Row, base_rows, main_backbone, main_rows
from ergnn.lab.run import make_config_stream
from ergnn.learning.metrics import Summary, summarize
from ergnn.pages.figures import Point, Series, class_map, dot_plot, heat_map, line_chart

MAX_CELLS = 4000
"""Maximum number of heat-map cells for one data set and setting; 23 tasks have 276 each."""


@dataclass(frozen=True)
class Figure:
    """A figure: the function of :mod:`ergnn.pages.figures` that draws it, its arguments, and its numbers as text.

    The caption is a name and, after ``|``, a remark.
    """

    draw: Callable[..., str]
    data: Mapping[str, Any]
    caption: str = ""
    header: Sequence[str] = ()
    numbers: Sequence[Sequence[str]] = ()

    @property
    def svg(self) -> str:
        """As an element of the HTML page, styled by its style sheet."""
        return self.draw(**self.data)


@dataclass(frozen=True)
class DatasetFigures:
    """Figures of one data set, a note, and the rows that they show."""

    dataset: str
    figures: Sequence[Figure]
    rows: Sequence[Row]
    note: str = ""


def growth(dataset: str, rows: Sequence[Row]) -> DatasetFigures | None:
    """Build figure 2: average accuracy over the tasks seen so far, after each task, with and without replay."""
    shown = [row for row in main_rows(rows) if not row.special and row.matrix.num_tasks > 1]
    if not shown:
        return None
    series, numbers = [], []
    for row in shown:
        points = [
            Point(i + 1, 100 * value.mean, _half(value), f"{row.short_name}, after task {i + 1}: {_percent(value)}")
            for i, value in enumerate(row.after_each_task)
        ]
        series.append(Series(row.figure_name, row.look, points))
        numbers.append([row.name, *map(_percent, row.after_each_task)])
    tasks = max(row.matrix.num_tasks for row in shown)
    data = {
        "series": series,
        "label": f"{dataset}: average accuracy over the tasks seen so far, after each of {tasks} tasks",
        "x_name": "tasks learned",
        "y_name": "AA over the tasks so far (%)",
        "x_ticks": [*range(1, tasks + 1, max(1, tasks // 12))],
        "y_limits": (0.0, 100.0),
    }
    header = ["row", *(f"after {i}" for i in range(1, tasks + 1))]
    return DatasetFigures(dataset, [Figure(line_chart, data, "", header, numbers)], shown)


def sweep(dataset: str, rows: Sequence[Row]) -> DatasetFigures | None:
    """Build figure 3: FM against e, and joint training, which stores everything."""
    backbone = main_backbone(rows)
    by_kind: dict[str, list[Row]] = {}
    for row in rows:
        if row.method == "replay" and row.backbone == backbone:
            by_kind.setdefault(row.short_name, []).append(row)
    swept = {name: sorted(own, key=_per_class) for name, own in by_kind.items() if len(own) > 1}
    if not swept:
        return None
    series, numbers = [], []
    for name, own in swept.items():
        points = [
            Point(_per_class(r), 100 * r.fm.mean, _half(r.fm), f"{name}, e = {_per_class(r)}: {_percent(r.fm)}")
            for r in own
        ]
        series.append(Series(own[0].figure_name, own[0].look, points))
        numbers += [[row.name, str(_per_class(row)), _percent(row.fm)] for row in own]
    every = sorted({_per_class(row) for own in swept.values() for row in own})
    ends = [row for row in rows if row.method == "joint" and row.backbone == backbone]
    for row in ends:
        tip = f"{row.short_name}: {_percent(row.fm)}"
        points = [Point(e, 100 * row.fm.mean, None, tip) for e in (every[0], every[-1])]
        series.append(Series(row.figure_name, row.look, points))
        numbers.append([row.name, "all", _percent(row.fm)])
    data = {
        "series": series,
        "label": f"{dataset}: forgetting mean against the number e of stored nodes per class",
        "x_name": "e, nodes per class (log scale)",
        "y_name": "FM (%)",
        "x_ticks": every,
        "log_x": True,
    }
    shown = [row for own in swept.values() for row in own] + ends
    note = "Joint training stores all nodes: the limit of more memory." if ends else ""
    return DatasetFigures(dataset, [Figure(line_chart, data, "", ["row", "e", "FM (%)"], numbers)], shown, note)


def heat_maps(dataset: str, rows: Sequence[Row]) -> DatasetFigures | None:
    """Build heat maps of the mean accuracy matrix of each row, all on one scale."""
    shown, cells = [], 0
    for row in base_rows(rows):
        cells += row.matrix.num_tasks * (row.matrix.num_tasks + 1) // 2
        if cells <= MAX_CELLS:
            shown.append(row)
    if not shown:
        return None
    low = float(np.floor(10 * min(float(np.nanmin(row.matrix.values)) for row in shown)) / 10)
    figures = [_heat_map(dataset, row, low) for row in shown]
    note = f"Row i: after learning task i. Column j: on task j. Scale: {100 * low:.0f} to 100 %."
    return DatasetFigures(dataset, figures, shown, note)


def _heat_map(dataset: str, row: Row, low: float) -> Figure:
    spread, tasks = np.array([matrix.values for matrix in row.matrices]), row.matrix.num_tasks
    tips = [
        [
            f"task {j + 1} after task {i + 1}: {_percent(summarize(spread[:, i, j]))}" if j <= i else ""
            for j in range(tasks)
        ]
        for i in range(tasks)
    ]
    values = np.where(np.tri(tasks, dtype=bool), row.matrix.values, np.nan)
    lines = [f"after task {i + 1}: " + ", ".join(f"{100 * v:.1f}" for v in values[i, : i + 1]) for i in range(tasks)]
    label = f"{row.name} on {dataset}, accuracy in percent on tasks 1, 2, … {'; '.join(lines)}"
    measures = f"PM {100 * row.pm.mean:.1f} · FM {100 * row.fm.mean:.1f}".replace("-", "−")
    caption = f"{row.name}{' · LEAKY' if row.is_leaky else ''}|{measures}"
    return Figure(heat_map, {"matrix": values, "low": low, "high": 1.0, "label": label, "tips": tips}, caption)


def forgetting(dataset: str, rows: Sequence[Row]) -> DatasetFigures | None:
    """Build dot plots of the accuracy lost on each task between learning it and the end."""
    shown = [row for row in base_rows(rows) if row.matrix.num_tasks > 1]
    if not shown:
        return None
    series, numbers = [], []
    for row in shown:
        drops = row.forgetting_per_task
        points = [
            Point(j + 1, 100 * drop.mean, _half(drop), f"{row.name}, task {j + 1}: {_percent(drop)} points lost")
            for j, drop in enumerate(drops)
        ]
        series.append(Series(row.name, row.look, points))
        numbers.append([row.name, *map(_percent, drops)])
    label = f"{dataset}: points of accuracy lost on each task by the end of the stream"
    data = {"rows": series, "label": label, "x_name": "accuracy lost by the end, in points; the number is the task"}
    header = ["row", *(f"task {j}" for j in range(1, max(row.matrix.num_tasks for row in shown)))]
    return DatasetFigures(dataset, [Figure(dot_plot, data, "", header, numbers)], shown)


def choices(dataset: str, rows: Sequence[Row]) -> DatasetFigures | None:
    """Build maps of the nodes chosen by each selector, for one seed and class order that all rows have."""
    shown = [row for row in main_rows(rows) if row.selector and not row.is_image and (row.is_leaky or not row.special)]
    common = set.intersection(*({(run.seed, run.order) for run in row.runs} for row in shown)) if shown else set()
    if not common:
        return None
    seed, order = min(common)
    chosen = {row.name: next(run for run in row.runs if (run.seed, run.order) == (seed, order)) for row in shown}
    stream = _stream(shown[0], seed, order)
    if stream is None:
        return None
    figures = []
    for task in stream:
        keep = {node for run in chosen.values() for node in run.buffer_ids}
        for own in class_maps(task, keep=keep):
            classes = task.graph.class_names
            title = classes[own.label].replace("_", " ") if classes else f"class {own.label}"
            by_node: dict[int, list[Row]] = {}
            for row in shown:
                for node in chosen[row.name].buffer_ids:
                    if own.at(node) is not None:
                        by_node.setdefault(node, []).append(row)
            marks, numbers = [], []
            for node, choosers in by_node.items():
                x, y = (float(value) for value in own.points[own.nodes == node][0])
                names = ", ".join(row.figure_name for row in choosers)
                look = choosers[0].look if len(choosers) == 1 else "c-all"
                marks.append((_short(choosers), look, x, y, f"{names} chose node {node}"))
                numbers.append([names, str(node), f"{x:.3f}", f"{y:.3f}"])
            data = {
                "all_nodes": own.points[~own.is_training],
                "candidates": own.points[own.is_training],
                "chosen": marks,
                "label": f"{dataset}, class {title}: the chosen nodes among its nodes",
            }
            caption = f"{title}|task {task.id + 1} · {100 * own.explained:.0f} % of the variance"
            figures.append(Figure(class_map, data, caption, ["selector", "node", "x", "y"], numbers))
    note = f"Seed {seed}, class order {order}. Small dots: nodes of the class; larger dots: its training nodes."
    return DatasetFigures(dataset, figures, shown, note)


KINDS: dict[str, Callable[[str, Sequence[Row]], DatasetFigures | None]] = {
    "growth": growth,
    "sweep": sweep,
    "matrices": heat_maps,
    "forgetting": forgetting,
    "choices": choices,
}


def _stream(row: Row, seed: int, order: int) -> TaskStream | None:
    """Create the stream of a stored run; None if its data set is unavailable or not a graph."""
    run = row.runs[0]
    if next((info.edges for info in describe_datasets() if info.name == row.dataset), 0) > MAX_EDGES:
        return None
    try:
        config = RunConfig(**{**row.config, "split": run.split})
        preset = make_config_stream(config, seed if run.split != "public" else 0, order)
    except ErgnnError:
        return None
    return preset.stream if preset.split == run.split else None


def _short(choosers: Sequence[Row]) -> str:
    """Return at most two names, to fit on the map."""
    names = [row.figure_name for row in choosers]
    return ", ".join(names) if len(names) <= 2 else f"{names[0]}, {names[1]} +{len(names) - 2}"


def _per_class(row: Row) -> int:
    return row.per_class


def _half(value: Summary) -> float | None:
    return None if value.ci95 is None else 100 * value.ci95


def _percent(value: Summary) -> str:
    half = "" if value.ci95 is None else f" ± {100 * value.ci95:.1f}"
    return f"{100 * value.mean:.1f}{half}".replace("-", "−")
