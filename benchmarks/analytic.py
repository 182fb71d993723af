"""Measure the closed-form method on large graphs: time per phase, peak memory, accuracy; one line of JSON per case.

    python -m benchmarks.analytic --case gpu                  # reddit-like at full size, one GPU
    python -m benchmarks.analytic --case cpu --threads 2      # reddit-like, 100,000 nodes and 10 million edges
    python -m benchmarks.analytic --case disk --threads 1     # 10 million nodes and 100 million edges in files

``gpu`` and ``cpu`` learn the class-incremental stream of 8 × 5 classes and score all tasks so far after each task, with
the task unknown. ``disk`` learns one task of 16 classes from memory-mapped files, and scores held-out nodes. Each
measurement runs in its own process. ``peak_mb`` is its VmHWM: the peak resident memory, including the interpreter, the
libraries, and pages of mapped files. ``anonymous_mb`` is the peak allocated memory, without files (RssAnon, read every
20 ms).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks.reddit_like.files import NpyWriter
from benchmarks.reddit_like.lanes import LANE_SUM_DEVIATION, arange, lane_sums
from ergnn.analytic import Features
from ergnn.data import Graph, Split, TaskStream
from ergnn.data.csr import mapped
from ergnn.data.datasets import load_graph
from ergnn.data.hashing import below, stream_key
from ergnn.learning.learner import Learner

DEFAULTS: dict[str, dict[str, Any]] = {
    "gpu": {"nodes": 232_965, "edges": None, "features": 602, "device": "cuda", "threads": None},
    "cpu": {"nodes": 100_000, "edges": 10_000_000, "features": 602, "device": "cpu", "threads": 2},
    "disk": {"nodes": 10_000_000, "edges": 100_000_000, "features": 64, "device": "cpu", "threads": 1},
}
CLASSES = 16
"""Classes of the graph on disk."""
TRAIN, TEST = 20, 50
"""In the graph on disk, one out of this many nodes is for training, and one for testing."""
MADE = 1 << 18
"""Nodes of the graph on disk to generate at a time."""


class Phases:
    """Wall and processor seconds per phase; synchronizes the GPU."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self._last, self._last_cpu = time.perf_counter(), time.process_time()

    def end(self, name: str) -> None:
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        now, cpu = time.perf_counter(), time.process_time()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self._last, 3)
        self.cpu_seconds[name] = round(self.cpu_seconds.get(name, 0.0) + cpu - self._last_cpu, 3)
        self._last, self._last_cpu = now, cpu

    def report(self) -> dict[str, Any]:
        """Return the values that a case prints; totals exclude loading."""
        both = {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds}
        sums = {
            f"{name}_after_load": round(sum(v for k, v in part.items() if k != "load"), 3)
            for name, part in both.items()
        }
        return {**both, **sums}


class AnonymousPeak(threading.Thread):
    """Peak anonymous memory of this process, in MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self._done = 0.0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._done.wait(0.02):
            self.peak = max(self.peak, memory_mb("RssAnon"))

    def stop(self) -> float:
        self._done.set()
        self.join()
        return self.peak


def memory_mb(field: str) -> float:
    """Read a memory figure of this process from /proc; 0 if unavailable."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field + ":")), 0.0)


def make_learner(args: argparse.Namespace) -> Learner:
    return Learner("gcn", "analytic", head="growing", device=args.device, feature_map=args.feature_map, lam=args.lam)


def timed_learner(args: argparse.Namespace, phases: Phases) -> Learner:
    """Create a learner whose propagation is timed separately."""
    sweep = Features._sweep

    def timed(self: Features, *arguments: Any) -> None:
        phases.end("solve")
        sweep(self, *arguments)
        phases.end("propagate")

    Features._sweep = timed  # type: ignore[method-assign, assignment]
    return make_learner(args)


def learn_stream(learner: Learner, stream: TaskStream, phases: Phases) -> tuple[float, list[float]]:
    """Learn a stream; return the final micro accuracy with the task unknown, and the final accuracy of each task."""
    scores: list[float] = []
    for i, task in enumerate(stream):
        learner.observe(task)
        phases.end("solve")
        scores = [learner.evaluate(stream[j], task_known=False) for j in range(i + 1)]
        phases.end("evaluate")
    sizes = [task.test.numel() for task in stream]
    micro = sum(score * size for score, size in zip(scores, sizes, strict=True)) / sum(sizes)
    return micro, scores


