"""Unknown classes: AUROC on Cora with two classes held out, beside maximum softmax probability.

    python examples/watch/unknown.py [DATASET] [--splits N] [--seed N]

For each split, two classes drawn by seed have no labels; their nodes and edges stay in the graph. The closed form
(``ergnn.Learner`` with ``method="analytic"``) learns 20 nodes of each other class. Its probabilities give the score of
maximum softmax probability, 1 − max_c p_c; :class:`ergnn.learning.watch.UnknownScore` is fitted to the same training
nodes. Both are compared on 1,000 test nodes, and so is the share of known nodes that the threshold of 500 validation
nodes calls
unknown. Intervals are 95 % over splits (Student's t).
"""

import argparse

import numpy as np
import torch
from scipy.stats import rankdata, t
from torch import Tensor

import ergnn
from ergnn.data import Graph, Task, load_graph
from ergnn.data.splits import planetoid_like
from ergnn.learning.watch import UnknownScore, unknown_rows


def auroc(score: Tensor, unknown: Tensor) -> float:
    """Probability that a node of an unknown class has a higher score than one of a known class (ties count half)."""
    ranks, positive = rankdata(score.numpy()), unknown.numpy()
    ones, zeros = positive.sum(), (~positive).sum()
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def run(graph: Graph, seed: int) -> dict[str, float]:
    """AUROC of both scores, and shares of known and unknown nodes above the threshold."""
    hidden = np.random.default_rng(seed).choice(int(graph.y.max()) + 1, 2, replace=False)
    split = planetoid_like(graph.y, seed=seed)
    known = ~torch.isin(graph.y, torch.from_numpy(hidden))
    train, val, test = (part[known[part]] for part in (split.train, split.val, split.test))
    learner = ergnn.Learner("gcn", "analytic", head="growing", seed=seed)
    learner.observe(Task(0, graph, train, val, test, tuple(graph.y[train].unique().tolist())))
    probability = learner.predict_proba(split.test)
    rows = unknown_rows(graph, torch.arange(graph.num_nodes))
    fitted = UnknownScore.fit(rows[train], graph.y[train], rows).with_threshold(rows[val])
    score, unknown = fitted.score(rows[split.test]), ~known[split.test]
    above = (score > fitted.threshold).double()
    before = UnknownScore.fit(rows[train], graph.y[train], rows[known])
    return {
        "AUROC, UnknownScore": auroc(score, unknown),
        "AUROC, maximum softmax probability": auroc(1 - probability.amax(1), unknown),
        "AUROC, UnknownScore with a center of known nodes only": auroc(before.score(rows[split.test]), unknown),
        "known nodes called unknown": float(above[~unknown].mean()),
        "unknown nodes called unknown": float(above[unknown].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", nargs="?", default="cora")
    parser.add_argument("--splits", type=int, default=20, help="splits and pairs of classes (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first split (default: 0)")
    args = parser.parse_args()
    graph = load_graph(args.dataset, split="seeded").graph
    found = [run(graph, args.seed + i) for i in range(args.splits)]
    columns = {name: np.array([each[name] for each in found]) for name in found[0]}
    own, other, *_ = columns.values()
    columns["difference of AUROC"] = own - other
    for name, values in columns.items():
        half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
        print(f"{name}: {100 * values.mean():.1f} ± {100 * half:.1f} % ({len(values)} splits)")


if __name__ == "__main__":
    main()
