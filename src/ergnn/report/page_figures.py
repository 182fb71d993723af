"""Which figures a set of rows makes: PM as tasks arrive, FM against e, matrices, forgetting, and chosen nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ergnn.data import describe_datasets
from ergnn.data.stream import TaskStream
from ergnn.errors import ErgnnError
from ergnn.experiments.config import RunConfig
from ergnn.experiments.run import make_config_stream
from ergnn.metrics import Summary, performance_after_each_task, summarize
from ergnn.report.figures import Point, Series, class_map, dot_plot, heat_map, line_chart
from ergnn.report.projection import MOST_EDGES, class_maps
from ergnn.report.rows import Row

MOST_CELLS = 4000
"""Cells of heat maps for one data set and setting: 23 tasks make 276 each."""


@dataclass(frozen=True)
class Figure:
    """An SVG, its caption, and the numbers in it as text (a header and rows)."""

    svg: str
    caption: str = ""
    header: Sequence[str] = ()
    numbers: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class DatasetFigures:
    """Figures of one data set, a note to them, and the rows that they show."""

    dataset: str
    figures: Sequence[Figure]
    rows: Sequence[Row]
    note: str = ""


def growth(dataset: str, rows: Sequence[Row]) -> DatasetFigures | None:
    """Figure 2: the mean score over the tasks seen so far, after each task, with and without replay."""
    shown = [row for row in rows if row.is_main and not row.special and row.matrix.num_tasks > 1]
    if not shown:
        return None
    series, numbers = [], []
    for row in shown:
        curves = np.array([performance_after_each_task(matrix) for matrix in row.matrices])
        values = [summarize(curves[:, i]) for i in range(curves.shape[1])]
        points = [
            Point(i + 1, 100 * value.mean, _half(value), f"{row.remembers}, after task {i + 1}: {_percent(value)}")
            for i, value in enumerate(values)
        ]
        series.append(Series(row.figure_name, row.look, points))
        numbers.append([row.name, *map(_percent, values)])
    tasks = len(shown[0].matrix.values)
    every = range(1, tasks + 1, max(1, tasks // 12))
    label = f"{dataset}: mean accuracy over the tasks seen so far, after each of {tasks} tasks"
    svg = line_chart(
        series,
        label=label,
        x_name="tasks learnt",
        y_name="PM over the tasks so far (%)",
        x_ticks=[*every],
        y_limits=(0.0, 100.0),
    )
    header = ["row", *(f"after {i}" for i in range(1, tasks + 1))]
    return DatasetFigures(dataset, [Figure(svg, "", header, numbers)], shown)


def sweep(dataset: str, rows: Sequence[Row]) -> DatasetFigures | None:
    """Figure 3: FM against e, and where keeping everything would end."""
    by_kind: dict[str, list[Row]] = {}
    for row in rows:
        if row.method == "replay" and row.backbone in ("gat", "mlp"):
            by_kind.setdefault(row.remembers, []).append(row)
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
    ends = [row for row in rows if row.method == "joint" and row.backbone in ("gat", "mlp")]
    for row in ends:
        tip = f"{row.remembers}: {_percent(row.fm)}"
        points = [Point(e, 100 * row.fm.mean, None, tip) for e in (every[0], every[-1])]
        series.append(Series(row.figure_name, row.look, points))
        numbers.append([row.name, "all", _percent(row.fm)])
    svg = line_chart(
        series,
        label=f"{dataset}: forgetting mean against the number e of remembered nodes a class",
        x_name="e, nodes a class (log scale)",
        y_name="FM (%)",
        x_ticks=every,
        log_x=True,
    )
    shown = [row for own in swept.values() for row in own] + ends
    note = "Joint training keeps everything: where more memory leads." if ends else ""
    return DatasetFigures(dataset, [Figure(svg, "", ["row", "e", "FM (%)"], numbers)], shown, note)


def heat_maps(dataset: str, rows: Sequence[Row]) -> DatasetFigures | None:
    """The mean accuracy matrix of each row, all on one scale."""
    shown, cells = [], 0
    for row in rows:
        cells += row.matrix.num_tasks * (row.matrix.num_tasks + 1) // 2
        if row.per_class == 1 and cells <= MOST_CELLS:
            shown.append(row)
    if not shown:
        return None
    low = np.floor(10 * min(float(np.nanmin(row.matrix.values)) for row in shown)) / 10
    figures = []
    for row in shown:
        spread = np.array([matrix.values for matrix in row.matrices])
        tasks = row.matrix.num_tasks
        tips = [
            [
                f"task {j + 1} after task {i + 1}: {_percent(summarize(spread[:, i, j]))}" if j <= i else ""
                for j in range(tasks)
            ]
            for i in range(tasks)
        ]
        values = np.where(np.tri(tasks, dtype=bool), row.matrix.values, np.nan)
        lines = [
            f"after task {i + 1}: " + ", ".join(f"{100 * v:.1f}" for v in values[i, : i + 1]) for i in range(tasks)
        ]
        label = f"{row.name} on {dataset}, accuracy in percent on tasks 1, 2, … {'; '.join(lines)}"
        svg = heat_map(values, low=float(low), high=1.0, label=label, tips=tips)
        measures = f"PM {100 * row.pm.mean:.1f} · FM {100 * row.fm.mean:.1f}".replace("-", "−")
        caption = f"{row.name}{' · LEAKY' if row.is_leaky else ''}|{measures}"
        figures.append(Figure(svg, caption))
    return DatasetFigures(
        dataset, figures, shown, f"Down: after learning task i. Across: on task j. Scale: {100 * low:.0f} to 100 %."
    )


def forgetting(dataset: str, rows: Sequence[Row]) -> DatasetFigures | None:
    """How far each task fell between the moment it was learnt and the end."""
    shown = [row for row in rows if row.per_class == 1 and row.matrix.num_tasks > 1]
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
    svg = dot_plot(series, label=label, x_name="accuracy lost by the end, in points; the number is the task")
    header = ["row", *(f"task {j}" for j in range(1, shown[0].matrix.num_tasks))]
    return DatasetFigures(dataset, [Figure(svg, "", header, numbers)], shown)


def choices(dataset: str, rows: Sequence[Row]) -> DatasetFigures | None:
    """Which nodes each selector chose, on a map of each class; one seed and class order that all rows have."""
    shown = [
        row for row in rows if row.is_main and row.selector and not row.is_image and (row.is_leaky or not row.special)
    ]
    if not shown:
        return None
    common = set.intersection(*({(run.seed, run.order) for run in row.runs} for row in shown))
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
            svg = class_map(
                own.points[~own.is_training],
                own.points[own.is_training],
                marks,
                label=f"{dataset}, class {title}: where the chosen nodes lie among its nodes",
            )
            caption = f"{title}|task {task.id + 1} · {100 * own.explained:.0f} % of the variance"
            figures.append(Figure(svg, caption, ["selector", "node", "x", "y"], numbers))
    note = f"Seed {seed}, class order {order}. Small dots: nodes of the class; larger dots: its training nodes."
    return DatasetFigures(dataset, figures, shown, note)


def _stream(row: Row, seed: int, order: int) -> TaskStream | None:
    """The stream that a stored run learnt; None where its data set is not at hand or is no graph."""
    run = row.runs[0]
    if _edges(row.dataset) > MOST_EDGES:
        return None
    known = {f.name for f in fields(RunConfig)}
    settings = {key: value for key, value in row.config.items() if key in known}
    try:
        config = RunConfig(**{**settings, "split": run.split})
        preset = make_config_stream(config, seed if run.split != "public" else 0, order)
    except ErgnnError:
        return None
    return preset.stream if preset.split == run.split else None


def _short(choosers: Sequence[Row]) -> str:
    """At most two names: a map has no room for more."""
    names = [row.figure_name for row in choosers]
    return ", ".join(names) if len(names) <= 2 else f"{names[0]}, {names[1]} +{len(names) - 2}"


def _edges(dataset: str) -> int:
    return next((info.edges for info in describe_datasets() if info.name == dataset), 0)


def _per_class(row: Row) -> int:
    return row.per_class


def _half(value: Summary) -> float | None:
    return None if value.ci95 is None else 100 * value.ci95


def _percent(value: Summary) -> str:
    half = "" if value.ci95 is None else f" ± {100 * value.ci95:.1f}"
    return f"{100 * value.mean:.1f}{half}".replace("-", "−")
