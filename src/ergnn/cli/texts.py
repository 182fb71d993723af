"""Records and reports of a folder as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ergnn.cli.arguments import MAX_ROWS
from ergnn.folder.page import SCORES, audit_words, buffer_table, class_table
from ergnn.pages.table import Table, percent

MAX_CLASSES = 12
"""Maximum number of classes for which the confusion matrix is printed."""


def describe(record: dict[str, Any]) -> str:
    """The record of an update."""
    counts = record["counts"]
    lines = [f"{record['name']}: {counts['nodes']:,} new nodes, {counts['edges']:,} new edges (each way counted)"]
    if record.get("again"):
        lines[0] += "; already in the folder, nothing changed"
    elif record["task"] is None:
        lines.append("no new labels to learn from")
    else:
        lines.append(f"learned {counts['train']:,} nodes of {', '.join(record['classes'])[:200]}")
        lines.append(
            f"stored {record['remembered']:,} nodes; read {record['touched']:,} of {record['graph']['nodes']:,}"
        )
    if record.get("columns"):
        lines += [*kind_lines(record["columns"]), "to read a column otherwise: ergnn init … --columns NAME=KIND"]
    if counts.get("corrected"):
        lines.append(f"corrected {counts['corrected']:,} labels")
    if counts.get("changed"):
        lines.append(f"changed the features of {counts['changed']:,} nodes")
    scores = [f"update {update + 1}: {percent(right / of)} %" for update, right, of in record["scores"][-8:]]
    if scores:
        lines.append("accuracy on held-out nodes: " + ", ".join(scores))
    if record.get("overall"):
        lines.append(overall_line(record["overall"]))
    return "\n".join(lines)


def kind_lines(rows: list[list[str]]) -> list[str]:
    """What the columns of a table are and what they become."""
    return ["", Table(["column", "kind", "because", "becomes"], rows, "llll").to_text(), ""]


def overall_line(overall: dict[str, Any]) -> str:
    """The scores of :meth:`ergnn.learning.evaluation.HeldOut.overall`."""
    scores = [f"{name} {percent(overall[key])} %" for key, name in SCORES.items() if key != "accuracy"]
    scores += [] if overall["roc_auc"] is None else [f"ROC AUC {overall['roc_auc']:.3f}"]
    accuracy = f"over all {overall['nodes']:,} held-out nodes scored: {percent(overall['accuracy'])} %"
    return f"{accuracy}; {', '.join(scores)}"


def forget_lines(report: dict[str, Any]) -> Iterator[str]:
    """What was removed, and what remains."""
    yield f"removed {report['nodes']:,} nodes and {report['edges']:,} edges (each way counted)"
    if "purged" in report:
        yield f"nothing is left of {report['purged']:,} forgotten nodes in any file of the folder"
        if report["skipped"]:
            yield f"{report['skipped']:,} of the ids were not in the graph"
    if not report["nodes"]:
        return
    if report["exact"]:
        yield (
            f"the model of version {report['version']} no longer depends on them: it was solved again from the "
            "remaining nodes, edges and labels"
        )
        yield (
            "to verify, compare `ergnn predict` with a new folder that observes the same files without these nodes, "
            "with the same split column (without one, other nodes are held out)"
        )
    else:
        yield from _trained_lines(report)
    if report["older_versions"]:
        older = ", ".join(map(str, report["older_versions"]))
        yield f"older versions ({older}) still contain them; `ergnn forget --purge` deletes those versions"


def _trained_lines(report: dict[str, Any]) -> Iterator[str]:
    if report["remembered"]:
        yield f"{report['remembered']:,} of them were in the replay memory"
    if report["parameters_depend"]:
        updates = ", ".join(map(str, report["trained_in"]))
        yield f"the model's parameters were trained on them in update {updates}; use --retrain to train without them"
    else:
        yield "the model's parameters were not trained on their labels"
    if report["edges"] and not report["retrained"]:
        yield "their features may have influenced the parameters through neighbors in the training set"


def score_blocks(report: dict[str, Any]) -> Iterator[str]:
    """Tables and lines of ``ergnn evaluate``."""
    rows, offline = report["updates"], report.get("offline")
    header = ["update", "name", "held out", "accuracy %", "when learned %", *(["offline %"] if offline else [])]
    keys = ("accuracy", "then", *(["offline"] if offline else []))
    cells = [[str(row["update"]), row["name"], row["nodes"], *(_shown(row[key]) for key in keys)] for row in rows]
    yield Table(header, cells, align="rl" + "r" * (len(header) - 2)).to_text()
    lines = [f"mean over updates: {percent(sum(row['accuracy'] for row in rows) / len(rows))} %"]
    lines += [overall_line(report["overall"]), *(f"warning: {text}" for text in report["warnings"])]
    yield "\n".join([*lines, *offline_lines(offline)])
    if "classes" in report:
        yield replace(class_table({"per_class": report["classes"]}), title="").to_text()
    if "confusion" in report:
        matrix = report["confusion"]["nodes"]
        entries = [(i, j, n) for i, row in enumerate(matrix) for j, n in enumerate(row) if n]
        yield confusion_text(report["confusion"]["classes"], entries)


def _shown(value: float | None) -> str:
    return "" if value is None else percent(value)


def offline_lines(offline: dict[str, Any] | None) -> list[str]:
    """The accuracy of a network that learned all updates at once, if there is one."""
    if offline is None:
        return []
    if offline["over_nodes"] is None:
        return ["offline, all updates at once: no update has held-out nodes"]
    means = [percent(offline[key]) for key in ("mean_over_updates", "over_nodes")]
    same = " (the method's closed form gives the same for any order of updates)" * offline["same_by_construction"]
    return [f"offline, all updates at once: mean over updates {means[0]} %, over all nodes {means[1]} %{same}"]


def confusion_text(names: Sequence[str], entries: Sequence[Sequence[int]]) -> str:
    """Format the confusion matrix; for many classes, only its largest off-diagonal entries."""
    if len(names) <= MAX_CLASSES:
        nodes = {(true, chosen): n for true, chosen, n in entries}
        rows = [[name, *(nodes.get((i, j), "·") for j in range(len(names)))] for i, name in enumerate(names)]
        return Table(["true \\ predicted", *names], rows).to_text()
    wrong = sorted((entry for entry in entries if entry[0] != entry[1]), key=lambda entry: -entry[2])
    rows = [[names[true], names[chosen], n] for true, chosen, n in wrong[:MAX_ROWS]]
    title = f"the {len(rows)} most frequent mistakes of {len(wrong)}; --json prints the full matrix"
    return Table(["true class", "predicted", "nodes"], rows, align="llr", title=title).to_text()


def inspection_lines(report: dict[str, Any], max_rows: int | None = None) -> Iterator[str]:
    """Lines and tables of ``ergnn inspect``, with at most ``max_rows`` stored nodes and classes."""
    graph, lost = report["graph"], "drop" if report["exact"] else "forgetting"
    yield f"{report['folder']}: version {report['version']} of {', '.join(map(str, report['versions']))}"
    yield (
        f"graph: {graph['nodes']:,} nodes ({graph['labeled']:,} labeled), {graph['edges']:,} "
        f"{'weighted ' * graph['weighted']}edges, {graph['features'] or 0:,} features, {graph['forgotten']:,} forgotten"
    )
    yield "bytes: " + ", ".join(f"{name} {size:,}" for name, size in report["bytes"].items())
    if report["columns"]:
        yield from kind_lines(report["columns"])
    if report["measures"]:
        names = {"pm": "when learned", "aa": "after the last update", "fm": lost}
        shown = [f"{text} {percent(report['measures'][key])} %" for key, text in names.items()]
        yield "accuracy, mean over updates: " + ", ".join(shown)
        if report["measures"]["fm"] > 0:
            yield f"why accuracy falls: {report['why_accuracy_falls']}"
    if report["overall"]:
        yield f"accuracy {overall_line(report['overall'])}"
    yield from (f"warning: {text}" for text in report["warnings"])
    yield from offline_lines(report.get("offline"))
    yield from watch_lines(report)
    if report["doubts"]:
        yield from (f"labels: {text}; ergnn audit lists them" for text in audit_words(report["doubts"]))
    updates = [
        [
            *(str(u["update"] + 1), u["name"], u["counts"]["nodes"], ", ".join(u["classes"])[:40]),
            _shown(u["forgetting"]),
        ]
        for u in report["updates"]
    ]
    header = ["update", "name", "nodes", "classes learned", f"{lost} %"]
    yield from _table_lines(Table(header, updates, align="rlrlr"), len(updates))
    yield from _table_lines(class_table(report, max_rows), len(report["per_class"]))
    if report["confusion"]:
        yield from ["", confusion_text(report["classes"], report["confusion"])]
    yield from _table_lines(buffer_table(report, max_rows), len(report["buffer"]))


def _table_lines(table: Table, of: int) -> list[str]:
    rest = [f"… and {of - len(table.rows):,} more; --all lists them"] if of > len(table.rows) else []
    return ["", replace(table, title="").to_text(), *rest] if table.rows else []


def watch_lines(report: dict[str, Any]) -> Iterator[str]:
    """Drift of inputs, calibration and unknown classes, a line each."""
    tested = [(u["update"] + 1, u["input_drift"]) for u in report["updates"] if u.get("input_drift")]
    if tested:
        alarms = [(number, drift) for number, drift in tested if drift["alarm"]]
        rate, newest = percent(tested[-1][1]["alpha"]), ""
        if alarms:
            number, drift = alarms[-1]
            names = ", ".join(name for name, p in drift["p"].items() if p <= drift["alpha"])
            newest = f"; newest in update {number}: {names}"
        yield f"input drift: {len(alarms)} alarms in {len(tested)} updates (false alarms: {rate} %){newest}"
    calibration, unknown = report["watch"]["calibration"], report["watch"]["unknown"]
    if calibration:
        before, after = percent(calibration["ece"]), percent(calibration["ece_calibrated"])
        better = "better" if calibration["ece_calibrated"] < calibration["ece"] else "worse"
        verdict = "no difference" if before == after else better
        temperature = f"with temperature {calibration['temperature']:.2f}: {after} % ({verdict})"
        yield f"calibration error: {before} %; {temperature}"
    if unknown and unknown["threshold"] is not None:
        share, rate = percent(unknown["above"] / unknown["nodes"]), percent(unknown["rate"])
        nodes = f"{unknown['nodes']:,} nodes of the last update"
        yield f"unknown class: {share} % of {nodes} (nodes of known classes: {rate} %)"
