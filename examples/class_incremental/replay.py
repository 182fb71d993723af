"""Compare memory sizes and class balances of replay with a growing head, with the task unknown and known.

    python examples/class_incremental/replay.py cora --seeds 300 305 --per-class 1 5 20

Prints Markdown: micro accuracy with the task unknown and average accuracy with the task known, in percent, mean ±
standard deviation over the seeds. Each seed draws a split and a class order. The last lines are one head per task and
the analytic method.
"""

from __future__ import annotations

import argparse
from statistics import mean, stdev
from typing import Any

import torch

import ergnn

BALANCES = ("none", "logit-adjustment", "ace", "memory")


def stream_of(dataset: str, seed: int) -> ergnn.TaskStream:
    orders = {"class_order": "shuffled", "order_seed": seed, "leftover": "last"}
    return ergnn.make_stream(dataset, split="seeded", split_seed=seed, **orders).stream


def measure(dataset: str, seeds: range, settings: dict[str, Any]) -> str:
    streams = [stream_of(dataset, seed) for seed in seeds]
    learners = [ergnn.Learner("gcn", seed=seed, **settings) for seed in seeds]
    for tasks in zip(*streams, strict=True):
        ergnn.observe_together(learners, list(tasks))
    unknown, known = [], []
    for learner, stream in zip(learners, streams, strict=True):
        known.append(mean(learner.evaluate(task, task_known=True) for task in stream))
        if learner.heads.kind == "growing":
            nodes = torch.cat([task.test for task in stream])
            unknown.append(float((learner.predict(nodes) == stream[-1].graph.y[nodes]).double().mean()))
    return " | ".join(
        f"{100 * mean(values):.1f} ± {100 * stdev(values):.1f}" if values else "–" for values in (unknown, known)
    )


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("dataset", choices=("cora", "citeseer"))
    parser.add_argument("--seeds", type=int, nargs=2, default=(300, 305), metavar=("FIRST", "END"))
    parser.add_argument("--per-class", type=int, nargs="+", default=(1, 5, 20), metavar="E")
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, dict[str, Any]] = {
        f"replay, e = {e}, `{balance}`": {"head": "growing", "per_class": e, "class_balance": balance}
        for e in args.per_class
        for balance in BALANCES
    }
    rows |= {f"replay, e = {e}, head per task": {"head": "per-task", "per_class": e} for e in args.per_class}
    rows["analytic"] = {"method": "analytic", "head": "growing"}
    print("| | task unknown | task known |\n|---|---|---|")
    for name, settings in rows.items():
        print(
            f"| {name} | {measure(args.dataset, range(*args.seeds), {**settings, 'epochs': args.epochs})} |", flush=True
        )


if __name__ == "__main__":
    main()
