"""The figures of the page as SVG and PDF files, drawn by matplotlib."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any

from ergnn.config.errors import InputError
from ergnn.config.files import write_file
from ergnn.config.registry import name_of
from ergnn.lab.report.page import drawn_settings, figures_of
from ergnn.lab.report.page_figures import KINDS, DatasetFigures
from ergnn.lab.report.rows import gather
from ergnn.lab.report.settings import settings_of
from ergnn.lab.result import RunResult
from ergnn.lab.stored_run import StoredRun
from ergnn.learning.metrics import performance_after_each_task, summarize
from ergnn.pages.figures import Point, Series, class_map, dot_plot, heat_map, line_chart, loss_ticks, value_ticks

COLUMNS = 4
"""Maximum number of panels per row of a figure."""


def write_figures(runs: Sequence[StoredRun], folder: str | Path, formats: Sequence[str] = ("svg", "pdf")) -> list[Path]:
    """Write every figure that the page of these runs shows; return the files.

    A file is named by kind and data set, and by a number if there are several settings.
    """
    matplotlib = _matplotlib()
    out, written = Path(folder), []
    settings = drawn_settings(settings_of(gather(runs)))
    try:
        out.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(_STYLE):
            for kind in KINDS:
                for setting, sets in figures_of(kind, settings):
                    number = f"-{settings.index(setting) + 1}" if len(settings) > 1 else ""
                    for one in sets:
                        figure = _figure(one, setting.label)
                        for suffix in formats:
                            path = out / f"{kind}-{one.dataset}{number}.{suffix}"
                            _save(figure, path, bbox_inches="tight")
                            written.append(path)
    except OSError as error:
        raise InputError(f"{out}: cannot write figures ({error})") from None
    return written


def _save(figure: Any, path: Path, **options: Any) -> None:
    drawn, suffix = io.BytesIO(), path.suffix.removeprefix(".")
    figure.savefig(drawn, format=suffix, metadata={_DATES[suffix]: None}, **options)
    write_file(path, drawn.getvalue())


def check_file(path: str | Path) -> None:
    """Raise an error if no figure can be written to a file."""
    suffix = Path(path).suffix.removeprefix(".")
    if suffix not in _DATES:
        raise InputError(f"{path}: a figure is written as one of: {', '.join(f'.{name}' for name in _DATES)}")
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"{path}: no such folder: {Path(path).absolute().parent}")
    _matplotlib()


def write_run_figure(result: RunResult, path: str | Path) -> None:
    """Draw the mean accuracy matrix of a run, and mean accuracy on the tasks so far after each task.

    Bars are 95 % intervals over seeds and class orders.
    """
    check_file(path)
    from matplotlib.figure import Figure

    matrix = result.matrix.values
    after = [performance_after_each_task(one) for one in result.matrices]
    averages = [summarize([100 * row[i] for row in after]) for i in range(len(matrix))]
    points = [Point(i + 1, mean.mean, mean.ci95) for i, mean in enumerate(averages)]
    with _matplotlib().rc_context(_STYLE):
        figure = Figure(figsize=(9.2, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(2, 3))
        _heat(left, {"matrix": matrix, "low": 0.0, "high": 1.0})
        left.set(xlabel="task", ylabel="after task", title=f"{result.members[0].matrix.metric} (%)")
        x_ticks = list(range(1, len(matrix) + 1, -(-len(matrix) // 10)))
        names = {"x_name": "after task", "y_name": "mean over tasks so far (%)", "x_ticks": x_ticks}
        _lines(right, {"series": [Series("", "c-mf", points)], **names})
        learner = result.learner
        figure.suptitle(f"{result.dataset} · {name_of(learner.backbone)} · {name_of(learner.method)}", fontsize=9)
        for axis in (left, right):
            axis.spines[["top", "right"]].set_visible(False)
        try:
            _save(figure, Path(path))
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise InputError(
            f"figures as files need matplotlib ({error}); install it with: pip install 'ergnn[plot]'"
        ) from None
    return matplotlib


_STYLE = {"svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 9, "svg.hashsalt": "ergnn"}
_DATES = {"pdf": "CreationDate", "svg": "Date", "png": "Creation Time"}
"""Metadata to omit, so that the same runs give the same file."""


def _figure(sets: DatasetFigures, title: str) -> Any:
    from matplotlib.figure import Figure

    count = len(sets.figures)
    columns = min(count, COLUMNS)
    width, height = (6.4, 3.8) if count == 1 else (2.6, 2.6)
    if count == 1 and sets.figures[0].draw is dot_plot:
        height = 1.2 + 0.32 * len(sets.figures[0].data["rows"])
    figure = Figure(figsize=(columns * width, ceil(count / columns) * height), layout="constrained")
    figure.suptitle(f"{sets.dataset} · {title}", fontsize=9)
    plots = {line_chart: _lines, dot_plot: _dots, heat_map: _heat, class_map: _map}
    for number, one in enumerate(sets.figures):
        axis = figure.add_subplot(ceil(count / columns), columns, number + 1)
        plots[one.draw](axis, one.data)
        axis.spines[["top", "right"]].set_visible(False)
        if one.caption:
            axis.set_title(one.caption.replace("|", "\n"), fontsize=8)
    return figure


def _style(look: str) -> dict[str, Any]:
    """Return the color and line style of a style class, with the colors of the page's light theme."""
    css = (files("ergnn.pages") / "templates" / "style.css").read_text(encoding="utf-8").partition("}")[0]
    colors = dict(re.findall(r"--(c-\w+): (#\w+)", css))
    first, *others = look.split()
    line = ":" if "leaky" in others else "--" if "alt" in others else "-"
    return {"color": colors.get(first, "#1d2329"), "linestyle": line}


