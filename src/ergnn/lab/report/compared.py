"""Write the results of ``ergnn compare``: tables, figures, ``results.json`` and the HTML page."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

from ergnn import __version__
from ergnn.config.files import write_file
from ergnn.lab.compare import Compared
from ergnn.lab.contenders import Entry
from ergnn.lab.provenance import code_version, machine_facts
from ergnn.lab.report.compare_figures import Gap, cost_chart, gap_chart, rank_diagram, standalone
from ergnn.lab.report.compare_tables import (
    RECOMMENDED,
    Group,
    benchmark_page,
    detail_pages,
    groups_of,
    search_page,
    summary_of,
)
from ergnn.lab.report.experiment_tables import Page
from ergnn.lab.report.reproduced import QUICK_MARK, SUFFIXES

Figures = dict[str, tuple[str, str]]
"""File name → caption and SVG."""


def write_comparison(done: Compared, out: str | Path, command: str, quick: bool = False) -> list[Page]:
    """Write all files into a folder; return the pages of ``benchmark.txt``, one per scenario and kind of edges."""
    folder, groups = Path(out), groups_of(done.entries)
    left_out = [f"{condition} is left out: {reason}" for condition, reason in done.left_out.items()]
    pages = {
        "benchmark": [benchmark_page(group) for group in groups],
        "details": [page for group in groups for page in detail_pages(group)],
        "search": [search_page(group) for group in groups],
    }
    if left_out or quick:
        pages["benchmark"].append(Page("Notes", None, [QUICK_MARK] * quick + left_out))
    for name, own in pages.items():
        for format, suffix in SUFFIXES.items():
            note = {"text": command, "markdown": f"```\n{command}\n```", "latex": f"% {command}"}[format]
            text = "\n\n\n".join([*(page.render(format) for page in own), note]) + "\n"
            write_file(folder / f"{name}.{suffix}", text.encode())
    drawn, whole = [figures_of(group) for group in groups], overview(groups)
    for figures in [whole, *drawn]:
        for name, (_, drawing) in figures.items():
            write_file(folder / f"{name}.svg", standalone(drawing).encode())
    write_file(folder / "results.json", json.dumps(_results(done, groups, command), ensure_ascii=False).encode())
    page = _html(pages, whole, drawn, groups, command)
    write_file(folder / "report.html", page.encode())
    return pages["benchmark"]


def overview(groups: Sequence[Group]) -> Figures:
    """The gap in AA of every method to ours, on every data set of every group."""
    panels: dict[str, dict[str, list[Gap]]] = {}
    for group in groups:
        for (dataset, method), entry in group.found.items():
            ours = group.found.get((dataset, RECOMMENDED))
            if ours is not None and method != RECOMMENDED:
                gap = 100 * (summary_of(entry, "aa").mean - summary_of(ours, "aa").mean)
                panel = panels.setdefault(f"{group.scenario}, edges {group.edges}", {})
                panel.setdefault(method, []).append((dataset, gap, entry.ranked))
    if not panels:
        return {}
    caption = f"AA of each method minus that of {RECOMMENDED}, one mark per data set (hollow: not ranked)"
    drawing = gap_chart(panels, label=caption, x_name="difference in AA (points, square-root scale)")
    return {"overview": (caption, drawing)}


def figures_of(group: Group) -> Figures:
    """The ranks, and accuracy against seconds and memory, of methods that ran on all data sets of a group."""
    name, found = f"{group.scenario}-{group.edges}", {}
    if group.ranking is not None:
        caption = "Mean ranks at equal bytes"
        found[f"ranks-{name}"] = (caption, rank_diagram(group.ranking, label=f"{group.title}: {caption}"))
    whole = [m for m in group.methods if len(group.of(m)) == len(group.datasets) and not group.of(m)[0].needs_graph]
    for cost, x_name in (("seconds", "seconds per run"), ("memory", "memory, share of the budget")):
        points = [(method, group.mean(method, cost), 100 * group.mean(method, "aa")) for method in whole]
        caption = f"Accuracy against {cost}; filled: on the Pareto front"
        if points:
            label = f"{group.title}: {caption}"
            drawing = cost_chart(points, group.pareto, label=label, x_name=x_name, y_name="mean AA (%)")
            found[f"{cost}-{name}"] = (caption, drawing)
    return found


def _results(done: Compared, groups: Sequence[Group], command: str) -> dict[str, Any]:
    return {
        "command": command,
        "code_version": code_version(),
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
    own = {**vars(entry.condition), "method": entry.method, "reason": entry.reason, "budget": entry.budget}
    own |= {"memory": dict(entry.memory), "chosen": dict(entry.chosen), "trials": [vars(t) for t in entry.trials]}
    if entry.runs:
        own |= {name: summary_of(entry, name).to_dict() for name in ("aa", "micro", "af")}
        own |= {"bytes": entry.nbytes, "seconds": sum(run.seconds for run in entry.runs) / len(entry.runs)}
        own |= {"needs_graph": entry.needs_graph, "above_budget": entry.above_budget, "runs": len(entry.runs)}
    return own


def _html(
    pages: dict[str, list[Page]], whole: Figures, figures: Sequence[Figures], groups: Sequence[Group], command: str
) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("ergnn.pages"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["svg"] = Markup
    folder = files("ergnn.pages") / "templates"
    runs = [run for group in groups for entry in group.found.values() for run in entry.runs]
    names = [entry.method for group in groups for entry in group.found.values()]
    facts: dict[str, Collection[Any]] = {
        "methods": set(names),
        "data sets": {name for group in groups for name in group.datasets},
        "runs": runs,
        "seeds": {run.seed for run in runs},
        "class orders": {run.order for run in runs},
    }
    return environment.get_template("compare_page.html").render(
        title="Methods compared at equal memory",
        command=command,
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),
        script=Markup((folder / "script.js").read_text(encoding="utf-8")),
        facts=[(name, f"{len(found):,}") for name, found in facts.items()],
        overview=list(whole.values()),
        sections=[(name, pages[name], figures if name == "benchmark" else ()) for name in pages],
        version=__version__,
        made=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        **{"matrix": None, "charts": (), "tables": (), "measures": ()},
    )
