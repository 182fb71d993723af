"""Tables for terminals, Markdown and LaTeX, and the page of text that one run prints.

Numbers come in as fractions and leave as percent with two decimals.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ergnn.errors import InputError

FORMATS = ("text", "markdown", "latex")
LEAKY = "LEAKY (selector saw test labels)"
WIDTH = 80
MOST_TASKS = 8
"""More tasks than this do not fit the width: the middle of the accuracy matrix is left out."""

NOTHING = "–"
"""Shown where there is no number."""


@dataclass(frozen=True)
class Table:
    """Cells of text under a header; every row is as long as the header.

    Args:
        header: the columns' names.
        rows: the cells.
        align: one letter a column, ``l``, ``c`` or ``r``; by default the first is left, the others right.
        title: a line above the table, its caption in LaTeX.

    >>> print(Table(["method", "PM"], [["finetune", "94.19"], ["replay", "95.66"]]).to_text())
     method   │    PM
    ──────────┼──────
     finetune │ 94.19
     replay   │ 95.66
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        columns = len(self.header)
        if not columns:
            raise InputError("a table needs at least one column")
        for number, row in enumerate(self.rows):
            if len(row) != columns:
                raise InputError(f"table row {number} has {len(row)} cells; the header has {columns}")
        align = self.align or "l" + "r" * (columns - 1)
        if len(align) != columns or set(align) - set("lcr"):
            raise InputError(f"align is {align!r}; it needs one of l, c, r for each of {columns} columns")
        object.__setattr__(self, "align", align)

    def render(self, format: str) -> str:
        """The table as ``"text"``, ``"markdown"`` or ``"latex"``."""
        renderers = {"text": self.to_text, "markdown": self.to_markdown, "latex": self.to_latex}
        if format not in renderers:
            raise InputError(f"unknown table format {format!r}; choose one of: {', '.join(FORMATS)}")
        return renderers[format]()

    def to_text(self) -> str:
        """Aligned columns with a rule under the header, for a terminal."""
        widths = [max(map(display_width, column)) for column in zip(self.header, *self.rows, strict=True)]
        header, *rows = ([_pad(*cell) for cell in zip(row, widths, self.align, strict=True)] for row in self._all)
        rule = ["─" * width for width in widths]
        lines = [_line(header), _line(rule, gap="──", bar="─┼─", edge="─"), *map(_line, rows)]
        return "\n".join([self.title, *lines] if self.title else lines)

    def to_markdown(self) -> str:
        r"""A table of GitHub-flavoured Markdown.

        >>> print(Table(["selector", "FM"], [["mf*", "21.88"]]).to_markdown())
        | selector | FM |
        | :-- | --: |
        | mf\* | 21.88 |
        """
        marks = {"l": ":--", "c": ":-:", "r": "--:"}
        rows = [[_escape_markdown(cell) for cell in row] for row in self._all]
        rows.insert(1, [marks[letter] for letter in self.align])
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([f"**{_escape_markdown(self.title)}**", "", *lines] if self.title else lines)

    def to_latex(self) -> str:
        r"""A ``tabular`` in the style of booktabs, inside a ``table`` when there is a title.

        >>> print(Table(["method", "FM (%)"], [["replay", "-0.50"]]).to_latex())
        \begin{tabular}{lr}
        \toprule
        method & FM (\%) \\
        \midrule
        replay & $-$0.50 \\
        \bottomrule
        \end{tabular}
        """
        header, *rows = (_protect(" & ".join(map(_escape_latex, row))) + r" \\" for row in self._all)
        lines = [rf"\begin{{tabular}}{{{self.align}}}", r"\toprule", header, r"\midrule", *rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        if self.title:
            caption = rf"\caption{{{_escape_latex(self.title)}}}"
            lines = [r"\begin{table}", r"\centering", caption, *lines, r"\end{table}"]
        return "\n".join(lines)

    @property
    def _all(self) -> list[Sequence[str]]:
        return [self.header, *self.rows]


def display_width(text: str) -> int:
    """Columns that a terminal gives to a text: two for wide East Asian characters, none for combining ones.

    >>> display_width("naïve"), display_width("nai\u0308ve"), display_width("図")
    (5, 5, 2)
    """
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text
    )


