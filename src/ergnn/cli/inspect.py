"""``ergnn inspect``: show accuracy, memory, size and versions of a learner."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ergnn.cli.evaluate import confusion_text, offline_line, offline_scores, overall_line
from ergnn.cli.folder_options import add_command, use_threads
from ergnn.cli.observe import column_table
from ergnn.cli.options import add_threads, output

if TYPE_CHECKING:
    from ergnn.pages.table import Table

MAX_ROWS = 20
"""Number of stored nodes, and of classes, to print without ``--all``."""


def add(commands: Any) -> None:
    parser = add_command(
        commands, "inspect", inspect_command, "show accuracy, forgetting, memory, size and versions of a learner"
    )
    parser.add_argument("-o", "--out", metavar="FILE.html", help="write an HTML page instead of printing text")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--version", metavar="N", type=int, help="inspect a stored version (default: the current one)")
    parser.add_argument(
        "--all", action="store_true", help=f"list all stored nodes and all classes (default: {MAX_ROWS} of each)"
    )
    parser.add_argument(
        "--check", action="store_true", help="only verify all checksums and the structure of the database"
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="also train a new network on the labels of all updates at once and show its accuracy",
    )
    add_threads(parser)


def inspect_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    use_threads(args)
    folder = LearnerFolder(args.folder)
    if args.check:
        wrong = folder.check()
        print("\n".join([f"{args.folder}: {text}" for text in wrong]) or f"{args.folder}: no errors found")
        return 2 if wrong else 0
    report = folder.inspect(args.version)
    if args.offline:
        report["offline"] = offline_scores(folder, args.version)[1]
    if args.out:
        from ergnn.folder.page import folder_page

        with output(args.out) as file:
            file.write(folder_page(report))
    if args.json:
        print(json.dumps(report, ensure_ascii=False))
    elif not args.out:
        print(as_text(report, None if args.all else MAX_ROWS))
    return 0


def as_text(report: dict[str, Any], max_rows: int | None = None) -> str:
    """Format the result for a terminal, with at most ``max_rows`` stored nodes and classes."""
    from ergnn.folder.page import buffer_table, class_table
    from ergnn.pages.table import Table, percent

    graph, lost = report["graph"], "drop" if report["exact"] else "forgetting"
    lines = [
        f"{report['folder']}: version {report['version']} of {', '.join(map(str, report['versions']))}",
        f"graph: {graph['nodes']:,} nodes ({graph['labeled']:,} labeled), {graph['edges']:,} "
        f"{'weighted ' * graph['weighted']}edges, {graph['features'] or 0:,} features, "
        f"{graph['forgotten']:,} forgotten",
        "bytes: " + ", ".join(f"{name} {size:,}" for name, size in report["bytes"].items()),
    ]
    if report["columns"]:
        lines.append(column_table(report["columns"]))
    if report["measures"]:
        names = {"pm": "when learned", "aa": "after the last update", "fm": lost}
        shown = [f"{text} {percent(report['measures'][key])} %" for key, text in names.items()]
        lines.append("accuracy, mean over updates: " + ", ".join(shown))
        lines += [f"why accuracy falls: {report['why_accuracy_falls']}"] if report["measures"]["fm"] > 0 else []
    if report["overall"]:
        lines.append(f"accuracy {overall_line(report['overall'])}")
    lines += [f"warning: {text}" for text in report["warnings"]]
    if report.get("offline"):
        lines.append(offline_line(report["offline"]))
    lines += watch_lines(report)
    updates = [
        [
            str(u["update"] + 1),
            u["name"],
            f"{u['counts']['nodes']:,}",
            ", ".join(u["classes"])[:40],
            "" if u["drift"] is None else percent(u["drift"]),
            "" if u["forgetting"] is None else percent(u["forgetting"]),
        ]
        for u in report["updates"]
    ]
    header = ["update", "name", "nodes", "classes learned", "drift %", f"{lost} %"]
    lines += ["", Table(header, updates, align="rlrlrr").to_text()] if updates else []
    lines += _first_rows(class_table(report, max_rows), len(report["per_class"]))
    lines += ["", confusion_text(report["classes"], report["confusion"])] if report["confusion"] else []
    lines += _first_rows(buffer_table(report, max_rows), len(report["buffer"]))
    return "\n".join(lines)


def _first_rows(table: Table, of: int) -> list[str]:
    rest = [f"… and {of - len(table.rows):,} more; --all lists them"] if of > len(table.rows) else []
    return ["", replace(table, title="").to_text(), *rest] if table.rows else []


def watch_lines(report: dict[str, Any]) -> list[str]:
    """Drift of inputs, calibration and unknown classes, a line each."""
    from ergnn.pages.table import percent

    lines = []
    tested = [(u["update"] + 1, u["input_drift"]) for u in report["updates"] if u.get("input_drift")]
    alarms = [(number, drift) for number, drift in tested if drift["alarm"]]
    if tested:
        rate = percent(tested[-1][1]["alpha"])
        line = f"input drift: {len(alarms)} alarms in {len(tested)} updates (false alarms: {rate} %)"
        if alarms:
            number, drift = alarms[-1]
            names = ", ".join(name for name, p in drift["p"].items() if p <= drift["alpha"])
            line += f"; newest in update {number}: {names}"
        lines.append(line)
    watch = report["watch"]
    if watch["calibration"]:
        error, after, tau = (watch["calibration"][key] for key in ("ece", "ece_calibrated", "temperature"))
        texts = percent(error), percent(after)
        better = "no difference" if texts[0] == texts[1] else "better" if after < error else "worse"
        lines.append(f"calibration error: {texts[0]} %; with temperature {tau:.2f}: {texts[1]} % ({better})")
    if watch["unknown"] and watch["unknown"]["threshold"] is not None:
        above, nodes, rate = (watch["unknown"][key] for key in ("above", "nodes", "rate"))
        lines.append(
            f"unknown class: {percent(above / nodes)} % of {nodes:,} nodes of the last update "
            f"(nodes of known classes: {percent(rate)} %)"
        )
    return lines
