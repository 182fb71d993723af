"""Commands on a learner's folder, and their records and reports as text for a terminal."""

from __future__ import annotations

import argparse
import csv
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from ergnn.cli.arguments import MAX_ROWS, NAMED_COLUMNS
from ergnn.cli.options import given, refuse_unused
from ergnn.cli.output import output, print_json, progress_bar, write_rows
from ergnn.config.errors import InputError, did_you_mean
from ergnn.config.files import wrap_errors
from ergnn.config.imports import extra
from ergnn.config.limits import ServeLimits
from ergnn.data.tables import Columns, EdgeTable, NodeTable, read_graph, read_nodes, read_tables
from ergnn.folder import LearnerFolder, Settings, page, why
from ergnn.pages.table import Table, percent, render_page

UNKNOWN = {True: "yes", False: "no", None: ""}
"""The column ``unknown``: whether a node seems to be of no class that was learned; empty if that cannot be told."""
MAX_CLASSES = 12
"""Maximum number of classes for which the confusion matrix is printed."""


def folder_of(args: argparse.Namespace) -> LearnerFolder:
    """Return the folder of a command; what follows computes on as many threads as told."""
    from ergnn.engine.hardware import set_threads

    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
    set_threads(getattr(args, "threads", None))
    return LearnerFolder(args.folder)


def told_columns(args: argparse.Namespace) -> Columns:
    """Return the columns that the options name; the options are removed."""
    options = vars(args)
    named = {name: options.pop(f"{name}_column") for name in NAMED_COLUMNS}
    more = {"features": "feature_columns", "ignore": "ignore_column", "keep_na_labels": "keep_na_labels"}
    more["type_weights"] = "edge_type_weights"
    return Columns(**named, **{name: options.pop(dest) for name, dest in more.items()})


def tables_of(args: argparse.Namespace, folder: LearnerFolder) -> tuple[Columns, NodeTable | None, EdgeTable | None]:
    """Read nodes and edges from the files of the options; also return the columns that the options name."""
    columns, limits = (told := told_columns(args)).recall(folder.columns.told()), folder.settings.limits
    nodes, edges, graph = (getattr(args, name, None) or None for name in ("nodes", "edges", "graph"))
    if graph and (nodes or edges):
        raise InputError("--graph is one file with nodes and edges; it excludes --nodes and --edges")
    tables = read_graph(graph, columns=columns, limits=limits) if graph else read_tables(nodes, edges, columns, limits)
    return told, *tables


def _read_ids(args: argparse.Namespace, folder: LearnerFolder) -> list[str] | None:
    _, nodes, _ = tables_of(args, folder)
    return None if nodes is None else [str(name) for name in nodes.ids]


def init_command(args: argparse.Namespace) -> None:
    columns = told_columns(args)
    options = given(args, {"command", "hint", "folder", "plugins"})
    settings = Settings.from_settings(options)
    refuse_unused(options, settings.config)
    LearnerFolder.create(args.folder, settings, columns)
    print(f"{args.folder}: created; add nodes, edges and labels with `ergnn observe {shlex.quote(args.folder)} …`")


def verify_command(args: argparse.Namespace) -> int:
    statements = folder_of(args).verify(args.certificate)
    for statement, wrong in statements.items():
        print(f"ok: {statement}" if wrong is None else f"WRONG: {statement}; {wrong}")
    return 2 if any(statements.values()) else 0


def export_command(args: argparse.Namespace) -> None:
    suffix, forms = Path(args.out).suffix, {".onnx": "onnx", ".pt2": "torch", ".safetensors": "safetensors"}
    if suffix not in forms and (guess := did_you_mean(suffix, forms)):
        raise InputError(f"{args.out}: unknown suffix {suffix}{guess}; known are {', '.join(forms)}")
    form = args.format or forms.get(suffix, "safetensors")
    for path in LearnerFolder(args.folder).export(args.out, format=form, graph=args.graph, version=args.version):
        print(f"{path}: {path.stat().st_size:,} bytes")


