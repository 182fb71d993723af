"""``ergnn evaluate``: how well every past update is known now."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ergnn.commands.folder_options import add_command, add_threads, use_threads


def add(commands: Any) -> None:
    parser = add_command(
        commands, "evaluate", evaluate_command, "measure accuracy now on the held-out nodes of every update"
    )
    parser.add_argument("--version", metavar="N", type=int, help="evaluate an older version that is kept")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--task-known", action="store_true", help="only the classes of a node's own update compete; default: all"
    )
    add_threads(parser)


def evaluate_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder
    from ergnn.report.tables import Table, percent

    use_threads(args)
    rows = []
    for record, (update, right, of) in LearnerFolder(args.folder).evaluate(args.version, task_known=args.task_known):
        noted = [] if args.task_known else record["scores"]  # those have all classes competing
        then = next((a / b for number, a, b in noted if number == update), None)
        entry = {"update": update + 1, "name": record["name"], "nodes": of, "accuracy": right / of, "then": then}
        rows.append(entry)
    if args.json:
        print(json.dumps(rows, ensure_ascii=False))
        return 0
    if not rows:
        print("no update has held-out nodes yet")
        return 0
    cells = [
        [
            str(r["update"]),
            r["name"],
            f"{r['nodes']:,}",
            percent(r["accuracy"]),
            percent(r["then"]) if r["then"] is not None else "",
        ]
        for r in rows
    ]
    print(Table(["update", "name", "held out", "accuracy %", "when learned %"], cells, align="rlrrr").to_text())
    total = sum(r["nodes"] for r in rows)
    print(f"\nmean over updates: {percent(sum(r['accuracy'] for r in rows) / len(rows))} %")
    print(f"over all {total:,} held-out nodes: {percent(sum(r['accuracy'] * r['nodes'] for r in rows) / total)} %")
    return 0
