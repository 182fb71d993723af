"""Records and reports of a folder as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ergnn.cli.arguments import MAX_ROWS
from ergnn.folder.page import SCORES, audit_words, buffer_table, class_table
from ergnn.pages.table import Table, percent, render_page

MAX_CLASSES = 12
"""Maximum number of classes for which the confusion matrix is printed."""


def render(template: str, **values: Any) -> str:
    """Render a template of this package without a last newline."""
    return render_page(template, "ergnn.cli", **values).rstrip("\n")


def describe(record: dict[str, Any]) -> str:
    """The record of an update."""
    columns, overall = kinds(record.get("columns")), overall_line(record.get("overall"))
    return render("update.txt", record=record, columns=columns, overall=overall)


def kinds(rows: list[list[str]] | None) -> str:
    """What the columns of a table are and what they become."""
    return Table(["column", "kind", "because", "becomes"], rows or [], "llll").to_text()


def overall_line(overall: dict[str, Any] | None) -> str:
    """The scores of :meth:`ergnn.learning.evaluation.HeldOut.overall`, if there are any."""
    if not overall:
        return ""
    scores = [f"{name} {percent(overall[key])} %" for key, name in SCORES.items() if key != "accuracy"]
    scores += [] if overall["roc_auc"] is None else [f"ROC AUC {overall['roc_auc']:.3f}"]
    accuracy = f"over all {overall['nodes']:,} held-out nodes scored: {percent(overall['accuracy'])} %"
    return f"{accuracy}; {', '.join(scores)}"


def score_blocks(report: dict[str, Any]) -> Iterator[str]:
    """Tables and lines of ``ergnn evaluate``."""
    rows, header = report["updates"], ["update", "name", "held out", "accuracy %", "when learned %"]
    keys = ("accuracy", "then")
    cells = [[str(row["update"]), row["name"], row["nodes"], *(percent(row[key]) for key in keys)] for row in rows]
    yield Table(header, cells, align="rlrrr").to_text()
    lines = [f"mean over updates: {percent(sum(row['accuracy'] for row in rows) / len(rows))} %"]
    lines += [overall_line(report["overall"]), *(f"warning: {text}" for text in report["warnings"])]
    yield "\n".join(lines)
    if "classes" in report:
        yield replace(class_table({"per_class": report["classes"]}), title="").to_text()
    if "confusion" in report:
        matrix = report["confusion"]["nodes"]
        entries = [(i, j, n) for i, row in enumerate(matrix) for j, n in enumerate(row) if n]
        yield confusion_text(report["confusion"]["classes"], entries)


def confusion_text(names: Sequence[str], entries: Sequence[Sequence[int]]) -> str:
    """Format the confusion matrix; for many classes, only its largest off-diagonal entries."""
    if len(names) <= MAX_CLASSES:
        nodes = {(true, chosen): n for true, chosen, n in entries}
        rows = [[name, *(nodes.get((i, j), "·") for j in range(len(names)))] for i, name in enumerate(names)]
        return Table(["true \\ predicted", *names], rows).to_text()
    wrong = sorted((entry for entry in entries if entry[0] != entry[1]), key=lambda entry: -entry[2])
    rows = [[names[true], names[chosen], n] for true, chosen, n in wrong[:MAX_ROWS]]
    title = f"the {len(rows)} most frequent mistakes of {len(wrong)}; --json prints the full matrix"
    return Table(["true class", "predicted", "nodes"], rows, align="llr", title=title).to_text()


def inspection_lines(report: dict[str, Any], max_rows: int | None = None) -> Iterator[str]:
    """Lines and tables of ``ergnn inspect``, with at most ``max_rows`` stored nodes and classes."""
    lost, updates = "drop" if report["exact"] else "forgetting", report["updates"]
    tested = [(u["update"] + 1, u["input_drift"]) for u in updates if u.get("input_drift")]
    yield render(
        "inspection.txt",
        report=report,
        lost=lost,
        columns=kinds(report["columns"]),
        overall=overall_line(report["overall"]),
        tested=tested,
        alarms=[(number, drift) for number, drift in tested if drift["alarm"]],
        doubts=audit_words(report["doubts"]) if report["doubts"] else "",
    )
    rows = [
        [str(u["update"] + 1), u["name"], u["counts"]["nodes"], ", ".join(u["classes"])[:40], percent(u["forgetting"])]
        for u in updates
    ]
    header = ["update", "name", "nodes", "classes learned", f"{lost} %"]
    yield from _table_lines(Table(header, rows, align="rlrlr"), len(rows))
    yield from _table_lines(class_table(report, max_rows), len(report["per_class"]))
    if report["confusion"]:
        yield from ["", confusion_text(report["classes"], report["confusion"])]
    yield from _table_lines(buffer_table(report, max_rows), len(report["buffer"]))


def _table_lines(table: Table, of: int) -> list[str]:
    rest = [f"… and {of - len(table.rows):,} more; --all lists them"] if of > len(table.rows) else []
    return ["", replace(table, title="").to_text(), *rest] if table.rows else []
