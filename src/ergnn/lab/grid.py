"""The ER-GNN paper's tables and figures as data: configurations and printed numbers (other papers': :mod:`.published`).

A :class:`GridRow` overrides fields of :class:`RunConfig`; an :class:`Experiment` is a list of rows, the data sets they
run on and their common settings. :func:`ergnn.lab.reproduce.cells` turns one into configurations.

The numbers are those of Fan Zhou and Chengtai Cao, "Overcoming Catastrophic Forgetting in Graph Neural Networks with
Experience Replay", AAAI 2021: table 2 (PM and FM on three graphs), table 3 (FM of ER-SGC and ER-GIN) and table 4 (FM on
permuted MNIST). Means of 10 runs; the paper gives no spread, and does not fix head, edges, epochs or FM's denominator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PaperResult = dict[str, float | None]
"""One printed row as fractions, by measure: ``fm``, ``aa``, ``bwt``, ``score``, and ``pm``, which is None if only FM is
printed; of the ER-GNN paper also the number of its ``table``."""

GRAPHS = ("cora", "citeseer", "reddit")


@dataclass(frozen=True)
class GridRow:
    """One row of a table, or one line of a figure.

    Args:
        label: displayed label.
        settings: fields of :class:`RunConfig`.
        block: ``paper`` (rows of the paper), ``control``, ``ours`` (selectors not in the paper) or ``bounds``.
        by_dataset: additional settings on a data set.
        published: numbers of another paper, by data set. A row without settings has these only.
    """

    label: str
    settings: Mapping[str, Any]
    block: str = "paper"
    by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published: Mapping[str, PaperResult] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Args:
        name: name for ``ergnn reproduce``.
        title: displayed title.
        rows: its rows.
        datasets: default data sets.
        common: default settings of all rows.
        by_dataset: additional settings of all rows on a data set.
        protocols: default protocols; each gets its own table.
        baselines: labels of the rows that the others are tested against.
        quick: further settings of a quick run.
        quick_datasets: data sets of a quick run; by default all.
        sources: notes on the source and protocol of another paper's table.
        measures: columns of the table.
    """

    name: str
    title: str
    rows: Sequence[GridRow]
    datasets: Sequence[str] = GRAPHS
    common: Mapping[str, Any] = field(default_factory=dict)
    by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    protocols: Sequence[str] = ("paper",)
    baselines: Sequence[str] = ()
    quick: Mapping[str, Any] = field(default_factory=lambda: {"epochs": 50})
    quick_datasets: Sequence[str] | None = None
    sources: Sequence[str] = ()
    measures: Sequence[str] = ("pm", "fm", "aa")

    def settings(self, row: GridRow, dataset: str) -> dict[str, Any]:
        """Return the settings of a row on a data set."""
        by_dataset = {**self.by_dataset.get(dataset, {}), **row.settings, **row.by_dataset.get(dataset, {})}
        return {**self.common, **by_dataset}


def _finetune(label: str, backbone: str) -> GridRow:
    return GridRow(label, {"backbone": backbone, "method": "finetune"})


def _replay(label: str, selector: str, backbone: str = "gat", block: str = "paper", **settings: Any) -> GridRow:
    return GridRow(label, {"backbone": backbone, "method": "replay", "selector": selector, **settings}, block)


RANDOM, MF_STAR = "ER-GAT Random", "ER-GAT MF*"
ER_GAT = tuple(_replay(f"ER-GAT {name}", name.lower()) for name in ("Random", "MF", "MF*", "CM", "CM*", "IM"))
LITERAL_IM = (
    _replay("ER-GAT IM, test target", "im", selector_options={"target": "test"}),
    _replay("ER-GAT IM, largest value", "im", selector_options={"sign": "harmful"}),
)
"""The paper sums influence over test nodes, and its "larger" influence is, literally, the largest value."""

OURS = tuple(
    _replay(f"ER-GAT {name}", selector, block="ours")
    for name, selector in (("RIM", "rim"), ("S2-ridge", "s2-ridge"), ("LA-ridge", "la-ridge"), ("MF in S²X", "mf-s2"))
)
BOUNDS = (
    GridRow("nearest class mean", {"method": "nearest-mean"}, block="bounds"),
    GridRow("joint training", {"backbone": "gat", "method": "joint"}, block="bounds"),
)
GAT = _finetune("GAT", "gat")

