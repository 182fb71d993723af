"""``ergnn report``: the page of a run store."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "report", allow_abbrev=False, help="make one HTML page of a run store: tables, figures, commands"
    )
    parser.set_defaults(command=report_command)
    parser.add_argument("-o", "--out", metavar="FILE.html", default="report.html", help="default: report.html")
    parser.add_argument(
        "--store",
        metavar="FILE|URL",
        default="results/runs.sqlite",
        help="a file, or postgresql://… (default: results/runs.sqlite)",
    )
    parser.add_argument("--title", metavar="TEXT", help="of the page")


def report_command(args: argparse.Namespace) -> int:
    from ergnn.report.page import TITLE, write_page

    path = write_page(args.store, args.out, title=args.title or TITLE)
    print(f"{path}: {path.stat().st_size / 1000:,.0f} kB")
    return 0
