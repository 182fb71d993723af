"""``ergnn reproduce``: run the experiments of the paper's tables and figures, and compare the results with its numbers.

An experiment is one configuration per row, data set and protocol. Tables and figures are made from stored runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ergnn.config.errors import ErgnnError, check_choice
from ergnn.config.learner_config import PROTOCOLS
from ergnn.data.datasets import DATASETS, DataUnavailable, load_graph
from ergnn.lab import grid
from ergnn.lab.config import Options, RunConfig, command_of
from ergnn.lab.engines import GridRunner
from ergnn.lab.grid import PAPER, TABLE_1, TABLE_4, Experiment, GridRow, PaperResult, paper_result
from ergnn.lab.published import PUBLISHED
from ergnn.lab.report.page import QUICK_MARK, Section, caveats, result_table, write_json, write_page, write_sections
from ergnn.lab.report.rows import ResultRow, grouped
from ergnn.lab.result import StoredRun
from ergnn.lab.run import StreamCache, check_run, make_config_stream
from ergnn.lab.statistics import ALPHA, PairedTest, paired_tests
from ergnn.lab.store import RunStore
from ergnn.pages.table import NOTHING, Table

EXPERIMENTS = {experiment.name: experiment for experiment in (*PAPER, grid.CLASS_INCREMENTAL, *PUBLISHED)}
QUICK_SEEDS = 3
QUICK_OMITS = (2, 10)
"""Values of e that a quick figure 3 omits."""
MARKS = ({-1: "†", 0: "", 1: "§"}, {-1: "‡", 0: "", 1: "¶"})
"""Marks of a metric that is significantly below (-1) or above (1) the first and second baseline."""
PRINTED_FACTS = ("nodes", "node features", "classes", "tasks", "classes per task")
MORE_FACTS = ("edges", "training nodes", "validation nodes", "test nodes", "split", "metric")


@dataclass
class GridCell:
    """A row on one data set with one protocol: a configuration and its runs, or the reason why they are unavailable.

    Attributes:
        paper: the printed numbers of this row.
        config: the resolved configuration; None if it is unavailable.
        command: computes this cell alone.
    """

    experiment: str
    row: GridRow
    dataset: str
    protocol: str
    paper: PaperResult | None = None
    config: RunConfig | None = None
    command: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()
    runs: Sequence[StoredRun] = ()

    @cached_property
    def result(self) -> ResultRow | None:
        """All runs as a row of a table; None without runs."""
        return ResultRow(self.runs) if self.runs else None

    @property
    def label(self) -> str:
        return self.row.label + (" (leaky)" if self.result and self.result.is_leaky else "")

    @property
    def group(self) -> str:
        return f"{self.dataset} · {self.protocol}"

    def to_dict(self) -> dict[str, Any]:
        """Return the row, the paper's numbers and ours, and the command, for JSON."""
        values = {name: getattr(self, name) for name in ("experiment", "dataset", "protocol", "paper", "command")}
        values |= {"row": self.row.label, "block": self.row.block, "reason": self.reason}
        if self.result:
            values |= {name: vars(self.result.summary(name)) for name in ("pm", "fm", "aa")}
            values |= {
                "after_each_task": [vars(summary) for summary in self.result.after_each_task],
                "split": self.runs[0].split,
                "leaky": self.result.is_leaky,
                "notes": list(self.runs[0].notes),
                "seconds": sum(run.seconds for run in self.runs),
            }
        return values


def cells(experiment: Experiment, options: Options) -> list[GridCell]:
    """Return every row on every data set and protocol, available or not."""
    streams = StreamCache()
    protocols = (options.protocol,) if options.protocol else experiment.protocols
    for protocol in protocols:
        check_choice("protocol", protocol, PROTOCOLS)
    rows = [row for row in experiment.rows if not (options.quick and row.settings.get("per_class") in QUICK_OMITS)]
    return [
        _cell(experiment, row, dataset, protocol, options, streams)
        for protocol in protocols
        for dataset in datasets_of(experiment, options)
        for row in rows
    ]


