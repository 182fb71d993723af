"""Tables of results: the paper's number, ours with its 95 % interval, and the difference, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ergnn.config.errors import UnknownNameError
from ergnn.config.files import write_file
from ergnn.lab.paper import PaperResult
from ergnn.lab.report.rows import ResultRow, Setting, main_rows
from ergnn.lab.statistics import MEASURES, PairedTest, paired_tests
from ergnn.learning.metrics import Summary
from ergnn.pages.table import NOTHING, Cell, Table, number, with_interval

BASELINE = "Random"


@dataclass(frozen=True)
class Column:
    """A column: its cells, its name, and its group of columns such as ``FM``."""

    group: str
    name: str
    cells: Sequence[str | int]


def result_table(
    names: Sequence[str],
    rows: Sequence[ResultRow | None],
    *,
    scale: float = 100,
    order: Sequence[str] = ("pm", "fm", "aa"),
    papers: Sequence[PaperResult | None] | None = None,
    marks: Mapping[str, str] | None = None,
    more: Sequence[Column] = (),
    title: str = "",
    id: str = "",
) -> Table:
    """Build a table of PM, FM and AA, with the paper's numbers if any.

    Args:
        names: row labels.
        rows: None for a row without runs.
        scale: 100 for percent, 1 for fractions as in the paper's table 4.
        order: metrics, in order.
        papers: the paper's results; by default those of the rows.
        marks: significance marks after FM, by row label.
        more: additional columns.
        id: on the HTML page, the id of the table; the names of the metrics are then above the header.
    """
    papers = [row.paper if row else None for row in rows] if papers is None else papers
    columns: list[Column] = []
    for name in order:
        theirs = [_printed(paper, name) for paper in papers]
        ours = [None if row is None else row.summary(name) for row in rows]
        cells = [_ours(summary, scale) for summary in ours]
        if name == "fm" and marks:
            widest = max(map(len, marks.values()))
            cells = [Cell(f"{cell} {marks.get(name, ''):<{widest}}") for name, cell in zip(names, cells, strict=True)]
        columns.append(Column(name.upper(), "ours", cells))
        if any(value is not None for value in theirs):
            differences = [_difference(*pair, scale) for pair in zip(ours, theirs, strict=True)]
            columns.insert(-1, Column(name.upper(), "paper", [_paper(value, scale) for value in theirs]))
            columns.append(Column(name.upper(), "diff", differences))
    columns += more
    unit = "%" if scale == 100 else ""
    body = [list(cells) for cells in zip(names, *(column.cells for column in columns), strict=True)]
    if not id:
        header = [unit, *(c.name if c.name == "diff" or not c.group else f"{c.group} {c.name}" for c in columns)]
        return Table(header, body, title=title)
    groups: list[tuple[str, int]] = [("", 1)]
    for column in columns:
        label = f"{column.group} ({unit})" if unit and column.group.lower() in order else column.group
        span = groups.pop()[1] + 1 if groups[-1][0] == label else 1
        groups.append((label, span))
    header = ["Row", *(f"{c.name} ± 95 %" if c.name in ("ours", "paired") else c.name for c in columns)]
    return Table(header, body, title=title, groups=groups, id=id, sources=rows)


def page_table(id: str, title: str, rows: Sequence[ResultRow], tests: Mapping[str, PairedTest], scale: float) -> Table:
    """Build a table for the HTML page, with the paired difference in FM to Random and the number of runs.

    Args:
        tests: by row name; empty if there is no baseline.
    """
    more = [_runs(rows)]
    if tests:
        more.insert(0, Column(f"FM − {BASELINE}", "paired", [_test(tests.get(row.name), scale) for row in rows]))
    return result_table([row.name for row in rows], rows, scale=scale, more=more, title=title, id=id)


def tables_text(settings: Sequence[Setting], format: str) -> str:
    """Render every row as ``text``, ``markdown`` or ``latex``, with one table per setting and data set."""
    tables = []
    for setting in settings:
        for dataset in setting.datasets:
            rows = setting.of(dataset)
            names = [row.name + (" (leaky)" if row.is_leaky else "") for row in rows]
            tables.append(result_table(names, rows, more=[_runs(rows)], title=f"{dataset} · {setting.label}"))
    return "\n\n\n".join(table.render(format) for table in tables) + "\n"


def _runs(rows: Sequence[ResultRow]) -> Column:
    return Column("", "runs", [len(row.runs) for row in rows])


def evolution_table(rows: Sequence[tuple[str, ResultRow]]) -> Table:
    """Build the numbers of figure 2: average accuracy over the tasks seen so far, after each task."""
    lines = [[name, *map(with_interval, row.after_each_task)] for name, row in rows]
    return Table(["%", *(f"after task {i}" for i in range(1, max(map(len, lines))))], lines)


def sensitivity_table(rows: Sequence[tuple[str, ResultRow]]) -> Table:
    """Build the numbers of figure 3: FM against e, one line per name, and of joint training, which stores all nodes."""
    sizes = sorted({row.per_class for _, row in rows if row.selector})
    lines: dict[str, dict[int | None, str]] = {}
    for name, row in rows:
        lines.setdefault(name, {})[row.per_class if row.selector else None] = with_interval(row.fm)
    body = [[name, *(line.get(size, NOTHING) for size in (*sizes, None))] for name, line in lines.items()]
    return Table(["FM, %", *(f"e = {size}" for size in sizes), "joint"], body)


def cost_table(id: str, rows: Sequence[ResultRow]) -> Table:
    """Build a table of seconds per run, total seconds, and peak memory."""
    totals = [sum(run.seconds for run in row.runs) for row in rows]
    longest = max(total / len(row.runs) for row, total in zip(rows, totals, strict=True))
    body: list[list[str | int]] = []
    for row, total in zip(rows, totals, strict=True):
        seconds, nodes = (value / len(row.runs) for value in (total, sum(len(run.buffer_ids) for run in row.runs)))
        body.append(
            [
                row.name,
                row.dataset,
                Cell(f"{seconds:.2f}", "meter", f"{seconds / longest if longest else 0.0:.3f}"),
                f"{total:.1f}",
                f"{max(run.peak_memory_mb for run in row.runs):,.0f}",
                f"{nodes:,.0f}" if row.selector else NOTHING,
                len(row.runs),
            ]
        )
    header = ["Row", "data set", "s per run", "s total", "peak MB", "stored nodes", "runs"]
    return Table(header, body, id=id, sources=rows)


def tests_of(rows: Sequence[ResultRow]) -> dict[str, dict[str, PairedTest]]:
    """Map data set and row name to the signed-rank test of FM against replay with Random; one Holm family."""
    samples: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
    for dataset in dict.fromkeys(row.dataset for row in rows):
        for row in main_rows([row for row in rows if row.dataset == dataset]):
            if row.method == "replay":
                name = BASELINE if row.selector == "random" and not row.special else row.name
                samples[dataset, name] = row.by_member("fm")
    tests: dict[str, dict[str, PairedTest]] = {}
    for test in paired_tests(samples, BASELINE):
        tests.setdefault(test.group, {})[test.row] = test
    return tests


def signed(text: str) -> str:
    return text if text.startswith("-") else f"+{text}"


def _printed(paper: PaperResult | None, measure: str) -> float | None:
    """The paper's number; None for measures that it does not report."""
    if measure not in (*MEASURES, "score"):
        raise UnknownNameError("measure", measure, MEASURES)
    value = None if paper is None else paper.get(measure)
    return value if isinstance(value, float) else None


