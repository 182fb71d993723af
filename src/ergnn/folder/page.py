"""The result of ``ergnn inspect`` as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

import numpy as np

from ergnn import __version__
from ergnn.learning.evaluation import accuracy_matrix
from ergnn.learning.watch.drift import ALPHA
from ergnn.pages.figures import Point, Series, heat_map, line_chart, look_of
from ergnn.pages.tables import percent

MOST_UPDATES = 40
"""Updates that the figures show: the newest."""
MOST_CLASSES = 40
"""Classes whose confusion matrix is drawn."""
MOST_REMEMBERED = 2000
"""Remembered nodes that the page lists."""
MOST_LOG_LINES = 200
"""The newest lines of the history that the page lists."""

MEASURES = {
    "pm": ("performance mean", "Accuracy on each update right after it was learned, averaged over updates."),
    "fm": (
        "forgetting mean",
        "Accuracy lost on each earlier update since it was learned, averaged over updates. Below zero: it was gained.",
    ),
    "aa": ("average accuracy", "Accuracy on each update after the last one, averaged over updates."),
    "accuracy": ("accuracy over nodes", "Share of all scored nodes that are predicted right after the last update."),
}
"""What each measure is called and means."""
ASPECTS = ("features", "neighborhoods", "degrees", "predictions")
"""What the nodes of an update are compared by."""
LEFT = ("result", "probability %", "name", "classes learned", "class", "part", "time", "what happened")
"""Columns of text, which are aligned left."""


def page_of(
    found: dict[str, Any], template: str = "folder_page.html", package: str = "ergnn.pages", **values: Any
) -> str:
    """The page, which needs nothing else: style, script and figures are inside.

    Args:
        found: the result of :meth:`ergnn.folder.LearnerFolder.inspect`.
        template: a page that extends ``folder_page.html``, in ``package``.
        values: further values for it; one with the id of a table takes its place.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, "ergnn.pages"))])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["svg"] = Markup
    folder = files("ergnn.pages") / "templates"
    return environment.get_template(template).render(
        title=f"Learner {found['folder']}",
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),
        script=Markup((folder / "script.js").read_text(encoding="utf-8")),
        facts=_facts(found),
        matrix=_matrix(found["updates"]),
        measures=[
            (
                f"{key.upper()}, {name}" if key != "accuracy" else name.capitalize(),
                f"{percent(found['measures'][key])} %",
                text,
            )
            for key, (name, text) in MEASURES.items()
            if found["measures"]
        ]
        + _offline(found.get("offline")),
        confusion=_confusion(found),
        charts=_charts(found["updates"]),
        tables=[table for table in _tables(found) if table["id"] not in values],
        alpha=ALPHA,
        version=__version__,
        made=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        **values,
    )


