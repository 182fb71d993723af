"""The results of ``ergnn reproduce``: stored runs as the paper's tables and figures, compared with its numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ergnn.config.files import write_file
from ergnn.data.datasets import DataUnavailable, load_graph
from ergnn.lab.config import RunConfig
from ergnn.lab.grid import FIGURE_2, FIGURE_3, PAPER_TABLE_1, TABLE_1, TABLE_4, Experiment
from ergnn.lab.paper import PaperResult, paper_result
from ergnn.lab.provenance import code_version, machine_facts
from ergnn.lab.report.page import write_page
from ergnn.lab.report.rows import ResultRow
from ergnn.lab.report.sections import QUICK_MARK, Section, write_sections
from ergnn.lab.report.tables import evolution_table, result_table, sensitivity_table
from ergnn.lab.reproduce import GridCell, Options, Reproduced, datasets_of
from ergnn.lab.run import make_config_stream
from ergnn.lab.statistics import ALPHA, PairedTest, paired_tests
from ergnn.lab.store import RunStore
from ergnn.pages.table import LEAKY, NOTHING, OWN_EDGES, Table

LOWER, HIGHER = ("†", "‡"), ("§", "¶")
"""Marks of a metric that is significantly below or above the first and second baseline."""
PRINTED_FACTS = ("nodes", "node features", "classes", "tasks", "classes per task")
MORE_FACTS = ("edges", "training nodes", "validation nodes", "test nodes", "split", "metric")


@dataclass(frozen=True)
class CellResult:
    """A cell of a grid, with the row of its runs if it has any."""

    cell: GridCell

    @cached_property
    def row(self) -> ResultRow | None:
        return ResultRow(self.cell.runs[0].config, self.cell.runs) if self.cell.runs else None

    @property
    def label(self) -> str:
        return self.cell.row.label + (" (leaky)" if self.row and self.row.is_leaky else "")

    @property
    def group(self) -> str:
        return f"{self.cell.dataset} · {self.cell.protocol}"

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
        values: dict[str, Any] = {
            "experiment": cell.experiment,
            "row": cell.row.label,
            "block": cell.row.block,
            "dataset": cell.dataset,
            "protocol": cell.protocol,
            "paper": self.paper,
            "command": cell.command,
            "reason": cell.reason,
        }
        if row:
            values |= {name: row.summary(name).to_dict() for name in ("pm", "fm", "aa")}
            values |= {
                "after_each_task": [summary.to_dict() for summary in row.after_each_task],
                "split": row.runs[0].split,
                "leaky": row.is_leaky,
                "notes": list(row.runs[0].notes),
                "seconds": sum(run.seconds for run in row.runs),
            }
        return values


def paired_tests_of(experiment: Experiment, results: Sequence[CellResult], measure: str = "fm") -> list[PairedTest]:
    """Test every row against the experiment's baselines, where only the method or the selector differs.

    The tests of one protocol and baseline, over all data sets, are one family.
    """
    tests = []
    for protocol in dict.fromkeys(result.cell.protocol for result in results):
        for baseline in experiment.baselines:
            like = next((result.cell.row for result in results if result.cell.row.label == baseline), None)
            samples = {
                (result.group, result.cell.row.label): result.row.by_member(measure)
                for result in results
                if like and result.row and result.cell.protocol == protocol and _comparable(result.cell, like.settings)
            }
            tests += paired_tests(samples, baseline)
    return tests


def _comparable(cell: GridCell, baseline: Mapping[str, Any]) -> bool:
    same = all(cell.row.settings.get(key) == baseline.get(key) for key in ("backbone", "input"))
    return same and cell.row.block != "bounds"


def experiment_sections(
    experiment: Experiment, results: Sequence[CellResult], tests: Sequence[PairedTest] = ()
) -> list[Section]:
    """Build one section per data set and protocol; ``tests`` are those of :func:`paired_tests_of`."""
    sections = []
    for protocol, dataset in dict.fromkeys((result.cell.protocol, result.cell.dataset) for result in results):
        rows = [result for result in results if (result.cell.protocol, result.cell.dataset) == (protocol, dataset)]
        title = f"{experiment.title} · {dataset}" + ("" if experiment.published else f" · protocol {protocol}")
        if not any(result.row for result in rows):
            reasons = dict.fromkeys(result.cell.reason for result in rows)
            sections.append(Section(title, None, [f"{dataset} is unavailable: {reason}" for reason in reasons]))
            continue
        notes = [*_notes(rows), *(experiment.published.notes if experiment.published else [])]
        finished = [(result.label, result.row) for result in rows if result.row]
        if experiment.name == FIGURE_2.name:
            table = evolution_table(finished)
        elif experiment.name == FIGURE_3.name:
            table = sensitivity_table([(label.partition(", e =")[0], row) for label, row in finished])
            notes += _notes_on_whole_buffers(rows)
        else:
            tested = [test for test in tests if test.group == rows[0].group]
            table = _measures(experiment, rows, tested)
            notes += _legend(experiment, [test for test in tests if tested and test.group.endswith(protocol)])
        commands = [(result.label, result.cell.command) for result in rows if result.row]
        sections.append(Section(title, table, notes, commands))
    return sections


def _measures(experiment: Experiment, rows: Sequence[CellResult], tests: Sequence[PairedTest]) -> Table:
    """Compare PM, FM and AA with the paper's; ``tests`` are those of this data set and protocol."""
    fractions = experiment.name == "table4"  # as the paper prints them
    order = ("fm", "aa", "pm") if fractions else ("aa", "bwt") if experiment.published else ("pm", "fm", "aa")
    return result_table(
        [result.label for result in rows],
        [result.row for result in rows],
        scale=1 if fractions else 100,
        order=order,
        papers=[result.paper for result in rows],
        marks={r.label: _marks(experiment, r.cell.row.label, tests) for r in rows} if tests else None,
    )


