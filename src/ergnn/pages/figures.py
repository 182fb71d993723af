"""Figures as inline SVG, a few kilobytes each, colored by the page's style sheet.

A figure uses style classes (``c-mf``, ``axis``, ``mark`` …), never colors, so one SVG works in the light theme, the
dark theme and print. Every mark has its value as ``data-tip`` (shown on hover and by the arrow keys), and every figure
has a text alternative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log, log10

import numpy as np
from numpy.typing import NDArray

FAMILIES = {
    "finetune": "none",
    "joint": "all",
    "nearest-mean": "all",
    "mf-s2": "s2",
    "random": "random",
    "mf": "mf",
    "cm": "cm",
    "im": "im",
    "rim": "im",
    "s2-ridge": "s2",
    "la-ridge": "la",
    "ewc": "cm",
    "gem": "s2",
    "agem": "la",
}
"""Color by family, so that a selector looks the same in every figure."""
SPARE = ("s2", "la", "mf", "cm", "im")


@dataclass(frozen=True)
class Point:
    """A value, half of its 95 % interval if there is one, and the text shown on hover."""

    x: float
    y: float
    half: float | None = None
    tip: str = ""


@dataclass(frozen=True)
class Series:
    """Points of one row; ``look`` is its class in the style sheet."""

    label: str
    look: str
    points: Sequence[Point]


def look_of(name: str) -> str:
    """Return the style class of a selector or method: color by family, ``alt`` (hollow, dashed) for variants.

    >>> look_of("mf"), look_of("mf*")
    ('c-mf', 'c-mf alt')
    """
    stem = name.rstrip("*")
    alt = " alt" if stem != name or name in ("rim", "agem", "mf-s2", "nearest-mean") else ""
    return f"c-{FAMILIES.get(stem) or SPARE[sum(map(ord, stem)) % len(SPARE)]}{alt}"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions close to the wanted ones, in the same order, at least ``gap`` apart, within low … high.

    Places the labels at the ends of lines. Overlapping labels form a block around their mean.

    >>> spread([10, 11, 50], gap=10, low=0, high=100)
    [5.5, 15.5, 50.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    blocks: list[list[float]] = []  # each: sum of (wanted − offset), number of labels
    for i in order:
        blocks.append([wanted[i], 1])
        while len(blocks) > 1 and _start(blocks[-2], gap) + blocks[-2][1] * gap > _start(blocks[-1], gap):
            total, number = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += number
    placed: list[float] = []
    for block in blocks:
        first = _start(block, gap)
        placed += [first + k * gap for k in range(int(block[1]))]
    for k in range(len(placed)):
        placed[k] = max(placed[k], low if k == 0 else placed[k - 1] + gap)
    for k in reversed(range(len(placed))):
        placed[k] = min(placed[k], high if k == len(placed) - 1 else placed[k + 1] - gap)
    result = [0.0] * len(placed)
    for position, i in zip(placed, order, strict=True):
        result[i] = position
    return result


def _start(block: Sequence[float], gap: float) -> float:
    total, number = block
    return total / number - gap * (number - 1) / 2


def ticks(low: float, high: float, number: int = 5) -> list[float]:
    """Return about ``number`` round numbers that cover low … high.

    >>> ticks(0, 37)
    [0, 10, 20, 30, 40]
    """
    raw = max(high - low, 1e-9) / number
    power = 10 ** floor(log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)
    return [round(k * step, 10) + 0 for k in range(floor(low / step + 1e-9), ceil(high / step - 1e-9) + 1)]


def value_ticks(series: Sequence[Series], limits: tuple[float, float]) -> list[float]:
    """Return ticks of the y axis that cover all means and bars of median length; longer bars are cut."""
    means = [point.y for one in series for point in one.points]
    bars = [point.half for one in series for point in one.points if point.half is not None]
    room = min(float(np.median(bars)) if bars else 0.0, max(max(means) - min(means), 1.0))
    low, high = max(min(means) - room, limits[0]), min(max(means) + room, limits[1])
    if high <= low:  # all the same
        low, high = (low - 1, low) if low >= limits[1] else (low, low + 1)
    return ticks(low, high)


def loss_ticks(rows: Sequence[Series]) -> list[float]:
    """Return ticks of the x axis of a dot plot that cover zero and all means."""
    values = [point.y for row in rows for point in row.points]
    return ticks(min(0.0, *values), max(1.0, *values), 6)


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    x_name: str,
    y_name: str,
    x_ticks: Sequence[float],
    log_x: bool = False,
    y_limits: tuple[float, float] = (-100.0, 100.0),
    size: tuple[int, int] = (560, 340),
) -> str:
    """Draw lines with 95 % bars, each labeled at its right end."""
    (width, height), left, top, bottom = size, 46, 26, 42
    right, inset = 24 + name_width([one.label for one in series]), 10 + 2.2 * len(series)
    y_ticks = value_ticks(series, y_limits)
    low, high = y_ticks[0], y_ticks[-1]
    first, last = (log(t) if log_x else t for t in (min(x_ticks), max(x_ticks)))

    def sx(x: float) -> float:
        place = ((log(x) if log_x else x) - first) / ((last - first) or 1)
        return left + inset + place * (width - left - right - 2 * inset)

    def sy(y: float) -> float:
        return top + (high - min(max(y, low), high)) / (high - low) * (height - top - bottom)

    parts = [text(left - 8, sy(t) + 4, f"{t:g}", "tick end") for t in y_ticks]
    parts += [f'<path class="grid" d="M{left} {sy(t):.1f}H{width - right}"/>' for t in y_ticks]
    parts += [text(sx(t), height - bottom + 20, f"{t:g}", "tick mid") for t in x_ticks]
    parts.append(text((left + width - right) / 2, height - 4, x_name, "name mid"))
    parts.append(text(4, 13, y_name, "name"))
    near = min((sx(b) - sx(a) for a, b in pairwise(sorted(x_ticks))), default=60.0)
    dodge = min(4.0, 0.4 * near / len(series))  # bars at one x are drawn side by side
    ends = [one.points[-1] for one in series]
    names = spread([sy(end.y) for end in ends], 14.5, top, height - bottom)
    for number, (one, end, name_y) in enumerate(zip(series, ends, names, strict=True)):
        shift = (number - (len(series) - 1) / 2) * dodge
        places = [(sx(p.x) + shift, sy(p.y), p) for p in one.points]
        body = ['<path class="line" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in places) + '"/>']
        for x, y, p in places:
            if p.half is not None:
                body.append(f'<path class="bar" d="M{x:.1f} {sy(p.y - p.half):.1f}V{sy(p.y + p.half):.1f}"/>')
            body.append(mark(x, y, 3.4, p.tip))
        if one.label:
            x = sx(end.x) + shift
            body.append(f'<path class="lead" d="M{x + 5:.1f} {sy(end.y):.1f}L{width - right + 8} {name_y:.1f}h4"/>')
            body.append(text(width - right + 15, name_y + 4, one.label, "label"))
        parts.append(f'<g class="series {one.look}">{"".join(body)}</g>')
    return svg(width, height, label, "".join(parts))


def heat_map(
    matrix: NDArray[np.float64],
    *,
    low: float,
    high: float,
    label: str,
    tips: Sequence[Sequence[str]],
    names: Sequence[str] = (),
    side: int | None = None,
) -> str:
    """Draw cells colored from low to high (fractions), one row per task learned, with numbers if they fit.

    Args:
        names: of rows and columns, by default their numbers; columns have numbers too where a name is too long.
        side: the most pixels of a side; by default 240 or so.
    """
    tasks = len(matrix)
    cell = (44 if tasks <= 5 else max(9, 240 // tasks)) if side is None else max(9, min(64, side // tasks))
    left, top, size = 22 + name_width(names), 16, cell * tasks
    every = 1 if cell >= 22 else ceil(22 / cell)
    short = bool(names) and all(7 * len(name) <= cell for name in names)
    parts = []
    for i in range(0, tasks, every):
        column_name = names[i] if short else str(i + 1)
        row_name = names[i] if short else f"{i + 1} {names[i]}" if names else str(i + 1)
        parts.append(text(left + (i + 0.5) * cell, top - 4, column_name, "tick mid"))
        parts.append(text(left - 6, top + (i + 0.5) * cell + 4, row_name, "tick end"))
    for i in range(tasks):
        for j in range(tasks):
            value = matrix[i, j]
            if np.isnan(value):
                continue
            depth = float(np.clip((value - low) / ((high - low) or 1), 0, 1))
            x, y = left + j * cell, top + i * cell
            parts.append(
                f'<rect class="cell mark" x="{x}" y="{y}" width="{cell - 1}" height="{cell - 1}" '
                f'fill-opacity="{0.06 + 0.94 * depth:.2f}" data-tip="{escape(tips[i][j])}"/>'
            )
            if cell >= 30:
                kind = "value mid deep" if depth > 0.52 else "value mid"
                parts.append(text(x + cell / 2 - 0.5, y + cell / 2 + 4, f"{100 * value:.1f}", kind))
    return svg(left + size + 2, top + size + 2, label, "".join(parts), "heat")


def dot_plot(rows: Sequence[Series], *, label: str, x_name: str) -> str:
    """Draw one line per row; each point shows its task number, so that the plot can be read without color."""
    step, width, top, bottom = 32, 560, 26, 22
    left = 4 + name_width([row.label for row in rows])
    x_ticks = loss_ticks(rows)
    low, high = x_ticks[0], x_ticks[-1]
    height = top + step * len(rows) + bottom

    def sx(value: float) -> float:
        return left + 14 + (min(max(value, low), high) - low) / (high - low) * (width - left - 28)

    parts = [text(sx(t), height - 4, f"{t:g}", "tick mid") for t in x_ticks]
    parts += [f'<path class="grid" d="M{sx(t):.1f} {top}V{height - bottom}"/>' for t in x_ticks]
    parts.append(f'<path class="zero" d="M{sx(0):.1f} {top - 4}V{height - bottom}"/>')
    parts.append(text(4, 13, x_name, "name"))
    for number, row in enumerate(rows):
        y = top + (number + 0.5) * step
        numbered = len(row.points) <= 9
        body = [text(left, y + 4, row.label, "label end")]
        body.append(f'<path class="rail" d="M{left + 14} {y}H{width - 14}"/>')
        for k, p in enumerate(row.points):
            x, own = sx(p.y), y + (14 * k / (len(row.points) - 1) - 7 if len(row.points) > 1 else 0)
            if p.half is not None and numbered:
                body.append(f'<path class="bar" d="M{sx(p.y - p.half):.1f} {own:.1f}H{sx(p.y + p.half):.1f}"/>')
            body.append(mark(x, own, 7 if numbered else 3.4, p.tip))
            if numbered:
                body.append(text(x, own + 3.6, f"{p.x:g}", "number mid"))
        parts.append(f'<g class="series {row.look}">{"".join(body)}</g>')
    return svg(width, height, label, "".join(parts))


def class_map(
    all_nodes: NDArray[np.float64],
    candidates: NDArray[np.float64],
    chosen: Sequence[tuple[str, str, float, float, str]],
    *,
    label: str,
) -> str:
    """Draw a class in two dimensions: all nodes, candidates as larger dots, chosen nodes marked and labeled.

    Args:
        all_nodes, candidates: ``[n, 2]`` coordinates.
        chosen: name, style class, x, y and hover text of each choice.
    """
    right, height, pad = 16 + name_width([name for name, *_ in chosen]), 200, 8
    width = 220 + right
    both = np.concatenate([all_nodes, candidates])
    low, high = both.min(axis=0), both.max(axis=0)
    scale = np.where(high > low, high - low, 1.0)

    def place(points: NDArray[np.float64]) -> NDArray[np.float64]:
        unit = (points - low) / scale
        return np.column_stack(
            [pad + unit[:, 0] * (width - right - 2 * pad), height - pad - unit[:, 1] * (height - 2 * pad)]
        )

    parts = [_dots(place(all_nodes), "faint"), _dots(place(candidates), "candidate")]
    spots = place(np.array([[x, y] for _, _, x, y, _ in chosen]).reshape(-1, 2))
    names = spread([float(y) for _, y in spots], 13, pad + 2, height - pad)
    for (name, look, _, _, tip), (x, y), name_y in zip(chosen, spots, names, strict=True):
        body = f'<path class="lead" d="M{x:.1f} {y:.1f}L{width - right + 4} {name_y:.1f}h5"/>'
        body += mark(float(x), float(y), 4.4, tip) + text(width - right + 12, name_y + 4, name, "label")
        parts.append(f'<g class="series {look}">{body}</g>')
    return svg(width, height, label, "".join(parts))


def name_width(names: Sequence[str]) -> float:
    """Estimate the width of the longest name; labels are 12 pixels high and semibold."""
    return 7.4 * max(map(len, names), default=0)


def _dots(points: NDArray[np.float64], kind: str) -> str:
    """Draw round dots as one path of zero-length strokes, a few bytes per node."""
    return f'<path class="{kind}" d="' + "".join(f"M{x:.0f} {y:.0f}h0" for x, y in points) + '"/>'


def mark(x: float, y: float, radius: float, tip: str) -> str:
    return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="{radius}" data-tip="{escape(tip)}"/>'


def text(x: float, y: float, words: str, kind: str) -> str:
    words = escape(words.replace("-", "−") if words[:1] == "-" else words)
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{words}</text>'


def svg(width: float, height: float, label: str, body: str, kind: str = "") -> str:
    return (
        f'<svg class="figure {kind}" role="img" tabindex="0" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" style="max-width:{width:g}px" aria-label="{escape(label)}">{body}</svg>'
    )