TABLE_2 = Experiment(
    "table2",
    "Table 2. Performance mean (PM) and forgetting mean (FM)",
    (
        GridRow("DeepWalk", {"backbone": "mlp", "method": "finetune", "input": "deepwalk"}),
        GridRow("Node2Vec", {"backbone": "mlp", "method": "finetune", "input": "node2vec"}),
        *(_finetune(*names) for names in (("GraphSAGE", "sage"), ("GIN", "gin"), ("GCN", "gcn"), ("SGC", "sgc"))),
        GAT,
        *ER_GAT,
        *LITERAL_IM,
        *OURS,
        *BOUNDS,
    ),
    baselines=(RANDOM, MF_STAR),
)

TABLE_3 = Experiment(
    "table3",
    "Table 3. Forgetting mean of ER-SGC and ER-GIN",
    tuple(
        row
        for name, backbone in (("SGC", "sgc"), ("GIN", "gin"))
        for row in (
            _finetune(name, backbone),
            _replay(f"ER-{name} Random", "random", backbone, block="control"),
            *(_replay(f"ER-{name} {selector}", selector.lower(), backbone) for selector in ("MF", "CM", "IM")),
        )
    ),
    baselines=("ER-SGC Random", "ER-GIN Random"),
)


def _image_replay(label: str, selector: str, **settings: Any) -> GridRow:
    common = {"method": "replay", "loss_scale": "balanced", "replay": "isolated"}
    return GridRow(label, {**common, "selector": selector, **settings})


