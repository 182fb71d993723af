"""Compare class balances of replay with a growing head, for several graphs and memory sizes.

    python examples/class_incremental/replay.py cora citeseer pubmed amazon-photo cora-ml --jobs 2 --out replay.jsonl

Every seed draws a split and a class order, as in ``ergnn reproduce class-incremental``. The default of ``replay`` is
chosen by accuracy on validation nodes of the tuning seeds, with the task unknown. Accuracy on test nodes is measured on
the other seeds: with the task unknown, and averaged over the tasks with the task known. ``--first-tasks N`` ends after
N tasks. Runs that the file has are not repeated. Finally all lines of the file are printed as Markdown, in percent,
mean ± standard deviation over the seeds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from differences import GRAPHS

import ergnn
from ergnn.lab.grid import CLASS_INCREMENTAL

GROWING = {
    "auto": {},
    "none": {"class_balance": "none"},
    "none, balanced loss": {"class_balance": "none", "loss_scale": "balanced"},
    "logit-adjustment": {"class_balance": "logit-adjustment"},
    "ace": {"class_balance": "ace"},
    "memory": {"class_balance": "memory"},
}
PER_TASK = "head per task"


def stream_of(dataset: str, seed: int, num_tasks: int | None, device: str) -> list[ergnn.Task]:
    settings = {"class_order": "shuffled", "leftover": "last", **CLASS_INCREMENTAL.by_dataset[dataset]}
    stream = ergnn.make_stream(dataset, split_seed=seed, order_seed=seed, **settings).stream
    return list(stream.to(device))[:num_tasks]


def measure(
    dataset: str,
    e: int,
    row: str,
    tuning: list[int],
    seeds: list[int],
    epochs: int,
    device: str,
    num_tasks: int | None,
) -> Any:
    """Scores of one setting: validation nodes of the tuning seeds, test nodes of the others."""
    options = {"head": "per-task"} if row == PER_TASK else {"head": "growing", **GROWING[row]}
    streams = [stream_of(dataset, seed, num_tasks, device) for seed in (*tuning, *seeds)]
    learners = [
        ergnn.Learner("gcn", "replay", seed=seed, per_class=e, scarce="keep", epochs=epochs, device=device, **options)
        for seed in (*tuning, *seeds)
    ]
    for tasks in zip(*streams, strict=True):
        ergnn.observe_together(learners, list(tasks))
    found: dict[str, Any] = {"dataset": dataset, "e": e, "row": row, "validation": [], "unknown": [], "known": []}
    for learner, stream in zip(learners, streams, strict=True):
        if learner.seed not in tuning:
            found["known"].append(mean(learner.evaluate(task, task_known=True) for task in stream))
        if row != PER_TASK:
            part = "val" if learner.seed in tuning else "test"
            nodes = torch.cat([getattr(task, part) for task in stream])
            right = learner.predict(nodes) == stream[-1].graph.y[nodes]
            found["validation" if part == "val" else "unknown"].append(float(right.double().mean()))
    return found


def percent(values: list[float]) -> str:
    if not values:
        return "–"
    return f"{100 * mean(values):.1f}" + (f" ± {100 * stdev(values):.1f}" if len(values) > 1 else "")


def tables(lines: list[dict[str, Any]]) -> str:
    """A table per measure; the first has the mean of all graphs, by which the default is chosen."""
    out = []
    names = [name for name in GRAPHS if any(line["dataset"] == name for line in lines)]
    sizes = sorted({line["e"] for line in lines})
    for measure_name, title in (
        ("validation", "validation nodes, task unknown"),
        ("unknown", "test nodes, task unknown"),
        ("known", "test nodes, task known"),
    ):
        out.append(f"\n| {title} | {' | '.join(GRAPHS[name] for name in names)} | mean |")
        out.append("|---" * (len(names) + 2) + "|")
        for e in sizes:
            for row in (*GROWING, PER_TASK):
                found = {ln["dataset"]: ln[measure_name] for ln in lines if ln["e"] == e and ln["row"] == row}
                if not any(found.values()):
                    continue
                cells = [percent(found.get(name, [])) for name in names]
                whole = 100 * mean(map(mean, found.values())) if len(found) == len(names) else float("nan")
                out.append(f"| e = {e}, {row} | {' | '.join(cells)} | {whole:.1f} |")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("datasets", nargs="+", choices=sorted(GRAPHS), metavar="dataset")
    parser.add_argument("--tuning-seeds", type=int, nargs=2, default=(420, 423), metavar=("FIRST", "END"))
    parser.add_argument("--seeds", type=int, nargs=2, default=(430, 435), metavar=("FIRST", "END"))
    parser.add_argument("--per-class", type=int, nargs="+", default=(1, 5, 20), metavar="E")
    parser.add_argument("--rows", nargs="+", choices=(*GROWING, PER_TASK), default=(*GROWING, PER_TASK), metavar="ROW")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--first-tasks", type=int, metavar="N", help="end after N tasks (default: after all)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: 1)")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    lines = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    done = {(line["dataset"], line["e"], line["row"]) for line in lines}
    cells = [(d, e, row) for d in args.datasets for e in args.per_class for row in args.rows if (d, e, row) not in done]
    common = (list(range(*args.tuning_seeds)), list(range(*args.seeds)), args.epochs, args.device, args.first_tasks)
    spawn = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(args.jobs, spawn, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        args.out.open("a") as file,
    ):
        for future in as_completed([pool.submit(measure, *cell, *common) for cell in cells]):
            lines.append(future.result())
            file.write(json.dumps(lines[-1]) + "\n")
            file.flush()
    print(tables(lines))


if __name__ == "__main__":
    main()
