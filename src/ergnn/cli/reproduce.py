"""``ergnn reproduce``: run the experiments of the paper."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any

from ergnn.cli.options import count

PUBLISHED = ("begin", "gsip", "hop-ral", "lgl", "graphkeeper", "tuned")
CHOICES = ("table1", "table2", "table3", "table4", "figure2", "figure3", "class-incremental", *PUBLISHED, "all")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="run the paper's tables and figures, a class-incremental table, and tables published by others",
    )
    parser.set_defaults(command=reproduce_command, on_interrupt=lambda args: "the same command with --resume continues")
    parser.add_argument(
        "result", choices=CHOICES, metavar="|".join(CHOICES), help="result to reproduce; all: every result of the paper"
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=count,
        help="number of seeds (default: 10; tuned: 1 to 10; with --quick: at most 3)",
    )
    parser.add_argument("--first-seed", metavar="N", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--class-orders",
        metavar="K",
        type=count,
        help="number of class orders, crossed with the seeds; shuffled if more than 1 (default: 1; protocol clean: 10)",
    )
    parser.add_argument("--datasets", metavar="NAME,…", help="data sets to run on (default: the paper's)")
    parser.add_argument("--protocol", metavar="paper|clean", help="protocol to use (default: paper; figure 3: both)")
    parser.add_argument(
        "--split", metavar="auto|public|seeded", help="split to use (default: auto; seeded with several class orders)"
    )
    parser.add_argument("--quick", action="store_true", help="use few seeds and epochs, for a test run of minutes")
    add_engine_options(parser)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that run many configurations into a store."""
    parser.add_argument("--resume", action="store_true", help="skip runs that are already in the store")
    parser.add_argument(
        "--device", metavar="NAME", default="cpu", help="device to compute on, e.g. cpu, cuda or cuda:1 (default: cpu)"
    )
    parser.add_argument(
        "--jobs", metavar="N", type=int, help="run N processes at a time (default: one per core, at most 8)"
    )
    parser.add_argument("--out", metavar="DIR", default="results", help="write results to a folder (default: results)")
    parser.add_argument(
        "--store", metavar="FILE|URL", help="store runs in a file or postgresql://… (default: OUT/runs.sqlite)"
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="run local processes or tasks on a Ray cluster (default: local)",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="address of the Ray cluster (default: RAY_ADDRESS, or a new local cluster)",
    )
    parser.add_argument("--task-cpus", metavar="N", type=float, help="cores per batch of runs on Ray (default: 1)")
    parser.add_argument(
        "--task-gpus",
        metavar="X",
        type=float,
        help="GPUs per batch of runs on Ray, e.g. 0.25 (default: 1 with cuda, otherwise 0)",
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress lines")


def reproduce_command(args: argparse.Namespace) -> int:
    """Run the experiments; return 0 on success and 1 if some rows failed."""
    from ergnn.lab.report.experiments import write_results
    from ergnn.lab.reproduce import Options, experiments_named, reproduce

    named = None if args.datasets is None else [name.strip() for name in args.datasets.split(",") if name.strip()]
    counts = {"seeds": args.seeds, "class_orders": args.class_orders, "first_seed": args.first_seed}
    choices = {"datasets": named, "protocol": args.protocol, "split": args.split}
    options = Options(**counts, **choices, quick=args.quick, device=args.device)
    lines, experiments = Lines(enabled=not args.quiet), experiments_named(args.result)
    grid = {"engine": engine_of(args), "store": args.store, "resume": args.resume}
    done = reproduce(experiments, args.out, options, **grid, on_plan=lines.plan, on_done=lines.done)
    command = command_line(args, f"reproduce {args.result}", (*counts, *choices))
    sections = write_results(done, experiments, args.out, options, command=command)
    files = ("" if args.store else "runs.sqlite, ") + "results.json, tables as .txt, .md and .tex"
    page = ", report.html" * os.path.exists(os.path.join(args.out, "report.html"))
    return print_results(sections, f"{args.out}: {files}{page}", done.failed)


def engine_of(args: argparse.Namespace) -> Any:
    """Return the engine of the options of :func:`add_engine_options`."""
    import torch

    from ergnn.config.errors import InputError
    from ergnn.engine.distributed import launched
    from ergnn.lab.engines import LocalEngine, RayEngine

    if launched():
        raise InputError("torchrun supports only `ergnn run`; use --engine ray to run a grid on several machines")
    torch.set_num_threads(1)
    if args.engine == "ray":
        return RayEngine(args.address, args.jobs, args.task_cpus, args.task_gpus)
    for name in ("address", "task_cpus", "task_gpus"):
        if getattr(args, name) is not None:
            raise InputError(f"{name} is {getattr(args, name)!r}; it is an option of the engine ray; this one is local")
    return LocalEngine(min(os.cpu_count() or 1, 8) if args.jobs is None else args.jobs)


def command_line(args: argparse.Namespace, command: str, names: Sequence[str]) -> str:
    """Return the command with the options that affect the results, as far as they were given."""
    words = ["ergnn", *command.split()]
    for name in names:
        if getattr(args, name) not in (None, 0):
            words += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    words += [word for plugin in args.plugins for word in ("--import", plugin)]
    return shlex.join([*words, *(["--quick"] if args.quick else [])])


def print_results(sections: Sequence[Any], files: str, failed: Sequence[Any]) -> int:
    """Print tables, the files that were written, and failed runs; return 1 if there are any, else 0."""
    print("\n\n\n".join(section.render("text") for section in sections))
    print(f"\n{files}")
    for outcome in failed:
        print(f"ergnn: {unit_name(outcome.unit.config)} failed: {outcome.error}", file=sys.stderr)
    return 1 if failed else 0


def unit_name(config: Any) -> str:
    from ergnn.learning.resolve import options_in_effect

    options = options_in_effect(config.learner)
    kind = f" {options['selector']}, e = {options['per_class']}" if "selector" in options else ""
    stream = config.protocol if config.scenario is None else f"{config.scenario} · edges {config.edges}"
    return f"{config.dataset} · {stream} · {config.learner.backbone} · {config.learner.method}{kind}"


class Lines:
    """Prints one line per finished batch to standard error, with the remaining time."""

    def __init__(self, enabled: bool) -> None:
        self.enabled, self.total, self.finished = enabled, 0, 0
        self.start = time.monotonic()

    def plan(self, stage: str, units: int) -> None:
        self.total, self.finished, self.start = units, 0, time.monotonic()
        self.say(f"{units} batches of {stage} to do" if units else f"all {stage} are already in the store")

    def done(self, outcome: Any) -> None:
        self.finished += 1
        left = (time.monotonic() - self.start) / self.finished * (self.total - self.finished)
        what = f"{unit_name(outcome.unit.config)} · {len(outcome.unit.members)} runs · {outcome.seconds:.1f} s"
        failed = f" · FAILED: {outcome.error}" if outcome.error else ""
        self.say(f"[{self.finished}/{self.total}, {left / 60:.0f} min left] {what}{failed}")

    def say(self, text: str) -> None:
        if self.enabled:
            print(text, file=sys.stderr, flush=True)
