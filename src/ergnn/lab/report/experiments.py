"""The results of ``ergnn reproduce``: stored runs as the paper's tables and figures, compared with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ergnn.data.datasets import DataUnavailable, load_graph
from ergnn.lab.config import RunConfig
from ergnn.lab.engines import GridRunner
from ergnn.lab.grid import FIGURE_2, FIGURE_3, PAPER_TABLE_1, TABLE_1, TABLE_4, Experiment
from ergnn.lab.report.page import (
    QUICK_MARK,
    Section,
    caveats,
    result_table,
    write_json,
    write_page,
    write_sections,
)
from ergnn.lab.report.rows import ResultRow
from ergnn.lab.reproduce import GridCell, Options, datasets_of
from ergnn.lab.run import make_config_stream
from ergnn.lab.statistics import ALPHA, PairedTest, paired_tests
from ergnn.lab.store import RunStore
from ergnn.pages.table import NOTHING, Table

MARKS = ({-1: "†", 0: "", 1: "§"}, {-1: "‡", 0: "", 1: "¶"})
"""Marks of a metric that is significantly below (-1) or above (1) the first and second baseline."""
PRINTED_FACTS = ("nodes", "node features", "classes", "tasks", "classes per task")
MORE_FACTS = ("edges", "training nodes", "validation nodes", "test nodes", "split", "metric")


def paired_tests_of(experiment: Experiment, cells: Sequence[GridCell]) -> list[PairedTest]:
    """Test the FM of every row against the experiment's baselines, where only the method or the selector differs.

    The tests of one protocol and baseline, over all data sets, are one family.
    """
    tests = []
    for protocol in dict.fromkeys(cell.protocol for cell in cells):
        for baseline in experiment.baselines:
            like = next((cell.row for cell in cells if cell.row.label == baseline), None)
            samples = {
                (cell.group, cell.row.label): cell.result.by_member("fm")
                for cell in cells
                if like and cell.result and cell.protocol == protocol and cell.row.block != "bounds"
                if all(cell.row.settings.get(key) == like.settings.get(key) for key in ("backbone", "input"))
            }
            tests += paired_tests(samples, baseline)
    return tests


def experiment_sections(
    experiment: Experiment, cells: Sequence[GridCell], tests: Sequence[PairedTest] = ()
) -> list[Section]:
    """Build one section per data set and protocol; ``tests`` are those of :func:`paired_tests_of`."""
    sections, signs = [], dict(zip(experiment.baselines, MARKS, strict=False))
    for protocol, dataset in dict.fromkeys((cell.protocol, cell.dataset) for cell in cells):
        group = [cell for cell in cells if (cell.protocol, cell.dataset) == (protocol, dataset)]
        title = f"{experiment.title} · {dataset}" + ("" if experiment.sources else f" · protocol {protocol}")
        rows = [(cell.label, cell.result) for cell in group if cell.result]
        if not rows:
            reasons = dict.fromkeys(cell.reason for cell in group)
            sections.append(Section(title, None, [f"{dataset} is unavailable: {reason}" for reason in reasons]))
            continue
        notes = [*_notes(group), *experiment.sources]
        if experiment.name == FIGURE_2.name:
            table = evolution_table(rows)
        elif experiment.name == FIGURE_3.name:
            table = sensitivity_table([(label.partition(", e =")[0], row) for label, row in rows])
        else:
            tested = [test for test in tests if test.group == group[0].group]
            marks = dict.fromkeys((cell.label for cell in group), "")
            for cell, test in ((cell, test) for cell in group for test in tested if test.row == cell.row.label):
                marks[cell.label] += signs[test.baseline][test.sign]
            notes += _legend(experiment, [test for test in tests if tested and test.group.endswith(protocol)])
            fractions = experiment.name == TABLE_4.name  # as the paper prints them
            table = result_table(
                [(cell.label, cell.result, cell.paper) for cell in group],
                order=experiment.measures,
                scale=1 if fractions else 100,
                marks=marks if tested else None,
                count_runs="score" in experiment.measures,
            )
        sections.append(Section(title, table, notes, [(cell.label, cell.command) for cell in group if cell.result]))
    return sections


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


def _notes(cells: Sequence[GridCell]) -> list[str]:
    finished = [cell for cell in cells if cell.runs]
    config = finished[0].config
    assert config is not None
    orders = {
        "shuffled": f"{config.orders} shuffled class orders",
        "seeded": "each with its own class order",
        "natural": "the natural class order",
    }.get(str(config.class_order), f"class order {config.class_order}")
    stream = f"{orders}; {finished[0].runs[0].split} split; {config.edges} edges"
    if config.dataset in TABLE_4.datasets:
        stream = "tasks drawn by seed"
    notes = [f"Mean ± 95 % interval over {config.seeds} seed(s), {stream}."]
    notes += list(dict.fromkeys(note for cell in finished for note in (*cell.notes, *cell.runs[0].notes)))
    notes += caveats([cell.result for cell in finished if cell.result])
    return notes + [f"{cell.row.label} is unavailable: {cell.reason}" for cell in cells if cell.reason]


def _legend(experiment: Experiment, tests: Sequence[PairedTest]) -> list[str]:
    """Explain the marks; ``tests`` are those of one protocol."""
    lines = []
    for baseline, marks in zip(experiment.baselines, MARKS, strict=False):
        family = [test for test in tests if test.baseline == baseline]
        if not family:
            continue
        pairs = max(test.difference.n for test in family)
        short = len(family) * 2.0 ** (1 - pairs) > ALPHA  # the smallest p-value that this few pairs can give
        lines.append(
            f"{marks[-1]} FM significantly lower than {baseline}, {marks[1]} higher: paired Wilcoxon test on "
            f"{pairs} seeds and class orders, p < {ALPHA} after Holm's correction for {len(family)} tests"
            + (" (too few pairs to show any difference)." if short else ".")
        )
    return lines


def data_section(datasets: Sequence[str]) -> Section:
    """Build table 1: counts of the loaded data and the paper's; unavailable data sets are named in the notes."""
    columns: list[Sequence[str]] = [["", *PRINTED_FACTS, *MORE_FACTS]]
    notes = []
    for name in datasets:
        try:
            graph = load_graph(name).graph
            stream, split, stream_notes = make_config_stream(RunConfig(dataset=name).resolved(), 0, 0)
        except DataUnavailable as error:
            notes.append(f"{name} is unavailable: {error}")
            continue
        sizes = [sum(getattr(task, one).numel() for task in stream) for one in ("train", "val", "test")]
        edges = int((graph.edge_index[0] < graph.edge_index[1]).sum())
        counts = (graph.num_nodes, graph.num_features, graph.num_classes, len(stream), stream[0].num_classes)
        printed = [f"{number:,}" for number in PAPER_TABLE_1.get(name, ())] or [NOTHING] * len(PRINTED_FACTS)
        columns.append([f"{name} paper", *printed, *[NOTHING] * len(MORE_FACTS)])
        ours = [f"{number:,}" for number in (*counts, edges, *sizes)]
        columns.append([f"{name} ours", *ours, split, stream.metric])
        notes += [f"{name}: {note}" for note in stream_notes]
    header, *rows = zip(*columns, strict=True)
    return Section(TABLE_1.title, Table(header, rows) if len(columns) > 1 else None, notes)


