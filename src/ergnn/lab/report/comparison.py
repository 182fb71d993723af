"""Write the results of ``ergnn compare``: tables, figures, ``results.json`` and the HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

from ergnn import __version__
from ergnn.config.files import write_file
from ergnn.lab.compare import Compared
from ergnn.lab.contenders import Entry
from ergnn.lab.report.comparison_sections import (
    RECOMMENDED,
    Group,
    benchmark_section,
    detail_sections,
    groups_of,
    search_section,
)
from ergnn.lab.report.tables import QUICK_MARK, Section, write_sections
from ergnn.lab.statistics import Ranking
from ergnn.lab.store import machine_facts
from ergnn.pages.figures import (
    Drawing,
    Point,
    Scale,
    Series,
    dot_plot,
    line_chart,
    log_ticks,
    look_of,
    mark,
    name_width,
    panels,
    text,
    ticks,
)
from ergnn.pages.page import render_page

GAP_TICKS = (-80, -40, -20, -10, -5, -1, 0, 1, 5, 10, 20, 40)
"""Possible ticks of differences in AA, in points."""
Figures = dict[str, tuple[str, Drawing]]
"""File name → caption and drawing."""


def write_comparison(done: Compared, out: str | Path, command: str, quick: bool = False) -> list[Section]:
    """Write all files into a folder; return the sections of ``benchmark.txt``, one per scenario and kind of edges."""
    folder, groups = Path(out), groups_of(done.entries)
    overview, figures = overview_of(groups), [figures_of(group) for group in groups]
    for name, (_, drawing) in [item for one in (overview, *figures) for item in one.items()]:
        drawing.save(folder / f"{name}.svg")
    benchmark = [
        replace(benchmark_section(group), figures=list(one.values()))
        for group, one in zip(groups, figures, strict=True)
    ]
    left_out = [f"{condition} is left out: {reason}" for condition, reason in done.left_out.items()]
    if left_out or quick:
        benchmark.append(Section("Notes", None, [QUICK_MARK] * quick + left_out))
    sections = {
        "benchmark": benchmark,
        "details": [section for group in groups for section in detail_sections(group)],
        "search": [search_section(group) for group in groups],
    }
    for name, named in sections.items():
        write_sections(folder, name, named, command)
    write_file(folder / "results.json", json.dumps(_results(done, groups, command), ensure_ascii=False).encode())
    runs = [run for entry in done.entries for run in entry.runs]
    shown = [Section("Overview", None, figures=list(overview.values()))] if overview else []
    page = render_page(
        "report.html",
        title="Methods compared at equal memory",
        command=command,
        facts=[("runs", f"{len(runs):,}"), ("data sets", str(len({run.dataset for run in runs})))],
        sections={**sections, "benchmark": [*shown, *benchmark]},
    )
    write_file(folder / "report.html", page.encode())
    return benchmark


def overview_of(groups: Sequence[Group]) -> Figures:
    """The gap in AA of every method to ours, on every data set of every group."""
    gaps: dict[str, dict[str, list[Point]]] = {}
    for group in groups:
        for (dataset, method), entry in group.finished.items():
            ours = group.finished.get((dataset, RECOMMENDED))
            if ours is not None and method != RECOMMENDED:
                gap = 100 * (entry.result.summary("aa").mean - ours.result.summary("aa").mean)
                look = _color(method) + ("" if entry.ranked else " alt")
                point = Point(0, gap, None, f"{method}, {dataset}: {gap:+.1f}", look)
                gaps.setdefault(f"{group.scenario}, edges {group.edges}", {}).setdefault(method, []).append(point)
    if not gaps:
        return {}
    caption = f"AA of each method minus that of {RECOMMENDED}, one mark per data set (hollow: not ranked)"
    return {"overview": (caption, _gap_chart(gaps, caption))}


def _gap_chart(gaps: Mapping[str, Mapping[str, Sequence[Point]]], label: str) -> Drawing:
    """Draw one panel per scenario and kind of edges; methods are sorted by their mean gap over all panels.

    The scale is the square root, so that both small and large gaps can be read.
    """
    values: dict[str, list[float]] = {}
    for by_method in gaps.values():
        for method, points in by_method.items():
            values.setdefault(method, []).extend(point.y for point in points)
    methods = sorted(values, key=lambda method: -sum(values[method]) / len(values[method]))
    drawings: list[tuple[str, Drawing]] = []
    for title, by_method in gaps.items():
        drawn = [point.y for points in by_method.values() for point in points]
        first = max((tick for tick in GAP_TICKS if tick <= min(drawn)), default=min(drawn))
        last = min((tick for tick in GAP_TICKS if tick >= max(drawn)), default=max(drawn))
        first, last = min(first, -1), max(last, 1)
        names = [method if not drawings else "" for method in methods]
        chart = dot_plot(
            [Series(n, _color(m), by_method.get(m, ())) for n, m in zip(names, methods, strict=True)],
            label=label,
            x_name="" if drawings else "difference in AA (points, square-root scale)",
            x_ticks=[first, *(tick for tick in (-20, -5, 0, 5) if first < tick < last), last],
            numbered=False,
            scale="root",
            width=260 + name_width(names),
        )
        drawings.append((title, chart))
    return panels(drawings, label=label, columns=len(drawings))


def figures_of(group: Group) -> Figures:
    """The ranks, and accuracy against seconds and memory, of methods that ran on all data sets of a group."""
    name, figures = f"{group.scenario}-{group.edges}", {}
    if group.ranking is not None:
        caption = "Mean ranks at equal bytes"
        figures[f"ranks-{name}"] = (caption, rank_diagram(group.ranking, label=f"{group.title}: {caption}"))
    accuracies = {method: 100 * group.mean(method, "aa") for method in group.complete}
    for cost, x_name in (("seconds", "seconds per run"), ("memory", "memory, share of the budget")):
        costs = {method: group.mean(method, cost) for method in group.complete}
        series = []
        for method, value in accuracies.items():
            tip = f"{method}: {value:.1f} %, {x_name} {costs[method]:.3g}"
            look = _color(method) + ("" if method in group.pareto else " alt")
            series.append(Series(method, look, [Point(costs[method], value, None, tip)]))
        caption = f"Accuracy against {cost}; filled: on the Pareto front"
        if series:
            drawing = line_chart(
                series,
                label=f"{group.title}: {caption}",
                x_name=x_name,
                y_name="mean AA (%)",
                x_ticks=log_ticks(list(costs.values())),
                y_ticks=ticks(min(accuracies.values()), max(accuracies.values())),
                log_x=True,
                size=(410 + ceil(name_width(list(costs))), max(340, 15 * len(series) + 70)),
            )
            figures[f"{cost}-{name}"] = (caption, drawing)
    return figures


def _color(method: str) -> str:
    """The color of a method, without the look of variants."""
    return look_of(method.partition(":")[0]).partition(" ")[0]


def rank_diagram(ranking: Ranking, *, label: str) -> Drawing:
    """Draw mean ranks on an axis, the best left; a bar joins methods that are not significantly different (Nemenyi)."""
    names, count = ranking.names, len(ranking.names)
    side, step, top = 24 + name_width(names), 17, 64 + 7 * len(ranking.cliques)
    width, rows = 2 * side + 420, ceil(count / 2)
    sx = Scale(1, count, side + 20, side + 400)
    elements = [f'<path class="zero" d="M{sx(1):.1f} 46H{sx(count):.1f}"/>']
    for tick in range(1, count + 1, max(1, count // 10)):
        elements.append(f'<path class="zero" d="M{sx(tick):.1f} 41V46"/>' + text(sx(tick), 36, str(tick), "tick mid"))
    elements.append(text(4, 13, f"mean rank; critical difference {ranking.difference:.2f}", "name"))
    critical = sx(1 + ranking.difference)
    elements.append(f'<path class="zero" d="M{sx(1):.1f} 22H{critical:.1f}m0 -4v8M{sx(1):.1f} 18v8"/>')
    for number, (first, last) in enumerate(ranking.cliques):
        ends = f"M{sx(ranking.ranks[first]) - 4:.1f} {56 + 7 * number}H{sx(ranking.ranks[last]) + 4:.1f}"
        elements.append(f'<g class="series c-all"><path class="line" d="{ends}"/></g>')
    for i, (name, value) in enumerate(zip(names, ranking.ranks, strict=True)):
        left = i < rows
        y = top + step * (i if left else count - 1 - i) + 8
        x, kind = (side, "label end") if left else (width - side, "label")
        body = f'<path class="lead" d="M{sx(value):.1f} 46V{y:.1f}H{x + (4 if left else -4):.1f}"/>'
        body += mark(sx(value), 46, 3.0, f"{name}: mean rank {value:.2f}") + text(x, y + 4, name, kind)
        elements.append(f'<g class="series {look_of(name.partition(":")[0])}">{body}</g>')
    return Drawing(width, top + step * rows + 10, label, "".join(elements))


def _results(done: Compared, groups: Sequence[Group], command: str) -> dict[str, Any]:
    return {
        "command": command,
        "code_version": __version__,
        "machine": machine_facts(),
        "left_out": done.left_out,
        "entries": [_entry(entry) for entry in done.entries],
        "groups": [
            {
                "scenario": group.scenario,
                "edges": group.edges,
                "recommended": RECOMMENDED,
                "ranking": None if group.ranking is None else group.ranking.to_dict(),
                "tests": [test.to_dict() for test in group.tests.values()],
                "pareto": sorted(group.pareto),
            }
            for group in groups
        ],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    values = {**vars(entry.condition), "method": entry.method, "reason": entry.reason, "budget": entry.budget}
    values |= {"memory": dict(entry.memory), "chosen": dict(entry.chosen), "trials": [vars(t) for t in entry.trials]}
    if entry.runs:
        values |= {name: entry.result.summary(name).to_dict() for name in ("aa", "micro", "af")}
        values |= {"bytes": entry.nbytes, "seconds": entry.seconds}
        values |= {"needs_graph": entry.needs_graph, "above_budget": entry.above_budget, "runs": len(entry.runs)}
    return values
