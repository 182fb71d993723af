"""Run the rows of ``ergnn reproduce class-incremental`` without a run store: one JSON line per run.

    python examples/class_incremental/table.py --seeds 210 220 --device cuda --jobs 4 --out table.jsonl

A line has the data set, row, edges and seed; average accuracy over the tasks (``aa``) and accuracy over all test nodes
(``micro``) at the end, PM and FM, seconds per run, and the bytes that the method stores. Runs that are already in the
file are not repeated. The seeds of a row are trained together.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ergnn.lab.config import RunConfig, member_key
from ergnn.lab.engines import LocalEngine, Unit
from ergnn.lab.grid import CLASS_INCREMENTAL
from ergnn.lab.reproduce import GridCell, Options, cells
from ergnn.lab.run import make_config_stream, members_of
from ergnn.learning.metrics import average_accuracy, forgetting_mean, performance_mean


def name_of(cell: GridCell) -> str:
    """Return the name of the row without its edges."""
    return cell.row.label.partition(", edges")[0]


@cache
def test_sizes(dataset: str, split: str, classes_per_task: int | None, leftover: str, seed: int) -> list[int]:
    """Return the number of test nodes of each task, which does not depend on the edges."""
    config = RunConfig(dataset, split=split, classes_per_task=classes_per_task, leftover=leftover, class_order="seeded")
    return [task.test.numel() for task in make_config_stream(config, seed, seed).stream]


def record(config: RunConfig, row: str, result: Any) -> dict[str, Any]:
    scores = result.matrix.to_list()[-1]
    sizes = test_sizes(config.dataset, config.split, config.classes_per_task, config.leftover, result.seed)
    return {
        "dataset": config.dataset,
        "row": row,
        "edges": config.edges,
        "seed": result.seed,
        "aa": average_accuracy(result.matrix),
        "micro": sum(score * size for score, size in zip(scores, sizes, strict=True)) / sum(sizes),
        "pm": performance_mean(result.matrix),
        "fm": forgetting_mean(result.matrix),
        "seconds": result.seconds,
        "bytes": result.buffer_bytes,
    }


def main() -> None:
    names = list(dict.fromkeys(row.label.partition(", edges")[0] for row in CLASS_INCREMENTAL.rows))
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--datasets", nargs="+", default=list(CLASS_INCREMENTAL.datasets), metavar="NAME")
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=", ".join(names))
    parser.add_argument("--edges", nargs="+", choices=("all", "seen"), default=("all", "seen"))
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 10), metavar=("FIRST", "END"))
    parser.add_argument("--batch", type=int, default=10, help="seeds trained side by side (default: 10)")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: 1)")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    first, end = args.seeds
    options = Options(seeds=end - first, first_seed=first, datasets=args.datasets, device=args.device)
    experiment = replace(CLASS_INCREMENTAL, common={**CLASS_INCREMENTAL.common, "epochs": args.epochs})
    done = set()
    if args.out.exists():
        lines = [json.loads(line) for line in args.out.read_text().splitlines()]
        done = {(line["dataset"], line["row"], line["edges"], line["seed"]) for line in lines}
    units, rows = [], {}
    for cell in cells(experiment, options):
        row, edges = name_of(cell), cell.row.settings["edges"]
        if row not in args.rows or edges not in args.edges:
            continue
        if cell.config is None:
            print(f"{cell.dataset} · {row}: {cell.reason}", flush=True)
            continue
        config = cell.config
        members = [(s, o) for s, o in members_of(config) if (cell.dataset, row, edges, s) not in done]
        rows |= {member_key(config, *member): row for member in members}
        units += [Unit(config, members[at : at + args.batch]) for at in range(0, len(members), args.batch)]
    print(f"{len(units)} batches of runs to do", flush=True)
    with args.out.open("a") as file:
        for number, computed in enumerate(LocalEngine(args.jobs)(units) if units else (), 1):
            config, members = computed.unit.config, computed.unit.members
            row = rows[member_key(config, *members[0])]
            for result in computed.results:
                file.write(json.dumps(record(config, row, result)) + "\n")
            file.flush()
            what = f"{config.dataset} · {row} · edges {config.edges} · {len(members)} runs"
            print(f"[{number}/{len(units)}] {what} · {computed.seconds:.1f} s {computed.error}", flush=True)


if __name__ == "__main__":
    main()
