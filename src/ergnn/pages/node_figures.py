"""Figures of single nodes: their neighborhood, and bars that start at zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import cos, pi, sin
from typing import Any

from ergnn.pages.figures import Drawing, Scale, mark, name_width, text, tick_text, ticks

CLASS_LOOKS = ("c-mf", "c-cm", "c-s2", "c-im", "c-la", "c-random")
"""Colors of classes; further ones are gray."""
RINGS = (0.0, 78.0, 140.0)
"""Radius of the nodes at each distance."""
LONGEST = 24
"""Characters of a name in a figure."""


def class_looks(names: Sequence[str]) -> dict[str, str]:
    """Return the style class of each class, given the most important first."""
    distinct = list(dict.fromkeys(names))
    return {name: CLASS_LOOKS[i] if i < len(CLASS_LOOKS) else "c-none" for i, name in enumerate(distinct)}


def short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def neighborhood_map(found: Mapping[str, Any], looks: Mapping[str, str]) -> Drawing:
    """Draw a node in the middle, its neighbors around it, and nodes two steps away around these.

    Args:
        found: ``nodes``, the first in the middle, each with ``id``, ``distance``, ``labeled`` and ``class``, and
            ``edges``, pairs of positions.
        looks: style class of each class; nodes without a label are hollow.
    """
    nodes = found["nodes"]
    shown = [name for name in looks if any(node["class"] == name for node in nodes)]
    entries = [(looks[name], short(name)) for name in shown]
    entries += [("c-all", "label"), ("c-all alt", "prediction")]
    half = max(RINGS[max(node["distance"] for node in nodes)] + 18, 9.0 * len(entries) + 6)
    links: dict[int, list[int]] = {i: [] for i in range(len(nodes))}
    for u, v in found["edges"]:
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
    lines = "".join(f"M{at[u][0]:.1f} {at[u][1]:.1f}L{at[v][0]:.1f} {at[v][1]:.1f}" for u, v in found["edges"])
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


def bar_chart(rows: Sequence[tuple[str, float, str, str]], *, label: str, x_name: str, width: float = 520) -> Drawing:
    """Draw one bar per row: its name, its value, its style class, and the text on hover."""
    step, top, bottom = 24, 24, 22
    names = [short(name) for name, *_ in rows]
    left, height = 8 + name_width(names), top + step * len(rows) + bottom
    values = [value for _, value, *_ in rows]
    x_ticks = ticks(min([0.0, *values]), max([0.0, *values]), 4)
    sx = Scale(x_ticks[0], x_ticks[-1], left + 12, width - 16)
    elements = [text(4, 13, x_name, "name")]
    elements += [text(sx(t), height - 4, tick_text(t), "tick mid") for t in x_ticks]
    elements += [f'<path class="grid" d="M{sx(t):.1f} {top}V{height - bottom}"/>' for t in x_ticks]
    for number, (name, (_, value, look, tip)) in enumerate(zip(names, rows, strict=True)):
        y, (start, end) = top + step * number, sorted((sx(0), sx(value)))
        elements.append(
            f'<g class="series {look}">{text(left, y + 16, name, "label end")}<rect class="mark" x="{start:.1f}" '
            f'y="{y + 5}" width="{max(end - start, 0.5):.1f}" height="{step - 10}" data-tip="{escape(tip)}"/></g>'
        )
    elements.append(f'<path class="zero" d="M{sx(0):.1f} {top - 4}V{height - bottom}"/>')
    return Drawing(width, height, label, "".join(elements))
