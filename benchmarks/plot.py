"""Plots of time against graph size, number of seeds and number of tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil, floor, log10
from pathlib import Path

from benchmarks.measure import Measurement
from ergnn.config.errors import InputError
from ergnn.pages.figures import Drawing, Point, Series, line_chart, panels, ticks

OURS, OTHER = "c-mf", "c-cm alt"
"""Looks of the lines."""
X_NAMES = {"size": "nodes in the graph", "seeds": "GAT seeds", "tasks": "task (median of ten from here)"}


def plot(measurements: list[Measurement], path: Path) -> None:
    """Plot the cases ``size``, ``tasks`` and ``seeds`` with their references, for the smallest number of threads."""
    fewest = min((m.threads for m in measurements), default=1)
    chosen = {
        name: [m for m in measurements if m.threads == fewest and m.name.startswith(f"{name}:")] for name in X_NAMES
    }
    chosen["seeds"] = [m for m in chosen["seeds"] if " gat " in m.name]
    chosen["tasks"] = [m for m in chosen["tasks"] if " from " in m.name]
    charts = [("", _chart(name, rows)) for name, rows in chosen.items() if rows]
    if not charts:
        raise InputError("there is nothing to plot; run the cases size, seeds or tasks")
    panels(charts, label="Time over the size of the graph, seeds and tasks").save(path)


def _chart(name: str, rows: list[Measurement]) -> Drawing:
    if name == "tasks":
        lines = {label: [(int(m.name.split()[2]), m.ours) for m in rows if m.name.endswith(label)]
                 for label in ("default", "whole buffer")}  # fmt: skip
    else:
        x = [int(re.sub(r"\D", "", re.findall(r"[\d,]+", m.name)[0])) for m in rows]
        peers = [(a, m.peer) for a, m in zip(x, rows, strict=True) if m.peer is not None]
        lines = {"ergnn": [(a, m.ours) for a, m in zip(x, rows, strict=True)]}
        lines["plain PyG" if name == "size" else "one after another"] = peers
    series = [
        Series(label, look, [Point(x, y, None, f"{label}, {x:,}: {y:.3g} {rows[0].unit}") for x, y in points])
        for (label, points), look in zip(lines.items(), (OURS, OTHER), strict=True)
        if points
    ]
    x_values = sorted({point.x for one in series for point in one.points})
    y_values = [point.y for one in series for point in one.points]
    is_log = name == "size"
    return line_chart(
        series,
        label=f"time against {X_NAMES[name]}",
        x_name=X_NAMES[name],
        y_name=f"{'step' if is_log else 'task'} ({rows[0].unit})",
        x_ticks=powers_of_ten(x_values) if is_log else x_values,
        y_ticks=powers_of_ten(y_values) if is_log else ticks(0, max(y_values)),
        log_x=is_log,
        log_y=is_log,
        size=(460, 300),
    )


def powers_of_ten(values: Sequence[float]) -> list[float]:
    """Return the powers of ten from below the smallest value to above the largest."""
    return [10.0**power for power in range(floor(log10(min(values))), ceil(log10(max(values))) + 1)]
