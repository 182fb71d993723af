"""Alarms of drift on PubMed by years, and on copies whose years are shuffled.

    ERGNN_DATA=... python examples/watch/drift.py [--years N] [--shuffles N] [--folder] [--out FILE.json]

PubMed is cut into five updates by the year of publication; an edge comes with the later of its nodes. Each update but
the first is compared with all earlier ones as a folder does: 300 nodes per side, in the graph so far, by features,
degrees, neighborhoods and the predictions of a model (a ridge classifier on features and neighborhoods, fitted to 300
other nodes). A shuffled copy has the same nodes, edges, features and labels, but years in a random order, so that every
alarm is a false one. On the real years, only samples differ from run to run. Prints alarms at levels 1 % and 5 % with
95 % intervals (Clopper and Pearson). With ``--folder``, the updates go through ``LearnerFolder.observe`` instead, with
the closed form and labels for 40 % of the nodes, and the alarms are those that it records.
"""

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from scipy.stats import binomtest

from ergnn.analytic.kernels import LINEAR
from ergnn.analytic.ridge import Trial, loo_rows, solve
from ergnn.data import Graph, load_graph
from ergnn.data.tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder, Settings
from ergnn.learning.watch import SAMPLES, drift_test, node_aspects

NUM_UPDATES = 5


def pubmed() -> tuple[Graph, np.ndarray]:
    """The graph, and the year of each node."""
    with np.load(Path(os.environ["ERGNN_DATA"]) / "pubmed_temporal" / "pubmed_temporal.npz") as file:
        return load_graph("pubmed", split="seeded").graph, file["node_time"].astype(float)


def run(graph: Graph, years: np.ndarray, seed: int) -> list[dict[str, float]]:
    """The adjusted p-values of each update but the first."""
    rng = np.random.default_rng([seed, 1])
    update = updates_of(years)
    arrival = torch.from_numpy(update)[graph.edge_index].amax(0)
    found = []
    for number in range(1, NUM_UPDATES):
        now = Graph(graph.x, graph.edge_index[:, arrival <= number], graph.y)
        train, old = np.split(rng.permutation(np.flatnonzero(update < number))[: 2 * SAMPLES], 2)
        new = rng.permutation(np.flatnonzero(update == number))[:SAMPLES]
        aspects = node_aspects(now, np.concatenate([train, old, new]))
        rows = torch.from_numpy(np.hstack([aspects["features"], aspects["neighborhoods"]]))
        some = loo_rows(torch.arange(SAMPLES))  # for the temperature
        solution = solve(rows[:SAMPLES], graph.y[torch.from_numpy(train)], Trial(LINEAR, 0.3, 0.0), some)
        scores = solution.temperature * rows.double() @ solution.weight
        aspects["predictions"] = torch.softmax(scores, 1).numpy()
        sides = [{name: part[SAMPLES * i : SAMPLES * (i + 1)] for name, part in aspects.items()} for i in (1, 2)]
        found.append(drift_test(*sides, seed=seed).p)
    return found


def run_folder(graph: Graph, years: np.ndarray, seed: int) -> list[dict[str, float]]:
    """The same by a learner in a folder."""
    rng = np.random.default_rng([seed, 1])
    update = updates_of(years)
    ids = np.array([str(i) for i in range(graph.num_nodes)], object)
    labels = np.array([f"type {c}" if rng.random() < 0.4 else None for c in graph.y.tolist()], object)
    source, target = graph.edge_index.numpy()[:, graph.edge_index[0].numpy() < graph.edge_index[1].numpy()]
    arrival = np.maximum(update[source], update[target])
    with TemporaryDirectory() as root:
        folder = LearnerFolder.create(Path(root) / "f", Settings.from_settings({"test": 0.5, "seed": seed}))
        for number in range(NUM_UPDATES):
            new, now = update == number, arrival == number
            nodes = NodeTable(ids[new], labels[new], features=graph.x.numpy()[new])
            folder.observe(nodes, EdgeTable(ids[source[now]], ids[target[now]]))
        with folder.snapshot() as snapshot:
            return [record["input_drift"]["p"] for record in snapshot.records[1:]]


def updates_of(years: np.ndarray) -> np.ndarray:
    """The update of each node, by quantiles of the years."""
    return np.searchsorted(np.quantile(years, np.linspace(0, 1, NUM_UPDATES + 1)[1:-1]), years)


def table(name: str, found: list[dict[str, float]]) -> None:
    for alpha in (0.01, 0.05):
        alarms = sum(min(p.values()) <= alpha for p in found)
        low, high = binomtest(alarms, len(found)).proportion_ci(method="exact")
        share = f"{100 * alarms / len(found):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
        print(f"{name}: {alarms} alarms in {len(found)} tests at {100 * alpha:g} %: {share}")
    print(f"{name}: by aspect at 1 %: { {key: sum(p[key] <= 0.01 for p in found) for key in found[0]} }", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=int, default=5, help="runs on the real years (default: 5)")
    parser.add_argument("--shuffles", type=int, default=100, help="shuffled copies (default: 100)")
    parser.add_argument("--folder", action="store_true", help="observe the updates in a folder")
    parser.add_argument("--out", help="write all p-values as JSON")
    args = parser.parse_args()
    graph, years = pubmed()
    once = run_folder if args.folder else run
    found: dict[str, list[dict[str, float]]] = {"years": [], "shuffled": []}
    for seed in range(args.years):
        found["years"] += once(graph, years, seed)
    table("by years", found["years"])
    for seed in range(args.shuffles):
        found["shuffled"] += once(graph, np.random.default_rng(seed).permutation(years), seed)
        if (seed + 1) % 25 == 0 or seed + 1 == args.shuffles:
            table(f"{seed + 1} shuffled copies", found["shuffled"])
    if args.out:
        Path(args.out).write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