def percent(fraction: float) -> str:
    """A fraction as percent with two decimals, never ``-0.00``.

    >>> percent(0.94186), percent(-0.00001)
    ('94.19', '0.00')
    """
    return f"{round(100 * fraction, 2) + 0.0:.2f}"


def accuracy_table(result: Mapping[str, Any]) -> Table:
    """The scores of one run: a row after each task, a column for each task learnt so far.

    ``result["matrix"]`` is the mean matrix, or one matrix for each seed, which are averaged here.
    """
    matrix = np.array(result["matrix"], dtype=np.float64)
    if matrix.ndim == 3:
        matrix = matrix.mean(axis=0)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"matrix has shape {list(matrix.shape)}; it needs to be [M, M] or [seeds, M, M]")
    shown = _shown_tasks(len(matrix))
    metric = {"accuracy": "accuracy", "micro-f1": "micro-F1"}[result.get("metric", "accuracy")]
    header = [f"{metric} (%)", *("…" if j is None else f"task {j + 1}" for j in shown)]
    rows = []
    for i in shown:
        cells = ["" if i is None or j is None or j > i else _score(matrix[i, j]) for j in shown]
        rows.append(["…" if i is None else f"after task {i + 1}", *cells])
    return Table(header, rows)


def measure_table(result: Mapping[str, Any]) -> Table:
    """PM, FM and AA of one run with their spread, beside the paper's where ``result["paper"]`` has them.

    The title says so where the result is leaky, for a table that leaves its page.
    """
    names = {
        "pm": "PM performance mean",
        "fm": f"FM forgetting mean (over {result['fm']['denominator']})",
        "aa": "AA average accuracy",
    }
    paper = result.get("paper")
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


RESULT_FIELDS = (
    *(
        "dataset",
        "backbone",
        "method",
        "selector",
        "per_class",
        "protocol",
        "split",
        "head",
        "edges",
        "seeds",
    ),
    *("pm", "fm", "aa", "matrix", "buffer", "seconds", "peak_memory_mb", "leaky"),
)


def run_table(result: Mapping[str, Any]) -> str:
    """The page that ``ergnn run`` prints, from the object that ``ergnn run --json`` prints.

    Args:
        result: the fields ``RESULT_FIELDS``, and where there are any: ``metric``, ``notes`` (list of texts),
            ``tasks`` (the names of each task's classes), ``paper`` (``pm`` and ``fm`` as fractions, or None).
            ``buffer["ids"]`` is a list of node ids, or one such list for each seed.

    Returns:
        What was run, the mean accuracy matrix, PM, FM and AA with their spread, what was remembered, what it
        cost, and what to know before quoting it; at most 80 columns wide unless a name is longer.
    """
    missing = [name for name in RESULT_FIELDS if name not in result]
    if missing:
        raise InputError(f"the result of a run has no field {missing[0]!r}; it needs {', '.join(RESULT_FIELDS)}")
    blocks = [
        _heading(result),
        accuracy_table(result).to_text(),
        _tasks(result.get("tasks") or []),
        measure_table(result).to_text(),
        _cost(result),
        "\n".join(_wrapped("Note", note) for note in result.get("notes") or []),
    ]
    return "\n\n".join(block for block in blocks if block)


