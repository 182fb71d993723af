"""What :mod:`ergnn.folder.inspection` found, as one HTML page that looks like the reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

import numpy as np

from ergnn import __version__
from ergnn.folder.inspection import accuracy_matrix
from ergnn.report.figures import Point, Series, heat_map, line_chart, look_of
from ergnn.report.tables import percent

MOST_UPDATES = 40
"""Updates that the figures show: the newest."""
MOST_REMEMBERED = 2000
"""Remembered nodes that the page lists."""


def page_of(found: dict[str, Any]) -> str:
    """The page, which needs nothing else: style, script and figures are inside."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("ergnn.folder"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["svg"] = Markup
    folder = files("ergnn.report") / "templates"
    return environment.get_template("inspect.html").render(
        title=f"What {found['folder']} knows",
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),
        script=Markup((folder / "script.js").read_text(encoding="utf-8")),
        facts=_facts(found),
        matrix=_matrix(found["updates"]),
        charts=_charts(found["updates"]),
        tables=_tables(found),
        version=__version__,
        made=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    graph, settings = found["graph"], found["settings"]
    facts = [
        ("version", str(found["version"])),
        ("updates", str(len(found["updates"]))),
        ("nodes", f"{graph['nodes']:,}"),
        ("edges", f"{graph['edges']:,}"),
        ("labeled", f"{graph['labeled']:,}"),
        ("classes", str(len(found["classes"]))),
        ("remembered", f"{len(found['buffer']):,}"),
        ("backbone", settings["backbone"]),
        ("method", settings["method"]),
    ]
    return facts + [(name.upper(), f"{percent(value)} %") for name, value in found["measures"].items()]


def _matrix(updates: Sequence[dict[str, Any]]) -> str | None:
    """Accuracy on each update (column) after each update (row)."""
    found = accuracy_matrix(list(updates))
    if found is None or len(found[0]) > MOST_UPDATES:
        return None
    numbers, matrix = found
    values = np.where(np.tri(len(numbers), dtype=bool), matrix.values, np.nan)
    tips = [[f"update {j + 1} after update {i + 1}: {percent(v)} %" for j, v in zip(numbers, row, strict=True)]
            for i, row in zip(numbers, matrix.values, strict=True)]  # fmt: skip
    label = "accuracy in percent on the held-out nodes of each update, after each update"
    return heat_map(values, low=0.0, high=1.0, label=label, tips=tips)


def _charts(updates: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Forgetting and drift over time, where there is more than one point."""
    out = []
    for name, key, text in (
        ("Forgetting", "forgetting", "mean points of accuracy lost on earlier updates since they were learned"),
        ("Drift", "drift", "how far each update moved the parameters before the heads, in percent of their length"),
    ):
        shown = [(u["update"] + 1, 100 * u[key]) for u in updates if u[key] is not None][-MOST_UPDATES:]
        if len(shown) > 1:
            points = [Point(x, y, None, f"update {x}: {y:.2f}") for x, y in shown]
            svg = line_chart(
                [Series("", look_of("mf*"), points)],
                label=f"{name}: {text}",
                x_name="update",
                y_name=f"{name.lower()} (%)",
                x_ticks=[x for x, _ in shown][:: -(-len(shown) // 10)],
                y_limits=(-100.0, 10_000.0),
            )
            out.append((f"{name}: {text}", svg))
    return out


def _tables(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Caption, columns and rows; a cell is a text and the value it is sorted by."""
    updates = [
        [u["update"] + 1, u["name"], ", ".join(u["classes"]), *(u["counts"][k] for k in ("nodes", "edges", "train")),
         u["remembered"], _share(u["scores"], u["update"]), _share(found["updates"][-1]["scores"], u["update"])]
        for u in found["updates"]
    ]  # fmt: skip
    columns = [
        "update",
        "name",
        "classes learned",
        "nodes",
        "edges",
        "trained on",
        "remembered",
        "accuracy then %",
        "now %",
    ]
    buffer = [[r["id"], r["class"], r["update"], r["rank"] or "", "" if r["score"] is None else f"{r['score']:.4g}"]
              for r in found["buffer"]]  # fmt: skip
    log = [[e["time"], e["action"], ", ".join(f"{k} {v}" for k, v in e.items() if k not in ("time", "action"))]
           for e in found["log"][-200:]]  # fmt: skip
    return [
        {"id": "updates", "caption": "Updates", "columns": columns, "rows": updates},
        {
            "id": "buffer",
            "caption": "What is remembered",
            "columns": ["id", "class", "update", "rank", "score"],
            "rows": buffer[:MOST_REMEMBERED],
        },
        {
            "id": "bytes",
            "caption": "Bytes on disk",
            "columns": ["part", "bytes"],
            "rows": [[name, size] for name, size in found["bytes"].items()],
        },
        {"id": "versions", "caption": "Versions that are kept", "columns": ["version"],
         "rows": [[number] for number in found["versions"]]},
        {"id": "log", "caption": "History", "columns": ["time", "action", "details"], "rows": log},
    ]  # fmt: skip


def _share(scores: list[list[int]], update: int) -> str:
    return next((percent(right / of) for number, right, of in scores if number == update), "")
