"""Measure what columns of every kind are worth, and whether the units of numbers matter.

    python benchmarks/columns.py [kinds] [units] [structure] [--seeds 5] [--customers 4000]

``kinds``: the customers of examples/customers/make_files.py, learned in four updates in a folder, with each kind of
column alone and with all; beside it logistic regression without the graph on the columns as scikit-learn encodes them,
also with the closed form's weights of the classes, and a GCN on the columns as we encode them. All learn from the same
nodes (70 %) and are scored on the same (20 %).

``units``: every column of numbers is multiplied by 1e-6, 1 or 1e6 at random, on the same table and on Tolokers (its
public splits), with and without a column of years that says nothing; and Cora with one more column of size 1e6.
``rows`` divides rows by their sums, whatever the columns are, and ``auto`` is the default.

``structure``: Cora without its features. The closed form reads what follows from the edges; beside it the majority
class, logistic regression on DeepWalk's vectors, and a GCN on one-hot ids. 60 % of the nodes are learned, 20 % scored.

Scores are accuracy, balanced accuracy and ROC AUC in percent: mean and standard deviation over seeds.
"""

from __future__ import annotations

import argparse
import runpy
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from ergnn import Graph, Learner, TaskStream, load_graph
from ergnn.data.graph import csr_tensor
from ergnn.data.stream import Task
from ergnn.data.structure import structural_features
from ergnn.data.tables import EdgeTable, read_nodes
from ergnn.data.tables.encoder import Encoder
from ergnn.data.tables.kinds import decide_kinds, encode_values
from ergnn.folder import LearnerFolder, Settings
from ergnn.lab.walks import walk_stream

EXAMPLE = Path(__file__).parents[1] / "examples" / "customers" / "make_files.py"
NUMBERS, CATEGORIES, DATE, TEXT = ["age", "income"], ["country", "plan", "newsletter"], "signup", "note"
COLUMNS = {
    "numbers: age, income": NUMBERS,
    "categories: country, plan": ["country", "plan"],
    "yes or no: newsletter": ["newsletter"],
    "date: signup": [DATE],
    "text: note": [TEXT],
    "all": [*NUMBERS, *CATEGORIES, DATE, TEXT],
}
GCN_SETTINGS: list[dict[str, Any]] = [
    {"lr": lr, "backbone_options": {"hidden": hidden}, "weight_decay": 5e-4}
    for lr in (0.01, 0.05)
    for hidden in (16, 64)
]
"""Settings of the GCN; the best on validation nodes is taken."""
FACTORS = (1e-6, 1.0, 1e6)
Scores = tuple[float, float, float]


def customers(count: int, seed: int) -> tuple[pd.DataFrame, list[tuple[str, str]]]:
    """Return the example table with a split column, and its payments."""
    rows, payments = runpy.run_path(str(EXAMPLE))["make_customers"](count, seed)
    frame = pd.DataFrame(rows).replace("", None)
    frame[NUMBERS] = frame[NUMBERS].astype(float)
    frame["split"] = np.random.default_rng(seed).choice(["train", "val", "test"], count, p=[0.7, 0.1, 0.2])
    return frame, [(source, target) for source, target, _ in payments]


def scores(truth: np.ndarray, positive: np.ndarray, predicted: np.ndarray) -> Scores:
    """Return accuracy, balanced accuracy and ROC AUC in percent."""
    balanced = 100 * float(balanced_accuracy_score(truth, predicted))
    return 100 * float((truth == predicted).mean()), balanced, 100 * float(roc_auc_score(truth, positive))


