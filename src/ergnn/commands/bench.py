"""``ergnn bench``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "bench", allow_abbrev=False, help="measure speed and memory beside plain PyG, in one run"
    )
    parser.set_defaults(command=bench_command)
    parser.add_argument("names", nargs="*", metavar="CASE", help="which cases (default: all; see --list)")
    parser.add_argument("--list", action="store_true", help="name the cases and what they measure, and stop")
    parser.add_argument("--threads", metavar="N,…", default="1", help="CPU threads to measure with (default: 1)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer repeats")
    parser.add_argument("--json", metavar="FILE", type=Path, help="keep the figures in a file")
    parser.add_argument(
        "--compare", metavar="FILE", type=Path, help="show an earlier file's ratios beside these (quick beside quick)"
    )
    parser.add_argument("--show", metavar="FILE", type=Path, help="show or draw a file's figures; nothing is measured")
    parser.add_argument("--format", choices=("text", "markdown"), default="text", help="of the table (default: text)")
    parser.add_argument("--plot", metavar="FILE.svg", type=Path, help="draw time over size and over tasks")


def bench_command(args: argparse.Namespace) -> int:
    from ergnn.bench.command import bench, bench_table, case_list, load, measurements_of, save
    from ergnn.bench.measure import Measurement, machine
    from ergnn.errors import InputError

    if args.list:
        print(case_list())
        return 0
    try:
        threads = [int(part) for part in args.threads.split(",")]
    except ValueError:
        threads = []
    if not threads or min(threads) < 1:
        raise InputError(f"--threads is {args.threads!r}; it must be whole numbers from 1, as in 1,2")
    last = load(args.compare, args.quick) if args.compare else None

    def keep(so_far: list[Measurement]) -> None:
        if args.json:
            save(so_far, args.json, args.quick)

    shown = load(args.show) if args.show else None
    measurements = measurements_of(shown) if shown else bench(args.names, threads, args.quick, keep)
    table = bench_table(measurements, last)
    print(table.to_markdown() if args.format == "markdown" else table.to_text())
    print("\n" + json.dumps(shown.get("machine") if shown else machine()))
    if args.plot:
        from ergnn.bench.plot import plot

        plot(measurements, args.plot)
    return 0
