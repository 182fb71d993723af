"""``ergnn runs`` and ``ergnn report``: list, filter and export the runs of a store; a page about them."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ergnn.cli.options import add_store, output, store_path

if TYPE_CHECKING:
    from ergnn.lab.result import StoredRun

FILTERS = ("dataset", "backbone", "method", "selector", "protocol")


def add(commands: Any) -> None:
    parser = commands.add_parser("runs", help="list, filter and export the runs of a store")
    parser.set_defaults(command=runs_command)
    add_store(parser)
    for name in FILTERS:
        parser.add_argument(f"--{name}", metavar="NAME,…", help=f"show only runs with these values of {name}")
    parser.add_argument("--seed", metavar="N", type=int, help="show only runs with this seed")
    parser.add_argument("--csv", metavar="FILE", help="write one line per run to a CSV file; - is standard output")
    parser.add_argument("--json", action="store_true", help="print all stored data as JSON")

    parser = commands.add_parser("report", help="write an HTML page with the tables and figures of a run store")
    parser.set_defaults(command=report_command)
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        default="report.html",
        help="write an HTML page, or only tables if the name ends in .md, .tex or .txt (default: report.html)",
    )
    add_store(parser)
    parser.add_argument("--title", metavar="TEXT", help="title of the page (default: derived from its content)")
    parser.add_argument(
        "--figures", metavar="DIR", help="also write the figures as SVG files, and PDF if it can be made"
    )


def runs_command(args: argparse.Namespace) -> int:
    from ergnn.lab.store import RunStore

    filters: dict[str, Any] = {name: getattr(args, name).split(",") for name in FILTERS if getattr(args, name)}
    if args.seed is not None:
        filters["seed"] = args.seed
    with RunStore(store_path(args.store), create=False) as store:
        runs = store.runs(**filters)
    if args.json:
        print(json.dumps([run.to_dict() for run in runs], ensure_ascii=False))
    elif args.csv:
        with output(args.csv) as file:
            _write_csv(runs, file)
    else:
        print(_listing(runs))
    return 0


def _write_csv(runs: Sequence[StoredRun], file: Any) -> None:
    """Write one line per run: its columns, then PM, FM, AA and AF; lists and mappings as JSON."""
    from ergnn.lab.result import COLUMNS
    from ergnn.lab.statistics import MEASURES

    writer = csv.writer(file)
    writer.writerow([*COLUMNS, *MEASURES])
    for run in runs:
        row = run.to_dict()
        cells = [json.dumps(v, ensure_ascii=False) if isinstance(v, list | dict) else v for v in row.values()]
        writer.writerow([*cells, *(measure(run.matrix) for measure in MEASURES.values())])


def _listing(runs: Sequence[StoredRun]) -> str:
    """Format one line per configuration: the number of runs, and their mean PM, FM and AA."""
    from ergnn.lab.report.rows import result_rows
    from ergnn.pages.table import Table, percent

    lines = []
    rows = result_rows(runs)
    for row in rows:
        first = row.runs[0]
        what = [first.dataset, first.protocol, first.backbone, first.method, first.selector or "", first.split]
        count = "" if first.per_class is None else str(first.per_class)
        means = [percent(row.summary(name).mean) for name in ("pm", "fm", "aa")]
        seconds = f"{sum(run.seconds for run in row.runs):.1f}"
        leaky = "leaky" if row.is_leaky else ""
        lines.append([*what, count, str(row.config.get("epochs", "")), str(len(row.runs)), *means, seconds, leaky])
    header = ["data set", "protocol", "backbone", "method", "selector", "split", "e", "epochs", "runs"]
    header += ["PM %", "FM %", "AA %", "seconds", ""]
    table = Table(header, lines, align="llllll" + "r" * 7 + "l").to_text()
    return f"{table}\n\n{len(runs)} runs of {len(rows)} configurations"


def report_command(args: argparse.Namespace) -> int:
    from ergnn.lab.report.figures import write_figures
    from ergnn.lab.report.page import stored_runs, write_page
    from ergnn.lab.report.rows import result_rows, settings_of
    from ergnn.pages.figure_files import CONVERTERS, converter

    store = store_path(args.store)
    path = write_page(store, args.out, title=args.title)
    print(f"{path}: {path.stat().st_size / 1000:,.0f} kB")
    if args.figures:
        written = write_figures(settings_of(result_rows(stored_runs(store))), args.figures)
        print(f"{args.figures}: {len(written)} files" + ("" if converter() else f"; .pdf files need {CONVERTERS}"))
    return 0