def score_folder(
    frame: pd.DataFrame, payments: list[tuple[str, str]], names: list[str], class_weight: str = "sqrt"
) -> Scores:
    """Learn some columns in a folder, one update per week, and score the held-out nodes."""
    arrival = dict(zip(frame["id"], frame["week"], strict=True))
    test = frame[frame["split"] == "test"]
    with tempfile.TemporaryDirectory() as root:
        settings = Settings.from_settings({"method": "analytic", "class_weight": class_weight})
        folder = LearnerFolder.create(Path(root) / "customers", settings)
        for week in sorted(set(arrival.values())):
            nodes = read_nodes(frame.loc[frame["week"] == week, ["id", "label", "split", *names]])
            pairs = [pair for pair in payments if max(arrival[end] for end in pair) == week]
            folder.observe(nodes, EdgeTable([source for source, _ in pairs], [target for _, target in pairs]))
        chunks = list(folder.predict(list(test["id"])))
    classes, probabilities = chunks[0][1], np.concatenate([chunk for _, _, chunk in chunks])
    positive = probabilities[:, list(classes).index("churned")]
    return scores(test["label"].to_numpy() == "churned", positive, positive > 0.5)


def score_logistic(frame: pd.DataFrame, names: list[str], weighted: bool = False) -> Scores:
    """Score logistic regression without the graph on columns that scikit-learn encodes.

    With ``weighted``, the nodes of a class of n weigh n^-½ each, as in the closed form.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = frame.assign(**{TEXT: frame[TEXT].fillna("")})
    when = pd.to_datetime(frame[DATE])
    frame = frame.assign(days=(when - pd.Timestamp(1970, 1, 1)).dt.days, month=when.dt.month, weekday=when.dt.dayofweek)
    numbers = [name for name in NUMBERS if name in names] + (["days"] if DATE in names else [])
    categories = [name for name in CATEGORIES if name in names] + (["month", "weekday"] if DATE in names else [])
    transformer = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), numbers),
            ("categories", OneHotEncoder(handle_unknown="ignore"), categories),
            *([("text", TfidfVectorizer(ngram_range=(1, 2)), TEXT)] if TEXT in names else []),
        ]
    )
    model = make_pipeline(transformer, LogisticRegression(max_iter=2000))
    train, test = frame[frame["split"] == "train"], frame[frame["split"] == "test"]
    weights = train["label"].map(train["label"].value_counts() ** -0.5)
    weights *= len(train) / weights.sum()
    options = {"logisticregression__sample_weight": weights} if weighted else {}
    model.fit(train, train["label"] == "churned", **options)
    positive = model.predict_proba(test)[:, 1]
    return scores(test["label"].to_numpy() == "churned", positive, positive > 0.5)


def score_learner(
    graph: Graph, split: dict[str, np.ndarray], *args: Any, scored: str = "test", **options: Any
) -> Scores:
    """Learn one task with all classes, and score nodes of a split; without ROC AUC if there are more than two."""
    nodes = {name: torch.from_numpy(np.flatnonzero(chosen)) for name, chosen in split.items()}
    classes = tuple(range(int(graph.y.max()) + 1))
    task = Task(0, graph, nodes["train"], nodes["val"], nodes["test"], classes)
    learner = Learner(*args, head="growing", **options)
    learner.observe(task)
    probabilities = learner.predict_proba(nodes[scored]).numpy()
    truth, predicted = graph.y[nodes[scored]].numpy(), probabilities.argmax(1)
    if probabilities.shape[1] > 2:
        balanced = 100 * float(balanced_accuracy_score(truth, predicted))
        return 100 * float((truth == predicted).mean()), balanced, float("nan")
    return scores(truth == 1, probabilities[:, 1], predicted == 1)


def score_gcn(frame: pd.DataFrame, payments: list[tuple[str, str]], names: list[str], seed: int) -> Scores:
    """Score a GCN that learns all nodes at once, on columns as we encode them."""
    columns = read_nodes(frame[["id", "label", *names]]).columns
    assert columns is not None
    kinds = decide_kinds(columns, {}, "customers")
    codes = encode_values(kinds, columns, "customers")
    features = Encoder.fit(kinds, codes.numbers, codes.values).features(codes)
    dense = features if isinstance(features, np.ndarray) else features.toarray()
    place = {name: i for i, name in enumerate(frame["id"])}
    edges = torch.tensor([[place[source], place[target]] for source, target in payments]).T
    y = torch.from_numpy((frame["label"] == "churned").to_numpy().astype(np.int64))
    graph = Graph(torch.from_numpy(dense), torch.cat([edges, edges.flip(0)], 1), y)
    return best_gcn(graph, masks(frame), seed, 2)


def best_gcn(graph: Graph, split: dict[str, np.ndarray], seed: int, measure: int) -> Scores:
    """Score the GCN of ``GCN_SETTINGS`` with the best validation score: accuracy (0) or ROC AUC (2)."""
    tried = [
        score_learner(graph, split, "gcn", "joint", scored="val", seed=seed, **settings) for settings in GCN_SETTINGS
    ]
    best = GCN_SETTINGS[max(range(len(tried)), key=lambda i: tried[i][measure])]
    return score_learner(graph, split, "gcn", "joint", seed=seed, **best)


def masks(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    return {name: (frame["split"] == name).to_numpy() for name in ("train", "val", "test")}


def measure_kinds(count: int, seeds: int) -> dict[tuple[str, str], list[Scores]]:
    results = defaultdict(list)
    for seed in range(seeds):
        frame, payments = customers(count, seed)
        stays = (frame.loc[frame["split"] == "test", "label"] == "stays").mean()
        results["majority class", ""].append((100 * float(stays), 50.0, 50.0))
        for title, names in COLUMNS.items():
            results[title, "closed form, in a folder"].append(score_folder(frame, payments, names))
            results[title, "logistic regression, weighted"].append(score_logistic(frame, names, weighted=True))
            results[title, "closed form, class_weight none"].append(score_folder(frame, payments, names, "none"))
            results[title, "logistic regression"].append(score_logistic(frame, names))
            results[title, "GCN, joint"].append(score_gcn(frame, payments, names, seed))
    return results


def measure_units(count: int, seeds: int) -> dict[tuple[str, str], list[Scores]]:
    results = defaultdict(list)
    for seed in range(seeds):
        frame, payments = customers(count, seed)
        rng = np.random.default_rng(100 + seed)
        for title, factors in (("as it is", [1.0, 1.0]), ("multiplied", rng.choice(FACTORS, 2))):
            scaled = frame.assign(**{name: frame[name] * f for name, f in zip(NUMBERS, factors, strict=True)})
            results[f"customers, {title}", "auto"].append(score_folder(scaled, payments, COLUMNS["all"]))
        for title, graph, split in [*tolokers(seed), *cora(seed)]:
            for scale in ("rows", "auto"):
                results[title, scale].append(score_learner(graph, split, "sgc", "analytic", scale=scale))
    return results


def tolokers(fold: int) -> list[tuple[str, Graph, dict[str, np.ndarray]]]:
    """Return Tolokers, with years, and each with columns multiplied at random."""
    graph = load_graph("tolokers", dataset_options={"fold": fold}).graph
    split = graph.public_split
    assert split is not None
    chosen = {name: np.isin(np.arange(graph.num_nodes), getattr(split, name)) for name in ("train", "val", "test")}
    rng = np.random.default_rng(fold)
    x = graph.rows(torch.arange(graph.num_nodes)).double()
    year = torch.from_numpy(rng.integers(1990, 2025, (graph.num_nodes, 1))).double()
    out = []
    for title, values in (("Tolokers", x), ("Tolokers and year", torch.cat([x, year], 1))):
        factors = torch.from_numpy(rng.choice(FACTORS, values.size(1)))
        for how, scaled in (("as it is", values), ("multiplied", values * factors)):
            out.append((f"{title}, {how}", Graph(scaled.float(), graph.edge_index, graph.y), chosen))
    return out


def cora(seed: int) -> list[tuple[str, Graph, dict[str, np.ndarray]]]:
    """Return Cora, and Cora with one more column of size 1e6."""
    graph = load_graph("cora").graph
    rng = np.random.default_rng(seed)
    drawn = rng.choice(["train", "val", "test"], graph.num_nodes, p=[0.6, 0.2, 0.2])
    x = graph.rows(torch.arange(graph.num_nodes))
    large = 1e6 * torch.from_numpy(rng.random((graph.num_nodes, 1))).float()
    split = {name: drawn == name for name in ("train", "val", "test")}
    return [
        (title, Graph(values, graph.edge_index, graph.y), split)
        for title, values in (("Cora, as it is", x), ("Cora and a column of size 1e6", torch.cat([x, large], 1)))
    ]


def measure_structure(count: int, seeds: int) -> dict[tuple[str, str], list[Scores]]:
    results, name = defaultdict(list), "Cora without features"
    bare = load_graph("cora").graph
    ids = [str(i) for i in range(bare.num_nodes)]
    structure = replace(bare, x=csr_tensor(structural_features(ids, bare.edge_index.numpy())))
    onehot = replace(bare, x=torch.eye(bare.num_nodes).to_sparse_csr())
    for seed in range(seeds):
        drawn = np.random.default_rng(seed).choice(["train", "val", "test"], bare.num_nodes, p=[0.6, 0.2, 0.2])
        split = {part: drawn == part for part in ("train", "val", "test")}
        test, train = bare.y[split["test"]].numpy(), bare.y[split["train"]].numpy()
        majority = np.bincount(train).argmax()
        results[name, "majority class"].append((100 * float((test == majority).mean()), 100 / 7, float("nan")))
        results[name, "closed form"].append(score_learner(structure, split, "sgc", "analytic"))
        results[name, "DeepWalk, logistic regression"].append(score_walks(bare, split, seed))
        results[name, "GCN on one-hot ids, joint"].append(best_gcn(onehot, split, seed, 0))
    return results


def score_walks(graph: Graph, split: dict[str, np.ndarray], seed: int) -> Scores:
    """Score logistic regression on DeepWalk's vectors; its C is chosen on validation nodes."""
    from sklearn.linear_model import LogisticRegression

    nodes = {part: torch.from_numpy(np.flatnonzero(chosen)) for part, chosen in split.items()}
    classes = tuple(range(graph.num_classes))
    stream = TaskStream([Task(0, graph, nodes["train"], nodes["val"], nodes["test"], classes)])
    x, y = walk_stream(stream, seed=seed)[0].graph.x.numpy(), graph.y.numpy()
    models = [LogisticRegression(C=c, max_iter=2000).fit(x[split["train"]], y[split["train"]]) for c in (0.1, 1, 10)]
    best = max(models, key=lambda model: model.score(x[split["val"]], y[split["val"]]))
    truth, predicted = y[split["test"]], best.predict(x[split["test"]])
    return 100 * float((truth == predicted).mean()), 100 * balanced_accuracy_score(truth, predicted), float("nan")


def show(results: dict[tuple[str, str], list[Scores]]) -> None:
    print("| data | model | accuracy | balanced accuracy | ROC AUC |\n|---|---|---|---|---|")
    for (title, model), values in results.items():
        mean, spread = np.mean(values, 0), np.std(values, 0, ddof=1) if len(values) > 1 else np.zeros(3)
        cells = ["" if np.isnan(m) else f"{m:.1f} ± {s:.1f}" for m, s in zip(mean, spread, strict=True)]
        print(f"| {title} | {model} | {' | '.join(cells)} |", flush=True)


MEASUREMENTS = {"kinds": measure_kinds, "units": measure_units, "structure": measure_structure}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=list(MEASUREMENTS), default=list(MEASUREMENTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--customers", type=int, default=4000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for what in args.what:
        show(MEASUREMENTS[what](args.customers, args.seeds))


if __name__ == "__main__":
    main()
