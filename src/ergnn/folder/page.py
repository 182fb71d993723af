"""What ``ergnn inspect``, ``explain``, ``audit`` and ``suggest`` report, as sentences, tables and HTML pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ergnn.learning.evaluation import accuracy_matrix
from ergnn.learning.metrics import accuracy_map
from ergnn.learning.watch import ALPHA
from ergnn.pages.figures import Drawing, Point, Series, class_looks, dot_plot, heat_map, neighborhood_map, short, ticks
from ergnn.pages.table import Table, percent, render_page

MOST_DRAWN = 40
"""Updates (the newest) and classes that the figures show."""
MOST_REMEMBERED = 2000
"""Remembered nodes that the page lists."""
MOST_LOG_LINES = 200
"""The newest lines of the history that the page lists."""
SCORES = {
    "accuracy": "accuracy",
    "majority": "majority class",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
}
"""Names of the scores over all held-out nodes."""
ASPECTS = ("features", "neighborhoods", "degrees", "predictions")
"""What the nodes of an update are compared by."""
DISTANCES = ("own features", "neighbors", "two steps away")
CLOSED_FORM = "All sums are exact: they are those of the closed form. A network cannot be explained in this way."


def folder_page(
    inspection: dict[str, Any], template: str = "folder.html", package: str = "ergnn.pages", **values: Any
) -> str:
    """Render the page of a learner's folder from the result of :meth:`ergnn.folder.LearnerFolder.inspect`.

    The template extends ``folder.html``; one of its values with the id of a table takes the place of the table.
    """
    return render_page(
        template,
        package,
        title=f"Learner {inspection['folder']}",
        inspection=inspection,
        scores=SCORES,
        matrix=_matrix(inspection["updates"]),
        confusion=_confusion(inspection),
        tables=[table for table in _tables(inspection) if table.rows and table.id not in values],
        alpha=ALPHA,
        **values,
    )


def _matrix(updates: Sequence[dict[str, Any]]) -> Drawing | None:
    """Accuracy on each update (column) after each update (row)."""
    scored = accuracy_matrix(list(updates))
    if scored is None or len(scored[0]) > MOST_DRAWN:
        return None
    names = [f"update {update + 1}" for update in scored[0]]
    return accuracy_map([scored[1]], "accuracy in percent on the held-out nodes of each update", names, side=480)


def _confusion(inspection: dict[str, Any]) -> Drawing | None:
    """Share of each class (row) that is predicted as each class (column)."""
    names: list[str] = inspection["classes"]
    if not inspection["confusion"] or len(names) > MOST_DRAWN:
        return None
    nodes = np.zeros((len(names), len(names)))
    for true, predicted, count in inspection["confusion"]:
        nodes[true, predicted] = count
    total = nodes.sum(1, keepdims=True)
    shares = np.divide(nodes, total, out=np.full_like(nodes, np.nan), where=nodes > 0)
    about = "{:.0f} of {:.0f} nodes of {} are predicted as {}"
    size = range(len(names))
    tips = [[about.format(nodes[i, j], total[i, 0], names[i], names[j]) for j in size] for i in size]
    label = "share in percent of the held-out nodes of each class that is predicted as each class"
    shown = [short(name, 14) for name in names]
    return heat_map(shares, low=0.0, label=label, tips=tips, names=shown, side=480)


def _tables(inspection: dict[str, Any]) -> Iterator[Table]:
    updates = inspection["updates"]
    last = updates[-1]["scores"] if updates else []
    learned = [
        [
            *(str(u["update"] + 1), u["name"], ", ".join(u["classes"])),
            *(u["counts"][key] for key in ("nodes", "edges", "train")),
            u["remembered"],
            *(_accuracy(scores, u["update"]) for scores in (u["scores"], last)),
            percent(u["forgetting"]),
        ]
        for u in updates
    ]
    tested = [(str(u["update"] + 1), u["input_drift"]) for u in updates if u.get("input_drift")]
    p_values = [[f"{test['p'][name]:.3f}" if name in test["p"] else "" for name in ASPECTS] for _, test in tested]
    alarms = [[update, "alarm" if test["alarm"] else "no alarm"] for update, test in tested]
    drift = [[*alarm, *p] for alarm, p in zip(alarms, p_values, strict=True)]
    bins = [
        [f"{percent(low)} to {percent(high)}", nodes, percent(confidence), percent(accuracy)]
        for low, high, nodes, confidence, accuracy in (inspection["watch"]["calibration"] or {"bins": []})["bins"]
    ]
    log = [[entry["time"].replace("T", " ")[:19], _log_line(entry)] for entry in inspection["log"][-MOST_LOG_LINES:]]
    counts = ["nodes", "edges", "trained on", "remembered", "accuracy then %", "now %"]
    counts.append("drop %" if inspection["exact"] else "forgetting %")
    yield class_table(inspection)
    yield Table(["update", "name", "classes learned", *counts], learned, "lll", "Updates", id="updates")
    header = ["update", "result", *(f"p, {name}" for name in ASPECTS)]
    yield Table(header, drift, "ll", "Input drift", id="input-drift")
    header = ["probability %", "nodes", "mean probability %", "right %"]
    yield Table(header, bins, title="Calibration", id="calibration")
    if inspection["doubts"]:
        yield audit_table(inspection["doubts"])
    yield buffer_table(inspection, MOST_REMEMBERED)
    yield Table(["part", "bytes"], list(inspection["bytes"].items()), title="Bytes on disk", id="bytes")
    versions = [[str(version)] for version in inspection["versions"]]
    yield Table(["version"], versions, title="Versions that are kept", id="versions")
    yield Table(["time", "what happened"], log, "ll", "History", id="log")


def class_table(inspection: dict[str, Any], most: int | None = None) -> Table:
    """Recall, precision and F1 of at most ``most`` classes."""
    rows = [
        [r["class"], r["nodes"], *(percent(r[name]) for name in ("recall", "precision", "f1"))]
        for r in inspection["per_class"][:most]
    ]
    return Table(["class", "held out", "recall %", "precision %", "F1 %"], rows, title="Classes", id="classes")


def buffer_table(inspection: dict[str, Any], most: int | None = None) -> Table:
    """At most ``most`` remembered nodes, with the rank and score that their selector gave them."""
    rows = [
        [str(r["id"]), r["class"], r["update"], r["rank"] or "", "" if r["score"] is None else f"{r['score']:.4g}"]
        for r in inspection["buffer"][:most]
    ]
    header = ["stored node", "class", "update", "rank", "score"]
    return Table(header, rows, "ll", "Remembered nodes", id="buffer")


def _log_line(entry: dict[str, Any]) -> str:
    """An action and its details."""
    details = ", ".join(f"{key} {value}" for key, value in entry.items() if key not in ("time", "action"))
    return f"{entry['action']}: {details}".removesuffix(": ")


def _accuracy(scores: list[list[int]], update: int) -> str:
    return next((percent(right / of) for number, right, of in scores if number == update), "")


def in_words(node: dict[str, Any]) -> list[str]:
    """Say the class of a node, the second one, and what would change the class."""
    return render_page("node.txt", node=node).splitlines()


def node_tables(node: dict[str, Any]) -> Iterator[Table]:
    """The labeled nodes with the largest terms; of a linear head, also the score by distance and by column.

    Terms of one label add up to its score, as do the columns of the score by distance. The columns of features are
    those that tell the two best classes apart the most.
    """
    most = max((row["share"] for row in node["terms"]), default=0.0) or 1.0
    rows = [
        [row["id"], row["label"], str(row["update"]), f"{row['term']:+.4f}", percent(row["share"])]
        for row in node["terms"]
    ]
    bars = [row["share"] / most for row in node["terms"]]
    title = f"labeled nodes: {len(rows)} of {node['num_terms']:,}; each adds its term to the score of its label"
    yield Table(["labeled node", "label", "update", "term", "share %"], rows, "lllrr", title, bars=bars)
    if node["features"] is None:
        return
    compared, columns = _compared(node), node["features"]["columns"]
    sums = [*_distances(node["features"]), ("score", [node["scores"][name] for name in compared])]
    yield Table(["features of", *compared], [_signed(*row) for row in sums], title="the score by distance")
    title = f"the score by column: {len(columns)} of {node['features']['num_columns']:,}, at all distances"
    yield Table(["column", *compared], [_signed(row["name"], row["terms"]) for row in columns], title=title)


def _signed(name: str, terms: Sequence[float]) -> list[str]:
    return [name, *(f"{term:+.4f}" for term in terms)]


def _compared(node: dict[str, Any]) -> list[str]:
    """The predicted class and the second one."""
    return [node["class"]] if node["second"] is None else [node["class"], node["second"]]


def _distances(features: dict[str, Any]) -> list[tuple[str, list[float]]]:
    """Names of distances, those of three steps and more together, and their terms."""
    near, far = features["distances"][: len(DISTANCES)], features["distances"][len(DISTANCES) :]
    rows = list(zip(DISTANCES, near, strict=False))
    if far:
        rows.append(("further away", [sum(terms) for terms in zip(*far, strict=True)]))
    return [*rows, ("constant", features["constant"])]


def audit_words(report: dict[str, Any]) -> str:
    """Say how many labels were compared, and how many look wrong."""
    return render_page("audit.txt", report=report)


def audit_table(report: dict[str, Any]) -> Table:
    """Labels with the probability that the others give them, and the class that they predict."""
    rows = [
        [row["id"], row["label"], percent(row["probability"]), row["class"], percent(row["class_probability"]),
         ", ".join(f"{one['id']} ({one['label']})" for one in row["similar"]), str(row["update"])]
        for row in report["rows"]
    ]  # fmt: skip
    header = ["node", "label", "probability %", "others say", "with %", "most similar labeled nodes", "update"]
    return Table(header, rows, "llrlrll", "Labels that look wrong", id="audit")


def suggestion_words(report: dict[str, Any]) -> str:
    """Say by which rule and among how many nodes was chosen."""
    of = f" of {report['unlabeled']:,}, evenly spaced" if report["candidates"] < report["unlabeled"] else ""
    return f"{len(report['rows']):,} nodes by {report['by']} among {report['candidates']:,} without a label{of}"


def suggestion_table(report: dict[str, Any]) -> Table:
    """The chosen nodes, best first, with their prediction."""
    rows = [
        [row["id"], row["class"], percent(row["probability"]), percent(row["margin"]), f"{row['variance']:.4g}"]
        for row in report["rows"]
    ]
    return Table(["node", "class", "probability %", "margin %", "variance"], rows, "llrrr")


def explain_page(folder: str, version: int, nodes: Sequence[dict[str, Any]]) -> str:
    """Render the explanations of some nodes."""
    facts = [("version", str(version)), ("nodes", f"{len(nodes):,}")]
    sections = [
        {"id": f"node-{i}", "name": node["id"], "words": in_words(node), "figures": list(_figures(node)),
         "tables": list(node_tables(node))}
        for i, node in enumerate(nodes)
    ]  # fmt: skip
    return render_page(
        "explain.html", title=f"Why this class: {folder}", facts=facts, sections=sections, note=CLOSED_FORM
    )


def _figures(node: dict[str, Any]) -> Iterator[tuple[str, str, Drawing]]:
    """Yield title, text and figure."""
    around = node["neighborhood"]
    terms = node["terms"]
    looks = class_looks([*_compared(node), *(row["label"] for row in terms), *(n["class"] for n in around["nodes"])])
    others = len(around["nodes"]) - 1
    about = f"{others} nodes within two steps, of at most 29. Hollow circles are predictions, full ones are labels."
    yield "Neighborhood", about if others else "It has no neighbors.", neighborhood_map(around, looks)
    about = (
        "Terms of the labeled nodes that count most, in the color of their label: each adds to the score of its label."
    )
    bars = [(row["id"], row["term"], looks[row["label"]], f"{row['id']}, {row['label']}") for row in terms]
    yield "Labels that decide", about, _bars(bars, "terms of labeled nodes", "term in the score")
    if node["features"] is None:
        return
    compared = _compared(node)
    name = " minus ".join(f"score of {one}" for one in compared)
    columns = [(row["name"], row["terms"]) for row in node["features"]["columns"]]
    for title, about, rows in (
        ("By distance", f"The {name}, by where features come from.", _distances(node["features"])),
        ("By column", f"The {name}, by column of the features.", columns),
    ):
        differences = [(what, terms[0] - sum(terms[1:])) for what, terms in rows]
        bars = [(what, d, looks[compared[-1] if d < 0 else compared[0]], what) for what, d in differences]
        if bars:
            yield title, about, _bars(bars, f"{name} {title.lower()}", name)


def _bars(bars: Sequence[tuple[str, float, Any, str]], label: str, x_name: str) -> Drawing:
    """A chart of names, values, looks and texts, which show on hover with the value."""
    rows = [Series(short(name), look, [Point(0, y, tip=f"{tip}: {y:+.4f}")]) for name, y, look, tip in bars]
    values = [0.0, *(value for _, value, *_ in bars)]
    x_ticks = ticks(min(values), max(values), 4)
    return dot_plot(rows, label=label, x_name=x_name, x_ticks=x_ticks, width=520, bars=True)
