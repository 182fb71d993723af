"""Measure steps, Gauss-Newton products and a stream on a whole graph of Reddit's size on one GPU, compared with PyG,
and the time of the paper's table 2 (``--parts table2``, see ``benchmarks/table2.py``).

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
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.table2 import table2
from ergnn.curvature import gauss_newton_product
from ergnn.data.datasets import load_graph
from ergnn.data.graph import Graph
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.dropout import dropout_keys
from ergnn.engine.kernels.attention import attention
from ergnn.engine.objective import Objective, make_objective
from ergnn.engine.recording import Recorded, side_stream
from ergnn.evaluation import scores_so_far
from ergnn.experiments.config import RunConfig
from ergnn.experiments.run import make_config_stream, make_learner
from ergnn.metrics import AccuracyMatrix, forgetting_mean, performance_mean
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.examples import Examples

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
CLASSES = 5
BACKBONE_NAMES = ("gat", "gcn", "sage", "gin", "sgc")
HEADS = 8
KERNELS = (
    "output",
    "merge_output",
    "peaks",
    "targets",
    "sources",
    "merge",
    "derivative",
    "_dropped",
    "_sum",
    "_sum_short",
)
"""Names of the package's own kernels."""


def median_ms(call: Callable[[], Any], times: int = 15, warm: int = 3) -> float:
    """Return the median time of a call on the device."""
    found = []
    for i in range(times + warm):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        if i >= warm:
            found.append(start.elapsed_time(end))
    return statistics.median(found)


def peak_gb(call: Callable[[], Any]) -> float:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 1e9


def whole(graph: Graph, name: str) -> tuple[Backbone, Objective]:
    """Create a model with one head of five outputs, and the objective over all nodes."""
    torch.manual_seed(0)
    model = BACKBONES.create(name, in_channels=graph.num_features, out_channels=CLASSES).to(graph.device)
    nodes = torch.arange(graph.num_nodes, device=graph.device)
    heads, weights = nodes.new_zeros(nodes.numel(), 1), torch.full((nodes.numel(),), 1 / nodes.numel()).to(nodes.device)
    return model, make_objective([model], [Examples(graph, nodes, heads, graph.y % CLASSES, weights)])