def write_results(
    cells: Mapping[str, Sequence[GridCell]],
    experiments: Sequence[Experiment],
    options: Options,
    runner: GridRunner,
    command: str = "",
) -> list[Section]:
    """Write tables, results and, if there are runs, the page of some experiments into a folder; return the tables.

    ``cells`` are the result of :func:`ergnn.lab.reproduce.reproduce` for the same experiments, options and runner.
    """
    folder, written, results = runner.out, list[Section](), dict[str, Any]()
    for experiment in experiments:
        if experiment is TABLE_1:
            sections = [data_section(datasets_of(experiment, options))]
            results[experiment.name] = {}
        else:
            grid = cells[experiment.name]
            tests = paired_tests_of(experiment, grid)
            sections = experiment_sections(experiment, grid, tests)
            rows = [cell.to_dict() for cell in grid]
            results[experiment.name] = {"rows": rows, "tests": [test.to_dict() for test in tests]}
        if options.quick:
            sections = [replace(section, notes=[QUICK_MARK, *section.notes]) for section in sections]
        is_other = options.protocol is not None and tuple(experiment.protocols) != (options.protocol,)
        name = experiment.name + (f"-{options.protocol}" if is_other else "")
        write_sections(folder, name, sections, command)
        written += sections
    write_json(folder, command, quick=options.quick, experiments=results)
    with RunStore(runner.store) as store:
        has_runs = len(store) > 0
    if has_runs:
        write_page(runner.store, folder / "report.html", command=command)
    return written
