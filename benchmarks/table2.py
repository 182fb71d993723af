"""Measure the time of the GNN and ER rows of the paper's table 2, by part.

python -m benchmarks.table2 --device cuda
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

from ergnn.data import make_stream
from ergnn.data.stream import TaskStream
from ergnn.learning.evaluation import scores_together
from ergnn.learning.learner import Learner
from ergnn.learning.observing import observe_together
from ergnn.nn.backbones import BACKBONES

BACKBONE_NAMES = ("gat", "gcn", "sage", "gin", "sgc")
SELECTOR_NAMES = ("random", "mf", "mf*", "cm", "cm*", "im")
BEFORE: dict[str, Any] = {
    "cora": {"seconds": 9.05, "evaluate": 3.25, "train": 2.99, "select": 1.99, "set-up": 0.82},
    "citeseer": {"seconds": 9.53, "evaluate": 3.06, "train": 3.24, "select": 2.08, "set-up": 1.15},
    "both": {"seconds": 18.58},
    "peak_gb": 2.82,
}
"""The same figures on one NVIDIA H200 (torch 2.11) when models shared only the training steps."""


def make_learners(device: str, seeds: int, epochs: int) -> list[Learner]:
    """Return one learner per row and seed: all backbones finetuned, and GAT with replay for each selector."""
    learners = []
    for backbone in BACKBONE_NAMES:
        shared: dict[str, Any] = {"head": "shared", "epochs": epochs, "device": device}
        shared["weight_decay"] = BACKBONES.get(backbone).weight_decay
        rows: list[tuple[str, dict[str, Any]]] = [("finetune", {})]
        rows += [("replay", {"selector": name}) for name in SELECTOR_NAMES if backbone == "gat"]
        learners += [Learner(backbone, method, seed=s, **shared, **own) for method, own in rows for s in range(seeds)]
    return learners


def table2_block(dataset: str, device: str, seeds: int = 10, epochs: int = 200) -> dict[str, float]:
    """Return the seconds of one block of table 2, with all rows and seeds trained together.

    ``train`` includes fields and recorded steps, ``set-up`` creates models and training examples.
    """
    stream: TaskStream = make_stream(dataset, split="auto", edges="own").stream.to(device)
    start = time.perf_counter()
    learners = make_learners(device, seeds, epochs)
    spent = {"evaluate": 0.0}
    for task in stream:
        observe_together(learners, [task] * len(learners))
        before = time.perf_counter()
        scores_together(learners, [stream] * len(learners))
        spent["evaluate"] += time.perf_counter() - before
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    for part in ("train", "select"):
        spent[part] = sum(entry[f"{part}_seconds"] for learner in learners for entry in learner.history)
    return {"seconds": seconds, **spent, "set-up": seconds - sum(spent.values())}


def table2(device: str, seeds: int = 10, epochs: int = 200) -> dict[str, Any]:
    """Measure both blocks, after a short run of one block that loads the kernels."""
    table2_block("cora", device, seeds=1, epochs=25)
    cuda = torch.device(device).type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    blocks: dict[str, Any] = {name: table2_block(name, device, seeds, epochs) for name in ("cora", "citeseer")}
    total = {"seconds": sum(block["seconds"] for block in blocks.values())}
    peak = {"peak_gb": torch.cuda.max_memory_allocated() / 1e9} if cuda else {}
    return {**blocks, "both": total, **peak, "before": BEFORE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    print(json.dumps(table2(args.device, args.seeds, args.epochs), indent=1))


if __name__ == "__main__":
    main()
