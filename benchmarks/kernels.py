"""Compare the kernels of the closed form with few labels: accuracy of ``kernel="auto"`` beside ``linear``.

    python -m benchmarks.kernels [--first-seed 1000] [--seeds 5] [--jobs 2]

On nine graphs, 20 nodes per class or 10 % of each class are learned at once, drawn by the seed; up to 4,000 of the
other nodes are scored. A line per graph: accuracy in percent, mean over seeds, the mean difference with its standard
deviation, and what ``auto`` chose how often.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections import Counter, defaultdict

import numpy as np
import torch

from ergnn import Learner, load_graph
from ergnn.analytic import AnalyticHead
from ergnn.data.stream import Task

LARGE = ("coauthor-cs", "amazon-computers", "dblp", "pubmed", "amazon-photo")
GRAPHS = (*LARGE, "citeseer-full", "cora-ml", "citeseer", "cora")
SCORED = 4_000
Job = tuple[str, str, int, str]


def measure(job: Job) -> tuple[Job, float, str]:
    """Return the accuracy in percent, and the map, scale and kernel that were chosen."""
    name, labels, seed, kernel = job
    torch.set_num_threads(1)
    graph, rng = load_graph(name).graph, np.random.default_rng(seed)
    classes, train = range(int(graph.y.max()) + 1), list[int]()
    for c in classes:
        members = rng.permutation(np.flatnonzero(graph.y.numpy() == c))
        train += members[: 20 if labels == "20" else max(1, round(0.1 * len(members)))].tolist()
    rest = rng.permutation(np.setdiff1d(np.arange(graph.num_nodes), train))[:SCORED]
    nodes, test = torch.tensor(sorted(train)), torch.from_numpy(np.sort(rest))
    learner = Learner("sgc", "analytic", head="growing", kernel=kernel)
    learner.observe(Task(0, graph, nodes, test[:0], test, tuple(classes)))
    assert isinstance(learner.method, AnalyticHead)
    chosen = learner.method.summary()
    accuracy = 100 * float((learner.predict(test) == graph.y[test]).double().mean())
    return job, accuracy, " ".join([chosen["map"], chosen["scale"], chosen["kernel"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    jobs = [(g, n, s, k) for g in GRAPHS for n in ("20", "10 %") for s in seeds for k in ("linear", "auto")]
    scores: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    choices: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for (graph, labels, _, kernel), accuracy, chosen in pool.imap(measure, jobs):
            scores[graph, labels][kernel].append(accuracy)
            choices[graph, labels].update([chosen] if kernel == "auto" else [])
    print("| graph | labels | linear | auto | difference | chosen |\n|---|---|---|---|---|---|")
    for key, both in scores.items():
        gains = np.subtract(both["auto"], both["linear"])
        chosen = ", ".join(f"{count} {name}" for name, count in choices[key].most_common())
        spread = f"{gains.mean():+.2f} ± {gains.std(ddof=1) if len(gains) > 1 else 0:.2f}"
        means = f"{np.mean(both['linear']):.2f} | {np.mean(both['auto']):.2f}"
        print(f"| {key[0]} | {key[1]} | {means} | {spread} | {chosen} |", flush=True)


if __name__ == "__main__":
    main()
