"""Measure steps, Gauss-Newton products, a stream and the paper's table 2 on one GPU, compared with PyG.

    python -m benchmarks.gpu --out benchmarks/h200-scale.json

The graph is ``reddit-like`` at full size (232,965 nodes, 114.6 million directed edges, 602 features), generated on the
GPU and stored in the cache folder; it is not Reddit. Times are medians of CUDA events; memory is the peak allocation
during a step, including the graph and its features. PyG's layers run on the same graph as an edge list, with the same
loss and optimizer. The stream, table 2 and the other parts run in a process each, so that none is measured with memory
or kernels that another part left behind.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import benchmarks.reddit_like  # noqa: F401  # registers the data set
from benchmarks.table2 import BACKBONE_NAMES, table2
from benchmarks.whole_graph import check, kernel_profile, our_product, our_step, pyg_step
from ergnn.data.datasets import load_graph
from ergnn.lab.config import RunConfig
from ergnn.lab.run import make_config_stream, make_learner
from ergnn.learning.evaluation import scores_together
from ergnn.learning.metrics import AccuracyMatrix, forgetting_mean, performance_mean

PROCESSES = (("stream",), ("table2",), ("check", "steps", "products", "profile", "pyg"))
"""Parts that run in the same process."""
BEFORE = {
    "GAT step, recorded (ms)": 16.2,
    "GAT step, peak memory (GB)": 2.2,
    "Gauss-Newton product of GAT (ms)": 19.7,
    "stream (s)": 36.6,
    "stream, peak memory (GB)": 4.0,
    "table 2, both data sets (s)": 18.6,
    "table 2, peak memory (GB)": 2.8,
}
"""Figures on one NVIDIA H200 (torch 2.11) before the kernels, solves and joint steps of this version."""


def stream_config(options: dict[str, Any], epochs: int) -> RunConfig:
    settings: dict[str, Any] = {
        "dataset": "reddit-like",
        "backbone": "gat",
        "selector": "im",
        "epochs": epochs,
        "device": "cuda",
    }
    return RunConfig(**settings, dataset_options=options).resolved()


def compile_kernels(options: dict[str, Any]) -> float:
    """Learn two tasks with few epochs, which compiles all kernels that a stream uses; return the seconds."""
    start, config = time.perf_counter(), stream_config(options, 20)
    tasks, learner = make_config_stream(config, 0, 0).stream.to("cuda"), make_learner(config.learner, 0)
    for task in list(tasks)[:2]:
        learner.observe(task)
        scores_together([learner], [tasks])
    return time.perf_counter() - start


def stream(options: dict[str, Any], epochs: int) -> dict[str, Any]:
    """Measure the whole stream, phase by phase, with the learner of ``ergnn run``."""
    config = stream_config(options, epochs)
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    tasks = make_config_stream(config, 0, 0).stream.to("cuda")
    torch.cuda.synchronize()
    loaded = time.perf_counter() - start
    learner, rows, evaluation = make_learner(config.learner, 0), [], 0.0
    for task in tasks:
        learner.observe(task)
        before = time.perf_counter()
        rows.append(scores_together([learner], [tasks])[0])
        evaluation += time.perf_counter() - before
    seconds = time.perf_counter() - start
    matrix = AccuracyMatrix(rows, tasks.metric)
    return {
        "seconds": seconds,
        "load_seconds": loaded,
        "train_seconds": sum(part["train_seconds"] for part in learner.history),
        "select_seconds": sum(part["select_seconds"] for part in learner.history),
        "evaluate_seconds": evaluation,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
        "train_seconds_by_task": [round(part["train_seconds"], 3) for part in learner.history],
        "select_seconds_by_task": [round(part["select_seconds"], 3) for part in learner.history],
        "pm": performance_mean(matrix),
        "fm": forgetting_mean(matrix),
        "metric": tasks.metric,
        "tasks": len(tasks),
        "epochs": epochs,
        "head": config.learner.head,
        "products": [part["selection"].get("iterations") for part in learner.history],
        "trained_on": [part["trained_on"] for part in learner.history],
        "matrix": matrix.to_list(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=232_965)
    parser.add_argument("--edges", type=int, help="number of directed edges (default: as many per node as in Reddit)")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--parts", default="check,steps,products,profile,pyg,stream,table2")
    parser.add_argument("--backbones", default=",".join(BACKBONE_NAMES), help="backbones of the steps")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    parts = args.parts.split(",")
    groups = [group for own in PROCESSES if (group := [part for part in own if part in parts])]
    found = in_processes(groups, args) if len(groups) > 1 else measure(parts, args)
    summary = figures(found)
    for name, value in summary.items():
        print(f"{name:36} before {BEFORE[name]:5.1f}   now {value:5.1f}")
    write(found | {"before and now": {name: [BEFORE[name], value] for name, value in summary.items()}}, args.out)


def in_processes(groups: list[list[str]], args: argparse.Namespace) -> dict[str, Any]:
    """Measure each group of parts in a process of its own, and return all figures."""
    found: dict[str, Any] = {}
    size = [] if args.edges is None else ["--edges", str(args.edges)]
    size += ["--nodes", str(args.nodes), "--epochs", str(args.epochs), "--backbones", args.backbones]
    for group in groups:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "figures.json"
            command = [sys.executable, "-m", "benchmarks.gpu", "--parts", ",".join(group), *size, "--out", str(out)]
            subprocess.run(command, check=True)
            found.update(json.loads(out.read_text(encoding="utf-8")))
        write(found, args.out)
    return found


def write(found: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def figures(found: dict[str, Any]) -> dict[str, float]:
    """Return the figures that :data:`BEFORE` has, as far as they were measured."""
    step, stream, table = found.get("gat step", {}), found.get("stream", {}), found.get("table 2", {})
    values = (
        *(step.get("recorded_step_ms"), step.get("peak_gb"), found.get("gat product", {}).get("product_ms")),
        *(stream.get("seconds"), stream.get("peak_gb")),
        *(table.get("both", {}).get("seconds"), table.get("peak_gb")),
    )
    return {name: value for name, value in zip(BEFORE, values, strict=True) if value is not None}


def measure(parts: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Measure some parts in this process."""
    options = {"nodes": args.nodes, "device": "cuda"} | ({} if args.edges is None else {"edges": args.edges})
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }

    def note(name: str, value: Any) -> None:
        found[name] = value
        print(f"{name:24} {json.dumps(value)[:3000]}", flush=True)

    if "table2" in parts:
        note("table 2", table2("cuda"))
        return found
    start = time.perf_counter()
    graph = load_graph("reddit-like", dataset_options=options)[0]
    size = {"nodes": graph.num_nodes, "directed_edges": graph.num_edges, "features": graph.num_features}
    note("graph", {"kind": "reddit-like", **size, "made_or_read_seconds": time.perf_counter() - start})
    if "stream" in parts:
        del graph
        note("seconds to compile kernels and learn two short tasks", compile_kernels(options))
        gc.collect()
        torch.cuda.empty_cache()
        note("stream", stream(options, args.epochs))
        return found
    graph = replace(graph, public_split=None).to("cuda")
    note("graph_and_features_gb", torch.cuda.memory_allocated() / 1e9)
    if "check" in parts:
        note("kernels against twin", check(graph))
    for name in args.backbones.split(",") if "steps" in parts else ():
        note(f"{name} step", our_step(graph, name))
    for name in sorted({"gat", "gcn"} & set(args.backbones.split(","))) if "products" in parts else ():
        note(f"{name} product", our_product(graph, name))
    if "profile" in parts:
        note("profile", kernel_profile(graph))
    for name in ("gat", "gcn", "sage") if "pyg" in parts else ():
        note(f"{name} step of PyG", pyg_step(graph, name))
        gc.collect()
        torch.cuda.empty_cache()
    return found


if __name__ == "__main__":
    main()
