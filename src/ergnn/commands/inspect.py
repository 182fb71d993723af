"""``ergnn inspect``: what a learner knows and remembers."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ergnn.commands.folder_options import add_command, output


def add(commands: Any) -> None:
    parser = add_command(
        commands, "inspect", inspect_command, "what is remembered, forgotten, kept, and how large it is"
    )
    parser.add_argument("-o", "--out", metavar="FILE.html", help="write it all as one HTML page")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--version", metavar="N", type=int, help="of an older version that is kept")


def inspect_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    found = LearnerFolder(args.folder).inspect(args.version)
    if args.out:
        from ergnn.folder.page import page_of

        with output(args.out) as file:
            file.write(page_of(found))
    if args.json:
        print(json.dumps(found, ensure_ascii=False))
    elif not args.out:
        print(as_text(found))
    return 0


def as_text(found: dict[str, Any]) -> str:
    """A page for a terminal."""
    from ergnn.report.tables import Table, percent

    graph = found["graph"]
    lines = [
        f"{found['folder']}: version {found['version']} of {', '.join(map(str, found['versions']))}",
        f"graph: {graph['nodes']:,} nodes ({graph['labelled']:,} labelled), {graph['edges']:,} edges, "
        f"{graph['features'] or 0:,} attributes, {graph['forgotten']:,} forgotten, {graph['segments']} segment(s)",
        "bytes: " + ", ".join(f"{name} {size:,}" for name, size in found["bytes"].items()),
    ]
    if found["measures"]:
        names = {"pm": "when learnt", "aa": "now", "fm": "forgotten"}
        shown = [f"{text} {percent(found['measures'][key])} %" for key, text in names.items()]
        lines.append("accuracy, mean over updates: " + ", ".join(shown))
    updates = [
        [
            str(u["update"] + 1),
            u["name"],
            f"{u['counts']['nodes']:,}",
            ", ".join(u["classes"])[:40],
            "" if u["drift"] is None else percent(u["drift"]),
            "" if u["forgetting"] is None else percent(u["forgetting"]),
        ]
        for u in found["updates"]
    ]
    header = ["update", "name", "nodes", "classes learnt", "drift %", "forgetting %"]
    lines += ["", Table(header, updates, align="rlrlrr").to_text()] if updates else []
    rows = [[r["id"], r["class"], str(r["update"]), str(r["rank"]), f"{r['score']:.4g}"] for r in found["buffer"]]
    header = ["remembered", "class", "update", "rank", "score"]
    lines += ["", Table(header, rows, align="llrrr").to_text()] if rows else []
    return "\n".join(lines)
