"""``ergnn evaluate`` and ``ergnn inspect``: scores on held-out nodes; everything about a learner."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ergnn.cli.folder_options import add_command
from ergnn.cli.options import output

if TYPE_CHECKING:
    from ergnn.folder import LearnerFolder
    from ergnn.learning.evaluation import HeldOut
    from ergnn.pages.table import Table

MAX_CLASSES = 12
"""Maximum number of classes for which the confusion matrix is printed."""
MAX_ROWS = 20
"""Number of stored nodes, of classes, and of entries of a larger confusion matrix to print."""


def add(commands: Any) -> None:
    shared, offline = ("version", "json", "threads"), "also train a new network on the labels of all updates at once"
    text = "measure accuracy on the held-out nodes of every update"
    parser = add_command(commands, "evaluate", evaluate_command, text, *shared)
    parser.add_argument(
        "--task-known",
        action="store_true",
        help="predict among the classes of a node's own update (default: all classes)",
    )
    parser.add_argument("--per-class", action="store_true", help="also show recall, precision and F1 per class")
    parser.add_argument("--confusion", action="store_true", help="also show the confusion matrix")
    parser.add_argument("--offline", action="store_true", help=f"{offline}, and show its accuracy")

    text = "show accuracy, forgetting, memory, size and versions of a learner"
    parser = add_command(commands, "inspect", inspect_command, text, *shared)
    parser.add_argument("-o", "--out", metavar="FILE.html", help="write an HTML page instead of printing text")
    text = f"list all stored nodes and all classes (default: {MAX_ROWS} of each)"
    parser.add_argument("--all", action="store_true", help=text)
    text = "only verify all checksums and the structure of the database"
    parser.add_argument("--check", action="store_true", help=text)
    parser.add_argument("--offline", action="store_true", help=f"{offline}, and show its accuracy")


def evaluate_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

    folder = LearnerFolder(args.folder)
    held_out = folder.predict_held_out(args.version, task_known=args.task_known)
    rows = _updates(held_out, args.task_known)
    more: dict[str, Any] = {"overall": held_out.overall(), "warnings": held_out.warnings()}
    if args.per_class:
        more["classes"] = held_out.per_class()
    if args.confusion:
        more["confusion"] = {"classes": held_out.classes, "nodes": held_out.confusion().tolist()}
    if args.offline:
        accuracies, more["offline"] = offline_scores(folder, args.version, args.task_known)
        for row in rows:
            row["offline"] = accuracies[row["update"]]
    if args.json:
        print(json.dumps({"updates": rows, **more}, ensure_ascii=False))
    elif not rows:
        print("no update has held-out nodes yet")
    else:
        print("\n\n".join(_blocks(held_out, rows, more)))
    return 0


def inspect_command(args: argparse.Namespace) -> int:
    from ergnn.folder import LearnerFolder

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


def offline_scores(
    folder: LearnerFolder, version: int | None, task_known: bool = False
) -> tuple[dict[int, float], dict[str, Any]]:
    """Accuracy by the number of the update, and in all, of a new network that learned all updates at once."""
    with folder.snapshot(version) as snapshot:
        exact = snapshot.learner.exact
    held_out = folder.predict_held_out(version, task_known=task_known, offline=True)
    accuracies = {n + 1: right / of for n, right, of in held_out.scores()}
    mean = sum(accuracies.values()) / len(accuracies) if accuracies else None
    over_nodes = (held_out.overall() or {}).get("accuracy")
    total = {"mean_over_updates": mean, "over_nodes": over_nodes, "same_by_construction": exact}
    return accuracies, total


def offline_line(offline: dict[str, Any]) -> str:
    """The accuracy of :func:`offline_scores` for a terminal."""
    from ergnn.pages.table import percent

    if offline["over_nodes"] is None:
        return "offline, all updates at once: no update has held-out nodes"
    means = [percent(offline[key]) for key in ("mean_over_updates", "over_nodes")]
    same = " (the method's closed form gives the same for any order of updates)"
    line = f"offline, all updates at once: mean over updates {means[0]} %, over all nodes {means[1]} %"
    return line + (same if offline["same_by_construction"] else "")


def _updates(held_out: HeldOut, task_known: bool) -> list[dict[str, Any]]:
    rows = []
    for update, right, of in held_out.scores():
        record = held_out.records[update]
        recorded = [] if task_known else record["scores"]  # recorded with all classes competing
        then = next((a / b for number, a, b in recorded if number == update), None)
        entry = {"update": update + 1, "name": record["name"], "nodes": of, "accuracy": right / of, "then": then}
        rows.append(entry)
    return rows


def overall_line(overall: dict[str, Any]) -> str:
    """The scores of :meth:`ergnn.learning.evaluation.HeldOut.overall` for a terminal."""
    from ergnn.pages.table import percent

    names = {"majority": "majority class", "balanced_accuracy": "balanced accuracy", "macro_f1": "macro F1"}
    scores = [f"{name} {percent(overall[key])} %" for key, name in names.items()]
    scores += [] if overall["roc_auc"] is None else [f"ROC AUC {overall['roc_auc']:.3f}"]
    accuracy = f"over all {overall['nodes']:,} held-out nodes scored: {percent(overall['accuracy'])} %"
    return f"{accuracy}; {', '.join(scores)}"


def _blocks(held_out: HeldOut, rows: list[dict[str, Any]], more: dict[str, Any]) -> Iterator[str]:
    """Yield tables and lines for a terminal."""
    from ergnn.pages.table import Table, percent

    def shown(value: float | None) -> str:
        return "" if value is None else percent(value)

    offline = more.get("offline")
    header = ["update", "name", "held out", "accuracy %", "when learned %", *(["offline %"] if offline else [])]
    cells = [
        [
            *(str(r["update"]), r["name"], f"{r['nodes']:,}", percent(r["accuracy"]), shown(r["then"])),
            *([percent(r["offline"])] if offline else []),
        ]
        for r in rows
    ]
    yield Table(header, cells, align="rl" + "r" * (len(header) - 2)).to_text()
    lines = [
        f"mean over updates: {percent(sum(r['accuracy'] for r in rows) / len(rows))} %",
        overall_line(more["overall"]),
        *(f"warning: {text}" for text in more["warnings"]),
    ]
    if offline:
        lines.append(offline_line(offline))
    yield "\n".join(lines)
    if "classes" in more:
        table = [
            [r["class"], f"{r['nodes']:,}", *(shown(r[k]) for k in ("recall", "precision", "f1"))]
            for r in more["classes"]
        ]
        yield Table(["class", "held out", "recall %", "precision %", "F1 %"], table).to_text()
    if "confusion" in more:
        matrix = held_out.confusion()
        entries = zip(*matrix.nonzero(), strict=True)
        yield confusion_text(held_out.classes, [(int(i), int(j), int(matrix[i, j])) for i, j in entries])


def confusion_text(names: Sequence[str], entries: Sequence[Sequence[int]]) -> str:
    """Format the confusion matrix; for many classes, only its largest off-diagonal entries."""
    from ergnn.pages.table import Table

    nodes = {(true, chosen): n for true, chosen, n in entries}
    if len(names) <= MAX_CLASSES:
        cells = [[nodes.get((i, j), 0) for j in range(len(names))] for i in range(len(names))]
        rows = [[name, *(f"{n:,}" if n else "·" for n in row)] for name, row in zip(names, cells, strict=True)]
        return Table(["true \\ predicted", *names], rows).to_text()
    wrong = sorted((entry for entry in entries if entry[0] != entry[1]), key=lambda entry: -entry[2])
    rows = [[names[true], names[chosen], f"{n:,}"] for true, chosen, n in wrong[:MAX_ROWS]]
    title = f"the {len(rows)} most frequent mistakes of {len(wrong)}; --json prints the full matrix"
    return Table(["true class", "predicted", "nodes"], rows, align="llr", title=title).to_text()


def as_text(report: dict[str, Any], max_rows: int | None = None) -> str:
    """Format the result for a terminal, with at most ``max_rows`` stored nodes and classes."""
    from ergnn.folder.page import buffer_table, class_table
    from ergnn.folder.why_page import audit_words
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
    if report["doubts"]:
        lines += [f"labels: {text}; ergnn audit lists them" for text in audit_words(report["doubts"])]
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


def column_table(rows: list[list[str]]) -> str:
    """Format what the columns of a table are and what they become."""
    from ergnn.pages.table import Table

    return "\n" + Table(["column", "kind", "because", "becomes"], rows, "llll").to_text() + "\n"
