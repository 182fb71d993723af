"""``ergnn observe``: the graph grows, and the learner learns."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from typing import Any

from ergnn.commands.folder_options import add_command, add_threads, read_tables, use_threads


def add(commands: Any) -> None:
    parser = add_command(commands, "observe", observe_command, "take new nodes, edges and labels in, and learn them")
    parser.set_defaults(on_interrupt=lambda args: f"`ergnn observe {shlex.quote(args.folder)} --resume` continues")
    parser.add_argument("--nodes", metavar="FILE", help="new nodes, or known ones that have a label now: id, label, …")
    parser.add_argument("--edges", metavar="FILE", help="edges between nodes, new or known: source, target")
    parser.add_argument("--graph", metavar="FILE", help="one file with nodes and edges (.npz, .pt, .graphml, …)")
    parser.add_argument("--task-name", metavar="TEXT", default="", help="what this update is called")
    parser.add_argument("--resume", action="store_true", help="go on with an update that was interrupted")
    parser.add_argument("--discard", action="store_true", help="drop an update that was interrupted")
    parser.add_argument(
        "--checkpoint-seconds", metavar="X", type=float, default=5.0, help="between checkpoints (default: 5)"
    )
    parser.add_argument("--json", action="store_true", help="print the update's record as JSON")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    add_threads(parser)


def observe_command(args: argparse.Namespace) -> int:
    from ergnn.errors import InputError
    from ergnn.folder import LearnerFolder

    use_threads(args)
    folder = LearnerFolder(args.folder)
    given = bool(args.nodes or args.edges or args.graph)
    if args.discard:
        name = folder.discard()
        _say(args, f"{args.folder}: " + ("no update was interrupted" if name is None else f"{name!r} was dropped"))
        if not given:
            return 0
    if args.resume and given:
        raise InputError("--resume goes on with files that are in the folder already; name none")
    if args.resume:
        record = folder.resume(checkpoint_seconds=args.checkpoint_seconds)
        if record is None:
            _say(args, f"{args.folder}: no update was interrupted; nothing to go on with")
            return 0
    else:
        if not given:
            raise InputError("no files were named; use --nodes and --edges, or --graph, or --resume")
        nodes, edges = read_tables(args, folder.settings.limits)
        if edges is not None and edges.weight is not None:
            print("ergnn: note: edges have weights, which are not used", file=sys.stderr)
        record = folder.observe(nodes, edges, name=args.task_name, checkpoint_seconds=args.checkpoint_seconds)
    if args.json:
        print(json.dumps(record, ensure_ascii=False))
    else:
        _say(args, describe(record))
    return 0


def _say(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        print(text, file=sys.stderr if args.json else sys.stdout)


def describe(record: dict[str, Any]) -> str:
    """An update's record for people."""
    from ergnn.report.tables import percent

    counts = record["counts"]
    lines = [f"{record['name']}: {counts['nodes']:,} new nodes, {counts['edges']:,} new edges (each way counted)"]
    if record.get("again"):
        lines[0] += "; it is in the folder already, nothing was changed"
    elif record["task"] is None:
        lines.append("no labelled nodes to learn from: only the graph has grown")
    else:
        lines.append(f"learnt {counts['train']:,} nodes of {', '.join(record['classes'])[:200]}")
        lines.append(
            f"remembered {record['remembered']:,} nodes; read {record['touched']:,} of {record['graph']['nodes']:,}"
        )
    scores = [f"update {update + 1}: {percent(right / of)} %" for update, right, of in record["scores"][-8:]]
    if scores:
        lines.append("accuracy on held-out nodes: " + ", ".join(scores))
    return "\n".join(lines)