def rollback_command(args: argparse.Namespace) -> None:
    print(f"{args.folder}: the current version is now {LearnerFolder(args.folder).rollback(args.to)}")


def set_command(args: argparse.Namespace) -> None:
    values = {name: value for pairs in args.settings for name, value in pairs.items()}
    settings = LearnerFolder(args.folder).set(values).settings()
    print(f"{args.folder}: " + ", ".join(f"{name} is now {settings[name]}" for name in values))


def observe_command(args: argparse.Namespace) -> None:
    folder = folder_of(args)
    say = partial(print, file=sys.stderr if args.json else sys.stdout) if not args.quiet else lambda text: None
    with_files = bool(args.nodes or args.edges or args.graph)
    if args.discard:
        name = folder.discard()
        say(f"{args.folder}: " + ("no interrupted update" if name is None else f"discarded {name!r}"))
        if not with_files:
            return
    if args.resume and with_files:
        raise InputError("--resume uses the files already stored in the folder; omit --nodes, --edges and --graph")
    if not args.resume and not with_files:
        raise InputError("no input files; use --nodes and --edges, or --graph, or --resume")
    columns, *tables = tables_of(args, folder)
    with folder.snapshot() as snapshot:
        epochs = snapshot.learner.epochs  # None: one solve, no epochs to count
    with progress_bar("solving" if epochs is None else "learning", epochs, enabled=not args.quiet) as advance:
        observe = partial(folder.observe, *tables, name=args.task_name or "", columns=columns)
        learn = folder.resume if args.resume else observe
        on_epoch = None if advance is None else partial(advance, 1)
        record = learn(checkpoint_seconds=args.checkpoint_seconds, on_epoch=on_epoch)
    if record is None:
        say(f"{args.folder}: no interrupted update to resume")
        return
    for note in record["notes"]:
        print(f"ergnn: note: {note}", file=sys.stderr)
    if args.json:
        print_json(record)
    else:
        say(describe(record))


def show(
    args: argparse.Namespace,
    report: Any,
    words: Iterable[str],
    details: Iterable[str] = (),
    write: Callable[[TextIO], object] = lambda file: None,
) -> None:
    """Write what a command computed to the file of ``--out``, if there is one; print it as JSON, or as text.

    The text is ``words``, and without a file also ``details``.
    """
    if out := getattr(args, "out", None):
        with output(out) as file:
            write(file)
    if args.json:
        print_json(report)
    elif lines := [*words, *(() if out else details)]:
        print("\n".join(lines))


def forget_command(args: argparse.Namespace) -> None:
    folder = folder_of(args)
    ids: Sequence[str] = []
    if args.nodes:
        columns = replace(Columns(id=args.id_column).recall(folder.columns.told()), features=[])
        ids = list(read_nodes(args.nodes, columns=columns, limits=folder.settings.limits).ids)
    elif not args.purge:
        raise InputError("no nodes are given; use --nodes, or --purge for nodes that were forgotten before")
    report = folder.forget(ids, retrain=args.retrain, purge=args.purge, certificate=args.certificate)
    show(args, report, [render("forget.txt", report=report)])


def predict_command(args: argparse.Namespace) -> None:
    folder = folder_of(args)
    _, nodes, edges = tables_of(args, folder)
    assert nodes is not None
    classes = args.classes
    if args.update is not None:
        with folder.snapshot(args.version) as snapshot:
            classes = snapshot.classes_of(args.update - 1)
    chunks = folder.predict(nodes=nodes, edges=edges, classes=classes, version=args.version)
    unknown = iter(folder.find_unknown(nodes, edges, args.version))
    with output(args.out) as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, (ids, names, probabilities) in enumerate(chunks):
            if not number:
                last = ["second_label", "second_probability", "unknown"]
                writer.writerow(["id", "label", "probability", *(f"p({name})" for name in names), *last])
            ranked = (-probabilities).argsort(1, kind="stable")[:, :2]  # of equal ones, the first is the prediction
            for i, top, row in zip(ids, ranked, probabilities, strict=True):
                best, *second = ((names[k], f"{row[k]:.6f}") for k in top)
                last = [*(second[0] if second else ("", "")), UNKNOWN[next(unknown)]]
                writer.writerow([i, *best, *(f"{p:.6f}" for p in row), *last])


