"""The result of ``ergnn inspect`` as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ergnn.folder.why_page import audit_table
from ergnn.learning.evaluation import accuracy_matrix
from ergnn.learning.metrics import accuracy_map
from ergnn.learning.watch.drift import ALPHA
from ergnn.pages.figures import Drawing, Point, Series, heat_map, line_chart, look_of, value_ticks
from ergnn.pages.page import render_page
from ergnn.pages.table import Table, percent

MOST_UPDATES = 40
"""Updates that the figures show: the newest."""
MOST_CLASSES = 40
"""Classes whose confusion matrix is drawn."""
MOST_REMEMBERED = 2000
"""Remembered nodes that the page lists."""
MOST_LOG_LINES = 200
"""The newest lines of the history that the page lists."""
ASPECTS = ("features", "neighborhoods", "degrees", "predictions")
"""What the nodes of an update are compared by."""


def folder_page(
    inspection: dict[str, Any], template: str = "folder.html", package: str = "ergnn.pages", **values: Any
) -> str:
    """Render the page of a learner's folder.

    Args:
        inspection: the result of :meth:`ergnn.folder.LearnerFolder.inspect`.
        template: a page that extends ``folder.html``, in ``package``.
        values: further values for it; one with the id of a table takes its place.
    """
    return render_page(
        template,
        package,
        title=f"Learner {inspection['folder']}",
        facts=_facts(inspection),
        matrix=_matrix(inspection["updates"]),
        measures=inspection["measures"],
        offline=inspection.get("offline"),
        confusion=_confusion(inspection),
        charts=_charts(inspection["updates"], inspection["exact"]),
        warnings=inspection["warnings"],
        exact=inspection["exact"],
        why_accuracy_falls=inspection["why_accuracy_falls"],
        tables=[table for table in _tables(inspection) if table.id not in values],
        alpha=ALPHA,
        **values,
    )


def _facts(inspection: dict[str, Any]) -> list[tuple[str, str]]:
    graph, settings = inspection["graph"], inspection["settings"]
    return [
        ("version", str(inspection["version"])),
        ("updates", str(len(inspection["updates"]))),
        ("nodes", f"{graph['nodes']:,}"),
        ("edges", f"{graph['edges']:,}"),
        ("labeled", f"{graph['labeled']:,}"),
        ("classes", str(len(inspection["classes"]))),
        ("remembered", f"{len(inspection['buffer']):,}"),
        ("backbone", settings["backbone"]),
        ("method", settings["method"]),
        *_overall(inspection["overall"]),
        *_watched(inspection["watch"]),
    ]


def _overall(overall: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Accuracy over all held-out nodes, and the scores that it is read beside."""
    if overall is None:
        return
    names = {"accuracy": "accuracy", "majority": "majority class", "balanced_accuracy": "balanced accuracy"}
    for key, name in {**names, "macro_f1": "macro F1"}.items():
        yield name, f"{percent(overall[key])} %"
    if overall["roc_auc"] is not None:
        yield "ROC AUC", f"{overall['roc_auc']:.3f}"