def _offline(found: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    if found is None:
        return []
    shown = f"{percent(found['mean_over_updates'])} %, over nodes {percent(found['over_nodes'])} %"
    if found["same_by_construction"]:
        return [("Offline", shown, "The closed form gives the same as learning all updates at once.")]
    text = "A new network trained on the labels of all updates at once: mean over updates, and over all held-out nodes."
    return [("Offline", shown, text)]


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    graph, settings = found["graph"], found["settings"]
    return [
        ("version", str(found["version"])),
        ("updates", str(len(found["updates"]))),
        ("nodes", f"{graph['nodes']:,}"),
        ("edges", f"{graph['edges']:,}"),
        ("labeled", f"{graph['labeled']:,}"),
        ("classes", str(len(found["classes"]))),
        ("remembered", f"{len(found['buffer']):,}"),
        ("backbone", settings["backbone"]),
        ("method", settings["method"]),
        *_watched(found["watch"]),
    ]


def _watched(watch: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Calibration error on held-out nodes, and the share of the last update's nodes that are of no known class."""
    if watch["calibration"]:
        yield "calibration error", f"{percent(watch['calibration']['ece'])} %"
    if watch["unknown"] and watch["unknown"]["threshold"] is not None:
        yield "unknown class", f"{percent(watch['unknown']['above'] / watch['unknown']['nodes'])} %"


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
    return heat_map(values, low=0.0, high=1.0, label=label, tips=tips, side=480)


def _confusion(found: dict[str, Any]) -> str | None:
    """Share of each class (row) that is predicted as each class (column)."""
    size, names = len(found["classes"]), found["classes"]
    if not found["confusion"] or size > MOST_CLASSES:
        return None
    nodes = np.zeros((size, size))
    for true, predicted, count in found["confusion"]:
        nodes[true, predicted] = count
    total = nodes.sum(1, keepdims=True)
    shares = np.divide(nodes, total, out=np.full_like(nodes, np.nan), where=nodes > 0)
    tips = [[f"{int(nodes[i, j])} of {int(total[i, 0])} nodes of {names[i]} are predicted as {names[j]}"
             for j in range(size)] for i in range(size)]  # fmt: skip
    label = "share in percent of the held-out nodes of each class that is predicted as each class"
    short = [name if len(name) <= 14 else f"{name[:13]}…" for name in names]
    return heat_map(shares, low=0.0, high=1.0, label=label, tips=tips, names=short, side=480)


def _charts(updates: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Forgetting and drift over time, where there is more than one point: title, text and figure."""
    out = []
    for name, key, text in (
        ("Forgetting", "forgetting", "Accuracy lost on earlier updates since they were learned, averaged over them."),
        ("Drift", "drift", "How far each update moved the parameters below the heads, in percent of their norm."),
    ):
        shown = [(u["update"] + 1, 100 * u[key]) for u in updates if u[key] is not None][-MOST_UPDATES:]
        if len(shown) > 1:
            points = [Point(x, y, None, f"update {x}: {y:.2f}") for x, y in shown]
            svg = line_chart(
                [Series("", look_of("mf"), points)],
                label=f"{name}: {text}",
                x_name="update",
                y_name="%",
                x_ticks=[x for x, _ in shown][:: -(-len(shown) // 10)],
                y_limits=(-100.0, 10_000.0),
                size=(460, 280),
            )
            out.append((name, text, svg))
    return out


def _tables(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Title, columns and rows; ``left`` has the columns that are aligned left."""
    last = found["updates"][-1]["scores"] if found["updates"] else []
    updates = [
        [u["update"] + 1, u["name"], ", ".join(u["classes"]), *(u["counts"][k] for k in ("nodes", "edges", "train")),
         u["remembered"], _share(u["scores"], u["update"]), _share(last, u["update"])]
        for u in found["updates"]
    ]  # fmt: skip
    classes = [
        [r["class"], r["nodes"], *("" if r[k] is None else percent(r[k]) for k in ("recall", "precision", "f1"))]
        for r in found["per_class"]
    ]
    buffer = [
        [r["id"], r["class"], r["update"], r["rank"] or "", "" if r["score"] is None else f"{r['score']:.4g}"]
        for r in found["buffer"]
    ]
    drift = [
        [u["update"] + 1, "alarm" if u["input_drift"]["alarm"] else "no alarm",
         *(f"{u['input_drift']['p'][name]:.3f}" if name in u["input_drift"]["p"] else "" for name in ASPECTS)]
        for u in found["updates"]
        if u.get("input_drift")
    ]  # fmt: skip
    bins = [
        [f"{percent(low)} to {percent(high)}", nodes, percent(confidence), percent(accuracy)]
        for low, high, nodes, confidence, accuracy in (found["watch"]["calibration"] or {"bins": []})["bins"]
    ]
    log = [[entry["time"].replace("T", " ")[:19], in_words(entry)] for entry in found["log"][-MOST_LOG_LINES:]]
    scores = ["recall %", "precision %", "F1 %"]
    counts = ["nodes", "edges", "trained on", "remembered", "accuracy then %", "now %"]
    tables = [
        ("classes", "Classes", ["class", "held out", *scores], classes),
        ("updates", "Updates", ["update", "name", "classes learned", *counts], updates),
        ("input-drift", "Input drift", ["update", "result", *(f"p, {name}" for name in ASPECTS)], drift),
        ("calibration", "Calibration", ["probability %", "nodes", "mean probability %", "right %"], bins),
        ("buffer", "Remembered nodes", ["id", "class", "update", "rank", "score"], buffer[:MOST_REMEMBERED]),
        ("bytes", "Bytes on disk", ["part", "bytes"], [[name, size] for name, size in found["bytes"].items()]),
        ("versions", "Versions that are kept", ["version"], [[number] for number in found["versions"]]),
        ("log", "History", ["time", "what happened"], log),
    ]
    return [
        {"id": key, "title": title, "columns": columns, "left": [name in LEFT for name in columns], "rows": rows}
        for key, title, columns, rows in tables
        if rows
    ]


def in_words(entry: dict[str, Any]) -> str:
    """A line of the log as a sentence."""
    rest = {key: value for key, value in entry.items() if key not in ("time", "action")}
    if entry["action"] == "observe" and {"update", "name", "seconds"} <= rest.keys():
        return f"Learned update {rest['update']}, “{rest['name']}”, in {rest['seconds']:.1f} s."
    if entry["action"] == "forget" and {"nodes", "retrained"} <= rest.keys():
        again = "; all updates were learned again without them" if rest["retrained"] else ""
        return f"Forgot {rest['nodes']:,} node{'' if rest['nodes'] == 1 else 's'}{again}."
    if entry["action"] == "rollback" and "version" in rest:
        return f"Returned to version {rest['version']}."
    told = ", ".join(f"{key} {value}" for key, value in rest.items())
    return f"{entry['action']}{f': {told}' if told else ''}"


def _share(scores: list[list[int]], update: int) -> str:
    return next((percent(right / of) for number, right, of in scores if number == update), "")