def _heading(result: Mapping[str, Any]) -> str:
    what = f"{result['dataset']} · {result['backbone']} · {result['method']}"
    if result["selector"] is not None:
        what += f" · {result['selector']}, {_count(result['per_class'], 'node')} a class"
    seeds = result["seeds"]
    how = [
        f"protocol {result['protocol']}",
        f"{result['split']} split",
        f"{result['head']} head",
        f"{result['edges']} edges",
        _count(seeds if isinstance(seeds, int) else len(seeds), "seed"),
    ]
    return "\n".join([what, *textwrap.wrap(" · ".join(how), WIDTH), *([LEAKY] if result["leaky"] else [])])


def _tasks(tasks: Sequence[Sequence[object]]) -> str:
    return "\n".join(
        " …" if i is None else _wrapped(f" task {i + 1}", ", ".join(map(str, tasks[i])))
        for i in _shown_tasks(len(tasks))
    )


def _cost(result: Mapping[str, Any]) -> str:
    kept = result["buffer"]
    lines = []
    if kept and kept["nodes"]:
        ids = list(kept["ids"])
        lines.append(_wrapped("Buffer", f"{_count(kept['nodes'], 'node')}, {_size(kept['bytes'])}"))
        if ids and isinstance(ids[0], Sequence):
            seeds = result["seeds"]
            seed = 0 if isinstance(seeds, int) else seeds[0]
            lines.append(_wrapped("", f"seed {seed}: {_listing(ids[0])}"))
        elif ids:
            lines.append(_wrapped("", _listing(ids)))
    lines.append(_wrapped("Time", _duration(result["seconds"])))
    training, selection = result.get("train_seconds"), result.get("select_seconds")
    if training and selection and kept and kept["nodes"]:
        lines.append(_wrapped("", f"selection took {100 * selection / training:.0f} % of what training took"))
    if result["peak_memory_mb"] is not None:
        lines.append(_wrapped("Memory", f"{result['peak_memory_mb']:,.0f} MB at the peak"))
    return "\n".join(lines)


def _shown_tasks(number: int) -> list[int | None]:
    """All tasks, or the first four and the last three with None between them."""
    if number <= MOST_TASKS:
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


def _listing(ids: Sequence[int], most: int = 40) -> str:
    text = ", ".join(map(str, ids[:most]))
    return text if len(ids) <= most else f"{text} and {len(ids) - most:,} more"


def _size(bytes: float) -> str:
    """
    >>> _size(512), _size(34_400), _size(2_000_000)
    ('512 B', '34.4 kB', '2.0 MB')
    """
    if bytes < 1000:
        return f"{bytes:.0f} B"
    for unit in ("kB", "MB"):
        bytes /= 1000
        if bytes < 1000:
            return f"{bytes:.1f} {unit}"
    return f"{bytes / 1000:.1f} GB"


def _duration(seconds: float) -> str:
    """
    >>> _duration(3.14), _duration(125), _duration(7260)
    ('3.1 s', '2 min 05 s', '2 h 01 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _wrapped(label: str, text: str) -> str:
    """A label and a text beside it that keeps its left edge over several lines."""
    return textwrap.fill(text, WIDTH, initial_indent=f"{label:<8} ", subsequent_indent=" " * 9)


def _pad(text: str, width: int, align: str) -> str:
    space = width - display_width(text)
    left = {"l": 0, "c": space // 2, "r": space}[align]
    return " " * left + text + " " * (space - left)


def _line(cells: Sequence[str], gap: str = "  ", bar: str = " │ ", edge: str = " ") -> str:
    first, *others = cells
    return (edge + first + (bar + gap.join(others) if others else "")).rstrip()


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<])", r"\\\1", text).replace("\n", "<br>")


_LATEX = {
    **{letter: rf"\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "…": r"\dots{}", "–": "--"},
}


def _protect(row: str) -> str:
    """LaTeX would read a row that opens with ``[`` or ``*`` as an option of the line break before it."""
    return f"{{{row[0]}}}{row[1:]}" if row.startswith(("[", "*")) else row


def _escape_latex(text: str) -> str:
    escaped = "".join(_LATEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<![\w)\-])-(?=\d)", "$-$", escaped)
