"""Stored runs as the paper's tables and figures, compared with its numbers, as text, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ergnn.lab.grid import TABLE_4, Experiment
from ergnn.lab.paper import PaperResult, paper_result
from ergnn.lab.report.result_tables import result_table, with_interval
from ergnn.lab.report.rows import Row
from ergnn.lab.reproduce import Cell
from ergnn.lab.statistics import ALPHA, PairedTest, paired_tests
from ergnn.lab.store import RunStore
from ergnn.pages.table import LEAKY, NOTHING, OWN_EDGES, Table

LOWER, HIGHER = ("†", "‡"), ("§", "¶")
"""Marks of a metric that is significantly below or above the first and second baseline."""


@dataclass(frozen=True)
class Filled:
    """A cell with the row of its runs; ``row`` is None if there are none, and ``reason`` explains why."""

    cell: Cell
    row: Row | None = None
    reason: str = ""

    @property
    def label(self) -> str:
        return self.cell.row.label + (" (leaky)" if self.row and self.row.is_leaky else "")

    @property
    def paper(self) -> PaperResult | None:
        if self.cell.dataset in self.cell.row.published:
            return self.cell.row.published[self.cell.dataset]
        if self.row:
            return self.row.paper
        return None if self.cell.row.paper is None else paper_result(self.cell.dataset, *self.cell.row.paper)

    def to_dict(self) -> dict[str, Any]:
        """Return the row, the paper's numbers and ours, and the command, for JSON."""
        cell, row = self.cell, self.row
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
        if row:
            own |= {name: row.summary(name).to_dict() for name in ("pm", "fm", "aa")}
            own |= {
                "after_each_task": [summary.to_dict() for summary in row.after_each_task],
                "split": row.runs[0].split,
                "leaky": row.is_leaky,
                "notes": list(row.runs[0].notes),
                "seconds": sum(run.seconds for run in row.runs),
            }
        return own


@dataclass(frozen=True)
class Page:
    """A table with its notes and commands."""

    title: str
    table: Table | None
    notes: Sequence[str] = ()
    commands: Sequence[tuple[str, str]] = field(default_factory=list)

    def render(self, format: str) -> str:
        """Render as ``text``, ``markdown`` or ``latex``, with notes and commands under the table."""
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
    """Combine each cell with its runs; ``failures`` has the error of a cell by :attr:`Cell.command`."""
    filled = []
    for cell in cells:
        if cell.given is None:
            filled.append(Filled(cell, reason=cell.reason))
        elif store.missing(cell.config):
            filled.append(Filled(cell, reason=failures.get(cell.command, "not finished")))
        else:
            runs = store.members(cell.config)
            filled.append(Filled(cell, Row(runs[0].config, runs)))
    return filled


def paired_tests_of(experiment: Experiment, filled: Sequence[Filled], measure: str = "fm") -> list[PairedTest]:
    """Test every row against the experiment's baselines, where only the method or the selector differs.

    The tests of one protocol and baseline, over all data sets, are one family.
    """
    found = []
    for protocol in dict.fromkeys(f.cell.protocol for f in filled):
        for baseline in experiment.baselines:
            like = next((f.cell.row for f in filled if f.cell.row.label == baseline), None)
            samples = {
                (f"{f.cell.dataset} · {protocol}", f.cell.row.label): f.row.by_member(measure)
                for f in filled
                if like and f.row and f.cell.protocol == protocol and _comparable(f.cell, like.settings)
            }
            found += paired_tests(samples, baseline)
    return found


def _comparable(cell: Cell, baseline: Mapping[str, Any]) -> bool:
    same = all(cell.row.settings.get(key) == baseline.get(key) for key in ("backbone", "input"))
    return same and cell.row.block != "bounds"


def measure_pages(experiment: Experiment, filled: Sequence[Filled], tests: Sequence[PairedTest]) -> list[Page]:
    """Compare PM, FM and AA with the paper's, on one page per data set and protocol."""
    fractions = experiment.name == "table4"  # as the paper prints them
    order = ("fm", "aa", "pm") if fractions else ("aa", "bwt") if experiment.published else ("pm", "fm", "aa")

    def page(rows: Sequence[Filled], title: str, notes: list[str]) -> Page:
        group = f"{rows[0].cell.dataset} · {rows[0].cell.protocol}"
        own = [test for test in tests if test.group == group]
        marks = {f.label: _marks(experiment, f.cell.row.label, own) for f in rows} if own else None
        table = result_table(
            [f.label for f in rows],
            [f.row for f in rows],
            scale=1 if fractions else 100,
            order=order,
            papers=[f.paper for f in rows],
            marks=marks,
        )
        legend = _legend(experiment, [t for t in tests if t.group.endswith(rows[0].cell.protocol)]) if own else []
        return Page(title, table, [*notes, *legend], _commands(rows))

    return _pages(experiment, filled, page)


