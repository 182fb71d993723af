"""Compare numbers of nodes to replay per epoch: accuracy and training time over a stream of 15 tasks.

    python benchmarks/replay_batch.py [--dataset coauthor-cs] [--seeds 3] [--epochs 100] [--backbone gcn]

Compares three values of ``replay_batch``: four times the nodes stored per class, the default (as many as the task has
training nodes), and 0 (the whole buffer), each for 1 and 5 stored nodes per class. A tenth of each class is for
training. Printed are the average accuracy over all tasks after the last one (mean and standard deviation over seeds),
and the training time of the last three tasks in units of the first. (All classes compete, and the loss is Eq. 3 alone:
``class_balance="none"``.)
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch

from ergnn.data import make_stream
from ergnn.learning.learner import Learner


def measure(args: argparse.Namespace, per_class: int, replay_batch: int | None) -> str:
    accuracy, ratio, total = [], [], []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        made = make_stream(args.dataset, split="0.1/0.1/0.8", split_seed=seed, classes_per_task=1)
        options: dict[str, Any] = {
            "selector": "mf*",
            "per_class": per_class,
            "replay_batch": replay_batch,
            "class_balance": "none",
        }
        learner = Learner(
            args.backbone, "replay", head="growing", epochs=args.epochs, weight_decay=3e-5, seed=seed, **options
        )
        for task in made.stream:
            learner.observe(task)
        accuracy.append(100 * statistics.mean(learner.evaluate(task) for task in made.stream))
        seconds = [entry["train_seconds"] for entry in learner.history]
        ratio.append(statistics.mean(seconds[-3:]) / seconds[0])
        total.append(sum(seconds))
    name = {None: "task size (default)", 0: "whole buffer"}.get(replay_batch, str(replay_batch))
    spread = statistics.stdev(accuracy) if len(accuracy) > 1 else 0.0
    return (
        f"e = {per_class}  replay_batch = {name:<20} accuracy {statistics.mean(accuracy):5.1f} ± {spread:.1f} %"
        f"  last tasks / first {statistics.median(ratio):4.2f}  training {statistics.mean(total):6.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="coauthor-cs", help="name of a data set (default: coauthor-cs)")
    parser.add_argument("--backbone", default="gcn", help="name of a backbone (default: gcn)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--first-seed", type=int, default=0, help="first seed (default: 0)")
    parser.add_argument("--epochs", type=int, default=100, help="epochs per task (default: 100)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for per_class in (1, 5):
        for replay_batch in (4 * per_class, None, 0):
            print(measure(args, per_class, replay_batch), flush=True)


if __name__ == "__main__":
    main()