def _watched(watch: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Calibration error on held-out nodes, and the share of the last update's nodes that are of no known class."""
    if watch["calibration"]:
        yield "calibration error", f"{percent(watch['calibration']['ece'])} %"
    if watch["unknown"] and watch["unknown"]["threshold"] is not None:
        yield "unknown class", f"{percent(watch['unknown']['above'] / watch['unknown']['nodes'])} %"


def _matrix(updates: Sequence[dict[str, Any]]) -> Drawing | None:
    """Accuracy on each update (column) after each update (row)."""
    scored = accuracy_matrix(list(updates))
    if scored is None or len(scored[0]) > MOST_UPDATES:
        return None
    names = [f"update {update + 1}" for update in scored[0]]
    return accuracy_map([scored[1]], "accuracy in percent on the held-out nodes of each update", names, side=480)


def _confusion(inspection: dict[str, Any]) -> Drawing | None:
    """Share of each class (row) that is predicted as each class (column)."""
    names: list[str] = inspection["classes"]
    if not inspection["confusion"] or len(names) > MOST_CLASSES:
        return None
    nodes = np.zeros((len(names), len(names)))
    for true, predicted, count in inspection["confusion"]:
        nodes[true, predicted] = count
    total = nodes.sum(1, keepdims=True)
    shares = np.divide(nodes, total, out=np.full_like(nodes, np.nan), where=nodes > 0)
    tips = [
        [
            f"{count:.0f} of {of:.0f} nodes of {name} are predicted as {other}"
            for count, other in zip(row, names, strict=True)
        ]
        for row, of, name in zip(nodes, total[:, 0], names, strict=True)
    ]
    label = "share in percent of the held-out nodes of each class that is predicted as each class"
    short = [name if len(name) <= 14 else f"{name[:13]}…" for name in names]
    return heat_map(shares, low=0.0, high=1.0, label=label, tips=tips, names=short, side=480)


def _charts(updates: Sequence[dict[str, Any]], exact: bool) -> list[tuple[str, str, Drawing]]:
    """Lost accuracy and drift over time, where there is more than one point: title, text and figure."""
    charts = []
    lost = "Accuracy lost on earlier updates since they were learned, averaged over them."
    for name, key, text in (
        ("Drop in accuracy" if exact else "Forgetting", "forgetting", lost),
        ("Drift", "drift", "How far each update moved the parameters below the heads, in percent of their norm."),
    ):
        shown = [(u["update"] + 1, 100 * u[key]) for u in updates if u[key] is not None][-MOST_UPDATES:]
        if len(shown) > 1:
            series = [Series("", look_of("mf"), [Point(x, y, None, f"update {x}: {y:.2f}") for x, y in shown])]
            chart = line_chart(
                series,
                label=f"{name}: {text}",
                x_name="update",
                y_name="%",
                x_ticks=[x for x, _ in shown][:: -(-len(shown) // 10)],
                y_ticks=value_ticks(series, (-100.0, 10_000.0)),
                size=(460, 280),
            )
            charts.append((name, text, chart))
    return charts


def _tables(inspection: dict[str, Any]) -> list[Table]:
    updates = inspection["updates"]
    last = updates[-1]["scores"] if updates else []
    learned = [
        [
            str(u["update"] + 1),
            u["name"],
            ", ".join(u["classes"]),
            *(u["counts"][key] for key in ("nodes", "edges", "train")),
            u["remembered"],
            *(_accuracy(scores, u["update"]) for scores in (u["scores"], last)),
        ]
        for u in updates
    ]
    drift = [
        [str(u["update"] + 1), "alarm" if u["input_drift"]["alarm"] else "no alarm",
         *(f"{u['input_drift']['p'][name]:.3f}" if name in u["input_drift"]["p"] else "" for name in ASPECTS)]
        for u in updates
        if u.get("input_drift")
    ]  # fmt: skip
    bins = [
        [f"{percent(low)} to {percent(high)}", nodes, percent(confidence), percent(accuracy)]
        for low, high, nodes, confidence, accuracy in (inspection["watch"]["calibration"] or {"bins": []})["bins"]
    ]
    log = [[entry["time"].replace("T", " ")[:19], in_words(entry)] for entry in inspection["log"][-MOST_LOG_LINES:]]
    counts = ["nodes", "edges", "trained on", "remembered", "accuracy then %", "now %"]
    tables = [
        class_table(inspection),
        _table("updates", "Updates", "lll", ["update", "name", "classes learned", *counts], learned),
        _table("input-drift", "Input drift", "ll", ["update", "result", *(f"p, {name}" for name in ASPECTS)], drift),
        _table("calibration", "Calibration", "l", ["probability %", "nodes", "mean probability %", "right %"], bins),
        *([audit_table(inspection["doubts"])] if inspection["doubts"] else []),
        buffer_table(inspection, MOST_REMEMBERED),
        _table("bytes", "Bytes on disk", "l", ["part", "bytes"], list(map(list, inspection["bytes"].items()))),
        _table("versions", "Versions that are kept", "l", ["version"], [[str(one)] for one in inspection["versions"]]),
        _table("log", "History", "ll", ["time", "what happened"], log),
    ]
    return [table for table in tables if table.rows]


def class_table(inspection: dict[str, Any], most: int | None = None) -> Table:
    """Recall, precision and F1 of at most ``most`` classes."""
    rows = [
        [r["class"], r["nodes"], *("" if r[k] is None else percent(r[k]) for k in ("recall", "precision", "f1"))]
        for r in inspection["per_class"][:most]
    ]
    return _table("classes", "Classes", "l", ["class", "held out", "recall %", "precision %", "F1 %"], rows)


def buffer_table(inspection: dict[str, Any], most: int | None = None) -> Table:
    """At most ``most`` remembered nodes, with the rank and score that their selector gave them."""
    rows = [
        [str(r["id"]), r["class"], r["update"], r["rank"] or "", "" if r["score"] is None else f"{r['score']:.4g}"]
        for r in inspection["buffer"][:most]
    ]
    return _table("buffer", "Remembered nodes", "ll", ["stored node", "class", "update", "rank", "score"], rows)


def _table(id: str, title: str, left: str, header: list[str], rows: list[list[Any]]) -> Table:
    """Make a table whose first columns are aligned as in ``left``, the others right."""
    return Table(header, rows, left.ljust(len(header), "r"), title, id=id)


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
    facts = ", ".join(f"{key} {value}" for key, value in rest.items())
    return f"{entry['action']}{f': {facts}' if facts else ''}"


def _accuracy(scores: list[list[int]], update: int) -> str:
    return next((percent(right / of) for number, right, of in scores if number == update), "")
