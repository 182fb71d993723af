"""Stored runs as the paper's tables and figures, its numbers beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ergnn.experiments.cells import Cell
from ergnn.experiments.grid import TABLE_4, Experiment
from ergnn.experiments.run import SeedResult
from ergnn.experiments.statistics import ALPHA, MEASURES, Member, PairedTest, paired_tests
from ergnn.experiments.store import RunStore
from ergnn.metrics import Summary, performance_after_each_task, summarize
from ergnn.report.paper import PaperResult, paper_result
from ergnn.report.tables import LEAKY, NOTHING, Table, percent

LOWER, HIGHER = ("†", "‡"), ("§", "¶")
"""Marks of a measure significantly below or above that of the first and second baseline."""


@dataclass(frozen=True)
class Filled:
    """A cell with its runs; ``results`` is empty where there are none, and ``reason`` says why."""

    cell: Cell
    results: Sequence[SeedResult] = ()
    reason: str = ""

    @property
    def label(self) -> str:
        return self.cell.row.label + (" (leaky)" if self.leaky else "")

    @property
    def leaky(self) -> bool:
        return any(result.leaky for result in self.results)

    @property
    def paper(self) -> PaperResult | None:
        key = self.cell.row.paper
        return None if key is None else paper_result(self.cell.dataset, *key)

    def values(self, measure: str) -> dict[Member, float]:
        return {(r.seed, r.order): MEASURES[measure](r.matrix) for r in self.results}

    def summary(self, measure: str) -> Summary:
        return summarize(list(self.values(measure).values()))

    def to_dict(self) -> dict[str, Any]:
        """Fit for JSON: the row, what the paper prints and what we have, and the command."""
        cell = self.cell
        own: dict[str, Any] = {
            "experiment": cell.experiment,
            "row": cell.row.label,
            "block": cell.row.block,
            "dataset": cell.dataset,
            "protocol": cell.protocol,
            "paper": self.paper,
            "command": cell.command,
            "reason": self.reason,
        }
        if self.results:
            own |= {name: self.summary(name).to_dict() for name in ("pm", "fm", "aa")}
            own |= {
                "after_each_task": [s.to_dict() for s in _after_each_task(self.results)],
                "split": self.results[0].split,
                "leaky": self.leaky,
                "notes": list(self.results[0].notes),
                "seconds": sum(result.seconds for result in self.results),
            }
        return own


@dataclass(frozen=True)
class Page:
    """A table with what belongs under it."""

    title: str
    table: Table | None
    notes: Sequence[str] = ()
    commands: Sequence[tuple[str, str]] = field(default_factory=list)

    def render(self, format: str) -> str:
        """As ``text``, ``markdown`` or ``latex``; notes and commands stand under the table."""
        lines = {"text": ["{}"], "markdown": ["- {}"], "latex": ["% {}"]}[format]
        head = {"text": self.title, "markdown": f"## {self.title}", "latex": f"% {self.title}"}[format]
        parts = [head]
        if self.table is not None:
            parts.append(self.table.render(format))
        if self.notes:
            parts.append("\n".join(lines[0].format(note) for note in self.notes))
        if self.commands:
            width = max(len(label) for label, _ in self.commands)
            each = [f"{label:<{width}}  {command}" for label, command in self.commands]
            if format == "markdown":
                each = ["```", *each, "```"]
            elif format == "latex":
                each = [f"% {line}" for line in each]
            parts.append("\n".join(each))
        return "\n\n".join(parts)


def fill(store: RunStore, cells: Iterable[Cell], failures: Mapping[str, str]) -> list[Filled]:
    """Each cell with its runs; ``failures`` says by :attr:`Cell.command` what went wrong."""
    filled = []
    for cell in cells:
        if cell.given is None:
            filled.append(Filled(cell, reason=cell.reason))
        elif store.missing(cell.config):
            filled.append(Filled(cell, reason=failures.get(cell.command, "not finished")))
        else:
            filled.append(Filled(cell, store.results(cell.config)))
    return filled


def paired_tests_of(experiment: Experiment, filled: Sequence[Filled], measure: str = "fm") -> list[PairedTest]:
    """Every row against the experiment's baselines, where only the method or the selector differs.

    The tests of one protocol and baseline, over all data sets, are one family.
    """
    found = []
    for protocol in dict.fromkeys(f.cell.protocol for f in filled):
        for baseline in experiment.baselines:
            like = next((f.cell.row for f in filled if f.cell.row.label == baseline), None)
            samples = {
                (f"{f.cell.dataset} · {protocol}", f.cell.row.label): f.values(measure)
                for f in filled
                if like and f.results and f.cell.protocol == protocol and _comparable(f.cell, like.settings)
            }
            found += paired_tests(samples, baseline)
    return found


def _comparable(cell: Cell, baseline: Mapping[str, Any]) -> bool:
    same = all(cell.row.settings.get(key) == baseline.get(key) for key in ("backbone", "input"))
    return same and cell.row.block != "bounds"


def measure_pages(experiment: Experiment, filled: Sequence[Filled], tests: Sequence[PairedTest]) -> list[Page]:
    """PM, FM and AA beside the paper's, one page a data set and protocol."""
    fractions = experiment.name == "table4"  # as the paper prints them
    show = (lambda value: f"{value:.3f}") if fractions else percent
    order = ("fm", "aa", "pm") if fractions else ("pm", "fm", "aa")

    def page(rows: Sequence[Filled], title: str, notes: list[str]) -> Page:
        group = f"{rows[0].cell.dataset} · {rows[0].cell.protocol}"
        own = [test for test in tests if test.group == group]
        header, columns = ["" if fractions else "%"], [[f.label for f in rows]]
        for name in order:
            theirs = [_printed(f.paper, name) for f in rows]
            ours = [f.summary(name) if f.results else None for f in rows]
            if any(value is not None for value in theirs):
                header.append(f"{name.upper()} paper")
                columns.append([NOTHING if value is None else show(value) for value in theirs])
            header.append(f"{name.upper()} ours")
            cells = [NOTHING if s is None else _spread(s, show) for s in ours]
            if name == "fm" and own:
                marks = [_marks(experiment, f.cell.row.label, own) for f in rows]
                widest = max(map(len, marks))
                cells = [
                    f"{cell} {mark:<{widest}}" if widest else cell for cell, mark in zip(cells, marks, strict=True)
                ]
            columns.append(cells)
            if any(value is not None for value in theirs):
                header.append("diff")
                columns.append([_difference(s, value, show) for s, value in zip(ours, theirs, strict=True)])
        table = Table(header, list(zip(*columns, strict=True)))
        legend = _legend(experiment, [t for t in tests if t.group.endswith(rows[0].cell.protocol)]) if own else []
        return Page(title, table, [*notes, *legend], _commands(rows))

    return _pages(experiment, filled, page)


