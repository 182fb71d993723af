"""Large inputs: a graph of CoraFull's shape, graphs of up to a million nodes, streams of fifty tasks."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Any

import torch

from benchmarks.cases.common import cora
from benchmarks.graphs import bag_of_words_graph, corafull_like, synthetic_stream
from benchmarks.measure import Measurement, in_fresh_process, seconds
from benchmarks.plain import PlainLearner
from ergnn.data import Task, TaskStream
from ergnn.lab.run import peak_memory_mb
from ergnn.learning.learner import Learner


def corafull(threads: int, quick: bool) -> list[Measurement]:
    """Measure a task on a CoraFull-shaped graph, and the peak memory of its stream, each in its own process."""
    tasks, epochs = 3 if quick else 35, 2 if quick else 5
    ours = in_fresh_process("benchmarks.cases.large:corafull_stream", threads, tasks)
    plain = in_fresh_process("benchmarks.cases.large:corafull_plain_epochs", threads, epochs)
    note = f"median of {tasks} tasks × 200 epochs; peer: the median of {epochs} of its epochs, × 200"
    memory = f"{tasks} tasks, whole process; peer: one task"
    return [
        Measurement("CoraFull-shaped: a task", ours["seconds"], plain["seconds"] * 200, "s", threads, note, tasks),
        Measurement("CoraFull-shaped: peak memory", ours["peak"], plain["peak"], "MB", threads, memory),
    ]


def corafull_stream(threads: int, tasks: int) -> dict[str, float]:
    """Return the median seconds per task, including evaluation on all tasks so far, and the peak memory."""
    torch.set_num_threads(threads)
    tasks_of = synthetic_stream(corafull_like())
    learner = Learner("gat", "replay", selector="mf*", head="per-task", epochs=200)
    times = []
    for task in tasks_of[:tasks]:
        start = time.perf_counter()
        learner.observe(task)
        for earlier in tasks_of[: task.id + 1]:
            learner.evaluate(earlier)
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times), "peak": peak_memory_mb()}


def corafull_plain_epochs(threads: int, epochs: int) -> dict[str, float]:
    """Return the median seconds per epoch of the reference, and the peak memory."""
    torch.set_num_threads(threads)
    task = synthetic_stream(corafull_like())[0]
    learner = PlainLearner("gat", task.graph.num_features, 2, epochs=1)
    return {"seconds": seconds(partial(learner.observe, task, False), epochs), "peak": peak_memory_mb()}


def size(threads: int, quick: bool) -> list[Measurement]:
    """Measure one GAT step by the size of the graph (1,000 to 1,000,000 nodes), with 40 labeled nodes."""
    out, repeats = [], 1 if quick else 3
    for nodes in (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        graph = bag_of_words_graph(nodes, nodes * 5, 500, 2)
        task = synthetic_stream(graph, train=20, test=50)[0]
        ours = seconds(partial(learn, task), repeats) / 20
        peer = None
        if nodes <= 100_000:
            plain = PlainLearner("gat", 500, 2, epochs=1)
            peer = seconds(partial(plain.observe, task, False), repeats) * 1e3
        note = "10 directed edges per node; a 20th of a task of 20 epochs, including building its field"
        note += "" if peer else "; the peer was not run at this size"
        out.append(Measurement(f"size: {nodes:,} nodes, a step", ours * 1e3, peer, "ms", threads, note, repeats))
    return out


def learn(task: Task) -> None:
    Learner("gat", "finetune", epochs=20).observe(task)


def tasks(threads: int, quick: bool) -> list[Measurement]:
    """Measure time per task along a stream of 50, with the default replay and with the whole buffer in every epoch."""
    Learner("gat", "replay", epochs=2).observe(cora()[0])  # warm-up: the first call initializes torch
    count, epochs, repeats = (12, 50, 1) if quick else (50, 200, 3)
    long = synthetic_stream(bag_of_words_graph(20_000, 60_000, 2000, 2 * count))
    out = []
    variants: list[tuple[str, dict[str, Any]]] = [("default", {}), ("whole buffer", {"replay_batch": 0})]
    for label, options in variants:
        times = time_a_task(long, epochs, repeats, options)
        first = statistics.median(times[:5])
        note = f"{count} tasks × {epochs} epochs, e = 1, {label}; peer: the first five (median of each task's medians)"
        for start_at in range(0, count, 10):
            part = statistics.median(times[start_at : start_at + 10])
            name = f"tasks: from {start_at + 1} of {count}, {label}"
            out.append(Measurement(name, part, first, "s", threads, note, repeats))
        last = statistics.median(times[-5:])
        name = f"tasks: the last five of {count}, {label}"
        out.append(Measurement(name, last, first, "s", threads, note, repeats))
    return out


def time_a_task(stream: TaskStream, epochs: int, repeats: int, options: dict[str, Any]) -> list[float]:
    """Return seconds per task, as medians over repeated streams, which are robust against interruptions."""
    runs: list[list[float]] = []
    for _ in range(repeats):
        learner = Learner("gat", "replay", selector="mf*", head="per-task", epochs=epochs, **options)
        runs.append([seconds(partial(learner.observe, task), 1, 0) for task in stream])
    return [statistics.median(times) for times in zip(*runs, strict=True)]
