"""``ergnn explain``: which labels, features and neighbors gave a node its class, and what would change it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from ergnn.cli.folder_options import add_columns, add_command, read_tables
from ergnn.cli.options import count, output


def add(commands: Any) -> None:
    parser = add_command(
        commands,
        "explain",
        explain_command,
        "show which labels and features gave nodes their class (closed form only)",
        "version",
        "json",
        "threads",
    )
    parser.add_argument("--nodes", metavar="FILE", required=True, help="file with the ids of nodes of the graph")
    parser.add_argument("-o", "--out", metavar="FILE.html", help="write an HTML page instead of printing text")
    parser.add_argument(
        "--count", metavar="N", type=count, default=10, help="list N labeled nodes and N columns (default: 10)"
    )
    add_columns(parser)


def explain_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder
    from ergnn.folder.why import explain_nodes

    folder = LearnerFolder(args.folder)
    args.edges = None
    nodes, _ = read_tables(args, folder.settings.limits)
    assert nodes is not None
    with folder.snapshot(args.version) as snapshot:
        found = explain_nodes(snapshot, [str(name) for name in nodes.ids], args.count)
        version = snapshot.version.number
    if args.out:
        from ergnn.folder.why_page import explain_page

        with output(args.out) as file:
            file.write(explain_page(args.folder, version, found))
    if args.json:
        print(json.dumps({"version": version, "nodes": found}, ensure_ascii=False))
    elif not args.out:
        print("\n\n".join("\n".join(as_text(node)) for node in found))
    return 0


def as_text(node: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of an explanation."""
    from ergnn.folder.why_page import column_table, distance_table, in_words, term_table

    yield from in_words(node)
    for table in (term_table(node), distance_table(node), column_table(node)):
        if table is not None:
            yield table.to_text()