def evolution_pages(experiment: Experiment, filled: Sequence[Filled]) -> list[Page]:
    """Figure 2: the mean over the tasks seen so far, after each of them."""

    def page(rows: Sequence[Filled], title: str, notes: list[str]) -> Page:
        lines = [[f.label, *(_spread(s, percent) for s in _after_each_task(f.results))] for f in rows if f.results]
        width = max(len(line) for line in lines)
        header = ["%", *(f"after task {i}" for i in range(1, width))]
        return Page(title, Table(header, lines), notes, _commands(rows))

    return _pages(experiment, filled, page)


def sensitivity_pages(experiment: Experiment, filled: Sequence[Filled]) -> list[Page]:
    """Figure 3: FM against e, a line for each selector, and joint training, which learns all tasks anew each time."""

    def page(rows: Sequence[Filled], title: str, notes: list[str]) -> Page:
        counts = sorted({f.cell.row.settings["per_class"] for f in rows if "per_class" in f.cell.row.settings})
        lines: dict[str, dict[int | None, str]] = {}
        for f in rows:
            if f.results:
                name, count = f.label.partition(", e =")[0], f.cell.row.settings.get("per_class")
                lines.setdefault(name, {})[count] = _spread(f.summary("fm"), percent)
        header = ["FM, %", *(f"e = {count}" for count in counts), "joint"]
        table = [[name, *(line.get(count, NOTHING) for count in (*counts, None))] for name, line in lines.items()]
        whole = {f.cell.row.settings["per_class"] for f in rows if f.results and _keeps_everything(f)}
        notes += [f"e = {count} keeps every training node." for count in sorted(whole)]
        return Page(title, Table(header, table), notes, _commands(rows))

    return _pages(experiment, filled, page)