def _paper(value: float | None, scale: float) -> Cell:
    return Cell(NOTHING, "dim") if value is None else Cell(number(value, scale), "paper")


def _ours(summary: Summary | None, scale: float) -> Cell:
    if summary is None:
        return Cell(NOTHING, "dim")
    tip = f"standard deviation {number(summary.std, scale)}, {summary.n} runs" if summary.n > 1 else "one run"
    return Cell(with_interval(summary, scale), "ours", tip)


def _difference(ours: Summary | None, theirs: float | None, scale: float) -> Cell:
    if ours is None or theirs is None:
        return Cell(NOTHING, "dim")
    gap = ours.mean - theirs
    covered = ours.ci95 is not None and abs(gap) <= ours.ci95
    tip = "the paper's number lies inside our 95 % interval" if covered else "outside our 95 % interval"
    return Cell(signed(number(gap, scale)), "gap" if covered else "gap far", tip)


def _test(test: PairedTest | None, scale: float) -> Cell:
    if test is None:
        return Cell(NOTHING, "dim")
    kind, mark = ("better", " ▼") if test.lower else ("worse", " ▲") if test.higher else ("unsure", "")
    word = "significant" if test.significant else "not significant"
    tip = f"Wilcoxon p = {test.p:.3g}, after Holm {test.p_holm:.3g}: {word}; {test.difference.n} pairs"
    return Cell(signed(with_interval(test.difference, scale)) + mark, kind, tip)


SUFFIXES = {"text": "txt", "markdown": "md", "latex": "tex"}
QUICK_MARK = "QUICK: few seeds and epochs, to check that everything works; do not quote."


@dataclass(frozen=True)
class Section:
    """A title, a table, and the notes and commands below it."""

    title: str
    table: Table | None
    notes: Sequence[str] = ()
    commands: Sequence[tuple[str, str]] = ()

    def render(self, format: str) -> str:
        """Render as ``text``, ``markdown`` or ``latex``."""
        heading = {"text": "", "markdown": "## ", "latex": "% "}[format]
        note = {"text": "", "markdown": "- ", "latex": "% "}[format]
        blocks = [heading + self.title]
        if self.table is not None:
            blocks.append(self.table.render(format))
        if self.notes:
            blocks.append("\n".join(note + line for line in self.notes))
        if self.commands:
            width = max(len(label) for label, _ in self.commands)
            blocks.append(as_code([f"{label:<{width}}  {command}" for label, command in self.commands], format))
        return "\n\n".join(blocks)


def as_code(lines: Sequence[str], format: str) -> str:
    """Return lines to be shown as they are."""
    if format == "markdown":
        lines = ["```", *lines, "```"]
    return "\n".join(f"% {line}" for line in lines) if format == "latex" else "\n".join(lines)


def write_sections(folder: Path, name: str, sections: Sequence[Section], command: str) -> None:
    """Write sections, and the command that computed them, as text, Markdown and LaTeX."""
    for format, suffix in SUFFIXES.items():
        text = "\n\n\n".join(section.render(format) for section in sections)
        text += f"\n\n{as_code([command], format)}\n" if command else "\n"
        write_file(folder / f"{name}.{suffix}", text.encode())
