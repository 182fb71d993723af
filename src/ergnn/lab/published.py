"""Tables printed by others on data sets that we hold: their numbers, and the experiments that repeat their protocols.

Accuracy in percent, as printed. AP is the mean accuracy over the tasks at the end (our AA), AF the mean change on
earlier tasks (our BWT; negative if accuracy was lost). Each table states what is known of its protocol and what is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ergnn.data.datasets import DATASETS
from ergnn.lab.grid import PLANETOID, Experiment, GridRow, PaperResult

Printed = float | tuple[float, float]
"""AP, or AP and AF, in percent."""


def _row(label: str, printed: Mapping[str, Printed], block: str = "paper", **settings: Any) -> GridRow:
    """Create a row; without settings, it has printed numbers only, of a method that is not implemented here."""
    by_dataset = settings.pop("by_dataset", {})
    results: dict[str, PaperResult] = {}
    for name, value in printed.items():
        ap, af = value if isinstance(value, tuple) else (value, None)
        results[name] = {"aa": round(ap / 100, 4)}
        if af is not None:  # FM over M−1 tasks is −AF
            results[name] |= {"bwt": round(af / 100, 4), "fm": round(-af / 100, 4)}
    return GridRow(label, settings, block=block, published=results, by_dataset=by_dataset)


def _pair(*values: Printed) -> dict[str, Printed]:
    return dict(zip(("cora", "citeseer"), values, strict=True))


def _published(
    name: str,
    title: str,
    rows: Sequence[GridRow],
    *,
    source: str,
    known: str,
    unknown: str,
    relation: str = "its AP is our AA, its AF is our BWT (over M−1 tasks; negative if accuracy was lost)",
    **fields: Any,
) -> Experiment:
    """Create an experiment with the protocol ``clean``, on Cora and Citeseer unless ``fields`` say otherwise.

    Args:
        source, known, unknown: the source, and what is known and unknown of its protocol, shown with the results.
        relation: how its measures relate to ours.
    """
    usual = {"datasets": ("cora", "citeseer"), "protocols": ("clean",), "quick": {"epochs": 2}}
    fields = {**usual, "measures": ("aa", "bwt"), **fields}
    notes = (f"Source: {source}; {relation}.", f"Known: {known}.", f"Unknown: {unknown}.")
    return Experiment(name, title, rows, sources=notes, **fields)


GCN_2: dict[str, Any] = {"backbone": "gcn", "backbone_options": {"hidden": 256}}
ADAM: dict[str, Any] = {**GCN_2, "lr": 0.005}
ER_GNN: dict[str, Any] = {"method": "replay", "selector": "cm", "selector_options": {"d": 0.5}, "class_balance": "none"}
"""ER-GNN as both benchmarks run it: coverage maximization with d = 0.5, and Eq. 3 of its paper alone."""
STORED: dict[str, Any] = {"method": "replay", "selector": "mf*", "scarce": "keep"}
ANALYTIC = _row("analytic", {}, "ours", method="analytic")


def _begin() -> tuple[GridRow, ...]:
    """Create the rows of BeGin's table: Cora and Citeseer task-incremental, then class-incremental.

    Dropout, weight decay and strength are the best of {0, 0.5} × {0, 5e-4} × two or three strengths on validation nodes
    of the first two tasks, mean over Cora and Citeseer and over seeds 100 and 101. Its networks have batch
    normalization, which masks (PackNet, Piggyback) and TWP do not support here.
    """
    sizes: dict[str, Any] = {"hidden": 256, "layers": 2}
    plain: dict[str, Any] = {"backbone": "gcn", "backbone_options": sizes, "lr": 0.001}
    network: dict[str, Any] = {**plain, "backbone_options": {**sizes, "norm": "batch"}, "epochs": 100}
    er_gnn: dict[str, Any] = {**ER_GNN, "by_dataset": {"cora": {"per_class": 1}, "citeseer": {"per_class": 2}}}
    gem = {"method": "gem", "per_class": 2, "margin": 0.5}
    twp = {"method": "twp", "lam_loss": 10_000.0, "lam_topology": 1000.0}
    continual_gnn = {"method": "continualgnn", "per_class": 2}
    # label, printed AP, settings; dropout, weight decay and strength, task-incremental and class-incremental
    table: tuple[tuple[str, Sequence[Printed], dict[str, Any], Sequence[Any]], ...] = (
        ("bare", (91.0, 83.4, 53.9, 44.7), {"method": "finetune"}, ((0.5, 0.0, {}), (0.0, 0.0, {}))),
        ("LwF", (91.5, 85.9, 55.0, 46.4), {"method": "lwf", "alpha": 1.0}, ((0.0, 5e-4, {}), (0.0, 0.0, {}))),
        ("EWC", (91.2, 83.7, 56.7, 45.2), {"method": "ewc"}, ((0.5, 0.0, {"lam": 1e2}), (0.0, 0.0, {"lam": 1e4}))),
        ("MAS", (91.8, 84.3, 74.1, 56.0), {"method": "mas", "lam": 0.1}, ((0.5, 5e-4, {}), (0.0, 0.0, {}))),
        ("GEM", (88.2, 83.3, 61.8, 48.2), gem, ((0.5, 5e-4, {}), (0.5, 0.0, {}))),
        ("TWP", (91.0, 81.0, 56.4, 45.0), {**twp, **plain}, ((0.5, 0.0, {}), (0.0, 0.0, {}))),
        ("ER-GNN", (89.0, 82.9, 60.9, 45.7), er_gnn, ((0.0, 5e-4, {}), (0.5, 0.0, {}))),
        ("ContinualGNN", (91.1, 83.2, 72.3, 53.1), continual_gnn, ((0.5, 0.0, {}), (0.5, 5e-4, {}))),
        ("PackNet", (93.3, 84.5), {"method": "packnet", **plain}, ((0.5, 5e-4, {}),)),
        ("Piggyback", (93.8, 84.6), {"method": "piggyback", **plain}, ((0.5, 5e-4, {}),)),
        ("HAT", (92.0, 83.3), {}, ()),
        ("joint", (92.6, 85.1, 79.4, 55.6), {"method": "joint"}, ((0.0, 5e-4, {}), (0.0, 5e-4, {}))),
    )
    rows = []
    for number, scenario in enumerate(("task", "class")):
        for label, values, settings, chosen in table:
            printed = values[2 * number : 2 * number + 2]
            if settings and printed:
                dropout, weight_decay, strength = chosen[number]
                settings = {**({} if "backbone" in settings else network), **settings, **strength}
                settings |= {"backbone_options": {**settings["backbone_options"], "dropout": dropout}}
                settings |= {"scenario": scenario, "weight_decay": weight_decay}
            if printed:
                rows.append(_row(f"{label}, {scenario}-incremental", _pair(*printed), **settings))
    return tuple(rows)


BEGIN = _published(
    "begin",
    "BeGin's benchmark",
    _begin(),
    common={"split": "public", "edges": "all", "class_order": "seeded", "leftover": "context"},
    source="BeGin (2022); final AP, read off curves (± 0.05)",
    known="edges all, public split, 3 tasks of 2 classes (further classes unlabeled), 3-layer GCN with 256 units, "
    "10 seeds with a class order each, memory of 12 nodes in all, up to 1,000 epochs with a plateau stop",
    unknown="learning rate, dropout, weight decay and strength of each method (a grid in its code); which "
    "validation result chose them",
)


def _gsip() -> tuple[GridRow, ...]:
    """Create the rows of GSIP's table; those with a memory for two sizes, as its size is unknown."""
    remembered: tuple[tuple[str, Sequence[Printed], dict[str, Any]], ...] = (
        ("ER-GNN", ((65.5, -46.1), (47.7, -51.1)), {**ER_GNN, "scarce": "keep"}),
        ("SSM", ((67.6, -19.8), (61.0, -13.6)), {"method": "ssm", "scarce": "keep"}),
        ("CaT", ((88.2, -4.4), (75.1, -10.9)), {"method": "cat"}),
    )
    return (
        _row("fine-tune", _pair((32.6, -96.8), (31.5, -77.9)), method="finetune", **ADAM),
        _row("SSRM", _pair((35.5, -70.0), (51.9, -67.7))),
        *(
            _row(f"{label}, e = {count}", _pair(*values), **settings, per_class=count, **ADAM)
            for label, values, settings in remembered
            for count in (1, 100)
        ),
        _row("ER-GNN + GSIP", _pair((71.3, -37.0), (61.3, -29.4))),
        _row("CaT + GSIP", _pair((89.6, 1.8), (77.0, -10.0))),
        _row("joint", _pair(93.1, 78.3), method="joint", **ADAM),
        ANALYTIC,
    )


