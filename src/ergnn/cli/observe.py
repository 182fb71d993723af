"""``ergnn observe``: extend the graph and update the model."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ergnn.cli.folder_options import add_columns, add_command, read_tables
from ergnn.cli.options import progress_bar
from ergnn.cli.scores import column_table, overall_line

if TYPE_CHECKING:
    from ergnn.folder import LearnerFolder


def add(commands: Any) -> None:
    parser = add_command(
        commands, "observe", observe_command, "add nodes, edges and labels, and update the model", "json", "threads"
    )
    parser.set_defaults(on_interrupt=lambda args: f"`ergnn observe {shlex.quote(args.folder)} --resume` continues")
    parser.add_argument(
        "--nodes", metavar="FILE", help="file with new nodes, or new labels of existing nodes: id, label, …"
    )
    parser.add_argument("--edges", metavar="FILE", help="file with edges between new or existing nodes: source, target")
    parser.add_argument("--graph", metavar="FILE", help="one file with nodes and edges (.npz)")
    parser.add_argument("--task-name", metavar="TEXT", default="", help="name of this update (default: update N)")
    parser.add_argument("--resume", action="store_true", help="resume an interrupted update")
    parser.add_argument("--discard", action="store_true", help="discard an interrupted update")
    parser.add_argument(
        "--checkpoint-seconds", metavar="X", type=float, default=5.0, help="seconds between checkpoints (default: 5)"
    )
    parser.add_argument("--quiet", action="store_true", help="print only errors")
    add_columns(parser)


def observe_command(args: argparse.Namespace) -> int:
    from ergnn.config.errors import InputError
    from ergnn.folder import LearnerFolder

    folder = LearnerFolder(args.folder)
    given = bool(args.nodes or args.edges or args.graph)
    if args.discard:
        name = folder.discard()
        _say(args, f"{args.folder}: " + ("no interrupted update" if name is None else f"discarded {name!r}"))
        if not given:
            return 0
    if args.resume and given:
        raise InputError("--resume uses the files already stored in the folder; omit --nodes, --edges and --graph")
    if args.resume:
        with epoch_bar(folder, args) as on_epoch:
            record = folder.resume(checkpoint_seconds=args.checkpoint_seconds, on_epoch=on_epoch)
        if record is None:
            _say(args, f"{args.folder}: no interrupted update to resume")
            return 0
    else:
        if not given:
            raise InputError("no input files; use --nodes and --edges, or --graph, or --resume")
        nodes, edges = read_tables(args, folder.settings.limits)
        with epoch_bar(folder, args) as on_epoch:
            record = folder.observe(
                nodes, edges, name=args.task_name, checkpoint_seconds=args.checkpoint_seconds, on_epoch=on_epoch
            )
    for note in record["notes"]:
        print(f"ergnn: note: {note}", file=sys.stderr)
    if args.json:
        print(json.dumps(record, ensure_ascii=False))
    else:
        _say(args, describe(record))
    return 0


@contextmanager
def epoch_bar(folder: LearnerFolder, args: argparse.Namespace) -> Iterator[Callable[[], None] | None]:
    """Return the function to call after each epoch; None if no progress is shown."""
    if args.quiet or not sys.stderr.isatty():
        yield None
        return
    with folder.snapshot() as snapshot:
        epochs = snapshot.learner.epochs
    name = "solving" if epochs is None else "learning"  # one solve, no epochs to count
    with progress_bar(name, epochs) as advance:
        yield None if advance is None else partial(advance, 1)


def _say(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        print(text, file=sys.stderr if args.json else sys.stdout)


def describe(record: dict[str, Any]) -> str:
    """Format the record of an update for a terminal."""
    from ergnn.pages.table import percent

    counts = record["counts"]
    lines = [f"{record['name']}: {counts['nodes']:,} new nodes, {counts['edges']:,} new edges (each way counted)"]
    if record.get("again"):
        lines[0] += "; already in the folder, nothing changed"
    elif record["task"] is None:
        lines.append("no new labels to learn from")
    else:
        lines.append(f"learned {counts['train']:,} nodes of {', '.join(record['classes'])[:200]}")
        lines.append(
            f"stored {record['remembered']:,} nodes; read {record['touched']:,} of {record['graph']['nodes']:,}"
        )
    if record.get("columns"):
        lines.append(f"{column_table(record['columns'])}\nto read a column otherwise: ergnn init … --columns NAME=KIND")
    if counts.get("corrected"):
        lines.append(f"corrected {counts['corrected']:,} labels")
    if counts.get("changed"):
        lines.append(f"changed the features of {counts['changed']:,} nodes")
    scores = [f"update {update + 1}: {percent(right / of)} %" for update, right, of in record["scores"][-8:]]
    if scores:
        lines.append("accuracy on held-out nodes: " + ", ".join(scores))
    if record.get("overall"):
        lines.append(overall_line(record["overall"]))
    return "\n".join(lines)
