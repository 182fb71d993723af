"""``ergnn audit``: training labels that look wrong."""

from __future__ import annotations

import argparse
import csv
import json
from typing import Any

from ergnn.cli.folder_options import add_command
from ergnn.cli.options import count, output


def add(commands: Any) -> None:
    parser = add_command(
        commands,
        "audit",
        audit_command,
        "list training labels that look wrong to all others (closed form only)",
        "version",
        "json",
        "threads",
    )
    parser.add_argument("--count", metavar="N", type=count, default=20, help="list N labels (default: 20)")
    parser.add_argument("-o", "--out", metavar="FILE.csv", help="write all labels to a file instead, in this order")
    parser.add_argument(
        "--plant",
        metavar="SHARE",
        type=float,
        default=0.0,
        help="give this share of the labels another class first, in memory only, and report how many are found",
    )


def audit_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder
    from ergnn.folder.why import audit_labels
    from ergnn.folder.why_page import audit_table, audit_words

    with LearnerFolder(args.folder).snapshot(args.version) as snapshot:
        report = audit_labels(snapshot, None if args.out else args.count, args.plant)
    if args.out:
        with output(args.out) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["id", "label", "update", "probability", "class", "class_probability", "similar"])
            for row in report["rows"]:
                numbers = f"{row['probability']:.6f}", row["class"], f"{row['class_probability']:.6f}"
                similar = "; ".join(f"{one['id']} ({one['label']})" for one in row["similar"])
                writer.writerow([row["id"], row["label"], row["update"], *numbers, similar])
    if args.json:
        print(json.dumps({**report, "rows": report["rows"][: args.count]}, ensure_ascii=False))
        return 0
    print("\n".join(audit_words(report)))
    if not args.out:
        print(audit_table(report).to_text())
    return 0