GSIP = _published(
    "gsip",
    "GSIP, table 8",
    _gsip(),
    common={
        "scenario": "class",
        "split": "0.6/0.2/0.2",
        "class_order": "seeded",
        "leftover": "context",
        "edges": "own",
    },
    source="GSIP (NeurIPS 2024), table 8; AP / AF, 3 trials",
    known="edges own, random split 60/20/20, 3 tasks of 2 classes, 2-layer GCN with 256 units, 200 epochs of Adam "
    "with learning rate 0.005",
    unknown="memory per class (100 in its code; e is ours), class order, dropout, weight decay; EWC, MAS, LwF, TWP "
    "and GEM are printed as ranges only, 31.8 to 32.7 and 31.2 to 31.4",
)

NORMALIZED: dict[str, Any] = {"backbone": "gcn", "backbone_options": {"hidden": 256, "norm": "batch"}, "lr": 0.005}
"""Without batch normalization, a GCN learns Computers' features, divided by their row sum, too slowly."""
HOP_RAL = _published(
    "hop-ral",
    "HOP-RAL's table on Amazon Computers",
    (
        _row("fine-tune", {"amazon-computers": 19.8}, method="finetune", **NORMALIZED),
        _row("EWC", {"amazon-computers": 19.7}, method="ewc", fisher_samples=100, **NORMALIZED),
        _row("ER-GNN", {"amazon-computers": 20.0}, **ER_GNN, **NORMALIZED),
        _row("analytic baseline, AL-GNN style", {"amazon-computers": 56.7}),
        _row("HOP-RAL", {"amazon-computers": 96.8}),
        _row("joint GCN", {"amazon-computers": 95.7}, method="joint", **NORMALIZED),
        ANALYTIC,
    ),
    datasets=("amazon-computers",),
    common=GSIP.common,
    source="HOP-RAL (2026); AP, 5 seeds",
    known="edges own, split 60/20/20, 5 tasks of 2 classes",
    unknown="network, epochs, learning rate, class order and memory (here a 2-layer GCN with 256 units and batch "
    "normalization, 200 epochs, 1 node per class)",
)

