"""Measure the time of the paper's table 2 on a GPU."""

from __future__ import annotations

import time
from typing import Any

import torch

from ergnn.data import make_stream
from ergnn.evaluation import evaluate_streams
from ergnn.learner import Learner
from ergnn.nn.backbones import BACKBONES


def table2_block(dataset: str, device: str, seeds: int = 10, epochs: int = 200) -> dict[str, float]:
    """Return the seconds per backbone of the paper's table 2, with all its rows and seeds trained together."""
    preset = make_stream(dataset, split="auto", edges="own")
    on_device = preset.stream.to(device)
    spent = {}
    for backbone in ("gat", "gcn", "sage", "gin", "sgc"):
        shared: dict[str, Any] = {"head": "shared", "epochs": epochs, "device": device}
        shared["weight_decay"] = BACKBONES.get(backbone).weight_decay
        rows: list[tuple[str, dict[str, Any]]] = [("finetune", {})]
        if backbone == "gat":
            rows += [("replay", {"selector": name}) for name in ("random", "mf", "mf*", "cm", "cm*", "im")]
        learners = [Learner(backbone, method, seed=s, **shared, **own) for method, own in rows for s in range(seeds)]
        start = time.perf_counter()
        evaluate_streams(learners, [on_device] * len(learners))
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        spent[backbone] = time.perf_counter() - start
        for phase in ("train_seconds", "select_seconds"):
            spent[f"{backbone} {phase}"] = sum(entry[phase] for learner in learners for entry in learner.history)
    return spent
