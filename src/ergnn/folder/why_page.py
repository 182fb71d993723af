"""Explanations, audits and suggestions as sentences, tables and an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ergnn.pages.figures import Drawing
from ergnn.pages.node_figures import bar_chart, class_looks, neighborhood_map
from ergnn.pages.page import render_page
from ergnn.pages.table import Cell, Table, percent

DISTANCES = ("own features", "neighbors", "two steps away")
CLOSED_FORM = "All sums are exact: they are those of the closed form. A network cannot be explained in this way."


def in_words(node: dict[str, Any]) -> Iterator[str]:
    """Say the class of a node, the second one, and what would change the class."""
    own = "" if node["label"] is None else f" (its label: {node['label']})"
    line = f"node {node['id']}{own}: class {node['class']} with probability {percent(node['probability'])} %"
    score = node["scores"][node["class"]]
    if node["second"] is None:
        yield f"{line}; it is the only class"
    else:
        other = node["scores"][node["second"]]
        yield f"{line}; score {score:.4f}, second {node['second']} {other:.4f}, margin {node['margin']:.4f}"
    deciding = node["deciding"]
    if deciding is None:
        yield "no single label decides: without any one of them, the class is the same"
    elif deciding["then"] is None:
        yield f"without the label of {deciding['id']}, there is no class"
    else:
        more = f" ({node['num_deciding'] - 1} more labels decide in this way)" if node["num_deciding"] > 1 else ""
        yield f"without the label {deciding['label']} of {deciding['id']}, the class is {deciding['then']}{more}"
    if node["features"] is None:
        yield "the head has a Gaussian kernel: its score is a sum over labeled nodes, not over columns of features"


def term_table(node: dict[str, Any]) -> Table:
    """The labeled nodes with the largest terms; terms of one label add up to its score."""
    most = max((row["share"] for row in node["terms"]), default=1.0) or 1.0
    rows = [
        [row["id"], row["label"], str(row["update"]), f"{row['term']:+.4f}",
         Cell(percent(row["share"]), "meter", f"{row['share'] / most:.3f}")]
        for row in node["terms"]
    ]  # fmt: skip
    title = f"labeled nodes: {len(rows)} of {node['num_terms']:,}; each adds its term to the score of its label"
    return Table(["labeled node", "label", "update", "term", "share %"], rows, "lllrr", title)


def _compared(node: dict[str, Any]) -> list[str]:
    return [node["class"]] if node["second"] is None else [node["class"], node["second"]]


def distance_table(node: dict[str, Any]) -> Table | None:
    """The scores of the two best classes by distance; columns add up to the scores."""
    if node["features"] is None:
        return None
    rows = [[name, *(f"{term:+.4f}" for term in terms)] for name, terms in _distances(node["features"])]
    rows.append(["score", *(f"{node['scores'][name]:+.4f}" for name in _compared(node))])
    return Table(["features of", *_compared(node)], rows, title="the score by distance")


def _distances(features: dict[str, Any]) -> list[tuple[str, list[float]]]:
    """Names of distances, those of three steps and more together, and their terms."""
    near, far = features["distances"][: len(DISTANCES)], features["distances"][len(DISTANCES) :]
    rows = list(zip(DISTANCES, near, strict=False))
    if far:
        rows.append(("further away", [sum(terms) for terms in zip(*far, strict=True)]))
    return [*rows, ("constant", features["constant"])]


def column_table(node: dict[str, Any]) -> Table | None:
    """The columns of features that tell the two best classes apart the most."""
    if node["features"] is None:
        return None
    columns = node["features"]["columns"]
    rows = [[row["name"], *(f"{term:+.4f}" for term in row["terms"])] for row in columns]
    title = f"the score by column: {len(rows)} of {node['features']['num_columns']:,}, at all distances"
    return Table(["column", *_compared(node)], rows, title=title)


def audit_words(report: dict[str, Any]) -> Iterator[str]:
    """Say how many labels were compared, and how many planted errors were found."""
    alone = report["labels"] - report["compared"]
    rest = f"; {alone:,} could not be compared: no other node has the label" if alone else ""
    yield f"{report['doubtful']:,} of {report['compared']:,} labels are not the class that all others predict{rest}"
    if planted := report.get("planted"):
        count, share = planted["labels"], planted["labels"] / max(report["compared"], 1)
        yield (
            f"planted errors: {planted['found']:,} of {count:,} are among the first {count:,}; average precision "
            f"{planted['average_precision']:.3f} (random order: {share:.3f})"
        )


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
        {"id": f"node-{i}", "name": node["id"], "words": list(in_words(node)), "figures": list(_figures(node)),
         "tables": [table for table in (term_table(node), distance_table(node), column_table(node)) if table]}
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
    bars = [
        (row["id"], row["term"], looks[row["label"]], f"{row['id']}, {row['label']}: {row['term']:+.4f}")
        for row in terms
    ]
    about = (
        "Terms of the labeled nodes that count most, in the color of their label: each adds to the score of its label."
    )
    yield "Labels that decide", about, bar_chart(bars, label="terms of labeled nodes", x_name="term in the score")
    if node["features"] is None:
        return
    name = f"score of {node['class']}" + ("" if node["second"] is None else f" minus score of {node['second']}")
    for title, about, rows in (
        ("By distance", f"The {name}, by where features come from.", _distances(node["features"])),
        ("By column", f"The {name}, by column of the features.",
         [(row["name"], row["terms"]) for row in node["features"]["columns"]]),
    ):  # fmt: skip
        differences = [(what, terms[0] - sum(terms[1:])) for what, terms in rows]
        compared = _compared(node)
        bars = [
            (what, d, looks[compared[-1] if d < 0 else compared[0]], f"{what}: {d:+.4f}") for what, d in differences
        ]
        if bars:
            yield title, about, bar_chart(bars, label=f"{name} {title.lower()}", x_name=name)
