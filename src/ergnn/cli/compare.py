"""``ergnn compare``: methods on the same streams, with the same memory and the same search."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ergnn.cli.options import count
from ergnn.cli.reproduce import Lines, add_engine_options, command_line, engine_of, print_results

NAMES = ("methods", "datasets", "scenarios", "edges")
NUMBERS = {
    "seeds": "number of reported seeds (default: 10)",
    "first_seed": "the first reported seed (default: 0)",
    "class_orders": "number of shuffled class orders, crossed with the seeds (default: 5)",
    "epochs": "epochs per task (default: 200)",
    "budget": "bytes of memory of each method (default: 10 rows of features per class)",
    "trials": "settings to try per method, the default ones included (default: 4)",
    "search_tasks": "score trials on validation nodes of the first N tasks (default: 2)",
}
NETWORK = {
    "backbone": "network of all methods that train one (default: gcn)",
    "network": "preset of this network, e.g. tuned; the search also chooses its width (default: the paper's, 16 units)",
    "split": "split of all data sets, e.g. 0.6/0.2/0.2 (default: Planetoid's sizes or 0.1/0.1/0.8)",
}
HELP = {
    "methods": "methods, or variants as in replay:live (default: all)",
    "datasets": "data sets (default: nine graphs)",
    "scenarios": "scenarios, of task, class and domain (default: all that a data set supports)",
    "edges": "edges, of all, seen and own (default: all,own)",
}


def add(commands: Any) -> None:
    parser = commands.add_parser("compare", help="compare methods at equal memory, with equal search; rank them")
    parser.set_defaults(command=compare_command, on_interrupt=lambda args: "the same command with --resume continues")
    for name in NAMES:
        parser.add_argument(f"--{name}", metavar="NAME,…", help=HELP[name])
    for name, text in NUMBERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="N", type=int, help=text)
    for name, text in NETWORK.items():
        parser.add_argument(f"--{name}", metavar="NAME" if name != "split" else "TRAIN/VAL/TEST", help=text)
    parser.add_argument(
        "--quick", action="store_true", help="use few data, seeds and epochs, for a test run of minutes"
    )
    parser.add_argument("--no-run", action="store_true", help="write tables of stored runs only")
    parser.add_argument("--batch", metavar="N", type=count, help="train N seeds together (default: 10)")
    add_engine_options(parser)


def compare_command(args: argparse.Namespace) -> int:
    """Run the comparison; return 0 on success and 1 if some runs failed."""
    from ergnn.lab.compare import compare
    from ergnn.lab.contenders import QUICK, CompareOptions
    from ergnn.lab.report.comparison import write_comparison
    from ergnn.lab.run import BATCH

    given = {name: getattr(args, name) for name in (*NUMBERS, *NETWORK) if getattr(args, name) is not None}
    given |= {name: getattr(args, name).split(",") for name in NAMES if getattr(args, name) is not None}
    options = CompareOptions(**{**(QUICK if args.quick else {}), **given}, device=args.device)
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

    done = compare(
        options,
        args.out,
        engine=engine_of(args),
        batch=args.batch or BATCH,
        store=args.store,
        resume=args.resume,
        run=not args.no_run,
        on_planned=planned,
        on_plan=lambda stage, units: lines.plan(stage, units) if units else None,
        on_done=lines.done,
    )
    command = command_line(args, "compare", (*NAMES, *NUMBERS, *NETWORK))
    sections = write_comparison(done, args.out, command, args.quick)
    files = "benchmark, details and search as .txt, .md and .tex, figures as .svg, results.json, report.html"
    return print_results(sections, f"{args.out}: {files}", done.failed)