def _keeps_everything(filled: Filled) -> bool:
    """Whether the buffer holds as many nodes at the end as the last task was learnt from: its own and all earlier."""
    last = filled.results[0]
    return bool(last.buffer_ids) and len(last.buffer_ids) == last.history[-1]["trained_on"]


def _pages(
    experiment: Experiment,
    filled: Sequence[Filled],
    make: Callable[[Sequence[Filled], str, list[str]], Page],
) -> list[Page]:
    pages = []
    for protocol, dataset in dict.fromkeys((f.cell.protocol, f.cell.dataset) for f in filled):
        rows = [f for f in filled if (f.cell.protocol, f.cell.dataset) == (protocol, dataset)]
        title = f"{experiment.title} · {dataset} · protocol {protocol}"
        if any(f.results for f in rows):
            pages.append(make(rows, title, _notes(rows)))
        else:
            reasons = dict.fromkeys(f.reason for f in rows)
            pages.append(Page(title, None, [f"{dataset} was left out: {reason}" for reason in reasons]))
    return pages


def _notes(rows: Sequence[Filled]) -> list[str]:
    config = next(f.cell.config for f in rows if f.results)
    orders = f"{config.orders} shuffled class orders" if config.class_order == "shuffled" else "the natural class order"
    split = next(f.results[0].split for f in rows if f.results)
    where = "tasks drawn by seed" if config.dataset in TABLE_4.datasets else f"{orders}; {split} split"
    notes = [f"Mean ± 95 % interval over {config.seeds} seed(s), {where}."]
    said = [note for f in rows if f.results for note in (*f.cell.notes, *f.results[0].notes)]
    notes += list(dict.fromkeys(said))
    if any(f.leaky for f in rows):
        notes.append(f"leaky: {LEAKY}.")
    return notes + [f"{f.cell.row.label} is not available: {f.reason}" for f in rows if f.reason]


def _commands(rows: Sequence[Filled]) -> list[tuple[str, str]]:
    return [(f.label, f.cell.command) for f in rows if f.results]


def _after_each_task(results: Sequence[SeedResult]) -> list[Summary]:
    return [
        summarize(list(values))
        for values in zip(*(performance_after_each_task(r.matrix) for r in results), strict=True)
    ]


def _printed(paper: PaperResult | None, measure: str) -> float | None:
    if paper is None or measure == "aa":
        return None
    return paper["pm"] if measure == "pm" else paper["fm"]


def _spread(summary: Summary, show: Callable[[float], str]) -> str:
    return show(summary.mean) + ("" if summary.ci95 is None else f" ± {show(summary.ci95)}")


def _difference(ours: Summary | None, theirs: float | None, show: Callable[[float], str]) -> str:
    if ours is None or theirs is None:
        return NOTHING
    text = show(ours.mean - theirs)
    return text if text.startswith("-") else f"+{text}"


def _marks(experiment: Experiment, label: str, tests: Sequence[PairedTest]) -> str:
    marks = ""
    for number, baseline in enumerate(experiment.baselines):
        for test in tests:
            if (test.row, test.baseline) == (label, baseline):
                marks += LOWER[number] * test.lower + HIGHER[number] * test.higher
    return marks


def _legend(experiment: Experiment, family: Sequence[PairedTest]) -> list[str]:
    """What the marks mean; ``family`` are the tests of one protocol."""
    lines = []
    for number, baseline in enumerate(experiment.baselines):
        own = [test for test in family if test.baseline == baseline]
        if not own:
            continue
        pairs = max(test.difference.n for test in own)
        short = len(own) * 2.0 ** (1 - pairs) > ALPHA  # the least p-value that the signs of so few pairs can give
        lines.append(
            f"{LOWER[number]} FM lower than that of {baseline}, {HIGHER[number]} higher: paired Wilcoxon test on "
            f"{pairs} seeds and class orders, p < {ALPHA} after Holm's correction for {len(own)} tests"
            + (" (too few pairs to show any difference)." if short else ".")
        )
    return lines
