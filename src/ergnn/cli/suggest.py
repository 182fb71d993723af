"""``ergnn suggest``: unlabeled nodes whose labels would help most."""

from __future__ import annotations

import argparse
import csv
import json
from typing import Any

from ergnn.cli.folder_options import add_columns, add_command, read_tables
from ergnn.cli.options import count, output


def add(commands: Any) -> None:
    parser = add_command(
        commands,
        "suggest",
        suggest_command,
        "list unlabeled nodes whose labels would help most (closed form only)",
        "version",
        "json",
        "threads",
    )
    parser.add_argument("--count", metavar="N", type=count, default=50, help="list N nodes (default: 50)")
    parser.add_argument("--among", metavar="FILE", dest="nodes", help="file with ids to choose among (default: all)")
    parser.add_argument(
        "--by",
        metavar="RULE",
        default="variance",
        help="variance: reduce the variance of all predictions most; margin: two classes are about as probable; "
        "random (default: variance)",
    )
    parser.add_argument("-o", "--out", metavar="FILE.csv", help="write CSV instead of printing a table")
    add_columns(parser)


def suggest_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder
    from ergnn.folder.why import suggest_nodes
    from ergnn.folder.why_page import suggestion_table, suggestion_words

    folder = LearnerFolder(args.folder)
    args.edges = None
    nodes, _ = read_tables(args, folder.settings.limits)
    among = None if nodes is None else [str(name) for name in nodes.ids]
    with folder.snapshot(args.version) as snapshot:
        report = suggest_nodes(snapshot, args.count, among, args.by)
    if args.out:
        with output(args.out) as file:
            writer = csv.DictWriter(file, list(report["rows"][0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(report["rows"])
    if args.json:
        print(json.dumps(report, ensure_ascii=False))
        return 0
    print(suggestion_words(report))
    if not args.out:
        print(suggestion_table(report).to_text())
    return 0