LGL = _published(
    "lgl",
    "LGL, one class per task",
    (
        _row("LGL, 200 nodes stored", {"cora": 82.7, "citeseer": 71.2, "pubmed": 82.6}),
        _row("ER-GCN MF*, 200 nodes stored", {}, "ours", **STORED, per_class=200, budget_nodes=200, **GCN_2),
        _row("LGL, 500 nodes stored", {"cora": 88.0, "citeseer": 74.6, "pubmed": 87.6}),
        _row("ER-GCN MF*, 500 nodes stored", {}, "ours", **STORED, per_class=500, budget_nodes=500, **GCN_2),
        ANALYTIC,
        _row("joint GCN", {}, "bounds", method="joint", **GCN_2),
    ),
    datasets=PLANETOID,
    common={"split": "validation", "scenario": "class", "class_order": "seeded", "edges": "all", "classes_per_task": 1},
    quick_datasets=("cora", "citeseer"),
    source="LGL, lifelong graph learning (CVPR 2022); accuracy, one trial",
    known="one class per task; training and test nodes of the public split are learned, validation nodes scored",
    unknown="edges while a class is learned, class order; its network is its own, and sees nodes as a stream",
)

DOMAINS = "citation-domains"
GRAPHKEEPER = _published(
    "graphkeeper",
    "GraphKeeper, domain-incremental",
    (
        _row("fine-tune", {DOMAINS: (20.9, -81.3)}, method="finetune", **ADAM),
        _row("ER-GNN", {DOMAINS: (28.7, -66.3)}, **ER_GNN, **ADAM),
        _row("TPP", {DOMAINS: (57.1, 0.0)}, method="tpp", lr=0.005),
        _row("PDGNN", {DOMAINS: (65.5, -11.4)}, method="pdgnn-tem", per_class=10, scarce="keep", lr=0.005),
        _row("DeLoMe", {DOMAINS: (70.2, -1.0)}),
        _row("GraphKeeper", {DOMAINS: (80.6, 0.0)}),
        _row("joint", {DOMAINS: 78.0}, method="joint", **ADAM),
        ANALYTIC,
    ),
    datasets=(DOMAINS,),
    common={"scenario": "domain", "split": "0.6/0.2/0.2", "class_order": "seeded"},
    source="GraphKeeper (NeurIPS 2025); AP / AF, 5 runs, four rotations of Citeseer, PubMed, Coauthor CS, DBLP",
    known="split 60/20/20, features reduced to 512 by SVD, 200 epochs; GraphKeeper and TPP guess the domain from "
    "the mean of all test nodes of a task at once, which reveals it, while every node is scored alone here",
    unknown="network, learning rate and memory of the other rows",
)

