"""Commands of the lab: ``reproduce``, ``compare``, ``runs`` and ``report``; lists of data sets and registered names."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ergnn.cli.arguments import RUN_FILTERS
from ergnn.cli.options import given
from ergnn.cli.output import output, print_json, store_path, write_rows
from ergnn.config.errors import InputError
from ergnn.config.registry import REQUIRED, field_options
from ergnn.lab.config import CompareOptions, Options
from ergnn.pages.table import Table


def reproduce(args: argparse.Namespace) -> int:
    """Run the experiments; return 0 on success and 1 if some rows failed."""
    from ergnn.lab.grid import PAPER
    from ergnn.lab.reproduce import EXPERIMENTS, reproduce, write_results

    options = options_of(args, Options)
    experiments = PAPER if args.result == "all" else [EXPERIMENTS[args.result]]
    runner = runner_of(args, Lines(enabled=not args.quiet))
    done = reproduce(experiments, options, runner)
    command = command_line(args, f"reproduce {args.result}", Options)
    sections = write_results(done, experiments, options, runner, command=command)
    files = ("" if args.store else "runs.sqlite, ") + "results.json, tables as .txt, .md and .tex"
    page = ", report.html" * os.path.exists(os.path.join(args.out, "report.html"))
    return print_results(sections, f"{args.out}: {files}{page}", runner.failed)


def compare(args: argparse.Namespace) -> int:
    """Run the comparison; return 0 on success and 1 if some runs failed."""
    from ergnn.lab.compare import QUICK, compare
    from ergnn.lab.report.comparison import write_comparison
    from ergnn.lab.run import BATCH

    options = options_of(args, CompareOptions, **(QUICK if args.quick else {}))
    options.check()
    lines = Lines(enabled=not args.quiet)

    def planned(entries: Sequence[Any], left_out: Mapping[str, str]) -> None:
        ready, runs = [e for e in entries if not e.reason], options.seeds * options.class_orders
        conditions = len({e.condition for e in ready})
        lines.say(f"{len(ready) * runs:,} runs: {len(ready)} entries in {conditions} conditions, {runs} runs each")
        for reason, times in Counter(f"{e.method}: {e.reason}" for e in entries if e.reason).items():
            lines.say(f"left out in {times} condition{'s' * (times > 1)}: {reason}")
        for condition, reason in left_out.items():
            lines.say(f"left out: {condition}: {reason}")

    runner = runner_of(args, lines, batch=args.batch or BATCH, run=not args.no_run)
    planned_and_run = compare(options, runner, planned)
    sections = write_comparison(*planned_and_run, args.out, command_line(args, "compare", CompareOptions), args.quick)
    files = "benchmark, details and search as .txt, .md and .tex, figures as .svg, results.json, report.html"
    return print_results(sections, f"{args.out}: {files}", runner.failed)


def options_of(args: argparse.Namespace, kind: Any, **preset: Any) -> Any:
    """Return the options of a command: those that are given, and else those of a preset."""
    names = {option.name for option in field_options(kind)}
    return kind(**preset | {name: value for name, value in given(args, ()).items() if name in names})


def runner_of(args: argparse.Namespace, lines: Lines, **options: Any) -> Any:
    """Return the runner of a command that runs many configurations, with the engine of its options."""
    import torch

    from ergnn.engine.distributed import launched
    from ergnn.lab.engines import GridRunner, LocalEngine, RayEngine

    if launched():
        raise InputError("torchrun supports only `ergnn run`; use --engine ray to run a grid on several machines")
    torch.set_num_threads(1)
    if args.engine == "ray":
        options["engine"] = RayEngine(args.address, args.jobs, args.task_cpus, args.task_gpus)
    else:
        for name in ("address", "task_cpus", "task_gpus"):
            if (value := getattr(args, name)) is not None:
                raise InputError(f"{name} is {value!r}; it is an option of the engine ray; this one is local")
        options["engine"] = LocalEngine(min(os.cpu_count() or 1, 8) if args.jobs is None else args.jobs)
    return GridRunner(args.out, args.store, args.resume, on_plan=lines.plan, on_done=lines.done, **options)


def command_line(args: argparse.Namespace, command: str, kind: Any) -> str:
    """Return the command with the options that affect the results, as far as they were given."""
    words = ["ergnn", *command.split()]
    for name in (option.name for option in field_options(kind) if option.name not in ("quick", "device")):
        value = getattr(args, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", ",".join(value) if isinstance(value, tuple) else str(value)]
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
        self.enabled = enabled

    def plan(self, stage: str, units: int) -> None:
        self.total, self.finished, self.start = units, 0, time.monotonic()
        if units:
            self.say(f"{units} batches of {stage} to do")

    def done(self, outcome: Any) -> None:
        self.finished += 1
        left = (time.monotonic() - self.start) / self.finished * (self.total - self.finished)
        what = f"{unit_name(outcome.unit.config)} · {len(outcome.unit.members)} runs · {outcome.seconds:.1f} s"
        failed = f" · FAILED: {outcome.error}" if outcome.error else ""
        self.say(f"[{self.finished}/{self.total}, {left / 60:.0f} min left] {what}{failed}")

    def say(self, text: str) -> None:
        if self.enabled:
            print(text, file=sys.stderr, flush=True)


def runs(args: argparse.Namespace) -> None:
    from ergnn.lab.report.page import render_sections, result_sections
    from ergnn.lab.report.rows import result_rows, settings_of
    from ergnn.lab.result import COLUMNS
    from ergnn.lab.statistics import MEASURES
    from ergnn.lab.store import RunStore

    filters = {name: getattr(args, name) for name in (*RUN_FILTERS, "seed") if getattr(args, name) is not None}
    with RunStore(store_path(args.store), create=False) as store:
        stored = store.runs(**filters)
    if args.json:
        print_json([run.to_dict() for run in stored])
    elif args.csv:
        rows = [
            {name: json.dumps(v, ensure_ascii=False) if isinstance(v, list | dict) else v for name, v in values.items()}
            | {name: measure(run.matrix) for name, measure in MEASURES.items()}
            for run, values in ((run, run.to_dict()) for run in stored)
        ]
        with output(args.csv) as file:  # lists and mappings as JSON
            write_rows(rows, [*COLUMNS, *MEASURES], file)
    else:
        configurations = result_rows(stored)
        print(render_sections(result_sections(settings_of(configurations)), "text"))
        print(f"{len(stored)} runs of {len(configurations)} configurations")


def report(args: argparse.Namespace) -> None:
    from ergnn.lab.report.page import stored_runs, write_figures, write_page
    from ergnn.lab.report.rows import result_rows, settings_of

    store = store_path(args.store)
    path = write_page(store, args.out, title=args.title)
    print(f"{path}: {path.stat().st_size / 1000:,.0f} kB")
    if args.figures:
        written = write_figures(settings_of(result_rows(stored_runs(store))), args.figures)
        print(f"{args.figures}: {len(written)} files")


def datasets(args: argparse.Namespace) -> None:
    from ergnn.data import DATASETS

    rows = [
        [
            *(d.name, d.nodes, d.features, d.classes, d.edges, f"{d.num_tasks} × {d.classes_per_task}"),
            *("yes" if d.public_split else "no", ", ".join(d.scenarios), d.location()),
        ]
        for d in (DATASETS.create(name) for name in DATASETS)
    ]
    header = ["name", "nodes", "features", "classes", "edges", "tasks", "public split", "scenarios", "location"]
    print(Table(header, rows, align="lrrrrrlll").to_text())


def entries(args: argparse.Namespace) -> None:
    """List the entries of a registry, or the options of one."""
    from ergnn.methods import METHODS
    from ergnn.nn.backbones import BACKBONES
    from ergnn.replay.selectors import SELECTORS

    registries: dict[str, Any] = {"backbones": BACKBONES, "methods": METHODS, "selectors": SELECTORS}
    registry = registries[args.kind]
    if args.name is None:
        rows = [[name, ", ".join(registry.aliases(name)), registry.help(name)] for name in registry]
        print(Table(["name", "alias", "description"], rows, align="lll").to_text())
        return
    name = registry.resolve(args.name)
    print(f"{name}: {registry.help(name)}")
    rows = [
        [
            "--" + o.name.replace("_", "-") if args.kind == "methods" else o.name,
            "|".join(o.choices) if o.choices else o.type,
            "required" if o.default is REQUIRED else str(o.default),
            o.help,
        ]
        for o in registry.options(name)
    ]
    if rows:
        print("\n" + Table(["option", "type", "default", "description"], rows, align="llll").to_text())
