"""Charts as SVG, a few kilobytes each, colored by the style sheet of the page that shows them.

A chart uses style classes (``c-mf``, ``axis``, ``mark`` …), never colors, so one SVG works in the light theme, the
dark theme and print; ``save`` writes it as a file. Every mark has its value as ``data-tip``
(shown on hover and by the arrow keys), and every chart has a text alternative.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from itertools import pairwise
from math import ceil, copysign, cos, floor, inf, log10, pi, sin, sqrt
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ergnn.config.errors import InputError
from ergnn.config.files import write_file

FAMILIES = {
    **{"finetune": "none", "joint": "all", "nearest-mean": "all", "random": "random", "mf": "mf", "mf-s2": "s2"},
    **{"cm": "cm", "im": "im", "rim": "im", "s2-ridge": "s2", "la-ridge": "la", "ewc": "cm", "gem": "s2", "agem": "la"},
}
"""Color by family, so that a selector looks the same in every figure."""
OTHER_COLORS = ("s2", "la", "mf", "cm", "im")
"""Colors of selectors and methods that have no family."""
CLASS_LOOKS = ("c-mf", "c-cm", "c-s2", "c-im", "c-la", "c-random")
"""Colors of classes; further ones are gray."""
RINGS = (0.0, 78.0, 140.0)
"""Radius of the nodes at each distance in the neighborhood of a node."""


def check_figure_file(path: str | Path) -> None:
    """Raise an error if no figure can be written to a file."""
    if (suffix := Path(path).suffix) not in (".svg", ".png", ".pdf"):
        raise InputError(f"{path}: a figure is written as one of: .svg, .png, .pdf")
    if suffix != ".svg" and which("rsvg-convert") is None:
        raise InputError(f"{path}: a figure as {suffix} needs the program rsvg-convert (of librsvg); or write .svg")
    if not (folder := Path(path).absolute().parent).is_dir():
        raise InputError(f"{path}: no such folder: {folder}")


@cache
def file_style() -> str:
    """Return the style with the values of its variables, which most programs other than browsers do not know."""
    templates = files("ergnn.pages") / "templates"
    light_theme = (templates / "style.css").read_text(encoding="utf-8").partition("}")[0]
    values = dict(re.findall(r"--([\w-]+): ([^;]+);", light_theme))
    rules = (templates / "figures.css").read_text(encoding="utf-8")
    return re.sub(r"var\(--([\w-]+)\)", lambda name: values[name[1]], rules).strip()


@dataclass(frozen=True)
class Drawing:
    """A chart: its size in pixels, its text alternative, and the content of its SVG element."""

    width: float
    height: float
    label: str
    content: str

    def __html__(self) -> str:
        """Return the element of an HTML page; templates insert it as it is."""
        return (
            f'<svg class="figure" role="img" tabindex="0" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" style="max-width:{self.width:g}px" aria-label="{escape(self.label)}">'
            f"{self.content}</svg>"
        )

    def _repr_svg_(self) -> str:
        """Return the text of an SVG file that needs no other file; a notebook shows it."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img"><title>{escape(self.label)}</title>'
            f'<style>{file_style()}</style><rect class="ground" width="100%" height="100%"/>{self.content}</svg>\n'
        )

    def save(self, path: str | Path) -> None:
        """Write the chart as an SVG file, or as PNG or PDF where rsvg-convert is installed."""
        check_figure_file(path)
        content, suffix = self._repr_svg_().encode(), Path(path).suffix
        if suffix != ".svg":
            command = ["rsvg-convert", f"--format={suffix[1:]}"]
            content = subprocess.run(command, input=content, stdout=subprocess.PIPE, check=True).stdout
        write_file(Path(path), content)


@dataclass(frozen=True)
class Point:
    """A value, half of its 95 % interval if there is one, and the text shown on hover.

    ``look`` is its class in the style sheet if it differs from that of its series.
    """

    x: float
    y: float
    half: float | None = None
    tip: str = ""
    look: str = ""


