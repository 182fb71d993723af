"""Wrong labels that are planted and found, accuracy against the number of labels asked for, and what asking costs.

    python -m benchmarks.labels audit   [--graphs cora,citeseer] [--seeds 10] [--device cuda] [-o FILE.json]
    python -m benchmarks.labels suggest [--graphs cora,citeseer] [--seeds 10] [--device cuda] [-o FILE.json]
    python -m benchmarks.labels cost    [--labels 20000] [-o FILE.json]

``audit`` draws 1,000 training labels, gives 5 % and 10 % of them another class, and orders all by the leave-one-out
probability of the closed form, and by the probability of a GCN trained on them. It prints the average precision
of the orders, and the accuracy of the closed form on the other nodes before and after removing the first 5 %.

``suggest`` starts with 20 random labels and asks for more, up to 200, among 3,000 nodes. It prints the accuracy of the
closed form on the nodes outside of these.

``cost`` observes a made graph in a folder: 1.25 nodes per label, 500 columns, 10 classes, feature map ``hops``, linear
kernel. It prints seconds, seconds of one processor core, and peak memory of explaining a node, auditing all labels and
suggesting 50 nodes, each in a process of its own with one thread.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from benchmarks.measure import in_fresh_process
from ergnn import Learner
from ergnn.analytic.explain import BY, LabelEffects, choose, doubts
from ergnn.data import Graph
from ergnn.data.datasets import load_graph
from ergnn.data.stream import Task
from ergnn.data.tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.page import explain_page
from ergnn.folder.why import audit_labels, explain_nodes, suggest_nodes
from ergnn.methods.analytic import Analytic

GRAPHS = "cora,citeseer,cora-ml,photo,pubmed"
TRAIN, POOL = 1000, 3000
STEPS = (20, 40, 60, 80, 100, 150, 200)


def draw(graph: Graph, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Some labeled nodes, in a random order, and all others."""
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    order = order.to(graph.device)
    order = order[graph.y[order] >= 0]
    count = min(count, order.numel() // 2)
    return order[:count], order[count:]


def learn(graph: Graph, nodes: Tensor, labels: Tensor) -> tuple[Analytic, LabelEffects]:
    head = Analytic(kernel="linear", scale="rows")
    order = nodes.argsort()
    head.learn(graph, nodes[order], labels[order])
    return head, head.label_effects(graph)


def accuracy(graph: Graph, head: Analytic, nodes: Tensor) -> float:
    assert head.solution is not None
    classes = head.solution.classes
    return float((classes[head.head_scores(graph, nodes, classes).argmax(1)] == graph.y[nodes]).double().mean())


def audit(graph: Graph, seed: int, share: float, network: bool) -> dict[str, float]:
    train, test = draw(graph, TRAIN, seed)
    train = train.sort().values
    generator = torch.Generator().manual_seed(1000 + seed)
    flipped = torch.randperm(train.numel(), generator=generator)[: round(share * train.numel())].to(graph.device)
    labels, classes = graph.y[train].clone(), graph.num_classes
    shift = 1 + torch.randint(classes - 1, (flipped.numel(),), generator=generator).to(graph.device)
    labels[flipped] = (labels[flipped] + shift) % classes
    wrong = torch.zeros(train.numel(), dtype=torch.bool, device=graph.device)
    wrong[flipped] = True
    head, effects = learn(graph, train, labels)
    order = doubts(effects).order()
    keep = torch.ones_like(wrong)
    keep[order[: round(0.05 * train.numel())]] = False
    out = {
        "random": share,
        "audit": average_precision_score(wrong[order].cpu(), -torch.arange(order.numel())),
        "before": accuracy(graph, head, test),
        "after": accuracy(graph, learn(graph, train[keep], labels[keep])[0], test),
        "right labels": accuracy(graph, learn(graph, train, graph.y[train])[0], test),
    }
    if network:
        y = graph.y.clone()
        y[train] = labels
        planted = replace(graph, y=y)
        gcn = Learner("gcn", "finetune", head="growing", seed=seed, device=str(graph.device))
        gcn.observe(Task(0, planted, train, test[:0], test, tuple(range(classes))))
        given = gcn.predict_proba(train, graph=planted).gather(1, labels[:, None]).flatten()
        out["gcn"] = average_precision_score(wrong.cpu(), -given.cpu())
        out["gcn test"] = float((gcn.predict(test, graph=planted) == graph.y[test]).double().mean())
    return out


def suggest(graph: Graph, seed: int, rule: str) -> dict[str, float]:
    pool, test = draw(graph, POOL, seed)
    labeled, out = pool[: STEPS[0]], {}
    for step, more in zip(STEPS, np.diff([*STEPS, STEPS[-1]]).tolist(), strict=True):
        head, effects = learn(graph, labeled, graph.y[labeled])
        out[str(step)] = accuracy(graph, head, test)
        rest = pool[~torch.isin(pool, labeled)]
        if more and rule == "random":
            labeled = torch.cat([labeled, rest[:more]])
        elif more:
            chosen = choose(effects, head.rows(graph, rest), more, rule)
            labeled = torch.cat([labeled, rest[chosen]])
    return out


def make_folder(root: Path, labels: int, columns: int = 500, classes: int = 10) -> None:
    """Observe a made graph whose features and edges follow classes, with 4 edges per node."""
    rng, count = np.random.default_rng(0), labels + labels // 4
    label = rng.integers(0, classes, count)
    x = rng.normal(size=(count, columns)) + rng.normal(size=(classes, columns))[label] / 8
    members = [np.flatnonzero(label == c) for c in range(classes)]
    source = np.arange(4 * count) % count
    like = np.array([rng.choice(members[c]) for c in label[source]])
    target = np.where(rng.random(4 * count) < 0.5, like, rng.integers(0, count, 4 * count))
    ids = np.array([f"n{i}" for i in range(count)], object)
    names = np.array([f"c{c}" if i < labels else None for i, c in enumerate(label)], object)
    split = np.full(count, "train", object)
    options = {"method": "analytic", "feature_map": "hops", "kernel": "linear", "scale": "rows"}
    folder = LearnerFolder.create(root, Settings.from_settings(options))
    nodes = NodeTable(ids, names, features=x.astype(np.float32), split=split)
    folder.observe(nodes, EdgeTable(ids[source], ids[target]))


def ask(root: str, what: str) -> dict[str, float]:
    """Explain, audit or suggest in a folder; return what it takes after imports."""
    torch.set_num_threads(1)
    start, start_cpu = time.perf_counter(), time.process_time()
    with LearnerFolder(root).snapshot() as snapshot:
        if what == "explain":
            explain_page(root, 1, explain_nodes(snapshot, [f"n{snapshot.graph.num_nodes - 1}"]))
        elif what == "audit":
            audit_labels(snapshot, 20)
        else:
            suggest_nodes(snapshot, 50)
    taken, core = time.perf_counter() - start, time.process_time() - start_cpu
    return {"seconds": taken, "core seconds": core, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def cost(labels: int) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as scratch:
        make_folder(Path(scratch) / "folder", labels)
        rows = []
        for what in ("explain", "audit", "suggest"):
            row = in_fresh_process("benchmarks.labels:ask", f"{scratch}/folder", what)
            print(f"{what:10}", "  ".join(f"{key} {value:.1f}" for key, value in row.items()), flush=True)
            rows.append({"what": what, "labels": labels, **row})
    return rows


def results(args: argparse.Namespace) -> Iterator[tuple[str, str, list[dict[str, float]]]]:
    for name in args.graphs.split(","):
        graph = load_graph(name).graph.to(args.device)
        if args.what == "audit":
            for share in (0.05, 0.1):
                yield name, f"{share:.0%}", [audit(graph, s, share, not args.no_network) for s in range(args.seeds)]
        else:
            for rule in args.rules.split(","):
                yield name, rule, [suggest(graph, seed, rule) for seed in range(args.seeds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("audit", "suggest", "cost"))
    parser.add_argument("--graphs", default=GRAPHS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rules", default=",".join(reversed(BY)))
    parser.add_argument("--labels", type=int, default=20_000, help="training labels of the folder of cost")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-network", action="store_true", help="leave out the GCN")
    parser.add_argument("-o", "--out", type=Path)
    args, rows = parser.parse_args(), []
    if args.device == "cpu":
        torch.set_num_threads(1)
    if args.what == "cost":
        rows = cost(args.labels)
    for name, what, runs in () if args.what == "cost" else results(args):
        table = {key: [run[key] for run in runs] for key in runs[0]}
        cells = (f"{key} {100 * np.mean(v):.1f} ± {100 * np.std(v, ddof=len(v) > 1):.1f}" for key, v in table.items())
        print(f"{name:10} {what:10}", "  ".join(cells), flush=True)
        rows.append({"graph": name, "what": what, **table})
        if args.out:
            args.out.write_text(json.dumps(rows, indent=1))
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
