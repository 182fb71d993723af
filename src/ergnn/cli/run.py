"""``ergnn run``: learn a stream of tasks and print accuracy and forgetting."""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from ergnn.cli.options import add_options, add_threads, given, progress_bar, refuse_unused, store_path
from ergnn.config.errors import InputError
from ergnn.config.learner_config import LearnerConfig
from ergnn.config.registry import field_options
from ergnn.lab.config import RunConfig, check_settings, read_config

if TYPE_CHECKING:
    from ergnn.lab.result import RunResult
    from ergnn.lab.run import Progress

NOT_SETTINGS = {
    *("help", "config", "json", "latex", "plot", "store", "threads", "checkpoint", "download", "quiet", "verbose"),
    *("command", "on_interrupt", "plugins"),
}
"""Options of the command that are not settings of the run."""


def add(commands: Any) -> None:
    parser = commands.add_parser("run", help="learn a stream of tasks; print accuracy and forgetting")
    parser.set_defaults(command=run_command, on_interrupt=_on_interrupt)
    parser.add_argument("dataset", metavar="DATASET", nargs="?", help="name of a data set (see `ergnn datasets`)")
    parser.add_argument(
        "--config", metavar="FILE.toml", help="read settings from a file; command-line options override them"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    shown.add_argument("--latex", action="store_true", help="print LaTeX tables (booktabs) instead of text")
    parser.add_argument("--plot", metavar="FILE.svg|png|pdf", help="plot the accuracy after each task to a file")
    parser.add_argument(
        "--store",
        metavar="DIR|FILE|URL",
        help="store each run, for `ergnn runs` and `ergnn report`; stored runs are not repeated",
    )
    add_threads(parser)
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="save the state of each seed after each task; resume from saved states"
    )
    parser.add_argument("--download", action="store_true", help="download missing data sets (ERGNN_DOWNLOAD=1)")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    parser.add_argument("--verbose", action="store_true", help="print a line per product of influence maximization")
    stream = parser.add_argument_group("stream and seeds")
    add_options(stream, field_options(RunConfig), {"dataset", "learner", "explicit"})
    add_options(parser.add_argument_group("learner"), field_options(LearnerConfig), {"seed"})
    parser.default_method = LearnerConfig.method


def config_of(args: argparse.Namespace) -> RunConfig:
    """Return the configuration of a parsed command line, including its TOML file."""
    settings = read_config(args.config) if args.config else {}
    settings.update(check_settings(given(args, NOT_SETTINGS), "command line"))
    if "dataset" not in settings:
        raise InputError("no DATASET on the command line or in the config file; `ergnn datasets` lists them")
    config = RunConfig(**settings)
    config.check()
    return config


def run_command(args: argparse.Namespace) -> int:
    config = config_of(args)  # before torch is imported

    from ergnn.data.datasets.storage import allow_downloads
    from ergnn.engine.distributed import launched_first
    from ergnn.engine.hardware import set_threads
    from ergnn.lab.run import total_epochs
    from ergnn.learning.resolve import options_in_effect
    from ergnn.pages.run_tables import accuracy_table, measure_table, run_text

    refuse_unused(config.given(), config.learner)
    config = config.resolved()
    set_threads(args.threads)
    if args.download:
        allow_downloads()
    if args.verbose:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    if args.plot:
        from ergnn.lab.report.figures import write_run_figure
        from ergnn.pages.figure_files import check_figure_file

        check_figure_file(args.plot)
    learner, selector = config.learner, options_in_effect(config.learner).get("selector")
    name = f"{config.dataset} · {learner.backbone} · {learner.method}" + (f" {selector}" if selector else "")
    with progress_bar(name, total_epochs(config), enabled=not args.quiet and launched_first()) as progress:
        result = _result(config, args, progress)
    if result is None:
        return 0
    shown = result.to_dict()
    if args.json:
        print(json.dumps(shown, ensure_ascii=False))
    elif args.latex:
        print("\n\n".join(table.to_latex() for table in (accuracy_table(shown), measure_table(shown))))
    else:
        print(run_text(shown))
    if args.plot:  # last: if it cannot be written, the results are not lost
        write_run_figure(result, args.plot)
    return 0


def _result(config: RunConfig, args: argparse.Namespace, progress: Progress | None) -> RunResult | None:
    """Run everything that is not stored yet; return None on all ranks except the first."""
    from ergnn.engine.distributed import launched_first
    from ergnn.lab.resumable import run_resumable
    from ergnn.lab.store import RunStore

    say = partial(print, "ergnn:", file=sys.stderr)
    stored = args.store is not None and launched_first()
    with RunStore(store_path(args.store)) if stored else nullcontext() as store:  # opened first: it may be rejected
        return run_resumable(config, store=store, checkpoint=args.checkpoint, progress=progress, say=say)


def _on_interrupt(args: argparse.Namespace) -> str:
    if args.checkpoint is None:
        return "use --checkpoint DIR to make a run resumable"
    return f"the same command resumes from {shlex.quote(args.checkpoint)}"