TABLE_4 = Experiment(
    "table4",
    "Table 4. Permuted MNIST",
    (
        GridRow("FINETUNE", {"method": "finetune"}),
        GridRow("EWC", {"method": "ewc", "lam": 3.0}),
        GridRow("GEM", {"method": "gem", "replay": "isolated"}),
        GridRow("A-GEM", {"method": "agem", "replay": "isolated"}),
        _image_replay("replay Random", "random"),
        _image_replay("replay MF*", "mf*"),
        _image_replay("replay IM", "im", selector_options={"damping": 0.1}),
    ),
    datasets=("permuted-mnist",),
    common={"backbone": "mlp", "epochs": 1, "batch_size": 10, "optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0},
    baselines=("replay Random",),
    quick={"dataset_options": {"tasks": 5, "val": 500, "test": 2000}},
    measures=("fm", "aa", "pm"),
)

FIGURE_2 = Experiment("figure2", "Figure 2. Mean score over the tasks seen so far", (GAT, *ER_GAT, *OURS[1:3]))

COUNTS = (1, 2, 5, 10, 20)
FIGURE_3 = Experiment(
    "figure3",
    "Figure 3. Forgetting mean against e, the number of stored nodes per class",
    (
        *(
            GridRow(f"{row.label}, e = {count}", {**row.settings, "per_class": count}, row.block)
            for row in (ER_GAT[0], ER_GAT[2], ER_GAT[5], *OURS[1:3])
            for count in COUNTS
        ),
        BOUNDS[1],
    ),
    protocols=("paper", "clean"),
)

PAPER_TABLE_1 = {
    "cora": (2708, 1433, 7, 3, 2),
    "citeseer": (3327, 3703, 6, 3, 2),
    "reddit": (232965, 602, 41, 8, 5),
}
"""Nodes, node features, classes, tasks and classes per task, as printed."""

PLANETOID = ("cora", "citeseer", "pubmed")
LARGER_SPLIT = "0.1/0.1/0.8"
"""Split of graphs other than Planetoid's, whose split has 20 training nodes per class; both are drawn for each seed."""
LARGER = ("amazon-photo", "amazon-computers", "coauthor-cs", "cora-ml", "dblp", "citeseer-full")


def _class_incremental() -> tuple[GridRow, ...]:
    """Create the rows for edges ``all`` and ``seen``; joint training uses the L2 factor of GCN and GAT."""
    replay: dict[str, Any] = {"selector": "mf*", "backbone": "gcn", "block": "ours", "scarce": "keep"}
    rows = (
        GridRow("joint GCN", {"backbone": "gcn", "method": "joint", "weight_decay": 5e-4}, block="bounds"),
        GridRow("joint GAT", {"backbone": "gat", "method": "joint", "weight_decay": 5e-4}, block="bounds"),
        GridRow("nearest class mean", {"method": "nearest-mean", "distance": "cosine"}, block="bounds"),
        _replay("ER-GCN MF*, e = 5, Eq. 3 alone", **replay, per_class=5, class_balance="none"),
        *(_replay(f"ER-GCN MF*, e = {e}", **replay, per_class=e) for e in (5, 20)),
        GridRow("analytic", {"method": "analytic"}, block="ours"),
        GridRow("analytic, statistics", {"method": "analytic", "memory": "statistics"}, block="ours"),
        GridRow("analytic, GCN student", {"method": "analytic", "backbone": "gcn", "student": True}, block="ours"),
    )
    return tuple(
        GridRow(f"{row.label}, edges {edges}", {**row.settings, "edges": edges}, row.block)
        for edges in ("all", "seen")
        for row in rows
    )


CLASS_INCREMENTAL = Experiment(
    "class-incremental",
    "Class-incremental learning with the task unknown: all classes so far compete",
    _class_incremental(),
    datasets=(*PLANETOID, *LARGER),
    common={"head": "growing", "class_order": "seeded", "leftover": "last"},
    by_dataset={
        **{name: {"split": "seeded"} for name in PLANETOID},
        **{name: {"split": LARGER_SPLIT} for name in LARGER},
        "pubmed": {"split": "seeded", "classes_per_task": 1},
    },
    protocols=("clean",),
    quick_datasets=("cora", "citeseer"),
)

TABLE_1 = Experiment("table1", "Table 1. Data sets and task settings, counted from the data", ())
PAPER = (TABLE_1, TABLE_2, TABLE_3, TABLE_4, FIGURE_2, FIGURE_3)

# table, backbone, method, selector; PM and FM in percent, as printed, on Cora, Citeseer and Reddit, or permuted MNIST
_PRINTED = """
2 deepwalk finetune -      85.63 34.51  64.79 25.92  76.93 33.24
2 node2vec finetune -      85.99 35.46  65.18 24.87  78.24 34.66
2 sage     finetune -      94.15 37.73  81.26 28.06  95.01 40.06
2 gin      finetune -      90.17 33.81  74.92 27.42  93.75 36.28
2 gcn      finetune -      93.62 31.90  80.63 25.47  94.43 35.17
2 sgc      finetune -      93.06 33.93  78.18 28.31  94.01 38.59
2 gat      finetune -      94.19 30.84  81.37 25.06  95.13 34.97
2 gat      replay   random 93.58 29.17  81.48 23.73  93.84 32.79
2 gat      replay   mf     94.15 22.49  80.03 17.96  94.18 26.44
2 gat      replay   mf*    94.23 21.88  81.83 17.83  94.63 23.54
2 gat      replay   cm     93.98 22.14  78.78 18.03  93.33 26.17
2 gat      replay   cm*    94.25 21.03  80.86 17.86  94.23 23.15
2 gat      replay   im     95.66 21.14  80.85 17.08  95.36 23.09
3 sgc      replay   mf         - 25.00      - 20.34      - 27.62
3 sgc      replay   cm         - 25.46      - 19.38      - 26.27
3 sgc      replay   im         - 26.11      - 17.16      - 25.04
3 gin      replay   mf         - 27.98      - 21.01      - 25.36
3 gin      replay   cm         - 27.38      - 20.72      - 24.23
3 gin      replay   im         - 26.74      - 20.68      - 23.75
4 mlp      finetune -          - 29
4 mlp      ewc      -          - 22
4 mlp      gem      -          - 18
4 mlp      replay   im         - 14
"""


def _printed() -> Iterator[tuple[Any, PaperResult]]:
    """Yield the dataset, backbone, method and selector (or None) of every printed result, and the result."""
    for line in _PRINTED.strip().splitlines():
        table, backbone, method, selector, *numbers = line.split()
        fractions = [None if text == "-" else round(float(text) / 100, 4) for text in numbers]
        graphs = ("permuted-mnist",) if table == "4" else GRAPHS
        for graph, pm, fm in zip(graphs, fractions[::2], fractions[1::2], strict=True):
            yield (
                (graph, backbone, method, None if selector == "-" else selector),
                {"pm": pm, "fm": fm, "table": int(table)},
            )


PAPER_RESULTS = dict(_printed())


def paper_result(
    dataset: str,
    backbone: str = "",
    method: str = "replay",
    selector: str | None = None,
    per_class: int | None = 1,
    head: str | None = None,
    input: str = "features",
    **others: Any,
) -> PaperResult | None:
    """Return the printed result of one setting, as fractions; None if there is none.

    Names are ours: the paper's GNN rows are ``method="finetune"``, its ER rows ``"replay"`` with a selector.
    ``selector`` and ``per_class`` matter for ``"replay"`` only, ``others`` do not matter. A growing head must
    distinguish the classes of all tasks, which is harder than the paper's setting, so it has no printed result.

    >>> paper_result("cora", "gat", "replay", "im")
    {'pm': 0.9566, 'fm': 0.2114, 'table': 2}
    >>> paper_result("cora", "gat", "finetune")["fm"]
    0.3084
    >>> paper_result("cora", "gat", "replay", "im", per_class=5) is None
    True
    """
    if head == "growing" or (method == "replay" and per_class != 1):
        return None
    source = backbone if input == "features" else input
    result = PAPER_RESULTS.get((dataset, source, method, selector if method == "replay" else None))
    return result.copy() if result else None
