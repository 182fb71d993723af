"""Time to read a user's files, beside pyarrow alone on the same files.

    python benchmarks/files.py [--edges 1000000] [--nodes 50000] [--features 64] [--repeats 7]

pyarrow reads each file into an Arrow table; ergnn reads it into a checked NodeTable or EdgeTable. Printed are the best
wall-clock time and the best processor time of several alternating runs, and their ratios.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet

from ergnn.data.formats import EdgeTable, NodeTable, read_edges, read_nodes, write_edges, write_nodes


def best(runs: list[Callable[[], Any]], repeats: int) -> list[tuple[float, float]]:
    """The shortest wall-clock and processor time of each, in turn so that all meet the same machine."""
    out = [(float("inf"), float("inf"))] * len(runs)
    for _ in range(repeats):
        for i, run in enumerate(runs):
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            out[i] = (min(out[i][0], time.perf_counter() - wall), min(out[i][1], time.process_time() - cpu))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, default in (("edges", 1_000_000), ("nodes", 50_000), ("features", 64), ("repeats", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    ends = rng.integers(0, max(args.edges // 10, 2), (2, args.edges)).astype(str).astype(object)
    nodes = NodeTable(
        ids=[f"n{i}" for i in range(args.nodes)],
        labels=[f"class {i % 7}" for i in range(args.nodes)],
        features=rng.normal(size=(args.nodes, args.features)).astype(np.float32),
    )
    with tempfile.TemporaryDirectory() as folder:
        for kind, peer in (("csv", pyarrow.csv.read_csv), ("parquet", pyarrow.parquet.read_table)):
            files = Path(folder, f"edges.{kind}"), Path(folder, f"nodes.{kind}")
            write_edges(EdgeTable(*ends), files[0])
            write_nodes(nodes, files[1])
            for file, mine in zip(files, (read_edges, read_nodes), strict=True):
                alone, ours = best([lambda f=file, p=peer: p(f), lambda f=file, m=mine: m(f)], args.repeats)
                print(
                    f"{file.name:14s} pyarrow {alone[0]:.3f} s (processor {alone[1]:.3f}), ergnn {ours[0]:.3f} s "
                    f"({ours[1]:.3f}): {ours[0] / alone[0]:.1f} times ({ours[1] / alone[1]:.1f})"
                )


if __name__ == "__main__":
    main()
