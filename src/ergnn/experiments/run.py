"""One configuration, all its seeds: from a name to the numbers of a table."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ergnn import metrics
from ergnn.callbacks import EpochCallback
from ergnn.data import PresetStream, TaskStream, make_stream
from ergnn.experiments.config import RunConfig
from ergnn.learner import Learner
from ergnn.metrics import AccuracyMatrix, summarize
from ergnn.observing import observe_together
from ergnn.report.paper import paper_result
from ergnn.walks import walk_stream

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
    split: str = "public"
    notes: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None
    leaky: bool = False
    seconds: float = 0.0
    """A member's share of its batch."""


def members_of(config: RunConfig) -> list[tuple[int, int]]:
    """Seed and class order of every member of a run."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    return [(seed, order) for order in range(config.orders) for seed in seeds]


def streams_of(config: RunConfig, members: Sequence[tuple[int, int]]) -> list[PresetStream]:
    """The stream of each member; equal streams are one object."""
    made: dict[tuple[int, int], PresetStream] = {}
    streams = []
    for seed, order in members:
        probe = made.get((0, order)) or make_config_stream(config, 0, order)
        made[0, order] = probe
        key = (seed if probe.split != "public" else 0, order)
        if key not in made:
            made[key] = make_config_stream(config, *key)
        streams.append(made[key])
    return streams


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
        dataset_options=config.dataset_options,
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
            "replay_batch": config.replay_batch,
        }
    elif config.method in ("gem", "agem"):
        options = {"per_class": config.per_class, "replay": config.replay, "hops": config.hops}
    return Learner(
        config.backbone,
        config.method,
        head=config.head or "per-task",
        epochs=config.epochs,
        lr=config.lr,
        weight_decay=config.weight_decay or 0.0,
        optimizer=config.optimizer or "adam",
        batch_size=config.batch_size,
        fanout=config.parsed_fanout(),
        seed=seed,
        device=config.device,
        backbone_options=config.backbone_options,
        **{**options, **config.method_options},
    )


def learn_streams(
    learners: list[Learner], streams: list[TaskStream], progress: Progress | None = None
) -> list[AccuracyMatrix]:
    """Let every learner go through its stream, side by side, and score it on all tasks so far after each."""
    rows: list[list[list[float]]] = [[] for _ in learners]
    count = len(streams[0])
    for i in range(count):
        counter = [] if progress is None else [EpochCallback(lambda _: progress(1))]
        observe_together(learners, [stream[i] for stream in streams], counter)
        for learner, stream, own in zip(learners, streams, rows, strict=True):
            seen = [learner.evaluate(stream[j], metric=stream.metric) for j in range(i + 1)]
            own.append(seen + [float("nan")] * (count - i - 1))
    return [AccuracyMatrix(own, stream.metric) for own, stream in zip(rows, streams, strict=True)]


Learn = Callable[
    [Sequence[tuple[int, int]], Sequence[Learner], Sequence[TaskStream], Progress | None], list[AccuracyMatrix]
]
"""Lets the learners of some members go through their streams, and scores them."""


def run_members(
    config: RunConfig,
    members: Sequence[tuple[int, int]] | None = None,
    progress: Progress | None = None,
    batch: int = 10,
    learn: Learn | None = None,
) -> Iterator[list[SeedResult]]:
    """Members of a resolved configuration (by default all), ``batch`` of them side by side, given as they are done."""
    members = members_of(config) if members is None else members
    presets = streams_of(config, members)
    for preset in {id(preset): preset for preset in presets}.values():
        for task in preset.stream:
            make_learner(config, 0).method.check(task)
    on_device: dict[int, TaskStream] = {}
    for at in range(0, len(members), batch):
        start = time.perf_counter()
        part = presets[at : at + batch]
        learners = [make_learner(config, seed) for seed, _ in members[at : at + batch]]
        streams = []
        for (seed, _), preset in zip(members[at : at + batch], part, strict=True):
            if config.features != "attributes":
                walked = walk_stream(preset.stream, config.features, seed, **config.features_options)
                streams.append(walked.to(config.device))
                continue
            if id(preset) not in on_device:
                on_device[id(preset)] = preset.stream.to(config.device)
            streams.append(on_device[id(preset)])
        if learn is None:
            matrices = learn_streams(learners, streams, progress)
        else:
            matrices = learn(members[at : at + batch], learners, streams, progress)
        seconds = (time.perf_counter() - start) / len(part)
        yield [
            _seed_result(member, preset, learner, matrix, seconds)
            for member, preset, learner, matrix in zip(members[at : at + batch], part, learners, matrices, strict=True)
        ]


def _seed_result(
    member: tuple[int, int], preset: PresetStream, learner: Learner, matrix: AccuracyMatrix, seconds: float
) -> SeedResult:
    buffer, names = learner.method.buffer, preset.stream[0].graph.class_names
    return SeedResult(
        *member,
        classes=[list(task.classes) for task in preset.stream],
        matrix=matrix,
        buffer_ids=buffer.nodes.tolist() if buffer else [],
        buffer_bytes=learner.method.nbytes,
        history=learner.history,
        split=preset.split,
        notes=preset.notes,
        class_names=None if names is None else tuple(names),
        leaky=learner.leaky,
        seconds=seconds,
    )


def run(config: RunConfig, progress: Progress | None = None) -> dict[str, Any]:
    """Run a configuration and sum it up: the object that ``ergnn run --json`` prints."""
    config = config.resolved()
    start = time.perf_counter()
    results = [result for done in run_members(config, None, progress) for result in done]
    return summary(config, results, time.perf_counter() - start, peak_memory_mb(config.device))


def summary(config: RunConfig, results: list[SeedResult], seconds: float, memory_mb: float) -> dict[str, Any]:
    """All members of a configuration in one object, in the order of :func:`members_of`."""
    matrices = [result.matrix for result in results]
    first = results[0]
    replay = config.method == "replay"
    notes = list(first.notes)
    if config.orders > 1 or config.class_order == "shuffled":
        notes.append(f"class orders: {config.orders} shuffled × {config.seeds} seed(s); tasks differ between orders")
    ties = [h["selection"]["tie_rate"] for r in results for h in r.history if "tie_rate" in h["selection"]]
    if any(ties) and replay:
        notes.append(f"ties among candidates, broken by seed: {100 * sum(ties) / len(ties):.0f} % on average")
    fm = [metrics.forgetting_mean(matrix, config.denominator) for matrix in matrices]  # type: ignore[arg-type]
    names = first.class_names
    row = config.backbone if config.features == "attributes" else config.features
    published = None  # the paper's numbers stand only beside the protocol that comes near to its own
    if config.protocol == "paper":
        published = paper_result(config.dataset, row, config.method, config.selector, config.per_class)
    return {
        "dataset": config.dataset,
        "features": config.features,
        "backbone": config.backbone,
        "method": config.method,
        "selector": config.selector if replay else None,
        "selector_options": config.selector_options if replay else {},
        "per_class": config.per_class if replay else None,
        "protocol": config.protocol,
        "split": first.split,
        "head": config.head,
        "edges": config.edges,
        "optimizer": config.optimizer,
        "lr": config.lr,
        "weight_decay": config.weight_decay,
        "epochs": config.epochs,
        "class_order": config.class_order,
        "orders": config.orders,
        "seeds": list(range(config.first_seed, config.first_seed + config.seeds)),
        "metric": first.matrix.metric,
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
        "tasks": [[names[c] if names else f"class {c}" for c in group] for group in first.classes]
        if config.orders == 1
        else None,
        "buffer": {
            "nodes": len(first.buffer_ids),
            "bytes": first.buffer_bytes,
            "ids": [r.buffer_ids for r in results],
        },
        "seconds": seconds,
        "train_seconds": sum(h["train_seconds"] for r in results for h in r.history),
        "select_seconds": sum(h["select_seconds"] for r in results for h in r.history),
        "peak_memory_mb": memory_mb,
        "leaky": first.leaky,
        "notes": notes,
        "paper": published,
    }


def peak_memory_mb(device: str = "cpu") -> float:
    """The most memory held so far: of the process, or of the GPU."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says survives exec: a process would be charged with its parent's memory
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
