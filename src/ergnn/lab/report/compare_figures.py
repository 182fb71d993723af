"""Figures of ``ergnn compare``: gaps to our method, critical differences of ranks, and accuracy against cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from math import ceil, copysign, log10

from ergnn.lab.ranking import Ranking
from ergnn.pages.figures import look_of, mark, name_width, spread, svg, text, ticks

GAPS = (-80, -40, -20, -10, -5, -1, 0, 1, 5, 10)
"""Ticks of gaps, in points."""
Gap = tuple[str, float, bool]
"""Data set, gap in points, and whether the method is ranked."""


def gap_chart(panels: Mapping[str, Mapping[str, Sequence[Gap]]], *, label: str, x_name: str) -> str:
    """Draw the gap of every method to ours, one mark per data set and one panel per scenario and kind of edges.

    Methods are sorted by their mean gap over all panels. The scale is the square root, so that both small and large
    gaps can be read. Marks of methods that are not ranked are hollow.
    """
    gaps: dict[str, list[float]] = {}
    for rows in panels.values():
        for name, marks in rows.items():
            gaps.setdefault(name, []).extend(value for _, value, _ in marks)
    names = sorted(gaps, key=lambda name: -sum(gaps[name]) / len(gaps[name]))
    left, size, step, top, space = 12 + name_width(names), 230, 19, 46, 14
    width, height = left + len(panels) * (size + space), top + step * len(names) + 24
    parts = [text(4, 13, x_name, "name")]
    parts += [text(left - 8, top + step * (i + 0.5) + 4, name, "label end") for i, name in enumerate(names)]
    for number, (title, rows) in enumerate(panels.items()):
        found = [value for marks in rows.values() for _, value, _ in marks]
        low, high = _root(min([*found, -1.0])) - 0.4, _root(max([*found, 1.0])) + 0.4
        start = left + number * (size + space)

        def sx(value: float, low: float = low, high: float = high, start: float = start) -> float:
            return start + (_root(value) - low) / (high - low) * size

        parts.append(text(start + size / 2, 36, title, "name mid"))
        for tick in (tick for tick in GAPS if low <= _root(tick) <= high):
            kind = "grid" if tick else "zero"
            parts.append(f'<path class="{kind}" d="M{sx(tick):.1f} {top}V{height - 22}"/>')
            if tick in (0, -5, -20, -80) or (tick == -1 and low > _root(-40)):
                parts.append(text(sx(tick), height - 6, f"{tick:g}", "tick mid"))
        for i, name in enumerate(names):
            body = [f'<path class="rail" d="M{start} {top + step * (i + 0.5)}h{size}"/>']
            marks = rows.get(name, ())
            for k, (dataset, value, ranked) in enumerate(marks):
                y = top + step * (i + 0.5) + (k - (len(marks) - 1) / 2) * min(1.4, 10 / max(len(marks), 1))
                dot = mark(sx(value), y, 3.0, f"{name}, {dataset}: {value:+.1f}")
                look = look_of(name.partition(":")[0]).split()[0] + ("" if ranked else " alt")
                body.append(f'<g class="series {look}">{dot}</g>')
            parts.append("".join(body))
    return svg(width, height, label, "".join(parts))


def _root(value: float) -> float:
    return copysign(abs(value) ** 0.5, value)


def rank_diagram(ranking: Ranking, *, label: str) -> str:
    """Draw mean ranks on an axis, the best left; a bar joins methods that are not significantly different (Nemenyi)."""
    names, count = ranking.names, len(ranking.names)
    side, step, top = 24 + name_width(names), 17, 64 + 7 * len(ranking.cliques)
    width, rows = 2 * side + 420, ceil(count / 2)
    height = top + step * rows + 10

    def sx(value: float) -> float:
        return side + 20 + (value - 1) / max(count - 1, 1) * 380

    parts = [f'<path class="zero" d="M{sx(1):.1f} 46H{sx(count):.1f}"/>']
    for tick in range(1, count + 1, max(1, count // 10)):
        parts.append(f'<path class="zero" d="M{sx(tick):.1f} 41V46"/>' + text(sx(tick), 36, str(tick), "tick mid"))
    parts.append(text(4, 13, f"mean rank; critical difference {ranking.difference:.2f}", "name"))
    shown = min(ranking.difference, count - 1)
    parts.append(f'<path class="zero" d="M{sx(1):.1f} 22H{sx(1 + shown):.1f}m0 -4v8M{sx(1):.1f} 18v8"/>')
    for number, (first, last) in enumerate(ranking.cliques):
        ends = f"M{sx(ranking.ranks[first]) - 4:.1f} {56 + 7 * number}H{sx(ranking.ranks[last]) + 4:.1f}"
        parts.append(f'<g class="series c-all"><path class="line" d="{ends}"/></g>')
    for i, (name, value) in enumerate(zip(names, ranking.ranks, strict=True)):
        left = i < rows
        y = top + step * (i if left else count - 1 - i) + 8
        x, kind = (side, "label end") if left else (width - side, "label")
        body = f'<path class="lead" d="M{sx(value):.1f} 46V{y:.1f}H{x + (4 if left else -4):.1f}"/>'
        body += mark(sx(value), 46, 3.0, f"{name}: mean rank {value:.2f}") + text(x, y + 4, name, kind)
        parts.append(f'<g class="series {look_of(name.partition(":")[0])}">{body}</g>')
    return svg(width, height, label, "".join(parts))


def cost_chart(
    points: Sequence[tuple[str, float, float]], front: Collection[str], *, label: str, x_name: str, y_name: str
) -> str:
    """Draw accuracy (y, in percent) against a cost (x, logarithmic), one labeled mark per method.

    Args:
        points: name, cost and accuracy of each method; a cost of 0 is drawn at the left end.
        front: names of the methods on the Pareto front, whose marks are filled.
    """
    positive = [x for _, x, _ in points if x > 0] or [1.0]
    low, high = log10(min(positive)) - 0.35, log10(max(positive)) + 0.05
    names_y = ticks(min(y for *_, y in points), max(y for *_, y in points))
    right, left, top, height = 30 + name_width([name for name, *_ in points]), 46, 26, max(340, 15 * len(points) + 70)
    width, bottom = 380 + right, 42

    def sx(x: float) -> float:
        return left + 12 + ((log10(x) if x > 0 else low) - low) / ((high - low) or 1) * (width - left - right - 24)

    def sy(y: float) -> float:
        return top + (names_y[-1] - y) / ((names_y[-1] - names_y[0]) or 1) * (height - top - bottom)

    parts = [text(left - 8, sy(t) + 4, f"{t:g}", "tick end") for t in names_y]
    parts += [f'<path class="grid" d="M{left} {sy(t):.1f}H{width - right}"/>' for t in names_y]
    powers = [10.0**p for p in range(ceil(low), int(high // 1) + 1)]
    parts += [text(sx(t), height - bottom + 20, f"{t:g}", "tick mid") for t in powers]
    parts += [text((left + width - right) / 2, height - 4, x_name, "name mid"), text(4, 13, y_name, "name")]
    places = spread([sy(y) for *_, y in points], 14.5, top, height - bottom)
    for (name, cost, accuracy), place in zip(points, places, strict=True):
        x, y, look = sx(cost), sy(accuracy), look_of(name.partition(":")[0]).partition(" ")[0]
        body = f'<path class="lead" d="M{x + 5:.1f} {y:.1f}L{width - right + 8} {place:.1f}h4"/>'
        body += mark(x, y, 4.2, f"{name}: {accuracy:.1f} %, {x_name} {cost:.3g}")
        body += text(width - right + 15, place + 4, name, "label")
        parts.append(f'<g class="series {look}{"" if name in front else " alt"}">{body}</g>')
    return svg(width, height, label, "".join(parts))


def standalone(drawing: str) -> str:
    """Return a figure as the text of an SVG file, with the colors of the light theme."""
    css = (files("ergnn.pages") / "templates" / "style.css").read_text(encoding="utf-8")
    theme, _, rest = css.partition("}\n")
    rules = [theme + "}", *(line for line in rest.splitlines() if line.startswith(("svg", ".c-")))]
    opening, _, body = drawing.partition(">")
    return f'{opening} xmlns="http://www.w3.org/2000/svg"><style>{" ".join(rules)}</style>{body}\n'
