"""Compare the closed form, which learns class by class, with GCN and GAT trained on all labels at once.

    python examples/class_incremental/against_joint.py cora citeseer --device cuda --jobs 8 --out joint.jsonl

The networks get 24 trials each, scored on validation nodes of the tuning seeds. The analytic method is not tuned: it
uses leave-one-out on the training nodes of each task. Test nodes are read only for the final seeds. Planetoid's graphs
have 20 training nodes per class, 500 validation and 1,000 test nodes; the others 10 %, 10 % and 80 % of each class.
Every seed draws a split and a class order. The task is unknown: all classes compete. With ``--jobs``, trials run in
several processes; the result is the same.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ergnn
from ergnn.data import splits
from ergnn.data.datasets import DATASETS

PLANETOID = ("cora", "citeseer", "pubmed")
COMMON = {"dropout": (0.2, 0.5, 0.8), "weight_decay": (5e-4, 5e-5), "normalize": (True, False)}
WIDTHS = {"gcn": (16, 128), "gat": (8, 32)}
"""Hidden units: in total for GCN, per head (of eight) for GAT."""
LR = 0.01


def trials(backbone: str) -> list[dict[str, Any]]:
    names = ["hidden", *COMMON]
    return [dict(zip(names, values, strict=True)) for values in product(WIDTHS[backbone], *COMMON.values())]


@cache
def load(dataset: str, normalize: bool) -> ergnn.Graph:
    graph = ergnn.load_graph(dataset, split="seeded").graph
    return graph.row_normalized() if normalize else graph


def streams(dataset: str, seed: int, device: str, normalize: bool = True) -> tuple[ergnn.TaskStream, ergnn.TaskStream]:
    """Create the stream of two classes per task in a shuffled order, and a stream with all classes as one task."""
    graph = load(dataset, normalize)
    if dataset in PLANETOID:
        split = splits.planetoid_like(graph.y, seed=seed)
    else:
        split = splits.fractions(graph.y, train=0.1, val=0.1, test=0.8, seed=seed)
    each = 1 if dataset == "pubmed" else 2
    classes = graph.num_classes
    order = torch.randperm(classes, generator=torch.Generator().manual_seed(seed)).tolist()
    groups = [order[i : i + each] for i in range(0, classes, each)]
    if len(groups[-1]) < each:
        odd = groups.pop()  # joins the last task
        groups[-1] += odd
    whole = ergnn.TaskStream.from_classes(graph, classes_per_task=classes, split=split)
    tasks = [
        ergnn.Task(
            i,
            whole[0].graph,
            *(_of(nodes, graph.y, group) for nodes in (split.train, split.val, split.test)),
            tuple(group),
        )
        for i, group in enumerate(groups)
    ]
    return ergnn.TaskStream(tasks, name=dataset).to(device), whole.to(device)


def _of(nodes: Tensor, y: Tensor, group: list[int]) -> Tensor:
    return nodes[torch.isin(y[nodes], torch.tensor(group))]


def scores(learner: ergnn.Learner, stream: ergnn.TaskStream, task: int | None, split: str) -> tuple[float, float]:
    """Return the accuracy over all nodes, and its mean over the tasks."""
    right, each = 0, []
    for part in stream:
        nodes = getattr(part, split)
        hit = learner.predict(nodes, task) == part.graph.y[nodes]
        right += int(hit.sum())
        each.append(float(hit.float().mean()))
    return right / sum(getattr(part, split).numel() for part in stream), sum(each) / len(each)


def joint(
    dataset: str, backbone: str, seeds: list[int], trial: dict[str, Any], epochs: int, device: str, split: str
) -> list[Any]:
    made = [streams(dataset, seed, device, trial["normalize"]) for seed in seeds]
    learners = [
        ergnn.Learner(
            backbone,
            method="finetune",
            head="per-task",
            lr=LR,
            epochs=epochs,
            weight_decay=trial["weight_decay"],
            seed=seed,
            device=device,
            backbone_options={"hidden": trial["hidden"], "dropout": trial["dropout"]},
        )
        for seed in seeds
    ]
    ergnn.observe_together(learners, [whole[0] for _, whole in made])
    return [scores(learner, stream, 0, split) for learner, (stream, _) in zip(learners, made, strict=True)]


def analytic(dataset: str, seeds: list[int], device: str) -> list[Any]:
    found = []
    for seed in seeds:
        stream, _ = streams(dataset, seed, device)
        learner = ergnn.Learner(method="analytic", head="growing", seed=seed, device=device)
        for task in stream:
            learner.observe(task)
        found.append(scores(learner, stream, None, "test"))
    return found


def pool(jobs: int) -> Executor:
    """Processes with one thread each; a single job runs in this process."""
    if jobs == 1:
        return ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, spawn, initializer=torch.set_num_threads, initargs=(1,))


def compare(dataset: str, args: argparse.Namespace, run: Executor) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings chosen for each network, and the scores of all rows on the final seeds."""
    seeds, tuning = list(range(*args.seeds)), list(range(*args.tuning_seeds))
    rows = {"analytic": run.submit(analytic, dataset, seeds, args.device)}
    tuned: dict[str, list[tuple[dict[str, Any], Future[list[Any]]]]] = {
        backbone: [
            (trial, run.submit(joint, dataset, backbone, tuning, trial, args.epochs, args.device, "val"))
            for trial in trials(backbone)
        ]
        for backbone in args.networks
    }
    chosen: dict[str, Any] = {}
    for backbone, tried in tuned.items():
        results = [(sum(micro for micro, _ in future.result()) / len(tuning), trial) for trial, future in tried]
        score, best = max(results, key=lambda pair: pair[0])
        chosen[backbone] = {**best, "validation": score, "trials": len(tried)}
        rows[backbone] = run.submit(joint, dataset, backbone, seeds, best, args.epochs, args.device, "test")
    return chosen, {name: future.result() for name, future in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--tuning-seeds", type=int, nargs=2, default=(190, 193), metavar=("FIRST", "END"))
    parser.add_argument("--seeds", type=int, nargs=2, default=(200, 210), metavar=("FIRST", "END"))
    parser.add_argument(
        "--networks", nargs="+", choices=sorted(WIDTHS), default=sorted(WIDTHS), help="the joint networks"
    )
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: 1)")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with pool(args.jobs) as run:
        for dataset in map(DATASETS.resolve, args.datasets):
            start = time.perf_counter()
            chosen, rows = compare(dataset, args, run)
            write(dataset, args, chosen, rows)
            print(f"{dataset}: {time.perf_counter() - start:.0f} s", flush=True)


def write(dataset: str, args: argparse.Namespace, chosen: dict[str, Any], rows: dict[str, Any]) -> None:
    record = {"dataset": dataset, "seeds": list(range(*args.seeds)), "chosen": chosen, "rows": rows}
    with args.out.open("a") as file:
        file.write(json.dumps(record) + "\n")
    for name, values in rows.items():
        micro = torch.tensor([a for a, _ in values])
        print(
            f"{dataset:10} {name:9} {100 * micro.mean():.2f} ± {100 * micro.std():.2f}  {chosen.get(name, '')}",
            flush=True,
        )


if __name__ == "__main__":
    main()
