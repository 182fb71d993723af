"""``python -m benchmarks``: run cases, print the table, save the results."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import bench, bench_table, case_list, load, measurements_of, save
from benchmarks.measure import Measurement, machine
from benchmarks.plot import plot
from ergnn.config.errors import ErgnnError, InputError


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m benchmarks",
        allow_abbrev=False,
        description="Measure speed and memory, compared with plain PyG in the same run.",
    )
    made.add_argument("names", nargs="*", metavar="CASE", help="cases to run (default: all; see --list)")
    made.add_argument("--list", action="store_true", help="list the cases and what they measure, then exit")
    made.add_argument("--threads", metavar="N,…", default="1", help="CPU threads to measure with (default: 1)")
    made.add_argument("--quick", action="store_true", help="use smaller sizes and fewer repeats")
    made.add_argument("--json", metavar="FILE", type=Path, help="save the results to a file")
    made.add_argument(
        "--compare", metavar="FILE", type=Path, help="also show the ratios of an earlier file (with the same --quick)"
    )
    made.add_argument("--show", metavar="FILE", type=Path, help="show or plot the results in a file without measuring")
    made.add_argument("--format", choices=("text", "markdown"), default="text", help="table format (default: text)")
    made.add_argument("--plot", metavar="FILE.svg", type=Path, help="plot time against graph size, seeds and tasks")
    return made


def run(args: argparse.Namespace) -> None:
    if args.list:
        print(case_list())
        return
    try:
        threads = [int(part) for part in args.threads.split(",")]
    except ValueError:
        threads = []
    if not threads or min(threads) < 1:
        raise InputError(f"--threads is {args.threads!r}; it must be positive integers, as in 1,2")
    last = load(args.compare, args.quick) if args.compare else None

    def keep(so_far: list[Measurement]) -> None:
        if args.json:
            save(so_far, args.json, args.quick)

    shown = load(args.show) if args.show else None
    measurements = measurements_of(shown) if shown else bench(args.names, threads, args.quick, keep)
    print(bench_table(measurements, last).render(args.format))
    print("\n" + json.dumps(shown.get("machine") if shown else machine()))
    if args.plot:
        plot(measurements, args.plot)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        run(args)
    except ErgnnError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
