"""Shared by the commands on a learner's folder: options, input files, output files."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ergnn.cli.options import THREADS, CommandParser

if TYPE_CHECKING:
    from ergnn.data.tables import Columns, EdgeTable, Limits, NodeTable


NAMED_COLUMNS = ("id", "label", "split", "source", "target")


SHARED: dict[str, dict[str, Any]] = {
    "version": {"metavar": "N", "type": int, "help": "use a stored version (default: the current one)"},
    "json": {"action": "store_true", "help": "print JSON instead of text"},
    "threads": THREADS,
}
"""Options that several commands have."""


def add_command(
    commands: Any,
    name: str,
    command: Callable[[argparse.Namespace], int],
    text: str,
    *shared: str,
    first: Mapping[str, tuple[str, str]] | None = None,
) -> CommandParser:
    """Add a command on a folder.

    Args:
        commands: of the parser.
        name: name of the command.
        command: its function.
        text: help text.
        shared: names of options in :data:`SHARED`.
        first: metavar and help text of arguments before the folder.
    """
    parser: CommandParser = commands.add_parser(name, help=text)
    parser.set_defaults(command=with_threads(command) if "threads" in shared else command)
    for argument, (metavar, about) in {**(first or {}), "folder": ("DIR", "the learner's folder")}.items():
        parser.add_argument(argument, metavar=metavar, help=about)
    for option in shared:
        parser.add_argument(f"--{option}", **SHARED[option])
    return parser


def with_threads(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A command that computes on as many threads as told."""

    def run(args: argparse.Namespace) -> int:
        use_threads(args)
        return command(args)

    return run


def use_threads(args: argparse.Namespace) -> None:
    from ergnn.engine.hardware import set_threads

    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
    set_threads(args.threads)


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add options for the names of columns; see :class:`ergnn.data.tables.Columns`."""
    group = parser.add_argument_group("columns of the files")
    for name in NAMED_COLUMNS:
        text = f"name of the {name} column (default: {name})"
        group.add_argument(f"--{name}-column", metavar="NAME", help=text)
    group.add_argument(
        "--feature-columns",
        metavar="NAME,…",
        help="names or patterns of the feature columns, e.g. 'x_*' (default: features or feature_*, or all others)",
    )
    group.add_argument(
        "--ignore-column", metavar="NAME", action="append", default=[], help="ignore a column (may be repeated)"
    )
    group.add_argument(
        "--keep-na-labels",
        action="store_true",
        help="read NaN, nan, NA, <NA>, null and None as labels, not as missing",
    )


def columns_of(args: argparse.Namespace) -> Columns:
    """Return the columns set by the options."""
    from ergnn.data.tables import Columns

    named = {name: getattr(args, f"{name}_column") for name in NAMED_COLUMNS}
    features = [name.strip() for name in args.feature_columns.split(",")] if args.feature_columns else None
    return Columns(**named, features=features, ignore=args.ignore_column, keep_na_labels=args.keep_na_labels)


def read_tables(args: argparse.Namespace, limits: Limits) -> tuple[NodeTable | None, EdgeTable | None]:
    """Read nodes and edges from the given files."""
    from ergnn.config.errors import InputError
    from ergnn.data.tables import read_edges, read_graph, read_nodes

    columns = columns_of(args)
    if getattr(args, "graph", None):
        if args.nodes or args.edges:
            raise InputError("--graph is one file with nodes and edges; it excludes --nodes and --edges")
        return read_graph(args.graph, columns=columns, limits=limits)
    nodes = read_nodes(args.nodes, columns=columns, limits=limits) if args.nodes else None
    edges = read_edges(args.edges, columns=columns, limits=limits) if args.edges else None
    return nodes, edges
