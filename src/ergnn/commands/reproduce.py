"""``ergnn reproduce``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from typing import Any

CHOICES = ("table1", "table2", "table3", "table4", "figure2", "figure3", "class-incremental", "all")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "reproduce",
        allow_abbrev=False,
        help="run the paper's tables and figures, and a class-incremental table",
    )
    parser.set_defaults(command=reproduce_command, on_interrupt=lambda args: "the same command with --resume continues")
    parser.add_argument("result", choices=CHOICES, metavar="|".join(CHOICES), help="which of them; all: the paper's")
    parser.add_argument("--seeds", metavar="N", type=int, help="how many seeds (default: 10; quick: 3)")
    parser.add_argument("--first-seed", metavar="N", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--class-orders",
        metavar="K",
        type=int,
        help="class orders, shuffled if more than one, crossed with the seeds (default: 1; protocol clean: 10)",
    )
    parser.add_argument("--datasets", metavar="NAME,…", help="which data sets (default: the paper's)")
    parser.add_argument("--protocol", metavar="paper|clean", help="default: paper (figure 3: both)")
    parser.add_argument(
        "--split", metavar="auto|public|seeded", help="default: auto, or seeded with several class orders"
    )
    parser.add_argument("--quick", action="store_true", help="few seeds and epochs, to see that all works: minutes")
    parser.add_argument("--resume", action="store_true", help="go on with the runs that are in --out")
    parser.add_argument("--device", metavar="NAME", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--jobs", metavar="N", type=int, help="processes at a time (default: one a core, 8 at most)")
    parser.add_argument("--out", metavar="DIR", default="results", help="where results go (default: results)")
    parser.add_argument(
        "--store", metavar="FILE|URL", help="where runs are kept: a file, or postgresql://… (default: OUT/runs.sqlite)"
    )
    parser.add_argument(
        "--engine",
        metavar="local|ray",
        default="local",
        help="processes here, or tasks of a Ray cluster (default: local)",
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="of the Ray cluster (default: RAY_ADDRESS, or a cluster started here)"
    )
    parser.add_argument("--task-cpus", metavar="N", type=float, help="cores for each batch of runs on Ray (default: 1)")
    parser.add_argument(
        "--task-gpus",
        metavar="X",
        type=float,
        help="GPUs for each batch on Ray, as in 0.25 (default: 1 on cuda, else 0)",
    )
    parser.add_argument("--quiet", action="store_true", help="no line for each finished batch of runs")


def reproduce_command(args: argparse.Namespace) -> int:
    """0: all is there; 1: some rows failed, which the tables name."""
    import torch

    from ergnn.distributed import launched
    from ergnn.errors import InputError
    from ergnn.experiments.cells import Options
    from ergnn.experiments.engine import make_engine
    from ergnn.experiments.reproduce import experiments_named, reproduce
    from ergnn.report.reproduced import write_results

    for name in ("seeds", "class_orders"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise InputError(f"--{name.replace('_', '-')} is {getattr(args, name)}; it must be 1 or more")
    if launched():
        raise InputError("torchrun shares one run, by `ergnn run`; a grid goes to many machines with --engine ray")
    torch.set_num_threads(1)
    named = None if args.datasets is None else [name.strip() for name in args.datasets.split(",") if name.strip()]
    options = Options(
        args.seeds,
        args.class_orders,
        args.first_seed,
        named,
        args.protocol,
        args.split,
        quick=args.quick,
        device=args.device,
    )
    jobs = args.jobs
    if jobs is None and args.engine == "local":
        jobs = min(os.cpu_count() or 1, 8)
    engine = make_engine(
        args.engine, jobs=jobs, address=args.address, task_cpus=args.task_cpus, task_gpus=args.task_gpus
    )
    lines = _Lines(enabled=not args.quiet)
    experiments = experiments_named(args.result)
    done = reproduce(
        experiments,
        args.out,
        options,
        engine=engine,
        store=args.store,
        resume=args.resume,
        on_plan=lines.plan,
        on_done=lines.done,
    )
    written = write_results(done, experiments, args.out, options, command=_command(args))
    print("\n\n\n".join(page.render("text") for page in written.pages))
    runs = "" if args.store else "runs.sqlite, "
    where = f"{args.out}: {runs}results.json, tables as .txt, .md and .tex"
    print(f"\n{where}{', report.html' if written.html else ''}")
    for outcome in done.failed:
        print(f"ergnn: {_name(outcome.unit.config)} failed: {outcome.error}", file=sys.stderr)
    return 1 if done.failed else 0


def _command(args: argparse.Namespace) -> str:
    """The call without what does not change its numbers."""
    words = ["ergnn", "reproduce", args.result]
    for name in ("seeds", "class_orders", "datasets", "protocol", "split"):
        if getattr(args, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    if args.first_seed:
        words += ["--first-seed", str(args.first_seed)]
    return shlex.join([*words, *(["--quick"] if args.quick else [])])


def _name(config: Any) -> str:
    from ergnn.resolve import options_in_effect

    options = options_in_effect(config.learner)
    kind = f" {options['selector']}, e = {options['per_class']}" if "selector" in options else ""
    return f"{config.dataset} · {config.protocol} · {config.learner.backbone} · {config.learner.method}{kind}"


class _Lines:
    """One line on standard error for each finished batch, with the time that is left."""

    def __init__(self, enabled: bool) -> None:
        self.enabled, self.total, self.finished = enabled, 0, 0
        self.start = time.monotonic()

    def plan(self, units: int) -> None:
        self.total, self.start = units, time.monotonic()
        self._say(f"{units} batches of runs to do" if units else "all runs are there already")

    def done(self, outcome: Any) -> None:
        self.finished += 1
        left = (time.monotonic() - self.start) / self.finished * (self.total - self.finished)
        what = f"{_name(outcome.unit.config)} · {len(outcome.unit.members)} runs · {outcome.seconds:.1f} s"
        failed = f" · FAILED: {outcome.error}" if outcome.error else ""
        self._say(f"[{self.finished}/{self.total}, {left / 60:.0f} min left] {what}{failed}")

    def _say(self, text: str) -> None:
        if self.enabled:
            print(text, file=sys.stderr, flush=True)
