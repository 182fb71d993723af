"""The text output of ``ergnn run``. Scores are fractions, shown as percent with two decimals."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.filesize import decimal

from ergnn.pages.table import LEAKY, NOTHING, OWN_EDGES, Table, duration, percent

WIDTH = 80
MAX_TASKS = 8
"""With more tasks than this, the middle of the accuracy matrix is omitted to fit the width."""


def accuracy_table(result: Mapping[str, Any]) -> Table:
    """Build the mean accuracy matrix of one run: one row after each task, one column per task learned so far."""
    matrix = np.array(result["matrix"], dtype=np.float64)
    shown = _shown_tasks(len(matrix))
    metric = {"accuracy": "accuracy", "micro-f1": "micro-F1"}[result["metric"]]
    header = [f"{metric} (%)", *("…" if j is None else f"task {j + 1}" for j in shown)]
    rows = []
    for i in shown:
        cells = ["" if i is None or j is None or j > i else _score(matrix[i, j]) for j in shown]
        rows.append(["…" if i is None else f"after task {i + 1}", *cells])
    return Table(header, rows)


def measure_table(result: Mapping[str, Any]) -> Table:
    """Build a table of PM, FM and AA of one run with their spread, and the paper's if in ``result["paper"]``.

    The title marks leaky results, since the table may be shown without its page.
    """
    names = {
        "pm": "PM performance mean",
        "fm": f"FM forgetting mean (over {result['fm']['denominator']})",
        "aa": "AA average accuracy",
    }
    paper = result["paper"]
    header = ["%", "mean ± std", "95 % interval", *(["paper", "diff"] if paper else [])]
    rows = []
    for key, name in names.items():
        row = [name, *_spread(result[key])]
        if paper:
            theirs = paper.get(key)
            difference = NOTHING if theirs is None else f"{100 * (result[key]['mean'] - theirs):+.2f}"
            row += [_score(theirs), difference]
        rows.append(row)
    return Table(header, rows, title=LEAKY if result["leaky"] else "")


def run_text(result: Mapping[str, Any]) -> str:
    """Format the output of ``ergnn run`` from the object that ``ergnn run --json`` prints.

    It is at most 80 columns wide unless a name is longer.
    """
    blocks = [
        _heading(result),
        accuracy_table(result).to_text(),
        _tasks(result["tasks"] or []),
        measure_table(result).to_text(),
        _cost(result),
        "\n".join(_wrapped("Note", note) for note in result["notes"]),
    ]
    return "\n\n".join(block for block in blocks if block)


def _heading(result: Mapping[str, Any]) -> str:
    what = f"{result['dataset']} · {result['backbone']} · {result['method']}"
    if result["selector"] is not None:
        what += f" · {result['selector']}, {_count(result['per_class'], 'node')} per class"
    how = [
        *([f"scenario {result['scenario']}"] if result["scenario"] else []),
        f"protocol {result['protocol']}",
        f"{result['split']} split",
        f"{result['head']} head",
        f"{result['edges'] or 'no'} edges",
        _count(len(result["seeds"]), "seed"),
    ]
    marks = [*([LEAKY] if result["leaky"] else []), *([OWN_EDGES] if result["reveals_labels"] else [])]
    return "\n".join([what, *textwrap.wrap(" · ".join(how), WIDTH), *marks])


def _tasks(tasks: Sequence[Sequence[object]]) -> str:
    return "\n".join(
        " …" if i is None else _wrapped(f" task {i + 1}", ", ".join(map(str, tasks[i])))
        for i in _shown_tasks(len(tasks))
    )


def _cost(result: Mapping[str, Any]) -> str:
    buffer = result["buffer"]
    lines = []
    if buffer["nodes"]:
        lines.append(_wrapped("Buffer", f"{_count(buffer['nodes'], 'node')}, {decimal(buffer['bytes'])}"))
    lines.append(_wrapped("Time", duration(result["seconds"])))
    training, selection = result["train_seconds"], result["select_seconds"]
    if training and selection and buffer["nodes"]:
        lines.append(_wrapped("", f"selection took {100 * selection / training:.0f} % of the training time"))
    lines.append(_wrapped("Memory", f"{result['peak_memory_mb']:,.0f} MB (peak)"))
    return "\n".join(lines)


def _shown_tasks(number: int) -> list[int | None]:
    """Return all tasks, or the first four and the last three with None between them."""
    if number <= MAX_TASKS:
        return list(range(number))
    return [0, 1, 2, 3, None, number - 3, number - 2, number - 1]


def _score(fraction: float | None) -> str:
    return NOTHING if fraction is None or np.isnan(fraction) else percent(fraction)


def _spread(summary: Mapping[str, Any]) -> tuple[str, str]:
    mean, half = summary["mean"], summary["ci95"]
    if half is None:
        return percent(mean), NOTHING
    return f"{percent(mean)} ± {percent(summary['std'])}", f"[{percent(mean - half)}, {percent(mean + half)}]"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _wrapped(label: str, text: str) -> str:
    """Format a label and a text with a hanging indent."""
    return textwrap.fill(text, WIDTH, initial_indent=f"{label:<8} ", subsequent_indent=" " * 9)
