"""Time to read files of nodes and edges, compared with pyarrow alone on the same files, and to observe them.

    python benchmarks/files.py [--edges 1000000] [--nodes 50000] [--features 64] [--repeats 15] [--observed 100000]

pyarrow reads each file into an Arrow table, ergnn into a checked NodeTable or EdgeTable. Prints the shortest wall-clock
and CPU times of alternating runs, and their ratios. Then CSV files of ``--observed`` nodes and ``--edges`` edges are
read and observed once by a new learner's folder, with 100 labeled nodes per class and one epoch, so that training takes
little of the time.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet

from ergnn.data.tables import EdgeTable, NodeTable, read_edges, read_nodes, write_edges, write_nodes
from ergnn.folder import LearnerFolder, Settings

READERS: tuple[Callable[..., Any], ...] = (read_edges, read_nodes)


def cpu_time() -> float:
    """CPU time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def best(runs: list[Callable[[], Any]], repeats: int) -> list[tuple[float, float]]:
    """Return the shortest wall-clock and CPU time of each; runs alternate, so that other load affects all alike."""
    out = [(float("inf"), float("inf"))] * len(runs)
    for _ in range(repeats):
        for i, run in enumerate(runs):
            wall, cpu = time.perf_counter(), cpu_time()
            run()
            out[i] = (min(out[i][0], time.perf_counter() - wall), min(out[i][1], cpu_time() - cpu))
    return out


def random_nodes(count: int, features: int, labeled: int) -> NodeTable:
    """Make nodes of seven classes; only the first ``labeled`` nodes have a label."""
    x = np.random.default_rng(0).normal(size=(count, features)).astype(np.float32)
    labels = [f"class {i % 7}" if i < labeled else None for i in range(count)]
    return NodeTable(ids=np.arange(count), labels=labels, features=x)


def random_edges(count: int, nodes: int) -> EdgeTable:
    return EdgeTable(*np.random.default_rng(0).integers(0, nodes, (2, count)))


def observe(folder: Path, nodes: int, features: int, edges: int) -> None:
    """Time reading CSV files and learning from them."""
    files = folder / "observed-nodes.csv", folder / "observed-edges.csv"
    write_nodes(random_nodes(nodes, features, 700), files[0])
    write_edges(random_edges(edges, nodes), files[1])
    learner = LearnerFolder.create(folder / "learner", Settings.from_settings({"epochs": 1}))
    start = cpu_time()
    tables = read_nodes(files[0]), read_edges(files[1])
    read = cpu_time()
    learner.observe(*tables)
    done = cpu_time()
    size = sum(file.stat().st_size for file in (folder / "learner").rglob("*") if file.is_file())
    print(
        f"observe        {nodes:,} nodes, {edges:,} edges: read in {read - start:.2f} s of CPU time, learned in "
        f"{done - read:.2f} s, {size / 1e6:.0f} MB on disk"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, default in (
        ("edges", 1_000_000),
        ("nodes", 50_000),
        ("features", 64),
        ("repeats", 15),
        ("observed", 100_000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kind, peer in (("csv", pyarrow.csv.read_csv), ("parquet", pyarrow.parquet.read_table)):
            files = Path(folder, f"edges.{kind}"), Path(folder, f"nodes.{kind}")
            write_edges(random_edges(args.edges, max(args.edges // 10, 2)), files[0])
            write_nodes(random_nodes(args.nodes, args.features, args.nodes), files[1])
            for file, mine in zip(files, READERS, strict=True):
                alone, ours = best([partial(peer, file), partial(mine, file)], args.repeats)
                print(
                    f"{file.name:14s} pyarrow {alone[0]:.3f} s (CPU {alone[1]:.3f} s), ergnn {ours[0]:.3f} s "
                    f"(CPU {ours[1]:.3f} s), ratio {ours[0] / alone[0]:.1f} (CPU {ours[1] / alone[1]:.1f})"
                )
        observe(Path(folder), args.observed, args.features, args.edges)


if __name__ == "__main__":
    main()
