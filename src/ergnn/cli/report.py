"""``ergnn report``: write an HTML page or tables from a run store."""

from __future__ import annotations

import argparse
from typing import Any

from ergnn.cli.options import add_store, store_path


def add(commands: Any) -> None:
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