def size_of(graph: Graph) -> str:
    return f"{graph.num_nodes:,} nodes, {graph.num_edges:,} directed edges, {graph.num_features} features"


def reddit_like(args: argparse.Namespace) -> Graph:
    options = {"nodes": args.nodes, "features": args.features, "device": args.device}
    if args.edges is not None:
        options["edges"] = args.edges
    return load_graph("reddit-like", dataset_options=options).graph


def stream_case(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the class-incremental stream; on a GPU after a warm-up run, which compiles the kernels."""
    graph = reddit_like(args)  # made before the clock starts, where it is not in the cache folder
    if args.device == "cuda":
        warm = TaskStream.from_classes(graph, classes_per_task=5).to(args.device)
        learn_stream(make_learner(args), warm, Phases())  # compiles the kernels
        del warm
        torch.cuda.reset_peak_memory_stats()
    phases = Phases()
    stream = TaskStream.from_classes(graph, classes_per_task=5).to(args.device)
    phases.end("load")
    learner = timed_learner(args, phases)
    micro, scores = learn_stream(learner, stream, phases)
    chosen = learner.history[-1]["selection"]
    return {
        "graph": f"reddit-like, {size_of(graph)}",
        "feature_map": args.feature_map,
        "chosen": [chosen["map"], chosen["lam"]],
        "accuracy": micro,
        "average_accuracy": sum(scores) / len(scores),
        **phases.report(),
        **gpu_memory(),
    }


def joint_case(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the reference: a GCN trained on the classes of all tasks at once."""
    stream = TaskStream.from_classes(reddit_like(args), classes_per_task=40).to(args.device)
    learner = Learner("gcn", "finetune", head="growing", epochs=args.epochs, device=args.device)
    phases = Phases()
    learner.observe(stream[0])
    phases.end("train")
    accuracy = learner.evaluate(stream[0], task_known=False)
    phases.end("evaluate")
    return {"peer": f"joint GCN, {args.epochs} epochs", "accuracy": accuracy, **phases.report(), **gpu_memory()}


def disk_case(args: argparse.Namespace) -> dict[str, Any]:
    """Measure one task on memory-mapped files, in bounded memory."""
    phases, folder = Phases(), Path(args.folder)
    y = mapped(folder / "y.npy")
    node = torch.arange(y.numel())
    split = Split(node[node % TRAIN == 0], node[:0], node[node % TEST == 1])
    x, rowptr, col = (mapped(folder / f"{name}.npy") for name in ("x", "rowptr", "col"))
    graph = Graph.from_csr(x, rowptr, col, y, undirected=True, name="disk")
    del node
    stream = TaskStream.from_classes(graph, classes_per_task=CLASSES, split=split)
    phases.end("load")
    learner = timed_learner(args, phases)
    accuracy, _ = learn_stream(learner, stream, phases)
    chosen = learner.history[-1]["selection"]
    files = sum(file.stat().st_size for file in folder.iterdir())
    return {
        "graph": f"in files, {size_of(graph)}",
        "files_mb": round(files / 2**20),
        "train_nodes": stream[0].train.numel(),
        "test_nodes": stream[0].test.numel(),
        "feature_map": args.feature_map,
        "chosen": [chosen["map"], chosen["lam"]],
        "accuracy": accuracy,
        **phases.report(),
    }


def write_disk_graph(folder: Path, nodes: int, edges: int, features: int) -> None:
    """Write a homophilous undirected graph in blocks.

    Nodes have random places on a ring. The class of a node is its place modulo 16. It is linked to the places at the
    distances ``o_1, …, o_{degree / 2}`` to both sides, the same ones for all nodes; four distances in five are
    multiples of 16 and stay in the class. Since places are random, so are the ids of neighbors: reading them is as
    hard on a cache as it is in a random graph. Features are 0.1 times the center of the class plus noise. One label
    in 20 is wrong, so that no model reaches 100 %.
    """
    half = edges // nodes // 2
    if nodes % CLASSES or edges != 2 * half * nodes or half < 1:
        raise SystemExit(f"disk: nodes must be a multiple of {CLASSES}, and edges an even multiple of nodes")
    drawn = below(stream_key(1), arange(0, 8 * half, "cpu"), nodes // 2 - 2 * CLASSES) + CLASSES
    drawn = drawn // CLASSES * CLASSES + (torch.arange(drawn.numel()) % 5 == 0) * (drawn % (CLASSES - 1) + 1)
    distances = torch.unique_consecutive(drawn)[:half]
    both = torch.cat([distances, nodes - distances])
    at = torch.randperm(nodes, generator=torch.Generator().manual_seed(0))
    place = torch.empty_like(at)
    place[at] = torch.arange(nodes)
    centers = lane_sums(stream_key(2), arange(0, CLASSES * features, "cpu")).view(CLASSES, features).float()
    with (
        NpyWriter(folder / "col.npy", (edges,), np.int32) as col,
        NpyWriter(folder / "x.npy", (nodes, features), np.float32) as x,
        NpyWriter(folder / "y.npy", (nodes,), np.int64) as y,
    ):
        for first in range(0, nodes, MADE):
            own = place[first : first + MADE]
            col.write(at[(own[:, None] + both) % nodes].sort(dim=1).values.flatten())
            noise = lane_sums(stream_key(3), arange(first * features, (first + own.numel()) * features, "cpu"))
            x.write((noise.float().view(-1, features) + 0.1 * centers[own % CLASSES]) / LANE_SUM_DEVIATION)
            wrong = below(stream_key(4), own, 20 * (CLASSES - 1))
            y.write((own + torch.where(wrong < CLASSES - 1, wrong + 1, 0)) % CLASSES)
    with NpyWriter(folder / "rowptr.npy", (nodes + 1,), np.int64) as rowptr:
        rowptr.write(torch.arange(nodes + 1) * 2 * half)


def make_disk_graph(folder: Path, args: argparse.Namespace) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(folder).free, args.nodes * (4 * args.features + 16) + 4 * args.edges
    if free < needed + (1 << 30):
        raise SystemExit(f"disk: {folder} has {free >> 20} MB free; the files take {needed >> 20} MB")
    start, cpu = time.perf_counter(), time.process_time()
    write_disk_graph(folder, args.nodes, args.edges, args.features)
    made = {"seconds": round(time.perf_counter() - start, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
    print(json.dumps({"case": "disk", "made": made}), flush=True)


def gpu_memory() -> dict[str, float]:
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return {}
    return {"gpu_peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2)}


def child(args: argparse.Namespace) -> None:
    """Measure in this process, and print the result."""
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    anonymous = AnonymousPeak()
    run = {"gpu": stream_case, "cpu": stream_case, "joint": joint_case, "disk": disk_case}[args.child]
    found = run(args)
    memory = {"peak_mb": round(memory_mb("VmHWM")), "anonymous_mb": round(anonymous.stop())}
    facts = {
        "device": torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 1),
    }
    print(json.dumps({"case": args.child, **found, **memory, "machine": facts}), flush=True)


def in_child(arguments: list[str], case: str, *more: str) -> int:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.analytic", *arguments, "--child", case, *more]
    return subprocess.run(command, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=sorted(DEFAULTS), required=True)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--edges", type=int, help="number of directed edges (default for reddit-like: 492 per node)")
    parser.add_argument("--features", type=int)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--feature-map", help="feature map (default: auto; for gpu also hops with λ = 0.3)")
    parser.add_argument("--lam", type=float, help="fixed λ (default: chosen by leave-one-out)")
    parser.add_argument("--epochs", type=int, default=200, help="epochs of the joint GCN (default: 200)")
    parser.add_argument("--no-joint", action="store_true", help="skip the joint GCN of --case gpu")
    parser.add_argument(
        "--folder", help="store and reuse the files of --case disk in this folder (default: a temporary one)"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    defaults = DEFAULTS[args.case]
    if args.nodes not in (None, defaults["nodes"]):
        defaults["edges"] = 10 * args.nodes if args.case == "disk" else None
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.child:
        child(args)
        return
    given = sys.argv[1:]
    settings = [["--feature-map", args.feature_map or "auto"]]
    if args.case == "gpu" and not args.feature_map:
        settings = [["--feature-map", "hops", "--lam", "0.3"], *settings]
    codes = []
    if args.case == "disk":
        with TemporaryDirectory(prefix="ergnn-disk-") as scratch:
            folder = Path(args.folder or scratch)
            if not (folder / "rowptr.npy").is_file():  # the last one to be written
                make_disk_graph(folder, args)
            codes += [in_child(given, "disk", *each, "--folder", str(folder)) for each in settings]
    else:
        codes += [in_child(given, args.case, *each) for each in settings]
        if args.case == "gpu" and not args.no_joint:
            codes.append(in_child(given, "joint"))
    sys.exit(max(map(abs, codes)))


if __name__ == "__main__":
    main()