def _lines(axis: Any, data: Mapping[str, Any]) -> None:
    series: Sequence[Series] = data["series"]
    for one in series:
        style = _style(one.look)
        x, y = [p.x for p in one.points], [p.y for p in one.points]
        axis.plot(x, y, marker="o", markersize=3.5, label=one.label, **style)
        bars = [p for p in one.points if p.half is not None]
        if bars:
            where, mean, half = [p.x for p in bars], [p.y for p in bars], [p.half for p in bars]
            axis.errorbar(where, mean, yerr=half, fmt="none", color=style["color"], linewidth=0.8)
    if data.get("log_x"):
        axis.set_xscale("log")
    axis.set_xticks(data["x_ticks"], [f"{x:g}" for x in data["x_ticks"]], minor=False)
    axis.minorticks_off()
    y_ticks = value_ticks(series, data.get("y_limits", (-100.0, 100.0)))
    axis.set(xlabel=data["x_name"], ylabel=data["y_name"], yticks=y_ticks, ylim=(y_ticks[0], y_ticks[-1]))
    axis.grid(axis="y", alpha=0.3)
    if any(one.label for one in series):
        axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _dots(axis: Any, data: Mapping[str, Any]) -> None:
    rows: Sequence[Series] = data["rows"]
    for number, row in enumerate(rows):
        color = _style(row.look)["color"]
        for p in row.points:
            axis.errorbar(p.y, -number, xerr=p.half, fmt="o", color=color, markersize=9, linewidth=0.8)
            axis.text(p.y, -number, f"{p.x:g}", color="white", ha="center", va="center", fontsize=6)
    axis.axvline(0, color="#5a6570", linewidth=0.8)
    axis.set_yticks([-number for number in range(len(rows))], [row.label for row in rows])
    x_ticks = loss_ticks(rows)
    margin = 0.03 * (x_ticks[-1] - x_ticks[0])
    axis.set(xlabel=data["x_name"], xticks=x_ticks, xlim=(x_ticks[0] - margin, x_ticks[-1] + margin))
    axis.grid(axis="x", alpha=0.3)


def _heat(axis: Any, data: Mapping[str, Any]) -> None:
    matrix = data["matrix"]
    axis.imshow(matrix, cmap="Blues", vmin=data["low"], vmax=data["high"])
    tasks = len(matrix)
    axis.set_xticks(range(tasks), range(1, tasks + 1))
    axis.set_yticks(range(tasks), range(1, tasks + 1))
    if tasks <= 8:
        for i in range(tasks):
            for j in range(i + 1):
                dark = matrix[i, j] > (data["low"] + data["high"]) / 2
                color = "white" if dark else "black"
                axis.text(j, i, f"{100 * matrix[i, j]:.1f}", ha="center", va="center", fontsize=7, color=color)


def _map(axis: Any, data: Mapping[str, Any]) -> None:
    axis.scatter(*data["all_nodes"].T, s=2, color="#c5ccd1")
    axis.scatter(*data["candidates"].T, s=10, color="#8b969f")
    for name, look, x, y, _ in data["chosen"]:
        axis.scatter([x], [y], s=24, color=_style(look)["color"], zorder=3)
        axis.annotate(name, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=6)
    axis.set_xticks([])
    axis.set_yticks([])
