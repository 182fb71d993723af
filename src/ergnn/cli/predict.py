"""``ergnn predict``: predict classes and probabilities of nodes."""

from __future__ import annotations

import argparse
import csv
from typing import Any

from ergnn.cli.folder_options import add_columns, add_command, read_tables
from ergnn.cli.options import count, output

UNKNOWN = {True: "yes", False: "no", None: ""}
"""The column ``unknown``: whether a node seems to be of no class that was learned; empty if that cannot be told."""


def add(commands: Any) -> None:
    text = "predict classes of nodes, with probabilities"
    parser = add_command(commands, "predict", predict_command, text, "version", "threads")
    parser.add_argument(
        "--nodes", metavar="FILE", required=True, help="file with the ids of nodes; new nodes need features"
    )
    parser.add_argument("--edges", metavar="FILE", help="file with edges of new nodes, used for this prediction only")
    parser.add_argument(
        "-o", "--out", metavar="FILE.csv", default="-", help="write to a file (default: standard output)"
    )
    known = parser.add_mutually_exclusive_group()
    known.add_argument("--classes", metavar="NAME,…", help="predict among these classes (default: all learned classes)")
    known.add_argument("--update", metavar="N", type=int, help="predict among the classes of update N, counted from 1")
    parser.add_argument(
        "--chunk", metavar="N", type=count, default=2048, help="predict N nodes at a time (default: 2048)"
    )
    add_columns(parser)


def predict_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    folder = LearnerFolder(args.folder)
    nodes, edges = read_tables(args, folder.settings.limits)
    assert nodes is not None
    classes = args.classes.split(",") if args.classes else None
    if args.update is not None:
        classes = folder.classes_of(args.update - 1, args.version)
    chunks = folder.predict(nodes=nodes, edges=edges, classes=classes, chunk=args.chunk, version=args.version)
    unknown = iter(folder.find_unknown(nodes, edges, args.version))
    with output(args.out) as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, (ids, names, probabilities) in enumerate(chunks):
            if not number:
                last = ["second_label", "second_probability", "unknown"]
                writer.writerow(["id", "label", "probability", *(f"p({name})" for name in names), *last])
            ranked = (-probabilities).argsort(1, kind="stable")[:, :2]  # of equal ones, the first is the prediction
            for i, top, row in zip(ids, ranked, probabilities, strict=True):
                best, *second = ((names[k], f"{row[k]:.6f}") for k in top)
                last = [*(second[0] if second else ("", "")), UNKNOWN[next(unknown)]]
                writer.writerow([i, *best, *(f"{p:.6f}" for p in row), *last])
    return 0
