"""``ergnn evaluate``: how well every past update is known now."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ergnn.commands.folder_options import add_command, add_threads, use_threads

if TYPE_CHECKING:
    from ergnn.evaluation import HeldOut

MOST_CLASSES = 12
"""Classes whose confusion matrix fits a terminal."""
MOST_MISTAKES = 20
"""Entries of a larger confusion matrix that are listed."""


def add(commands: Any) -> None:
    parser = add_command(
        commands, "evaluate", evaluate_command, "measure accuracy now on the held-out nodes of every update"
    )
    parser.add_argument("--version", metavar="N", type=int, help="evaluate an older version that is kept")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--task-known", action="store_true", help="only the classes of a node's own update compete; default: all"
    )
    parser.add_argument("--per-class", action="store_true", help="also show recall, precision and F1 of each class")
    parser.add_argument("--confusion", action="store_true", help="also show which classes are taken for which")
    parser.add_argument(
        "--offline",
        action="store_true",
        help="also train a new network on the labels of all updates at once, and show its accuracy",
    )
    add_threads(parser)


def evaluate_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder
    from ergnn.folder.prediction import CLOSED_FORM

    use_threads(args)
    folder = LearnerFolder(args.folder)
    found = folder.predict_held_out(args.version, task_known=args.task_known)
    rows = _updates(found, args.task_known)
    more: dict[str, Any] = {}
    if args.per_class:
        more["classes"] = found.per_class()
    if args.confusion:
        more["confusion"] = {"classes": found.classes, "nodes": found.confusion().tolist()}
    if args.offline:
        closed = folder.settings.config.method == CLOSED_FORM
        offline = found if closed else folder.predict_held_out(args.version, task_known=args.task_known, offline=True)
        accuracies = {n + 1: right / of for n, right, of in offline.scores()}
        for row in rows:
            row["offline"] = accuracies[row["update"]]
        more["offline"] = {"over_nodes": _over_nodes(offline), "same_by_construction": closed}
    if args.json:
        print(json.dumps({"updates": rows, **more} if more else rows, ensure_ascii=False))
    elif not rows:
        print("no update has held-out nodes yet")
    else:
        print("\n\n".join(_blocks(found, rows, more)))
    return 0


def _updates(found: HeldOut, task_known: bool) -> list[dict[str, Any]]:
    rows = []
    for update, right, of in found.scores():
        record = found.records[update]
        noted = [] if task_known else record["scores"]  # those have all classes competing
        then = next((a / b for number, a, b in noted if number == update), None)
        entry = {"update": update + 1, "name": record["name"], "nodes": of, "accuracy": right / of, "then": then}
        rows.append(entry)
    return rows


def _over_nodes(found: HeldOut) -> float | None:
    return float((found.truth == found.predicted).mean()) if len(found.truth) else None


def _blocks(found: HeldOut, rows: list[dict[str, Any]], more: dict[str, Any]) -> Iterator[str]:
    """Tables and lines for a terminal."""
    from ergnn.report.tables import Table, percent

    def shown(value: float | None) -> str:
        return "" if value is None else percent(value)

    offline = more.get("offline")
    header = ["update", "name", "held out", "accuracy %", "when learned %", *(["offline %"] if offline else [])]
    cells = [
        [
            *(str(r["update"]), r["name"], f"{r['nodes']:,}", percent(r["accuracy"]), shown(r["then"])),
            *([percent(r["offline"])] if offline else []),
        ]
        for r in rows
    ]
    yield Table(header, cells, align="rl" + "r" * (len(header) - 2)).to_text()
    lines = [
        f"mean over updates: {percent(sum(r['accuracy'] for r in rows) / len(rows))} %",
        f"over all {len(found.truth):,} held-out nodes: {shown(_over_nodes(found))} %",
    ]
    if offline:
        mean = percent(sum(r["offline"] for r in rows) / len(rows))
        told = (
            f"offline, all updates at once: mean over updates {mean} %, over all nodes {shown(offline['over_nodes'])} %"
        )
        same = " (the method's closed form gives the same for any order of updates)"
        lines.append(told + (same if offline["same_by_construction"] else ""))
    yield "\n".join(lines)
    if "classes" in more:
        table = [
            [r["class"], f"{r['nodes']:,}", *(shown(r[k]) for k in ("recall", "precision", "f1"))]
            for r in more["classes"]
        ]
        yield Table(["class", "held out", "recall %", "precision %", "F1 %"], table).to_text()
    if "confusion" in more:
        yield confusion_text(found)


def confusion_text(found: HeldOut) -> str:
    """The confusion matrix, or for many classes its largest entries off the diagonal."""
    from ergnn.report.tables import Table

    matrix, names = found.confusion(), found.classes
    if len(names) <= MOST_CLASSES:
        rows = [
            [name, *(f"{n:,}" if n else "·" for n in row)] for name, row in zip(names, matrix.tolist(), strict=True)
        ]
        return Table(["true \\ predicted", *names], rows).to_text()
    places = [(true, chosen) for true, chosen in zip(*matrix.nonzero(), strict=True) if true != chosen]
    wrong = sorted(((int(matrix[place]), *place) for place in places), key=lambda entry: -entry[0])
    rows = [[names[true], names[chosen], f"{n:,}"] for n, true, chosen in wrong[:MOST_MISTAKES]]
    title = f"the {len(rows)} most frequent mistakes of {len(wrong)}; --json has the whole matrix"
    return Table(["true class", "predicted", "nodes"], rows, align="llr", title=title).to_text()