# GCN, GraphSAGE and GAT with the settings and numbers printed by others, and our methods. Rows named joint are one
# network trained on all classes at once; all others learn class by class.
LARGE = ("amazon-photo", "amazon-computers", "coauthor-cs")
FOLDS = ("tolokers", "chameleon")

PUBLISHED_SPLITS: dict[str, dict[str, Any]] = {
    **{name: {"split": "tuned", "seeds": 3} for name in LARGE},
    **{name: {"split": "seeded", "normalize": False, "seeds": 5} for name in PLANETOID},
    **{name: {"split": "folds", "seeds": 10} for name in FOLDS},
}
"""The published split with three seeds, five splits with 20 training nodes per class, and ten published splits."""

# epochs, learning rate and L2 factor; then of GCN, GraphSAGE and GAT: score in percent, layers, hidden, norm, residual
# connections and dropout
_TUNED = """
amazon-photo     1000 0.001 5e-5  96.10 6 256 layer yes 0.5  96.78 6  64 layer yes 0.2  96.60 3  64 layer yes 0.5
amazon-computers 1000 0.001 5e-5  93.99 3 512 layer no  0.5  93.25 4  64 layer no  0.3  94.09 2  64 layer no  0.5
coauthor-cs      1500 0.001 5e-4  96.17 2 512 layer yes 0.3  96.38 2 512 layer yes 0.5  96.21 1 256 layer yes 0.3
cora              500 0.001 5e-4  85.10 3 512 none  no  0.7  83.88 3 256 none  no  0.7  84.46 3 512 none  yes 0.2
citeseer          500 0.001 0.01  73.14 2 512 none  no  0.5  72.26 3 512 none  no  0.2  72.22 3 256 none  yes 0.5
pubmed            500 0.005 5e-4  81.12 2 256 none  no  0.7  79.72 4 512 none  no  0.7  80.28 2 512 none  no  0.5
tolokers         1000 0.001 0     83.64 3 256 layer yes 0.2  82.43 3 256 layer yes 0.2  83.70 3 256 layer yes 0.2
chameleon         200 0.01  0.001 46.29 5 512 none  no  0.2  44.81 4 256 batch yes 0.7  44.13 2 256 batch yes 0.7
"""
OTHER_RATES = {("gat", "pubmed"): 0.01, ("gcn", "chameleon"): 0.005}