def make_step(model: Backbone, objective: Objective) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return a training step as a function of dropout keys, and keys."""
    params = {key: value.requires_grad_() for key, value in objective.parameters().items()}
    optimizer = torch.optim.Adam(list(params.values()), lr=model.lr, fused=True, capturable=True)

    def step(key: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = objective.model_losses(params, key).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, dropout_keys([0], 0, 1, objective.dropout_sites, objective.targets.device)[0]


def our_step(graph: Graph, name: str) -> dict[str, float]:
    model, objective = whole(graph, name)
    step, key = make_step(model, objective)
    plain, recorded = partial(step, key), partial(Recorded(step, side_stream(graph.device)), key)
    plain()
    found = {"peak_gb": peak_gb(plain), "step_ms": median_ms(plain)}
    found["recorded_step_ms"] = median_ms(recorded)
    params = objective.parameters()
    with torch.no_grad():
        found["evaluation_ms"] = median_ms(lambda: objective.logits(params))
    return found


def our_product(graph: Graph, name: str) -> dict[str, float]:
    _, objective = whole(graph, name)
    params = objective.parameters()
    product = gauss_newton_product(objective, params)
    vector = torch.randn(sum(value.numel() for value in params.values()), device=graph.device)
    product(vector)
    return {"product_ms": median_ms(lambda: product(vector)), "peak_gb": peak_gb(lambda: product(vector))}


def kernel_times(call: Callable[[], Any], times: int = 5) -> list[dict[str, Any]]:
    """Return the milliseconds and launches of each kind of kernel per call, from the profiler, longest first."""
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(times):
            call()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = {}
    for event in profiler.key_averages():
        if event.device_time_total:
            own = found.setdefault(_kind(event.key), [0.0, 0.0])
            own[0] += event.device_time_total / times / 1e3
            own[1] += event.count / times
    rows = sorted(found.items(), key=lambda row: -row[1][0])
    return [{"kernel": name, "ms": round(ms, 3), "launches": launches} for name, (ms, launches) in rows]


def _kind(name: str) -> str:
    if name in KERNELS:
        return name
    if any(part in name for part in ("gemm", "cutlass", "splitK")):
        return "dense products (cuBLAS)"
    return "elementwise, reductions, copies (torch)"


def gathered_gb(edges: int, p: float) -> dict[str, float]:
    """Return the gigabytes that each pass over the edges of both GAT layers reads per edge, with dropout ``p``.

    In the first layer, an edge reads its neighbor (4 bytes), one or two kinds of numbers per head (32 bytes each) and
    the rows of the heads that are kept (32 bytes each); in the second, its neighbor and a 32-byte record.
    """
    rows = (1 - p) * HEADS * 32
    numbers = {"output": 32 + rows, "sources": 64 + rows, "derivative": 64 + rows + 8}
    return {name: round(edges * (4 + first + 4 + 32) / 1e9, 1) for name, first in numbers.items()}


def kernel_profile(graph: Graph) -> dict[str, Any]:
    """Measure where the time of a GAT step and of a Gauss-Newton product goes."""
    model, objective = whole(graph, "gat")
    step, key = make_step(model, objective)
    found: dict[str, Any] = {"step": kernel_times(partial(step, key))}
    found["step_gathered_gb"] = gathered_gb(graph.num_edges, model.dropout)
    params = objective.parameters()
    product = gauss_newton_product(objective, params)
    vector = torch.randn(sum(value.numel() for value in params.values()), device=graph.device)
    found["product"] = kernel_times(lambda: product(vector))
    found["product_gathered_gb"] = gathered_gb(graph.num_edges, 0.0)
    a, b = (torch.empty(2**30, device=graph.device) for _ in range(2))
    found["copy_tb_per_s"] = round(2 * a.nbytes / median_ms(lambda: b.copy_(a)) / 1e9, 2)
    return found


def check(graph: Graph) -> dict[str, float]:
    """Compare the kernels of the first GAT layer with plain torch in double precision, ``‖a − b‖ / ‖b‖``."""
    links = adjacency_of(graph).links(loops=True)
    torch.manual_seed(1)
    shapes = [(links.sources, 8, 8), (links.sources, 8), (links.targets, 8)] * 2 + [(links.targets, 8, 8)]
    *values, g = (torch.randn(*shape, device=graph.device) for shape in shapes)
    key = torch.tensor([7], dtype=torch.int32, device=graph.device)
    found = []
    for dtype in (torch.float32, torch.float64):
        points = [value.to(dtype).requires_grad_() for value in values[:3]]
        first, second, third = points
        out = attention(first, second, third, links, 0.2, key, 0.6)
        probe = torch.zeros_like(out, requires_grad=True)
        grads = torch.autograd.grad(out, points, g.to(dtype), retain_graph=True)
        pulled = torch.autograd.grad(out, points, probe, create_graph=True)
        along = torch.autograd.grad(pulled, probe, [value.to(dtype) for value in values[3:]])[0]
        found.append([value.detach().double() for value in (out, *grads, along)])
        del out, pulled, grads
    names = ("output", "gradient of z", "gradient of a_src", "gradient of a_dst", "product J v")
    return {name: float((a - b).norm() / b.norm()) for name, a, b in zip(names, *found, strict=True)}


def pyg_step(graph: Graph, name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = BACKBONES.create(name, in_channels=graph.num_features, out_channels=CLASSES).to(graph.device)
    assert graph.csr is not None
    edges = graph.csr.materialize()
    target = graph.y % CLASSES
    optimizer = torch.optim.Adam(model.parameters(), lr=model.lr, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(graph.x, edges), target).backward()
        optimizer.step()

    try:
        step()
        return {"peak_gb": peak_gb(step), "step_ms": median_ms(step, times=5, warm=1)}
    except torch.OutOfMemoryError as error:
        return {"out_of_memory": str(error).partition(". GPU")[0]}


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
    tasks, learner = make_config_stream(config, 0, 0).stream.to("cuda"), make_learner(config, 0)
    for task in list(tasks)[:2]:
        learner.observe(task)
        scores_so_far(learner, tasks)
    return time.perf_counter() - start


def stream(options: dict[str, Any], epochs: int) -> dict[str, Any]:
    """Measure the whole stream, phase by phase, with the learner of ``ergnn run``."""
    config = stream_config(options, epochs)
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    tasks = make_config_stream(config, 0, 0).stream.to("cuda")
    torch.cuda.synchronize()
    loaded = time.perf_counter() - start
    learner, rows, evaluation = make_learner(config, 0), [], 0.0
    for task in tasks:
        learner.observe(task)
        before = time.perf_counter()
        rows.append(scores_so_far(learner, tasks))
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