def evaluate_command(args: argparse.Namespace) -> None:
    folder = folder_of(args)
    held_out = folder.predict_held_out(args.version, task_known=args.task_known)
    rows = []
    for update, right, of in held_out.scores():
        record = held_out.records[update]
        recorded = [] if args.task_known else record["scores"]  # recorded with all classes competing
        then = next((a / b for number, a, b in recorded if number == update), None)
        rows.append({"update": update + 1, "name": record["name"], "nodes": of, "accuracy": right / of, "then": then})
    report: dict[str, Any] = {"updates": rows, "overall": held_out.overall(), "warnings": held_out.warnings()}
    if args.per_class:
        report["classes"] = held_out.per_class()
    if args.confusion:
        report["confusion"] = {"classes": held_out.classes, "nodes": held_out.confusion().tolist()}
    show(args, report, ["\n\n".join(score_blocks(report)) if rows else "no update has held-out nodes yet"])


def inspect_command(args: argparse.Namespace) -> int:
    folder = folder_of(args)
    if args.check:
        wrong = folder.check()
        print("\n".join([f"{args.folder}: {text}" for text in wrong]) or f"{args.folder}: no errors found")
        return 2 if wrong else 0
    report = folder.inspect(args.version)
    lines = inspection_lines(report, None if args.all else MAX_ROWS)
    show(args, report, (), lines, lambda file: file.write(page.folder_page(report)))
    return 0


def explain_command(args: argparse.Namespace) -> None:
    folder = folder_of(args)
    ids = _read_ids(args, folder)
    with folder.snapshot(args.version) as snapshot:
        nodes = why.explain_nodes(snapshot, ids or [], args.count)
        version = snapshot.version.number
    blocks = ["\n".join([*page.in_words(node), *(t.to_text() for t in page.node_tables(node))]) for node in nodes]
    written = page.explain_page(args.folder, version, nodes) if args.out else ""
    show(args, {"version": version, "nodes": nodes}, (), ["\n\n".join(blocks)], lambda file: file.write(written))


def audit_command(args: argparse.Namespace) -> None:
    with folder_of(args).snapshot(args.version) as snapshot:
        report = why.audit_labels(snapshot, None if args.out else args.count, args.plant)
    rows = [
        {
            **row,
            **{name: f"{row[name]:.6f}" for name in ("probability", "class_probability")},
            "similar": "; ".join(f"{one['id']} ({one['label']})" for one in row["similar"]),
        }
        for row in report["rows"]
    ]
    names = ("id", "label", "update", "probability", "class", "class_probability", "similar")
    shown = {**report, "rows": report["rows"][: args.count]}
    table = page.audit_table(shown).to_text()
    show(args, shown, [page.audit_words(report)], [table], partial(write_rows, rows, names))


def suggest_command(args: argparse.Namespace) -> None:
    folder = folder_of(args)
    among = _read_ids(args, folder)
    with folder.snapshot(args.version) as snapshot:
        report = why.suggest_nodes(snapshot, args.count, among, args.by)
    rows, table = report["rows"], page.suggestion_table(report).to_text()
    show(args, report, [page.suggestion_words(report)], [table], partial(write_rows, rows, list(rows[0])))


def serve_command(args: argparse.Namespace) -> None:
    for module in ("fastapi", "uvicorn", "prometheus_client", "python_multipart"):
        extra(module, "serve", "ergnn serve")
    from ergnn.serve.server import serve

    limits = {name.removeprefix("max_"): value for name, value in given(args, ()).items() if name.startswith("max_")}
    token = read_token(args.token_file)
    serve(folder_of(args).root, args.host, args.port, token, ServeLimits(**limits), args.plugins)