def _tuned(backbone: str) -> tuple[dict[str, dict[str, Any]], dict[str, PaperResult]]:
    """Return the settings of a network and its printed score, by data set."""
    settings: dict[str, dict[str, Any]] = {}
    printed: dict[str, PaperResult] = {}
    for line in _TUNED.strip().splitlines():
        name, epochs, lr, weight_decay, *networks = line.split()
        start = 6 * ("gcn", "sage", "gat").index(backbone)
        score, layers, hidden, norm, residual, dropout = networks[start : start + 6]
        options: dict[str, Any] = {"layers": int(layers), "hidden": int(hidden), "norm": norm}
        options |= {"residual": residual == "yes", "dropout": float(dropout), "output": "linear"}
        settings[name] = {
            "backbone_options": options | ({"heads": 1} if backbone == "gat" else {}),
            "epochs": int(epochs),
            "lr": OTHER_RATES.get((backbone, name), float(lr)),
            "weight_decay": float(weight_decay),
        }
        printed[name] = {"score": round(float(score) / 100, 4)}
    return settings, printed


def _tuned_joint(label: str, backbone: str) -> GridRow:
    networks, printed = _tuned(backbone)
    whole = {name: {"classes_per_task": DATASETS.get(name).classes, "class_order": "natural"} for name in networks}
    by_dataset = {name: {**settings, **whole[name]} for name, settings in networks.items()}
    settings = {"method": "joint", "backbone": backbone, "best_epoch": True}
    return GridRow(label, settings, block="bounds", by_dataset=by_dataset, published=printed)


ONE_SEED = {name: {"seeds": 1} for name in LARGE}
"""The closed form does not depend on the seed, so that one is enough for one split."""
COUNTS: dict[str, Any] = {"dataset_options": {"counts": True}, "sketch": None, "kernel": "rbf", "lam": 0.1}
COUNTS |= {"feature_map": "hops", "map_options": {"num_hops": 2}}
"""Options of the closed form on Coauthor CS with the best accuracy on validation nodes."""
TUNED = _published(
    "tuned",
    "Tuned networks",
    (
        _tuned_joint("joint GCN", "gcn"),
        _tuned_joint("joint GraphSAGE", "sage"),
        _tuned_joint("joint GAT", "gat"),
        _row("analytic, kernel linear", {}, "ours", method="analytic", kernel="linear", by_dataset=ONE_SEED),
        _row("analytic, kernel auto", {}, "ours", method="analytic", by_dataset=ONE_SEED),
        _row(
            "analytic, word counts and options for CS",
            {},
            "ours",
            method="analytic",
            by_dataset=ONE_SEED | {"coauthor-cs": {"seeds": 1} | COUNTS},
        ),
        _row(
            "ER-GCN MF*, e = 20, class by class",
            {},
            "ours",
            **STORED,
            per_class=20,
            backbone="gcn",
            by_dataset={name: {**settings, "epochs": 200} for name, settings in _tuned("gcn")[0].items()},
        ),
    ),
    datasets=(*LARGE, *PLANETOID, *FOLDS),
    common={"scenario": "class", "edges": "all", "class_order": "seeded", "classes_per_task": 1},
    by_dataset=PUBLISHED_SPLITS,
    quick_datasets=("cora", "citeseer"),
    source="Luo et al., Classic GNNs are strong baselines (NeurIPS 2024), accuracy; Tolokers: Platonov et al. "
    "(ICLR 2023), area under the ROC curve; joint networks",
    known="layers, units, norm, residual connections, dropout, learning rate, L2 factor, epochs and the best "
    "validation epoch, as in the code of Luo et al.; Photo, Computers and CS: its split, three seeds; Chameleon "
    "and Tolokers: ten published splits; GraphSAGE there also averages over the node itself",
    unknown="their draw of 20 nodes per class (one, here one per seed); the networks on Tolokers are ours, as "
    "theirs have two further layers per convolution, and the best epoch here is that of the accuracy",
    relation="scores are over all test nodes; analytic and ER-GCN learn class by class",
    measures=("score",),
)

PUBLISHED = (BEGIN, GSIP, HOP_RAL, LGL, GRAPHKEEPER, TUNED)