def evolution_pages(experiment: Experiment, filled: Sequence[Filled]) -> list[Page]:
    """Build figure 2: average accuracy over the tasks seen so far, after each task."""

    def page(rows: Sequence[Filled], title: str, notes: list[str]) -> Page:
        lines = [[f.label, *map(with_interval, f.row.after_each_task)] for f in rows if f.row]
        width = max(len(line) for line in lines)
        header = ["%", *(f"after task {i}" for i in range(1, width))]
        return Page(title, Table(header, lines), notes, _commands(rows))

    return _pages(experiment, filled, page)


def sensitivity_pages(experiment: Experiment, filled: Sequence[Filled]) -> list[Page]:
    """Build figure 3: FM against e, one line per selector, and joint training, which retrains on all tasks."""

    def page(rows: Sequence[Filled], title: str, notes: list[str]) -> Page:
        counts = sorted({f.cell.row.settings["per_class"] for f in rows if "per_class" in f.cell.row.settings})
        lines: dict[str, dict[int | None, str]] = {}
        for f in rows:
            if f.row:
                name, count = f.label.partition(", e =")[0], f.cell.row.settings.get("per_class")
                lines.setdefault(name, {})[count] = with_interval(f.row.fm)
        header = ["FM, %", *(f"e = {count}" for count in counts), "joint"]
        table = [[name, *(line.get(count, NOTHING) for count in (*counts, None))] for name, line in lines.items()]
        whole = {f.cell.row.settings["per_class"] for f in rows if f.row and _keeps_everything(f.row)}
        notes += [f"e = {count} stores every training node." for count in sorted(whole)]
        return Page(title, Table(header, table), notes, _commands(rows))

    return _pages(experiment, filled, page)


def _keeps_everything(row: Row) -> bool:
    """Return whether the final buffer holds all training nodes, i.e. as many as the last task was trained on."""
    last = row.runs[0]
    return bool(last.buffer_ids) and len(last.buffer_ids) == last.history[-1]["trained_on"]


def _pages(
    experiment: Experiment,
    filled: Sequence[Filled],
    make: Callable[[Sequence[Filled], str, list[str]], Page],
) -> list[Page]:
    pages = []
    for protocol, dataset in dict.fromkeys((f.cell.protocol, f.cell.dataset) for f in filled):
        rows = [f for f in filled if (f.cell.protocol, f.cell.dataset) == (protocol, dataset)]
        title = f"{experiment.title} · {dataset}" + ("" if experiment.published else f" · protocol {protocol}")
        if any(f.row for f in rows):
            source = experiment.published.notes if experiment.published else []
            pages.append(make(rows, title, [*_notes(rows), *source]))
        else:
            reasons = dict.fromkeys(f.reason for f in rows)
            pages.append(Page(title, None, [f"{dataset} is unavailable: {reason}" for reason in reasons]))
    return pages


def _notes(rows: Sequence[Filled]) -> list[str]:
    done = [(f.cell, f.row) for f in rows if f.row]
    config, first = done[0][0].config, done[0][1].runs[0]
    orders = {
        "shuffled": f"{config.orders} shuffled class orders",
        "seeded": "each with its own class order",
        "natural": "the natural class order",
    }.get(str(config.class_order), f"class order {config.class_order}")
    where = (
        "tasks drawn by seed"
        if config.dataset in TABLE_4.datasets
        else f"{orders}; {first.split} split; {config.edges} edges"
    )
    notes = [f"Mean ± 95 % interval over {config.seeds} seed(s), {where}."]
    notes += list(dict.fromkeys(note for cell, row in done for note in (*cell.notes, *row.runs[0].notes)))
    if any(row.is_leaky for _, row in done):
        notes.append(f"leaky: {LEAKY}.")
    if any(row.reveals_labels for _, row in done):
        notes.append(f"{OWN_EDGES}.")
    return notes + [f"{f.cell.row.label} is unavailable: {f.reason}" for f in rows if f.reason]


def _commands(rows: Sequence[Filled]) -> list[tuple[str, str]]:
    return [(f.label, f.cell.command) for f in rows if f.row]


def _marks(experiment: Experiment, label: str, tests: Sequence[PairedTest]) -> str:
    marks = ""
    for number, baseline in enumerate(experiment.baselines):
        for test in tests:
            if (test.row, test.baseline) == (label, baseline):
                marks += LOWER[number] * test.lower + HIGHER[number] * test.higher
    return marks


def _legend(experiment: Experiment, family: Sequence[PairedTest]) -> list[str]:
    """Explain the marks; ``family`` are the tests of one protocol."""
    lines = []
    for number, baseline in enumerate(experiment.baselines):
        own = [test for test in family if test.baseline == baseline]
        if not own:
            continue
        pairs = max(test.difference.n for test in own)
        short = len(own) * 2.0 ** (1 - pairs) > ALPHA  # the smallest p-value that this few pairs can give
        lines.append(
            f"{LOWER[number]} FM significantly lower than {baseline}, {HIGHER[number]} higher: paired Wilcoxon test on "
            f"{pairs} seeds and class orders, p < {ALPHA} after Holm's correction for {len(own)} tests"
            + (" (too few pairs to show any difference)." if short else ".")
        )
    return lines
