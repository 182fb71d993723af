"""One configuration, all its seeds: from a name to the numbers of a table."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ergnn import metrics
from ergnn.data import PresetStream, TaskStream, make_stream
from ergnn.experiments.config import RunConfig
from ergnn.learner import Learner, observe_together
from ergnn.metrics import AccuracyMatrix, summarize
from ergnn.report.paper import paper_result

Progress = Callable[[int], None]
"""Called with the number of training epochs that have gone by since the last call."""


@dataclass(frozen=True)
class SeedResult:
    """What one seed and class order gave."""

    seed: int
    order: int
    classes: list[list[int]]
    matrix: AccuracyMatrix
    buffer_ids: list[int]
    buffer_bytes: int
    history: list[dict[str, Any]]


def streams_of(config: RunConfig) -> list[tuple[int, int, PresetStream]]:
    """Seed, class order and stream of every member of a run; equal streams are one object."""
    made: dict[tuple[int, int], PresetStream] = {}
    members = []
    for order in range(config.orders):
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            probe = made.get((0, order)) or make_config_stream(config, 0, order)
            made[0, order] = probe
            key = (seed if probe.split == "seeded" else 0, order)
            if key not in made:
                made[key] = make_config_stream(config, *key)
            members.append((seed, order, made[key]))
    return members


def make_config_stream(config: RunConfig, split_seed: int, order: int) -> PresetStream:
    return make_stream(
        config.dataset,
        split=config.split,
        split_seed=split_seed,
        class_order=config.parsed_class_order(),
        order_seed=order,
        inter_task_edges=config.edges or "all",
        leftover=config.leftover,
        classes_per_task=config.classes_per_task,
    )


def make_learner(config: RunConfig, seed: int) -> Learner:
    """The learner that a (resolved) configuration describes."""
    options: dict[str, Any] = {}
    if config.method == "replay":
        options = {
            "selector": config.selector,
            "per_class": config.per_class,
            "selector_options": config.selector_options,
            "loss_scale": config.loss_scale,
            "beta": config.beta,
            "replay": config.replay,
            "hops": config.hops,
        }
    return Learner(
        config.backbone,
        config.method,
        head=config.head or "per-task",
        epochs=config.epochs,
        lr=config.lr,
        weight_decay=config.weight_decay or 0.0,
        optimizer=config.optimizer or "adam",
        seed=seed,
        device=config.device,
        backbone_options=config.backbone_options,
        **options,
    )


def learn_streams(
    learners: list[Learner], streams: list[TaskStream], progress: Progress | None = None
) -> list[AccuracyMatrix]:
    """Let every learner go through its stream, side by side, and score it on all tasks so far after each."""
    rows: list[list[list[float]]] = [[] for _ in learners]
    count = len(streams[0])
    for i in range(count):
        on_epoch = None if progress is None else (lambda: progress(len(learners)))
        observe_together(learners, [stream[i] for stream in streams], on_epoch)
        for learner, stream, own in zip(learners, streams, rows, strict=True):
            seen = [learner.evaluate(stream[j], metric=stream.metric) for j in range(i + 1)]
            own.append(seen + [float("nan")] * (count - i - 1))
    return [AccuracyMatrix(own, stream.metric) for own, stream in zip(rows, streams, strict=True)]


def run_members(
    config: RunConfig, progress: Progress | None = None, batch: int = 10
) -> tuple[list[SeedResult], list[PresetStream]]:
    """Every seed and class order of a resolved configuration, ``batch`` of them at a time."""
    members = streams_of(config)
    for _, _, preset in members:
        for task in preset.stream:
            make_learner(config, 0).method.check(task)
    results = []
    on_device: dict[int, TaskStream] = {}
    for start in range(0, len(members), batch):
        part = members[start : start + batch]
        learners = [make_learner(config, seed) for seed, _, _ in part]
        streams = []
        for _, _, preset in part:
            if id(preset) not in on_device:
                on_device[id(preset)] = preset.stream.to(config.device)
            streams.append(on_device[id(preset)])
        matrices = learn_streams(learners, streams, progress)
        for (seed, order, preset), learner, matrix in zip(part, learners, matrices, strict=True):
            buffer = learner.method.buffer
            results.append(
                SeedResult(
                    seed,
                    order,
                    [list(task.classes) for task in preset.stream],
                    matrix,
                    buffer.nodes.tolist() if buffer else [],
                    buffer.nbytes if buffer else 0,
                    learner.history,
                )
            )
    return results, [preset for _, _, preset in members]


def run(config: RunConfig, progress: Progress | None = None) -> dict[str, Any]:
    """Run a configuration and sum it up: the object that ``ergnn run --json`` prints."""
    config = config.resolved()
    start = time.perf_counter()
    results, presets = run_members(config, progress)
    return summary(config, results, presets[0], time.perf_counter() - start)


def summary(config: RunConfig, results: list[SeedResult], preset: PresetStream, seconds: float) -> dict[str, Any]:
    matrices = [result.matrix for result in results]
    learner = make_learner(config, 0)
    replay = config.method == "replay"
    notes = list(preset.notes)
    if config.orders > 1 or config.class_order == "shuffled":
        notes.append(f"class orders: {config.orders} shuffled × {config.seeds} seed(s); tasks differ between orders")
    ties = [h["selection"]["tie_rate"] for r in results for h in r.history if h["selection"].get("tie_rate")]
    if ties and replay:
        notes.append(f"ties among candidates, broken by seed: {100 * sum(ties) / len(ties):.0f} % on average")
    fm = [metrics.forgetting_mean(matrix, config.denominator) for matrix in matrices]  # type: ignore[arg-type]
    names = preset.stream[0].graph.class_names
    published = paper_result(config.dataset, config.backbone, config.method, config.selector, config.per_class)
    return {
        "dataset": config.dataset,
        "backbone": config.backbone,
        "method": config.method,
        "selector": config.selector if replay else None,
        "selector_options": config.selector_options if replay else {},
        "per_class": config.per_class if replay else None,
        "protocol": config.protocol,
        "split": preset.split,
        "head": config.head,
        "edges": config.edges,
        "optimizer": config.optimizer,
        "lr": config.lr,
        "weight_decay": config.weight_decay,
        "epochs": config.epochs,
        "class_order": config.class_order,
        "orders": config.orders,
        "seeds": list(range(config.first_seed, config.first_seed + config.seeds)),
        "metric": preset.stream.metric,
        "pm": summarize([metrics.performance_mean(m) for m in matrices]).to_dict(),
        "fm": {**summarize(fm).to_dict(), "denominator": config.denominator},
        "aa": summarize([metrics.average_accuracy(m) for m in matrices]).to_dict(),
        "matrix": metrics.mean_matrix(matrices).to_list(),
        "runs": [
            {
                "seed": r.seed,
                "order": r.order,
                "classes": r.classes,
                "matrix": r.matrix.to_list(),
                "selection": [h["selection"] for h in r.history],
            }
            for r in results
        ],
        "tasks": [[names[c] if names else f"class {c}" for c in group] for group in results[0].classes]
        if config.orders == 1
        else None,
        "buffer": {
            "nodes": len(results[0].buffer_ids),
            "bytes": results[0].buffer_bytes,
            "ids": [r.buffer_ids for r in results],
        },
        "seconds": seconds,
        "peak_memory_mb": peak_memory_mb(config.device),
        "leaky": learner.leaky,
        "notes": notes,
        "paper": published,
    }


def peak_memory_mb(device: str = "cpu") -> float:
    """The most memory held so far: of the process, or of the GPU."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
