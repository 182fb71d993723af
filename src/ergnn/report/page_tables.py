"""The page's tables: the paper's number, ours with its 95 % interval, and the difference, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ergnn.experiments.statistics import PairedTest, paired_tests
from ergnn.metrics import Summary
from ergnn.report.rows import Row
from ergnn.report.tables import NOTHING

BASELINE = "Random"


@dataclass(frozen=True)
class Cell:
    """Text, what to sort by, a style class, and what hovering says."""

    text: str
    value: float | str | None = None
    kind: str = ""
    tip: str = ""


@dataclass(frozen=True)
class PageTable:
    """A sortable table: groups of columns (name, how many), the columns, and for each row its cells.

    ``rows`` holds the row beside its cells, for its name, badges and command in the first column.
    """

    id: str
    caption: str
    groups: Sequence[tuple[str, int]]
    columns: Sequence[str]
    rows: Sequence[tuple[Row, Sequence[Cell]]]


def result_table(
    id: str, caption: str, rows: Sequence[Row], tests: Mapping[str, PairedTest], scale: float
) -> PageTable:
    """PM and FM beside the paper's, AA, the paired difference in FM to Random, and the number of runs.

    Args:
        tests: by the row's name; empty where there is no baseline.
        scale: 100 for percent, 1 for fractions as in the paper's table 4.
    """
    body = []
    for row in rows:
        paper = row.paper
        cells = []
        for ours, theirs in ((row.pm, paper and paper["pm"]), (row.fm, paper and paper["fm"])):
            cells += _three(theirs or None, ours, scale)
        cells.append(_ours(row.aa, scale))
        if tests:
            cells.append(_test(tests.get(row.name), scale))
        cells.append(Cell(str(len(row.runs)), len(row.runs)))
        body.append((row, cells))
    unit = " (%)" if scale == 100 else ""
    groups = [("", 1), (f"PM{unit}", 3), (f"FM{unit}", 3), (f"AA{unit}", 1)]
    columns = ["Row", *("paper", "ours ± 95 %", "diff") * 2, "ours ± 95 %"]
    if tests:
        groups.append((f"FM − {BASELINE}", 1))
        columns.append("paired ± 95 %")
    return PageTable(id, caption, [*groups, ("", 1)], [*columns, "runs"], body)


def cost_table(id: str, rows: Sequence[Row]) -> PageTable:
    """Seconds of a run, seconds in all, and the most memory."""
    longest = max(row.seconds.mean for row in rows)
    body = []
    for row in rows:
        share = row.seconds.mean / longest if longest else 0.0
        cells = [
            Cell(row.dataset, row.dataset),
            Cell(f"{row.seconds.mean:.2f}", row.seconds.mean, "meter", f"{share:.3f}"),
            Cell(f"{row.seconds.mean * len(row.runs):.1f}", row.seconds.mean * len(row.runs)),
            Cell(f"{row.memory_mb:,.0f}", row.memory_mb),
            Cell(f"{_nodes(row):,.0f}" if row.selector else NOTHING, _nodes(row)),
            Cell(str(len(row.runs)), len(row.runs)),
        ]
        body.append((row, cells))
    columns = ["Row", "data set", "s a run", "s in all", "MB at the peak", "remembered", "runs"]
    return PageTable(id, "time and memory", [], columns, body)


def tests_of(rows: Sequence[Row]) -> dict[str, dict[str, PairedTest]]:
    """Data set and row name to its signed-rank test of FM against ER-GAT with Random at e = 1; one Holm family."""
    samples: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
    for row in rows:
        if row.method == "replay" and row.is_main:
            name = BASELINE if row.selector == "random" and not row.special else row.name
            samples[row.dataset, name] = row.by_member("fm")
    found: dict[str, dict[str, PairedTest]] = {}
    for test in paired_tests(samples, BASELINE):
        found.setdefault(test.group, {})[test.row] = test
    return found


def number(value: float, scale: float) -> str:
    """
    >>> number(0.94186, 100), number(-0.001, 1), number(-0.00001, 100)
    ('94.19', '−0.001', '0.00')
    """
    digits = 2 if scale == 100 else 3
    return f"{round(scale * value, digits) + 0.0:.{digits}f}".replace("-", "−")


def with_interval(summary: Summary, scale: float) -> str:
    half = "" if summary.ci95 is None else f" ± {number(summary.ci95, scale)}"
    return number(summary.mean, scale) + half


def _three(theirs: float | None, ours: Summary, scale: float) -> list[Cell]:
    if theirs is None:
        return [Cell(NOTHING, None, "dim"), _ours(ours, scale), Cell(NOTHING, None, "dim")]
    gap = ours.mean - theirs
    covered = ours.ci95 is not None and abs(gap) <= ours.ci95
    tip = "the paper's number lies inside our 95 % interval" if covered else "outside our 95 % interval"
    sign = "+" if round(scale * gap, 2 if scale == 100 else 3) > 0 else ""
    return [
        Cell(number(theirs, scale), theirs, "paper"),
        _ours(ours, scale),
        Cell(sign + number(gap, scale), gap, "gap" if covered else "gap far", tip),
    ]


def _ours(summary: Summary, scale: float) -> Cell:
    tip = f"standard deviation {number(summary.std, scale)}, {summary.n} runs" if summary.n > 1 else "one run"
    return Cell(with_interval(summary, scale), summary.mean, "ours", tip)


def _test(test: PairedTest | None, scale: float) -> Cell:
    if test is None:
        return Cell(NOTHING, None, "dim")
    kind = "better" if test.lower else "worse" if test.higher else "unsure"
    mark = {"better": " ▼", "worse": " ▲", "unsure": ""}[kind]
    word = "significant" if test.significant else "not significant"
    tip = f"Wilcoxon p = {test.p:.3g}, after Holm {test.p_holm:.3g}: {word}; {test.difference.n} pairs"
    sign = "+" if test.difference.mean > 0 else ""
    return Cell(sign + with_interval(test.difference, scale) + mark, test.difference.mean, kind, tip)


def _nodes(row: Row) -> float:
    return sum(len(run.buffer_ids) for run in row.runs) / len(row.runs)
