"""Tables of results: the paper's number, ours with its 95 % interval, and the difference; sections of reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ergnn import __version__
from ergnn.config.files import write_file
from ergnn.lab.grid import PaperResult
from ergnn.lab.report.rows import ResultRow
from ergnn.lab.store import machine_facts
from ergnn.learning.metrics import Summary
from ergnn.pages.figures import Drawing
from ergnn.pages.table import FORMATS, LEAKY, NOTHING, OWN_EDGES, Table, percent

QUICK_MARK = "QUICK: few seeds and epochs, to check that everything works; do not quote."


@dataclass(frozen=True)
class Section:
    """A title, a table, the notes and commands below it, and figures, which only HTML pages show.

    A figure has a caption: a name and, after ``|``, a remark.
    """

    title: str
    table: Table | None
    notes: Sequence[str] = ()
    commands: Sequence[tuple[str, str]] = ()
    figures: Sequence[tuple[str, Drawing]] = ()

    def render(self, format: str) -> str:
        """Render as ``text``, ``markdown`` or ``latex``."""
        heading, note = {"text": ("", ""), "markdown": ("## ", "- "), "latex": ("% ", "% ")}[format]
        blocks = [heading + self.title]
        if self.table is not None:
            blocks.append(self.table.render(format))
        if self.notes:
            blocks.append("\n".join(note + line for line in self.notes))
        if self.commands:
            width = max(len(label) for label, _ in self.commands)
            blocks.append(_as_code([f"{label:<{width}}  {command}" for label, command in self.commands], format))
        return "\n\n".join(blocks)


def render_sections(sections: Sequence[Section], format: str, command: str = "") -> str:
    """Render sections, and the command that computed them, as ``text``, ``markdown`` or ``latex``."""
    text = "\n\n\n".join(section.render(format) for section in sections)
    return text + (f"\n\n{_as_code([command], format)}\n" if command else "\n")


def write_sections(folder: Path, name: str, sections: Sequence[Section], command: str) -> None:
    """Write sections as text, Markdown and LaTeX."""
    for format, suffix in FORMATS.items():
        write_file(folder / f"{name}.{suffix}", render_sections(sections, format, command).encode())


def write_json(folder: Path, command: str, **results: Any) -> None:
    """Write results, and which command, version and machine computed them, as ``results.json``."""
    origin = {"command": command, "code_version": __version__, "machine": machine_facts()}
    write_file(folder / "results.json", json.dumps({**origin, **results}, ensure_ascii=False).encode())


def _as_code(lines: Sequence[str], format: str) -> str:
    if format == "markdown":
        lines = ["```", *lines, "```"]
    return "\n".join(f"% {line}" for line in lines) if format == "latex" else "\n".join(lines)


def result_table(
    rows: Sequence[tuple[str, ResultRow | None, PaperResult | None]],
    *,
    order: Sequence[str] = ("pm", "fm", "aa"),
    scale: float = 100,
    marks: Mapping[str, str] | None = None,
    count_runs: bool = False,
) -> Table:
    """Build a table of measures, with the paper's numbers where it has them.

    Args:
        rows: labels, results (None without runs), and the paper's results.
        order: names of the measures.
        scale: 100 for percent, 1 for fractions as in the paper's table 4.
        marks: significance marks after FM, by row label.
        count_runs: whether the last column is the number of runs.
    """
    header, columns = ["%" if scale == 100 else ""], [[name for name, _, _ in rows]]
    for measure in order:
        ours = [None if row is None else row.summary(measure) for _, row, _ in rows]
        cells = [NOTHING if summary is None else summary.text(scale) for summary in ours]
        if measure == "fm" and marks:
            width = max(map(len, marks.values()))
            cells = [f"{cell} {marks.get(name, ''):<{width}}" for cell, (name, _, _) in zip(cells, rows, strict=True)]
        printed = [(paper or {}).get(measure) for _, _, paper in rows]
        title = measure.upper()
        if all(value is None for value in printed):
            header.append(f"{title} ours")
            columns.append(cells)
        else:
            header += [f"{title} paper", f"{title} ours", "diff"]
            differences = [_difference(*pair, scale) for pair in zip(ours, printed, strict=True)]
            columns += [[NOTHING if v is None else percent(v, scale) for v in printed], cells, differences]
    if count_runs:
        header.append("runs")
        columns.append([str(len(row.runs) if row else 0) for _, row, _ in rows])
    return Table(header, list(zip(*columns, strict=True)))


def _difference(ours: Summary | None, printed: float | None, scale: float) -> str:
    if ours is None or printed is None:
        return NOTHING
    text = percent(ours.mean - printed, scale)
    return text if text.startswith("-") else f"+{text}"


def evolution_table(rows: Sequence[tuple[str, ResultRow]]) -> Table:
    """Build the numbers of figure 2: average accuracy over the tasks seen so far, after each task."""
    lines = [[name, *(summary.text() for summary in row.after_each_task)] for name, row in rows]
    return Table(["%", *(f"after task {i}" for i in range(1, max(map(len, lines))))], lines)


def sensitivity_table(rows: Sequence[tuple[str, ResultRow]]) -> Table:
    """Build the numbers of figure 3: FM against e, one line per name, and of joint training, which stores all nodes."""
    sizes = sorted({row.per_class for _, row in rows if row.first.selector})
    lines: dict[str, dict[int | None, str]] = {}
    for name, row in rows:
        lines.setdefault(name, {})[row.per_class if row.first.selector else None] = row.summary("fm").text()
    body = [[name, *(line.get(size, NOTHING) for size in (*sizes, None))] for name, line in lines.items()]
    return Table(["FM, %", *(f"e = {size}" for size in sizes), "joint"], body)


def cost_table(rows: Sequence[ResultRow]) -> Table:
    """Build a table of seconds per run, total seconds, and peak memory."""
    body: list[list[str]] = []
    for row in rows:
        seconds, nodes = sum(run.seconds for run in row.runs), sum(len(run.buffer_ids) for run in row.runs)
        peak = max(run.peak_memory_mb for run in row.runs)
        stored = f"{nodes / len(row.runs):,.0f}" if row.first.selector else NOTHING
        mean = seconds / len(row.runs)
        body.append([row.name, row.first.dataset, f"{mean:.2f}", f"{seconds:.1f}", f"{peak:,.0f}", stored])
    return Table(["row", "data set", "s per run", "s total", "peak MB", "stored nodes"], body)


def caveats(rows: Sequence[ResultRow]) -> list[str]:
    """Return notes on rows that used test labels or whose edges reveal labels."""
    notes = [f"leaky: {LEAKY}."] if any(row.is_leaky for row in rows) else []
    return notes + ([f"{OWN_EDGES}."] if any(row.reveals_labels for row in rows) else [])
