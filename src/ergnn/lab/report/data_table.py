"""Table 1: the data sets and their tasks, counted from the loaded data."""

from __future__ import annotations

from collections.abc import Sequence

from ergnn.data.datasets import DataUnavailable, load_graph
from ergnn.lab.config import RunConfig
from ergnn.lab.grid import PAPER_TABLE_1, TABLE_1
from ergnn.lab.report.experiment_tables import Page
from ergnn.lab.run import make_config_stream
from ergnn.pages.table import NOTHING, Table

PRINTED = ("nodes", "node features", "classes", "tasks", "classes per task")
MORE = ("edges", "training nodes", "validation nodes", "test nodes", "split", "metric")


def data_page(datasets: Sequence[str]) -> Page:
    """Compare our counts with the paper's; unavailable data sets are named in the notes."""
    header, columns, notes = [""], [], []
    for name in datasets:
        try:
            ours, said = _counted(name)
        except DataUnavailable as error:
            notes.append(f"{name} is unavailable: {error}")
            continue
        paper = [f"{number:,}" for number in PAPER_TABLE_1.get(name, ())] or [NOTHING] * len(PRINTED)
        header += [f"{name} paper", f"{name} ours"]
        columns += [[*paper, *[NOTHING] * len(MORE)], ours]
        notes += [f"{name}: {note}" for note in said]
    rows = [[fact, *(column[i] for column in columns)] for i, fact in enumerate([*PRINTED, *MORE])]
    return Page(TABLE_1.title, Table(header, rows) if columns else None, notes)


def _counted(name: str) -> tuple[list[str], tuple[str, ...]]:
    graph = load_graph(name).graph
    stream, split, notes = make_config_stream(RunConfig(dataset=name).resolved(), 0, 0)
    parts = [sum(getattr(task, part).numel() for task in stream) for part in ("train", "val", "test")]
    numbers = (graph.num_nodes, graph.num_features, graph.num_classes, len(stream), stream[0].num_classes)
    edges = int((graph.edge_index[0] < graph.edge_index[1]).sum())
    return [*(f"{number:,}" for number in (*numbers, edges, *parts)), split, stream.metric], notes
