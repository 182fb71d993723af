"""The command line: parses, calls, prints."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import torch

from ergnn import __version__
from ergnn.commands import (
    bench,
    evaluate,
    export,
    forget,
    init,
    inspect,
    observe,
    predict,
    report,
    reproduce,
    rollback,
    runs,
)
from ergnn.commands.options import key_values
from ergnn.errors import ErgnnError, InputError
from ergnn.experiments.config import RunConfig, check_settings, read_config
from ergnn.registry import argument_texts

CHOICES = {
    "method": "replay|finetune|joint|ewc|gem|agem|nearest-mean|analytic",
    "features": "attributes|deepwalk|node2vec",
    "protocol": "clean|paper",
    "split": "auto|public|seeded|TRAIN/VAL/TEST",
    "head": "shared|per-task|growing",
    "edges": "all|seen|own",
    "leftover": "context|drop",
    "optimizer": "adam|adamw|sgd",
    "loss_scale": "sum|balanced|mean",
    "replay": "live|isolated|ego",
    "fanout": "N,N",
    "denominator": "M-1|M",
}
"""What an option's value looks like in the help text; the values are checked where they are used."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 is success, 2 is bad input."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        return int(args.command(args))
    except ErgnnError as error:
        print(f"ergnn: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("ergnn: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ergnn", allow_abbrev=False, description="Graph neural networks that keep learning."
    )
    parser.add_argument("--version", action="version", version=f"ergnn {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run", allow_abbrev=False, help="learn a stream of tasks and print how well, and how much was forgotten"
    )
    run.set_defaults(command=_run)
    run.add_argument("dataset", metavar="DATASET", nargs="?", help="a name that `ergnn datasets` lists")
    _add_settings(run)
    run.add_argument("--config", metavar="FILE.toml", help="settings from a file; options given here win")
    run.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    run.add_argument(
        "--threads", metavar="N", type=int, default=1, help="CPU threads (default: 1, the fastest for small graphs)"
    )
    run.add_argument(
        "--checkpoint", metavar="DIR", help="keep each seed's state here after each task, and go on from what is there"
    )
    run.add_argument("--quiet", action="store_true", help="no progress bar")
    run.add_argument("--verbose", action="store_true", help="a line for every product of influence maximisation")

    datasets = commands.add_parser("datasets", allow_abbrev=False, help="list the data sets, and where each one is")
    datasets.set_defaults(command=_datasets)
    selectors = commands.add_parser(
        "selectors", allow_abbrev=False, help="list the ways of choosing what is remembered"
    )
    selectors.set_defaults(command=_selectors)
    reproduce.add(commands)
    runs.add(commands)
    report.add(commands)
    bench.add(commands)
    for command in (init, observe, predict, evaluate, inspect, forget, export, rollback):
        command.add(commands)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """One option for each field of :class:`RunConfig`, with the field's documentation as its help."""
    texts = argument_texts(RunConfig.__doc__ or "")
    for f in fields(RunConfig):
        if f.name == "dataset":
            continue
        flag, kind = "--" + f.name.replace("_", "-"), str(f.type).removesuffix(" | None")
        default = "" if f.default in (None, "") or f.name.endswith("_options") else f" (default: {f.default})"
        text = texts[f.name].replace("%", "%%") + default
        if f.name.endswith("_options"):
            parser.add_argument(flag, dest=f.name, metavar="KEY=VALUE,…", type=key_values, help=text)
        else:
            metavar = CHOICES.get(f.name) or {"int": "N", "float": "X", "str": "NAME"}[kind]
            convert = {"int": int, "float": float, "str": str}[kind]
            parser.add_argument(flag, dest=f.name, metavar=metavar, type=convert, help=text)


def _config(args: argparse.Namespace) -> RunConfig:
    settings = read_config(args.config) if args.config else {}
    names = [f.name for f in fields(RunConfig)]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    settings.update(check_settings(given, "command line"))
    if "dataset" not in settings:
        raise InputError("no DATASET was named, on the command line or in the config; `ergnn datasets` lists them")
    return RunConfig(**settings)


def _run(args: argparse.Namespace) -> int:
    from ergnn.distributed import launched, launched_first
    from ergnn.experiments.progress import progress_bar
    from ergnn.experiments.resumable import run_resumable
    from ergnn.experiments.run import run
    from ergnn.report.tables import run_table

    config = _config(args).resolved()
    if args.threads < 1:
        raise InputError(f"threads is {args.threads}; it must be 1 or more")
    torch.set_num_threads(args.threads)
    if args.verbose:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    with progress_bar(config, enabled=not args.quiet and launched_first()) as progress:
        if args.checkpoint is None and not launched():
            result: dict[str, Any] | None = run(config, progress)
        else:
            result = run_resumable(config, args.checkpoint, progress, partial(print, "ergnn:", file=sys.stderr))
    if result is not None:
        print(json.dumps(result, ensure_ascii=False) if args.json else run_table(result))
    return 0


def _datasets(args: argparse.Namespace) -> int:
    from ergnn.data import describe_datasets
    from ergnn.report.tables import Table

    rows = [
        [
            d.name,
            f"{d.nodes:,}",
            f"{d.features:,}",
            str(d.classes),
            f"{d.edges:,}",
            f"{d.tasks} × {d.classes_per_task}",
            "yes" if d.public_split else "no",
            d.location,
        ]
        for d in describe_datasets()
    ]
    header = ["name", "nodes", "features", "classes", "edges", "tasks", "public split", "where"]
    print(Table(header, rows, align="lrrrrrll").to_text())
    return 0


def _selectors(args: argparse.Namespace) -> int:
    from ergnn.replay.selectors import SELECTORS
    from ergnn.report.tables import Table

    rows = [[name, ", ".join(SELECTORS.aliases(name)), SELECTORS.help(name)] for name in SELECTORS]
    print(Table(["name", "alias", "remembers"], rows, align="lll").to_text())
    return 0
