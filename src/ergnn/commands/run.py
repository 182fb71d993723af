"""``ergnn run``: learn a stream of tasks and print how well."""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from ergnn.commands.options import add_method_options, add_options, given, method_option_names
from ergnn.errors import InputError
from ergnn.experiments.config import DEFAULTS, RunConfig, check_settings, read_config
from ergnn.signatures import dataclass_options

if TYPE_CHECKING:
    from ergnn.experiments.result import RunResult

OWN = {"help", "config", "json", "threads", "checkpoint", "download", "quiet", "verbose", "command", "on_interrupt"}
"""Options of the command that are no settings of the run."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "run", allow_abbrev=False, help="learn a stream of tasks; print accuracy and forgetting"
    )
    parser.set_defaults(command=run_command, on_interrupt=_on_interrupt)
    parser.add_argument("dataset", metavar="DATASET", nargs="?", help="a name that `ergnn datasets` lists")
    parser.add_argument("--config", metavar="FILE.toml", help="read settings from a file; options given here win")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument(
        "--threads", metavar="N", type=int, default=1, help="use N CPU threads (default: 1, fastest for small graphs)"
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="save the state of each seed after each task; continue from what is there"
    )
    parser.add_argument("--download", action="store_true", help="download missing data sets (ERGNN_DOWNLOAD=1)")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    parser.add_argument("--verbose", action="store_true", help="print a line per product of influence maximization")
    stream = dataclass_options("ergnn.experiments.config", "RunConfig")
    add_options(parser.add_argument_group("stream and seeds"), stream, {"dataset", "settings"})
    learner = dataclass_options("ergnn.config", "LearnerConfig")
    add_options(parser.add_argument_group("learner"), learner, {"seed"})
    add_method_options(parser, {*DEFAULTS, *OWN})


def config_of(args: argparse.Namespace) -> RunConfig:
    """The configuration of a parsed command line, its file read."""
    settings = read_config(args.config) if args.config else {}
    names = {*DEFAULTS, *method_option_names()} - OWN
    settings.update(check_settings(given(args, names), "command line"))
    if "dataset" not in settings:
        raise InputError("no DATASET is given on the command line or in the config; `ergnn datasets` lists them")
    if args.threads < 1:
        raise InputError(f"threads is {args.threads}; it must be 1 or more")
    config = RunConfig(**settings)
    config.check()
    return config


def run_command(args: argparse.Namespace) -> int:
    config = config_of(args)  # before torch is imported

    import torch

    from ergnn.data.datasets.storage import allow_downloads
    from ergnn.distributed import launched, launched_first
    from ergnn.experiments.progress import progress_bar
    from ergnn.experiments.resumable import run_resumable
    from ergnn.experiments.run import run
    from ergnn.report.tables import run_table

    config = config.resolved()
    torch.set_num_threads(args.threads)
    if args.download:
        allow_downloads()
    if args.verbose:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    result: RunResult | None
    with progress_bar(config, enabled=not args.quiet and launched_first()) as progress:
        if args.checkpoint is None and not launched():
            result = run(config, progress=progress)
        else:
            result = run_resumable(config, args.checkpoint, progress, partial(print, "ergnn:", file=sys.stderr))
    if result is not None:
        shown = result.to_dict()
        print(json.dumps(shown, ensure_ascii=False) if args.json else run_table(shown))
    return 0


def _on_interrupt(args: argparse.Namespace) -> str:
    if args.checkpoint is None:
        return "with --checkpoint DIR a run can be resumed"
    return f"the same command resumes from {shlex.quote(args.checkpoint)}"