def read_token(path: str | None) -> str | None:
    """The token of a file, or of the environment; None without either."""
    if path is None:
        return os.environ.get("ERGNN_TOKEN") or None
    with wrap_errors(f"--token-file {path}", "text"):
        token = Path(path).read_text(encoding="utf-8").strip()
    if not token:
        raise InputError(f"--token-file {path}: is empty")
    return token


def render(template: str, **values: Any) -> str:
    """Render a template of this package without a last newline."""
    return render_page(template, "ergnn.cli", **values).rstrip("\n")


def describe(record: dict[str, Any]) -> str:
    """The record of an update."""
    columns, overall = kinds(record.get("columns")), overall_line(record.get("overall"))
    return render("update.txt", record=record, columns=columns, overall=overall)


def kinds(rows: list[list[str]] | None) -> str:
    """What the columns of a table are and what they become."""
    return Table(["column", "kind", "because", "becomes"], rows or [], "llll").to_text()


def overall_line(overall: dict[str, Any] | None) -> str:
    """The scores of :meth:`ergnn.learning.evaluation.HeldOut.overall`, if there are any."""
    if not overall:
        return ""
    scores = [f"{name} {percent(overall[key])} %" for key, name in page.SCORES.items() if key != "accuracy"]
    scores += [] if overall["roc_auc"] is None else [f"ROC AUC {overall['roc_auc']:.3f}"]
    accuracy = f"over all {overall['nodes']:,} held-out nodes scored: {percent(overall['accuracy'])} %"
    return f"{accuracy}; {', '.join(scores)}"


def score_blocks(report: dict[str, Any]) -> Iterator[str]:
    """Tables and lines of ``ergnn evaluate``."""
    rows, header = report["updates"], ["update", "name", "held out", "accuracy %", "when learned %"]
    keys = ("accuracy", "then")
    cells = [[str(row["update"]), row["name"], row["nodes"], *(percent(row[key]) for key in keys)] for row in rows]
    yield Table(header, cells, align="rlrrr").to_text()
    lines = [f"mean over updates: {percent(sum(row['accuracy'] for row in rows) / len(rows))} %"]
    lines += [overall_line(report["overall"]), *(f"warning: {text}" for text in report["warnings"])]
    yield "\n".join(lines)
    if "classes" in report:
        yield replace(page.class_table({"per_class": report["classes"]}), title="").to_text()
    if "confusion" in report:
        matrix = report["confusion"]["nodes"]
        entries = [(i, j, n) for i, row in enumerate(matrix) for j, n in enumerate(row) if n]
        yield confusion_text(report["confusion"]["classes"], entries)


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
    lost, updates = "drop" if report["exact"] else "forgetting", report["updates"]
    tested = [(u["update"] + 1, u["input_drift"]) for u in updates if u.get("input_drift")]
    yield render(
        "inspection.txt",
        report=report,
        lost=lost,
        columns=kinds(report["columns"]),
        overall=overall_line(report["overall"]),
        tested=tested,
        alarms=[(number, drift) for number, drift in tested if drift["alarm"]],
        doubts=page.audit_words(report["doubts"]) if report["doubts"] else "",
    )
    rows = [
        [str(u["update"] + 1), u["name"], u["counts"]["nodes"], ", ".join(u["classes"])[:40], percent(u["forgetting"])]
        for u in updates
    ]
    header = ["update", "name", "nodes", "classes learned", f"{lost} %"]
    yield from _table_lines(Table(header, rows, align="rlrlr"), len(rows))
    yield from _table_lines(page.class_table(report, max_rows), len(report["per_class"]))
    if report["confusion"]:
        yield from ["", confusion_text(report["classes"], report["confusion"])]
    yield from _table_lines(page.buffer_table(report, max_rows), len(report["buffer"]))


def _table_lines(table: Table, of: int) -> list[str]:
    rest = [f"… and {of - len(table.rows):,} more; --all lists them"] if of > len(table.rows) else []
    return ["", replace(table, title="").to_text(), *rest] if table.rows else []
