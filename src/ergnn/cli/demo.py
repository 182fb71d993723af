"""``ergnn demo``: a growing graph from tables to predictions, in one command."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ergnn.config.errors import InputError
from ergnn.folder.example import write_files

WEEK = "observe {learner} --nodes {files}/nodes_%d.csv --edges {files}/edges_%d.csv --task-name 'week %d'"
WEEKS = (
    "Week 1: customers, payments and who churned. The columns are read as they are.",
    "Week 2: the graph grows, and the model with it.",
    "Week 3: the graph grows, and the model with it.",
    "Week 4.",
)
STEPS = (
    ("Create a folder for the learner.", "init {learner}"),
    *((text, WEEK % (week, week, week)) for week, text in enumerate(WEEKS, 1)),
    (
        "Predict new customers, who have payments but no label yet.",
        "predict {learner} --nodes {files}/new.csv --edges {files}/new_edges.csv",
    ),
    ("Score every week on customers that were held out.", "evaluate {learner} --per-class"),
    (
        "Remove a customer from the graph, the model and all files; the result equals never having seen her.",
        "forget {learner} --nodes {files}/gone.csv --purge",
    ),
    ("Write a page about the learner.", "inspect {learner} -o {out}/learner.html"),
)
"""What each step shows, and its command."""
NEXT = (
    ("why a customer is predicted to churn", "explain {learner} --nodes {files}/ask.csv -o {out}/why.html"),
    ("labels that look wrong", "audit {learner}"),
    ("the folder over HTTP", "serve {learner}"),
)
"""Commands to try next."""


def demo(args: argparse.Namespace) -> int:
    from ergnn.cli.main import main  # which finds this command

    out = Path(args.folder)
    if out.exists():
        raise InputError(f"{out} exists already; name another folder: ergnn demo DIR")
    names = {"out": out, "files": out / "tables", "learner": out / "learner"}
    quoted = {name: shlex.quote(str(path)) for name, path in names.items()}
    print(f"Writing tables of {args.customers:,} customers and their payments, in four weeks, to {names['files']}")
    write_files(names["files"], args.customers, new=5)
    (names["files"] / "gone.csv").write_text("id\nc0\n", encoding="utf-8")
    (names["files"] / "ask.csv").write_text("id\nc1\n", encoding="utf-8")
    for number, (text, command) in enumerate(STEPS, 1):
        line = command.format(**quoted)
        print(f"\n── {number}/{len(STEPS)}  {text}\n$ ergnn {line}\n", flush=True)
        if status := main(shlex.split(line)):
            return status
    print(f"\nThe page about the learner: {(out / 'learner.html').resolve()}\n\nTry next:")
    for text, command in NEXT:
        print(f"  ergnn {command.format(**quoted)}   # {text}")
    return 0
