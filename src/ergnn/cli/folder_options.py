"""Shared by the commands on a learner's folder: options, input files, output files."""

from __future__ import annotations

import argparse
import warnings
from typing import TYPE_CHECKING, Any

from ergnn.cli.options import CommandParser

if TYPE_CHECKING:
    from ergnn.data.tables import Columns, EdgeTable, Limits, NodeTable


NAMED_COLUMNS = ("id", "label", "split", "source", "target")


def add_command(commands: Any, name: str, command: Any, text: str) -> CommandParser:
    """Add a command whose first argument is a folder."""
    parser: CommandParser = commands.add_parser(name, help=text)
    parser.set_defaults(command=command)
    parser.add_argument("folder", metavar="DIR", help="the learner's folder")
    return parser


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
