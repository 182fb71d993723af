"""Measure neighbor sampling, compared with a plain numpy sampler in the same process.

    python -m benchmarks.sampling --nodes 100000 --edges 10000000 --threads 2

Both sample the neighbors of the same seeds without replacement, hop by hop, and number the nodes that each layer reads.
The plain one does so node by node with a numpy generator. Batches per second are wall time; CPU time is given beside
it, because the machine may be shared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import benchmarks.reddit_like  # noqa: F401  # registers the data set
from ergnn.data.datasets import load_graph
from ergnn.data.hashing import stream_key
from ergnn.engine.adjacency import Adjacency, adjacency_of
from ergnn.engine.blocks import make_block
from ergnn.engine.field import make_field
from ergnn.engine.sampling import Sampling
from ergnn.nn.backbones.convolutional import GAT
from ergnn.nn.layers import ATTENTION

Sets = list[np.ndarray]


def ours(adj: Adjacency, seeds: torch.Tensor, fanout: list[int], key: int) -> Sets:
    """Return the nodes that each layer reads, nearest to the seeds first; blocks are built as for training."""
    nodes, read = seeds, []
    for hop, count in enumerate(fanout):
        zero = torch.zeros_like(nodes)
        _, nodes = make_block(adj, ATTENTION, nodes, zero, 1, fanout=count, key=stream_key(key, hop))
        read.append(nodes.numpy())
    return read


def plain(rowptr: np.ndarray, col: np.ndarray, seeds: np.ndarray, fanout: list[int], seed: int) -> Sets:
    rng = np.random.default_rng(seed)
    nodes, read = seeds, []
    for count in fanout:
        rows, sources = [], []
        for i, v in enumerate(nodes):
            found = col[rowptr[v] : rowptr[v + 1]]
            if found.size > count:
                found = rng.choice(found, count, replace=False)
            rows.append(np.full(found.size + 1, i))
            sources.append(np.append(found, v))
        known, place = np.unique(np.concatenate([nodes, *sources]), return_inverse=True)
        assert place.size == nodes.size + sum(part.size for part in rows)
        nodes = known
        read.append(nodes)
    return read


def timed(make: Callable[[int], Any], batches: int) -> dict[str, float]:
    make(0)
    wall, cpu = time.perf_counter(), time.process_time()
    for i in range(1, batches + 1):
        make(i)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"batches_per_second": batches / wall, "cpu_ms_per_batch": 1000 * cpu / batches}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=10_000_000, help="number of directed edges (default: 10,000,000)")
    parser.add_argument("--seeds", type=int, default=1024, help="nodes per batch (default: 1024)")
    parser.add_argument("--fanout", type=lambda text: [int(part) for part in text.split(",")], default=[25, 10])
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="save the results to a file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    graph = load_graph("reddit-like", dataset_options={"nodes": args.nodes, "edges": args.edges}).graph
    adj = adjacency_of(graph)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))

    def seeds(i: int) -> torch.Tensor:
        return order[(torch.arange(args.seeds) + i * args.seeds) % graph.num_nodes].sort().values

    rowptr, col = adj.rowptr.numpy(), adj.col.numpy()
    model, sampling = GAT(graph.num_features, 5), Sampling(tuple(args.fanout))
    heads = torch.zeros(args.seeds, 1, dtype=torch.long)
    sizes = [
        [part.size for part in read]
        for read in (ours(adj, seeds(1), args.fanout, 1), plain(rowptr, col, seeds(1).numpy(), args.fanout, 1))
    ]
    for own, other in zip(*sizes, strict=True):
        assert abs(own - other) < 0.05 * other, "the two samplers do not do the same work"
    few = max(1, args.batches // 10)
    result = {
        "graph": f"reddit-like, {graph.num_nodes:,} nodes, {graph.num_edges:,} directed edges",
        "batch": f"{args.seeds} seeds, fan-out {' x '.join(map(str, args.fanout))}, {sizes[0]} nodes read",
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, {args.threads} torch thread(s)",
        "load_average": os.getloadavg()[0],
        "ergnn": timed(lambda i: ours(adj, seeds(i), args.fanout, i), args.batches),
        "plain numpy": timed(lambda i: plain(rowptr, col, seeds(i).numpy(), args.fanout, i), few),
        "ergnn with features": timed(lambda i: make_field(model, graph, seeds(i), heads, 1, sampling, i), few),
    }
    print(json.dumps(result, indent=1))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