@dataclass(frozen=True)
class Series:
    """Points of one row; ``look`` is its class in the style sheet."""

    label: str
    look: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Scale:
    """Maps values from ``low`` to ``high`` to pixels from ``start`` to ``end``; values outside are drawn at the ends.

    ``kind`` is ``linear``, ``log`` or ``root``, the square root with its sign.

    >>> Scale(1, 100, 0, 50, "log")(10), Scale(0, 10, 0, 50)(20)
    (25.0, 50.0)
    """

    low: float
    high: float
    start: float
    end: float
    kind: str = "linear"

    def __call__(self, value: float) -> float:
        low, high, place = map(self._transformed, (self.low, self.high, value))
        share = (place - low) / ((high - low) or 1)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def _transformed(self, value: float) -> float:
        if self.kind == "log":
            return log10(value) if value > 0 else -inf
        return copysign(sqrt(abs(value)), value) if self.kind == "root" else value


def look_of(name: str) -> str:
    """Return the style class of a selector or method: color by family, ``alt`` (hollow, dashed) for variants.

    >>> look_of("mf"), look_of("mf*")
    ('c-mf', 'c-mf alt')
    """
    stem = name.rstrip("*")
    alt = " alt" if stem != name or name in ("rim", "agem", "mf-s2", "nearest-mean") else ""
    return f"c-{FAMILIES.get(stem) or OTHER_COLORS[sum(map(ord, stem)) % len(OTHER_COLORS)]}{alt}"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions as close as possible to the wanted ones, in the same order and ``gap`` apart, in low … high.

    Places the labels at the ends of lines. Without the gaps, the positions are an isotonic regression.

    >>> spread([10, 11, 50], gap=10, low=0, high=100)
    [5.5, 15.5, 50.0]
    """
    from scipy.optimize import isotonic_regression  # takes half a second

    order = np.argsort(wanted, kind="stable")
    gaps = gap * np.arange(len(order))
    regression = isotonic_regression(np.asarray(wanted, dtype=np.float64)[order] - gaps).x if len(order) else gaps
    placed = np.empty(len(order))
    placed[order] = np.clip(regression, low, high - gap * (len(order) - 1)) + gaps
    return placed.tolist()


def ticks(low: float, high: float, number: int = 5) -> list[float]:
    """Return about ``number`` round numbers that cover low … high.

    >>> ticks(0, 37)
    [0, 10, 20, 30, 40]
    """
    raw = max(high - low, 1e-9) / number
    power = 10 ** floor(log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)
    return [round(k * step, 10) + 0 for k in range(floor(low / step + 1e-9), ceil(high / step - 1e-9) + 1)]


def value_ticks(series: Sequence[Series], limits: tuple[float, float] = (-100.0, 100.0)) -> list[float]:
    """Return ticks of the y axis that cover all means and bars of median length; longer bars are cut."""
    means = [point.y for one in series for point in one.points]
    bars = [point.half for one in series for point in one.points if point.half is not None]
    room = min(float(np.median(bars)) if bars else 0.0, max(max(means) - min(means), 1.0))
    low, high = max(min(means) - room, limits[0]), min(max(means) + room, limits[1])
    if high <= low:  # all the same
        low, high = (low - 1, low) if low >= limits[1] else (low, low + 1)
    return ticks(low, high)


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    x_name: str,
    y_name: str,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float] | None = None,
    log_x: bool = False,
    log_y: bool = False,
    size: tuple[int, int] = (560, 340),
) -> Drawing:
    """Draw lines with 95 % bars, each labeled at its right end; a series of one point is a labeled mark."""
    y_ticks = value_ticks(series) if y_ticks is None else y_ticks
    (width, height), left, top, bottom = size, max(46, 16 + name_width(list(map(tick_text, y_ticks)))), 26, 42
    right = width - 24 - name_width([one.label for one in series])
    has_bars = any(point.half is not None for one in series for point in one.points)
    inset = 10 + 2.2 * len(series) * has_bars
    sx = Scale(min(x_ticks), max(x_ticks), left + inset, right - inset, "log" if log_x else "linear")
    sy = Scale(y_ticks[0], y_ticks[-1], height - bottom, top, "log" if log_y else "linear")
    elements = [text(left - 8, sy(t) + 4, tick_text(t), "tick end") for t in y_ticks]
    elements += [f'<path class="grid" d="M{left:.1f} {sy(t):.1f}H{right:.1f}"/>' for t in y_ticks]
    elements += [text(sx(t), height - bottom + 20, tick_text(t), "tick mid") for t in x_ticks]
    elements += [text((left + right) / 2, height - 4, x_name, "name mid"), text(4, 13, y_name, "name")]
    near = min((sx(b) - sx(a) for a, b in pairwise(sorted(x_ticks))), default=60.0)
    dodge = min(4.0, 0.4 * near / len(series)) * has_bars  # bars at one x are drawn side by side
    names = spread([sy(one.points[-1].y) for one in series], 14.5, top, height - bottom)
    for number, (one, name_y) in enumerate(zip(series, names, strict=True)):
        shift = (number - (len(series) - 1) / 2) * dodge
        places = [(sx(p.x) + shift, sy(p.y), p) for p in one.points]
        body = ['<path class="line" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in places) + '"/>']
        for x, y, p in places:
            if p.half is not None:
                body.append(f'<path class="bar" d="M{x:.1f} {sy(p.y - p.half):.1f}V{sy(p.y + p.half):.1f}"/>')
            body.append(mark(x, y, 3.4 if len(places) <= 60 else 1.2, p.tip))
        if one.label:
            x, y, _ = places[-1]
            body.append(f'<path class="lead" d="M{x + 5:.1f} {y:.1f}L{right + 8:.1f} {name_y:.1f}h4"/>')
            body.append(text(right + 15, name_y + 4, one.label, "label"))
        elements.append(f'<g class="series {one.look}">{"".join(body)}</g>')
    return Drawing(width, height, label, "".join(elements))


def heat_map(
    matrix: NDArray[np.float64],
    *,
    low: float,
    label: str,
    tips: Sequence[Sequence[str]],
    names: Sequence[str] = (),
    side: int | None = None,
) -> Drawing:
    """Draw cells colored from low to 1 (fractions), one row per task learned, with numbers if they fit.

    Args:
        names: of rows and columns, by default their numbers; columns have numbers too where a name is too long.
        side: the most pixels of a side; by default 240 or so.
    """
    tasks = len(matrix)
    cell = (44 if tasks <= 5 else max(9, 240 // tasks)) if side is None else max(9, min(64, side // tasks))
    left, top, size = 22 + name_width(names), 16, cell * tasks
    every = 1 if cell >= 22 else ceil(22 / cell)
    short = bool(names) and all(7 * len(name) <= cell for name in names)
    elements = []
    for i in range(0, tasks, every):
        column_name = names[i] if short else str(i + 1)
        row_name = names[i] if short else f"{i + 1} {names[i]}" if names else str(i + 1)
        elements.append(text(left + (i + 0.5) * cell, top - 4, column_name, "tick mid"))
        elements.append(text(left - 6, top + (i + 0.5) * cell + 4, row_name, "tick end"))
    for i, j in np.argwhere(~np.isnan(matrix)).tolist():
        depth = float(np.clip((matrix[i, j] - low) / ((1 - low) or 1), 0, 1))
        x, y = left + j * cell, top + i * cell
        elements.append(
            f'<rect class="cell mark" x="{x:g}" y="{y}" width="{cell - 1}" height="{cell - 1}" '
            f'fill-opacity="{0.06 + 0.94 * depth:.2f}" data-tip="{escape(tips[i][j])}"/>'
        )
        if cell >= 30:
            kind = "value mid deep" if depth > 0.52 else "value mid"
            elements.append(text(x + cell / 2 - 0.5, y + cell / 2 + 4, f"{100 * matrix[i, j]:.1f}", kind))
    return Drawing(left + size + 2, top + size + 2, label, "".join(elements))


def dot_plot(
    rows: Sequence[Series],
    *,
    label: str,
    x_name: str,
    x_ticks: Sequence[float],
    scale: str = "linear",
    legend: Mapping[str, str] | None = None,
    width: float = 560,
    bars: bool = False,
) -> Drawing:
    """Draw one line per row with its points (their ``y``) as dots, or bars from zero, the first on top.

    Args:
        scale: kind of :class:`Scale`.
        legend: names of style classes, drawn above the plot.
    """
    step, top, bottom = 24 if bars else 19, 44 if legend else 26, 22
    left = 4 + name_width([row.label for row in rows])
    height = top + step * len(rows) + bottom
    sx = Scale(x_ticks[0], x_ticks[-1], left + 14, width - 14, scale)
    elements = _x_axis(sx, x_ticks, x_name, top, height - bottom)
    x = left + 14
    for name, look in (legend or {}).items():
        elements.append(f'<g class="series {look}">{mark(x, 30, 3.4, name)}{text(x + 8, 34, name, "label")}</g>')
        x += 28 + name_width([name])
    for number, row in enumerate(rows):
        y = top + (number + 0.5) * step
        body = [text(left, y + 4, row.label, "label end")]
        if not bars:
            body.append(f'<path class="rail" d="M{left + 14:.1f} {y}H{width - 14:.1f}"/>')
        for k, p in enumerate(row.points):
            x, own_y = sx(p.y), y + 0.44 * step * (k / (len(row.points) - 1) - 0.5 if len(row.points) > 1 else 0)
            dot = mark(x, own_y, 3.0, p.tip)
            if bars:
                start, end = sorted((sx(0), x))
                size = f'x="{start:.1f}" y="{y - 7}" width="{max(end - start, 0.5):.1f}" height="14"'
                dot = f'<rect class="mark" {size} data-tip="{escape(p.tip)}"/>'
            if p.half is not None:
                dot = f'<path class="bar" d="M{sx(p.y - p.half):.1f} {own_y:.1f}H{sx(p.y + p.half):.1f}"/>{dot}'
            body.append(f'<g class="{p.look}">{dot}</g>' if p.look else dot)
        elements.append(f'<g class="series {row.look}">{"".join(body)}</g>')
    return Drawing(width, height, label, "".join(elements))


def class_looks(names: Sequence[str]) -> dict[str, str]:
    """Return the style class of each class, given the most important first."""
    distinct = list(dict.fromkeys(names))
    return {name: CLASS_LOOKS[i] if i < len(CLASS_LOOKS) else "c-none" for i, name in enumerate(distinct)}


def short(name: str, longest: int = 24) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def neighborhood_map(neighborhood: Mapping[str, Any], looks: Mapping[str, str]) -> Drawing:
    """Draw a node in the middle, its neighbors around it, and nodes two steps away around these.

    Args:
        neighborhood: ``nodes``, the first in the middle, each with ``id``, ``distance``, ``labeled`` and ``class``, and
            ``edges``, pairs of positions.
        looks: style class of each class; nodes without a label are hollow.
    """
    nodes = neighborhood["nodes"]
    shown = [name for name in looks if any(node["class"] == name for node in nodes)]
    entries = [(looks[name], short(name)) for name in shown]
    entries += [("c-all", "label"), ("c-all alt", "prediction")]
    half = max(RINGS[max(node["distance"] for node in nodes)] + 18, 9.0 * len(entries) + 6)
    links: dict[int, list[int]] = {i: [] for i in range(len(nodes))}
    for u, v in neighborhood["edges"]:
        links[u].append(v)
        links[v].append(u)
    angle = dict.fromkeys(range(len(nodes)), 0.0)
    for distance in (1, 2):
        ring = [i for i, node in enumerate(nodes) if node["distance"] == distance]
        inner = {i: min((angle[j] for j in links[i] if nodes[j]["distance"] < distance), default=0.0) for i in ring}
        for place, i in enumerate(sorted(ring, key=lambda i: (inner[i], i))):
            angle[i] = 2 * pi * place / len(ring)
    at = [
        (half + RINGS[node["distance"]] * sin(angle[i]), half - RINGS[node["distance"]] * cos(angle[i]))
        for i, node in enumerate(nodes)
    ]
    lines = "".join(f"M{at[u][0]:.1f} {at[u][1]:.1f}L{at[v][0]:.1f} {at[v][1]:.1f}" for u, v in neighborhood["edges"])
    elements = [f'<path class="lead" d="{lines}"/>'] if lines else []
    for node, (x, y) in zip(nodes, at, strict=True):
        kind = looks.get(node["class"], "c-none") + ("" if node["labeled"] else " alt")
        how = "label" if node["labeled"] else "prediction"
        dot = mark(x, y, 9.0 if node["distance"] == 0 else 5.5, f"{node['id']}: {how} {node['class']}")
        elements.append(f'<g class="series {kind}">{dot}</g>')
    left = 2 * half + 16
    for row, (look, name) in enumerate(entries):
        y = half + 18 * (row - (len(entries) - 1) / 2)
        elements.append(f'<g class="series {look}">{mark(left, y, 5, name)}{text(left + 12, y + 4, name, "label")}</g>')
    names = ", ".join(f"{node['id']} ({node['class']})" for node in nodes[1:])
    label = f"the neighborhood of {nodes[0]['id']} ({nodes[0]['class']}): {names or 'no neighbors'}"
    return Drawing(left + 16 + name_width([name for _, name in entries]), 2 * half, label, "".join(elements))


def _x_axis(sx: Scale, x_ticks: Sequence[float], name: str, top: float, bottom: float) -> list[str]:
    """Draw vertical lines from top to bottom, their numbers below and the name above."""
    elements = [text(4, 13, name, "name")]
    elements += [text(sx(t), bottom + 18, tick_text(t), "tick mid") for t in x_ticks]
    elements += [f'<path class="grid" d="M{sx(t):.1f} {top}V{bottom}"/>' for t in x_ticks]
    if x_ticks[0] <= 0 <= x_ticks[-1]:
        elements.append(f'<path class="zero" d="M{sx(0):.1f} {top - 4}V{bottom}"/>')
    return elements


def panels(drawings: Sequence[tuple[str, Drawing]], *, label: str, title: str = "", columns: int = 4) -> Drawing:
    """Arrange drawings in rows, each below its caption (a name and, after ``|``, a remark on a line of its own)."""
    lines = max((len(caption.split("|")) for caption, _ in drawings if caption), default=0)
    elements, y, width = ([text(4, 15, title, "title")], 34.0, name_width([title])) if title else ([], 0.0, 0.0)
    for first in range(0, len(drawings), columns):
        row, x = drawings[first : first + columns], 0.0
        for caption, drawing in row:
            for number, line in enumerate(caption.split("|")):
                elements.append(text(x + 4, y + 13 + 15 * number, line, "caption" if number == 0 else "name"))
            elements.append(
                f'<svg x="{x:g}" y="{y + 15 * lines + 8 * bool(lines):g}" width="{drawing.width:g}" '
                f'height="{drawing.height:g}" overflow="visible">{drawing.content}</svg>'
            )
            x += max(drawing.width, name_width(caption.split("|"))) + 24
        width, y = max(width, x - 24), y + 15 * lines + 8 * bool(lines) + max(d.height for _, d in row) + 16
    return Drawing(width, y - 16, label, "".join(elements))


def name_width(names: Sequence[str]) -> float:
    """Estimate the width of the longest name; labels are 12 pixels high and semibold."""
    return 7.4 * max(map(len, names), default=0)


def tick_text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def mark(x: float, y: float, radius: float, tip: str) -> str:
    return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="{radius}" data-tip="{escape(tip)}"/>'


def text(x: float, y: float, words: str, kind: str) -> str:
    words = escape(words.replace("-", "−") if words[:1] == "-" else words)
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{words}</text>'
