"""The results of ``ergnn compare``: tables by scenario and edges, a figure, ``results.json`` and the HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ergnn.config.files import write_file
from ergnn.lab.compare import ROWS, Entry
from ergnn.lab.report.page import QUICK_MARK, Section, write_json, write_sections
from ergnn.lab.report.rows import grouped
from ergnn.lab.statistics import ALPHA, PairedTest, Ranking, paired_tests, pareto_front, rank
from ergnn.pages.figures import Drawing, Point, Series, dot_plot, look_of, name_width, panels
from ergnn.pages.table import NOTHING, Table, percent, render_page

RECOMMENDED = "analytic:statistics"
"""The method that the others are compared with."""
CLOSED_FORMS = (
    "analytic + graph is the closed form of folders and the estimator, which keeps all labels and the graph; "
    "analytic:statistics stores a mean and a low-rank scatter per class instead, within the budget."
)
BETTER, WORSE, ABOVE = "▲", "▼", "!"
EDGES_NOTE = {"own": " (no edges between tasks, which gives away label information)"}


@dataclass(frozen=True)
class Group:
    """All entries of one scenario and kind of edges; those with runs are finished."""

    scenario: str
    edges: str
    entries: Sequence[Entry]

    @property
    def title(self) -> str:
        return f"{self.scenario.capitalize()}-incremental · edges {self.edges}{EDGES_NOTE.get(self.edges, '')}"

    def label(self, method: str) -> str:
        """The name of a method in tables, which says whether it is ranked and which one is recommended."""
        needs_graph = self.of(method)[0].needs_graph
        return f"{method} + graph" if needs_graph else f"{method} (ours)" if method == RECOMMENDED else method

    @cached_property
    def finished(self) -> dict[tuple[str, str], Entry]:
        """Entries with runs, by data set and method."""
        return {(entry.condition.dataset, entry.method): entry for entry in self.entries if entry.runs}

    @cached_property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(dataset for dataset, _ in self.finished))

    def of(self, method: str) -> list[Entry]:
        """The entries of a method with runs, in the order of the data sets."""
        return [self.finished[dataset, method] for dataset in self.datasets if (dataset, method) in self.finished]

    def mean(self, method: str, name: str) -> float:
        """Mean over data sets of a measure, of ``seconds``, or of ``memory``, the share of the budget."""
        values = {"seconds": lambda entry: entry.seconds, "memory": lambda entry: entry.nbytes / entry.budget}
        value = values.get(name, lambda entry: entry.result.summary(name).mean)
        return float(np.mean([value(entry) for entry in self.of(method)]))

    @cached_property
    def ranking(self) -> Ranking | None:
        """The ranking at equal bytes, of methods that are within the budget on every data set."""
        scores = {}
        for method in dict.fromkeys(method for _, method in self.finished):
            entries = self.of(method)
            if len(entries) == len(self.datasets) and all(entry.ranked for entry in entries):
                scores[method] = [entry.result.summary("aa").mean for entry in entries]
        return rank(scores) if len(scores) > 1 else None

    @cached_property
    def methods(self) -> list[str]:
        """All methods with runs: ranked ones by rank, then the others by average accuracy."""
        ranked = list(self.ranking.names) if self.ranking else []
        others = dict.fromkeys(method for _, method in self.finished if method not in ranked)
        return ranked + sorted(others, key=lambda method: -self.mean(method, "aa"))

    @cached_property
    def pareto(self) -> set[str]:
        """Methods with runs on all data sets that no other beats in accuracy, seconds and bytes.

        Those that need the graph, whose bytes no budget counts, are left out.
        """
        complete = [m for m in self.methods if len(self.of(m)) == len(self.datasets) and not self.of(m)[0].needs_graph]
        costs = [[-self.mean(m, "aa"), self.mean(m, "seconds"), self.mean(m, "memory")] for m in complete]
        return {m for m, best in zip(complete, pareto_front(costs), strict=True) if best}

    @cached_property
    def tests(self) -> dict[tuple[str, str], PairedTest]:
        """Paired tests of AA against the recommended method at equal bytes, one family, by data set and method."""
        samples = {key: entry.result.by_member("aa") for key, entry in self.finished.items() if entry.ranked}
        return {(test.group, test.row): test for test in paired_tests(samples, RECOMMENDED)}


def groups_of(entries: Iterable[Entry]) -> list[Group]:
    """Group entries by scenario and edges."""
    groups = grouped(entries, lambda entry: (entry.condition.scenario, entry.condition.edges))
    return [Group(*key, members) for key, members in groups.items()]


def benchmark_section(group: Group) -> Section:
    """AA of every method on every data set, mean rank, seconds, share of the budget, and the Pareto front."""
    ranks = dict(zip(group.ranking.names, group.ranking.ranks, strict=True)) if group.ranking else {}
    rows = []
    for method in group.methods:
        needs_graph = group.of(method)[0].needs_graph
        rows.append(
            [
                group.label(method),
                *(_score(group, dataset, method) for dataset in group.datasets),
                f"{ranks[method]:.2f}" if method in ranks else NOTHING,
                f"{group.mean(method, 'seconds'):.2f}",
                "graph" if needs_graph else f"{100 * group.mean(method, 'memory'):.0f}",
                "yes" if method in group.pareto else "",
            ]
        )
    header = ["AA %", *group.datasets, "rank", "s per run", "memory %", "Pareto"]
    return Section(group.title, Table(header, rows) if rows else None, [*_about(group), *_left_out(group.entries)])


def _score(group: Group, dataset: str, method: str) -> str:
    entry, test = group.finished.get((dataset, method)), group.tests.get((dataset, method))
    if entry is None:
        return NOTHING
    above = ABOVE if entry.above_budget and not entry.needs_graph else ""
    return f"{entry.result.summary('aa').text()} {_mark(test) or above}".rstrip()


def _mark(test: PairedTest | None) -> str:
    return (WORSE, "", BETTER)[test.sign + 1] if test else ""


def _about(group: Group) -> list[str]:
    if not group.finished:
        return ["no finished runs"]
    counts = sorted({len(entry.runs) for entry in group.finished.values()})
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    budgets = {entry.condition.dataset: entry.budget for entry in group.finished.values()}
    few = " (too few runs to show any difference)" if len(group.tests) * 2.0 ** (1 - counts[-1]) > ALPHA else ""
    notes = [
        f"Average accuracy over tasks at the end, mean ± 95 % interval over {runs} seeds and class orders.",
        f"{BETTER} significantly better than {RECOMMENDED} at equal bytes, {WORSE} worse: paired Wilcoxon test, "
        f"p < {ALPHA} after Holm's correction for {len(group.tests)} tests{few}."
        if group.tests
        else f"{RECOMMENDED}, with which the others are compared, was not run at equal bytes.",
        f"memory %: mean share of the budget ({', '.join(f'{name} {size:,} B' for name, size in budgets.items())}); "
        f"{ABOVE} above the budget; + graph: needs the graph of earlier tasks, which the budget does not count "
        f"({ROWS} nodes per class). Neither is ranked.",
        *([CLOSED_FORMS] if {"analytic", RECOMMENDED} & set(group.methods) else []),
    ]
    if (ranking := group.ranking) is not None:
        test = "" if ranking.p is None else f" Friedman's χ² = {ranking.chi2:.1f}, p = {ranking.p:.2g}."
        sets = f"{ranking.datasets} data set{'s' * (ranking.datasets > 1)}"
        notes.append(
            f"rank: mean over {sets} of {len(ranking.names)} methods within the budget.{test} Ranks that differ by "
            f"less than {ranking.difference:.2f} are not significantly different (Nemenyi)."
        )
    better = [test for test in group.tests.values() if test.sign > 0]
    names = ", ".join(f"{t.row} on {t.group} (+{t.difference.text()})" for t in better) or "none"
    if group.tests:
        notes.append(f"Significantly better than {RECOMMENDED} at equal bytes: {names}.")
    return notes


def _left_out(entries: Sequence[Entry]) -> list[str]:
    """One note per method and reason, with the data sets."""
    reasons = grouped([entry for entry in entries if entry.reason], lambda entry: (entry.method, entry.reason))
    sets = [", ".join(entry.condition.dataset for entry in members) for members in reasons.values()]
    return [f"{method} is left out on {names}: {why}" for (method, why), names in zip(reasons, sets, strict=True)]


def detail_sections(group: Group) -> list[Section]:
    """One table per data set: all measures, cost, memory and the chosen settings."""
    sections = []
    header = ["%", "AA", "micro", "AF", f"AA − {RECOMMENDED}", "s per run", "bytes", "memory", "chosen settings"]
    for dataset in group.datasets:
        rows, budget = [], 0
        for method in group.methods:
            if (entry := group.finished.get((dataset, method))) is None:
                continue
            test, budget = group.tests.get((dataset, method)), entry.budget
            rows.append(
                [
                    group.label(method),
                    *(entry.result.summary(name).text() for name in ("aa", "micro", "af")),
                    f"{test.difference.text()} {_mark(test)}".rstrip() if test else NOTHING,
                    f"{entry.seconds:.2f}",
                    f"{entry.nbytes:,.0f}" + (" + graph" if entry.needs_graph else ABOVE if entry.above_budget else ""),
                    _settings(entry.memory) or NOTHING,
                    _settings(entry.chosen) or "default",
                ]
            )
        table = Table(header, rows, "l" + "r" * 6 + "ll")
        sections.append(Section(f"{dataset} · {group.title}", table, [f"Budget: {budget:,} bytes."]))
    return sections


def search_section(group: Group) -> Section:
    """Every trial with its accuracy on validation nodes; the chosen one is marked."""
    rows = []
    for entry in group.entries:
        for trial in entry.trials:
            mark = "chosen" if trial.settings == entry.chosen else ""
            settings = _settings(trial.settings) or "default"
            rows.append([entry.method, entry.condition.dataset, settings, percent(trial.score), mark])
    table = Table(["method", "data set", "settings", "AA on validation nodes (%)", ""], rows, "lllrl") if rows else None
    return Section(f"Search · {group.title}", table, [] if rows else ["no trials"])


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items() if name != "budget_bytes")


GAP_TICKS = (-80, -40, -20, -10, -5, -1, 0, 1, 5, 10, 20, 40)
"""Possible ticks of differences in AA, in points."""


def write_comparison(
    entries: Sequence[Entry], left_out: Mapping[str, str], out: str | Path, command: str, quick: bool = False
) -> list[Section]:
    """Write all files into a folder; return the sections of ``benchmark.txt``, one per scenario and kind of edges."""
    folder, groups = Path(out), groups_of(entries)
    figures = overview_of(groups)
    for _, drawing in figures:
        drawing.save(folder / "overview.svg")
    benchmark = [benchmark_section(group) for group in groups]
    if left_out or quick:
        notes = [f"{condition} is left out: {reason}" for condition, reason in left_out.items()]
        benchmark.append(Section("Notes", None, [QUICK_MARK] * quick + notes))
    sections = {
        "benchmark": benchmark,
        "details": [section for group in groups for section in detail_sections(group)],
        "search": [search_section(group) for group in groups],
    }
    for name, named in sections.items():
        write_sections(folder, name, named, command)
    values = {"left_out": left_out, "entries": list(map(_entry, entries)), "groups": list(map(_ranks, groups))}
    write_json(folder, command, **values)
    runs = [run for entry in entries for run in entry.runs]
    shown = [Section("Overview", None, figures=figures)] if figures else []
    page = render_page(
        "report.html",
        title="Methods compared at equal memory",
        command=command,
        facts=[("runs", f"{len(runs):,}"), ("data sets", str(len({run.dataset for run in runs})))],
        sections={**sections, "benchmark": [*shown, *benchmark]},
    )
    write_file(folder / "report.html", page.encode())
    return benchmark


def overview_of(groups: Sequence[Group]) -> list[tuple[str, Drawing]]:
    """The gap in AA of every method to ours, on every data set of every group; no figure without any."""
    marks: list[tuple[str, str, Point]] = []
    for group in groups:
        for (dataset, method), entry in group.finished.items():
            ours = group.finished.get((dataset, RECOMMENDED))
            if ours is not None and method != RECOMMENDED:
                gap = 100 * (entry.result.summary("aa").mean - ours.result.summary("aa").mean)
                look = _color(method) + ("" if entry.ranked else " alt")
                point = Point(0, gap, None, f"{method}, {dataset}: {gap:+.1f}", look)
                marks.append((f"{group.scenario}, edges {group.edges}", method, point))
    if not marks:
        return []
    caption = f"AA of each method minus that of {RECOMMENDED}, one mark per data set (hollow: not ranked)"
    return [(caption, _gap_chart(marks, caption))]


def _gap_chart(marks: Sequence[tuple[str, str, Point]], label: str) -> Drawing:
    """Draw the marks of each panel and method; methods are sorted by their mean gap over all panels.

    The scale is the square root, so that both small and large gaps can be read.
    """
    every = grouped(marks, lambda mark: mark[1])
    methods = sorted(every, key=lambda method: -sum(point.y for *_, point in every[method]) / len(every[method]))
    drawings: list[tuple[str, Drawing]] = []
    for title, panel in grouped(marks, lambda mark: mark[0]).items():
        drawn = [point.y for *_, point in panel]
        first = max((tick for tick in GAP_TICKS if tick <= min(drawn)), default=min(drawn))
        last = min((tick for tick in GAP_TICKS if tick >= max(drawn)), default=max(drawn))
        first, last = min(first, -1), max(last, 1)
        names = [method if not drawings else "" for method in methods]
        chart = dot_plot(
            [
                Series(name, _color(method), [point for _, of, point in panel if of == method])
                for name, method in zip(names, methods, strict=True)
            ],
            label=label,
            x_name="" if drawings else "difference in AA (points, square-root scale)",
            x_ticks=[first, *(tick for tick in (-20, -5, 0, 5) if first < tick < last), last],
            scale="root",
            width=260 + name_width(names),
        )
        drawings.append((title, chart))
    return panels(drawings, label=label, columns=len(drawings))


def _color(method: str) -> str:
    """The color of a method, without the look of variants."""
    return look_of(method.partition(":")[0]).partition(" ")[0]


def _entry(entry: Entry) -> dict[str, Any]:
    values = {**vars(entry.condition), "method": entry.method, "reason": entry.reason, "budget": entry.budget}
    values |= {"memory": dict(entry.memory), "chosen": dict(entry.chosen), "trials": [vars(t) for t in entry.trials]}
    if entry.runs:
        values |= {name: vars(entry.result.summary(name)) for name in ("aa", "micro", "af")}
        values |= {"bytes": entry.nbytes, "seconds": entry.seconds}
        values |= {"needs_graph": entry.needs_graph, "above_budget": entry.above_budget, "runs": len(entry.runs)}
    return values


def _ranks(group: Group) -> dict[str, Any]:
    return {
        "scenario": group.scenario,
        "edges": group.edges,
        "recommended": RECOMMENDED,
        "ranking": group.ranking and vars(group.ranking),
        "tests": [test.to_dict() for test in group.tests.values()],
        "pareto": sorted(group.pareto),
    }
