"""Steps and Gauss-Newton products on every node of a large graph on one GPU; see ``benchmarks/gpu.py``."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.curvature import gauss_newton_product
from ergnn.engine.dropout import dropout_keys
from ergnn.engine.hardware import Recorded, side_stream
from ergnn.engine.kernels.attention import attention
from ergnn.engine.objective import Objective, make_objective
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.examples import Examples

CLASSES = 5
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
    links = adjacency_of(graph).looped
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
