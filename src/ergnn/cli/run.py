"""``ergnn run``: learn a stream of tasks and print accuracy and forgetting."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import nullcontext
from functools import partial

from ergnn.cli.options import given, refuse_unused
from ergnn.cli.output import print_json, progress_bar, store_path
from ergnn.config.errors import InputError
from ergnn.lab.config import RunConfig, check_settings, read_config

NOT_SETTINGS = {
    *("help", "config", "json", "latex", "plot", "store", "threads", "checkpoint", "download", "quiet", "verbose"),
    *("command", "hint", "plugins"),
}
"""Options of the command that are not settings of the run."""


def config_of(args: argparse.Namespace) -> RunConfig:
    """Return the configuration of a parsed command line, including its TOML file."""
    settings = read_config(args.config) if args.config else {}
    settings.update(check_settings(given(args, NOT_SETTINGS), "command line"))
    if "dataset" not in settings:
        raise InputError("no DATASET on the command line or in the config file; `ergnn datasets` lists them")
    config = RunConfig(**settings)
    config.check()
    return config


def run_command(args: argparse.Namespace) -> None:
    config = config_of(args)  # before torch is imported

    from ergnn.data.datasets.base import DOWNLOAD_VARIABLE
    from ergnn.engine.distributed import RanksError, joined, launched_first
    from ergnn.engine.hardware import set_threads
    from ergnn.lab.report.page import write_run_figure
    from ergnn.lab.result import measure_table, run_text
    from ergnn.lab.run import run, total_epochs
    from ergnn.lab.store import RunStore
    from ergnn.learning.resolve import options_in_effect
    from ergnn.pages.figures import check_figure_file

    refuse_unused(config.given(), config.learner)
    config = config.resolved()
    set_threads(args.threads)
    if args.download:
        os.environ[DOWNLOAD_VARIABLE] = "1"  # also in child processes
    if args.verbose:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    if args.plot:
        check_figure_file(args.plot)
    learner, selector = config.learner, options_in_effect(config.learner).get("selector")
    name = f"{config.dataset} · {learner.backbone} · {learner.method}" + (f" {selector}" if selector else "")
    say, stored = partial(print, "ergnn:", file=sys.stderr), args.store is not None and launched_first()
    try:
        with (
            RunStore(store_path(args.store)) if stored else nullcontext() as store,  # opened first: it may be rejected
            progress_bar(name, total_epochs(config), enabled=not args.quiet and launched_first()) as progress,
            joined(str(learner.device)) as ranks,
        ):
            files = {"store": store, "checkpoint": args.checkpoint}
            result = run(config, **files, ranks=ranks, progress=progress, say=say)
    except RanksError as error:
        again = f"the same command continues from {args.checkpoint}"
        how = again if args.checkpoint else "use --checkpoint DIR to make a run resumable"
        raise RanksError(f"{error}; {how}") from error
    if not launched_first():
        return
    shown = result.to_dict()
    if args.json:
        print_json(shown)
    elif args.latex:
        print("\n\n".join(table.to_latex() for table in (result.matrix.table(), measure_table(shown))))
    else:
        print(run_text(shown))
    if args.plot:  # last: if it cannot be written, the results are not lost
        write_run_figure(result, args.plot)