def _notes_on_whole_buffers(rows: Sequence[CellResult]) -> list[str]:
    """Note the values of e whose final buffer is as large as the last task's training set, i.e. has all nodes."""
    sizes = set()
    for result in rows:
        last = result.row.runs[0] if result.row else None
        if last and last.buffer_ids and len(last.buffer_ids) == last.history[-1]["trained_on"]:
            sizes.add(result.cell.row.settings["per_class"])
    return [f"e = {size} stores every training node." for size in sorted(sizes)]


def _notes(rows: Sequence[CellResult]) -> list[str]:
    done = [(result.cell, result.row) for result in rows if result.row]
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
    return notes + [
        f"{result.cell.row.label} is unavailable: {result.cell.reason}" for result in rows if result.cell.reason
    ]


def _marks(experiment: Experiment, label: str, tests: Sequence[PairedTest]) -> str:
    marks = ""
    for number, baseline in enumerate(experiment.baselines):
        for test in tests:
            if (test.row, test.baseline) == (label, baseline):
                marks += LOWER[number] * test.lower + HIGHER[number] * test.higher
    return marks


def _legend(experiment: Experiment, tests: Sequence[PairedTest]) -> list[str]:
    """Explain the marks; ``tests`` are those of one protocol."""
    lines = []
    for number, baseline in enumerate(experiment.baselines):
        family = [test for test in tests if test.baseline == baseline]
        if not family:
            continue
        pairs = max(test.difference.n for test in family)
        short = len(family) * 2.0 ** (1 - pairs) > ALPHA  # the smallest p-value that this few pairs can give
        lines.append(
            f"{LOWER[number]} FM significantly lower than {baseline}, {HIGHER[number]} higher: paired Wilcoxon test on "
            f"{pairs} seeds and class orders, p < {ALPHA} after Holm's correction for {len(family)} tests"
            + (" (too few pairs to show any difference)." if short else ".")
        )
    return lines


def data_section(datasets: Sequence[str]) -> Section:
    """Build table 1: counts of the loaded data and the paper's; unavailable data sets are named in the notes."""
    header, columns, notes = [""], [], []
    for name in datasets:
        try:
            facts, stream_notes = _counted(name)
        except DataUnavailable as error:
            notes.append(f"{name} is unavailable: {error}")
            continue
        paper = [f"{number:,}" for number in PAPER_TABLE_1.get(name, ())] or [NOTHING] * len(PRINTED_FACTS)
        header += [f"{name} paper", f"{name} ours"]
        columns += [[*paper, *[NOTHING] * len(MORE_FACTS)], facts]
        notes += [f"{name}: {note}" for note in stream_notes]
    rows = [[fact, *(column[i] for column in columns)] for i, fact in enumerate([*PRINTED_FACTS, *MORE_FACTS])]
    return Section(TABLE_1.title, Table(header, rows) if columns else None, notes)


def _counted(name: str) -> tuple[list[str], tuple[str, ...]]:
    graph = load_graph(name).graph
    stream, split, notes = make_config_stream(RunConfig(dataset=name).resolved(), 0, 0)
    split_sizes = [sum(getattr(task, one).numel() for task in stream) for one in ("train", "val", "test")]
    counts = (graph.num_nodes, graph.num_features, graph.num_classes, len(stream), stream[0].num_classes)
    edges = int((graph.edge_index[0] < graph.edge_index[1]).sum())
    return [*(f"{number:,}" for number in (*counts, edges, *split_sizes)), split, stream.metric], notes


def write_results(
    done: Reproduced, experiments: Sequence[Experiment], out: str | Path, options: Options, command: str = ""
) -> list[Section]:
    """Write tables, results and, if there are runs, the page of some experiments into a folder; return the tables.

    Args:
        done: result of :func:`ergnn.lab.reproduce.reproduce` for the same experiments and options.
        out: output folder.
        command: the command, shown with the results.
    """
    folder, written = Path(out), []
    results: dict[str, Any] = {
        "command": command,
        "quick": options.quick,
        "code_version": code_version(),
        "machine": machine_facts(),
        "experiments": {},
    }
    for experiment in experiments:
        sections, results["experiments"][experiment.name] = _experiment(experiment, done, options)
        is_other = options.protocol is not None and tuple(experiment.protocols) != (options.protocol,)
        name = experiment.name + (f"-{options.protocol}" if is_other else "")
        write_sections(folder, name, sections, command)
        written += sections
    write_file(folder / "results.json", json.dumps(results, ensure_ascii=False, indent=1).encode())
    with RunStore(done.store) as store:
        has_runs = len(store) > 0
    if has_runs:
        write_page(done.store, folder / "report.html", command=command)
    return written


def _experiment(experiment: Experiment, done: Reproduced, options: Options) -> tuple[list[Section], dict[str, Any]]:
    """Build the sections of one experiment, and its entry in ``results.json``."""
    entry: dict[str, Any] = {}
    if experiment is TABLE_1:
        sections = [data_section(datasets_of(experiment, options))]
    else:
        results = [CellResult(cell) for cell in done.cells[experiment.name]]
        tests = paired_tests_of(experiment, results)
        sections = experiment_sections(experiment, results, tests)
        entry = {"rows": [result.to_dict() for result in results], "tests": [test.to_dict() for test in tests]}
    if options.quick:
        sections = [replace(section, notes=[QUICK_MARK, *section.notes]) for section in sections]
    return sections, entry