def _cell(
    experiment: Experiment, row: GridRow, dataset: str, protocol: str, options: Options, streams: StreamCache
) -> GridCell:
    settings = experiment.settings(row, dataset)
    paper = row.published.get(dataset) if experiment.sources else paper_result(dataset, **settings)
    cell = GridCell(experiment.name, row, dataset, protocol, paper)
    if not row.settings:
        return replace(cell, reason="not implemented")
    settings |= _members(experiment, protocol, dataset, options, settings.get("seeds", 10))
    settings |= experiment.quick if options.quick else {}
    try:
        given = RunConfig(dataset=dataset, protocol=protocol, device=options.device, **settings)
        preset, _ = check_run(given.resolved(), streams)
    except (ErgnnError, ImportError) as error:
        return replace(cell, reason=str(error))
    # the split actually used: stored runs on a public and on a seeded split must not be confused
    given = replace(given, split=preset.split)
    return replace(cell, config=given.resolved(), command=command_of(given), notes=preset.notes)


def datasets_of(experiment: Experiment, options: Options) -> Sequence[str]:
    """Return the requested data sets that belong to the experiment; a third-party data set counts as a graph."""
    if options.datasets is None:
        return experiment.quick_datasets if options.quick and experiment.quick_datasets else experiment.datasets
    named = [DATASETS.resolve(name) for name in options.datasets]
    images = experiment is not TABLE_4
    return [name for name in named if (name in TABLE_4.datasets) != images]


def _members(experiment: Experiment, protocol: str, dataset: str, options: Options, usual: int) -> dict[str, Any]:
    many = protocol == "clean" and not options.quick and "class_order" not in experiment.common
    orders = options.class_orders or (10 if many else 1)
    if dataset in TABLE_4.datasets:  # its tasks are permutations, which depend on the seed
        orders = 1
    seeds = options.seeds or (min(usual, QUICK_SEEDS) if options.quick else usual)
    members: dict[str, Any] = {"seeds": seeds, "first_seed": options.first_seed}
    if orders > 1:
        members.update(class_order="shuffled", orders=orders, split="seeded")
    if options.split is not None:
        members["split"] = options.split
    return members


def reproduce(experiments: Sequence[Experiment], options: Options, runner: GridRunner) -> dict[str, list[GridCell]]:
    """Run everything that is not finished yet; return the cells of each experiment by its name."""
    planned = {experiment.name: cells(experiment, options) for experiment in experiments}
    available = [cell for of_experiment in planned.values() for cell in of_experiment if cell.config]
    configs = [cell.config for cell in available if cell.config]
    for cell, finished in zip(available, runner("runs", configs), strict=True):
        cell.reason, cell.runs = finished
    return planned


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
    for (protocol, dataset), group in grouped(cells, lambda cell: (cell.protocol, cell.dataset)).items():
        title = f"{experiment.title} · {dataset}" + ("" if experiment.sources else f" · protocol {protocol}")
        rows = [(cell.label, cell.result) for cell in group if cell.result]
        if not rows:
            reasons = dict.fromkeys(cell.reason for cell in group)
            sections.append(Section(title, None, [f"{dataset} is unavailable: {reason}" for reason in reasons]))
            continue
        notes = [*_notes(group), *experiment.sources]
        if experiment.name == grid.FIGURE_2.name:
            table = evolution_table(rows)
        elif experiment.name == grid.FIGURE_3.name:
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
        printed = [f"{number:,}" for number in grid.PAPER_TABLE_1.get(name, ())] or [NOTHING] * len(PRINTED_FACTS)
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

    ``cells`` are the result of :func:`reproduce` for the same experiments, options and runner.
    """
    folder, written, results = runner.out, list[Section](), dict[str, Any]()
    for experiment in experiments:
        if experiment is TABLE_1:
            sections = [data_section(datasets_of(experiment, options))]
            results[experiment.name] = {}
        else:
            finished = cells[experiment.name]
            tests = paired_tests_of(experiment, finished)
            sections = experiment_sections(experiment, finished, tests)
            rows = [cell.to_dict() for cell in finished]
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
