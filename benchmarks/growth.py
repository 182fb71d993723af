"""Measure whether the cost of an update depends on its size or on the graph: 200 updates of 500 nodes.

    python benchmarks/growth.py [--method analytic] [--updates 200] [--nodes 500] [--out FILE.json] [--plot FILE.svg]

Every update runs in its own process (a fork of one that has imported everything), so its processor time and peak memory
can be measured. Processor time is split into reading the graph, propagating features, reading and writing cached rows,
solving the head, training a network, and all other work. New nodes are linked to each other and to the last two
updates; one edge in ten leads to any earlier node. Every update has all ten classes; 300 held-out nodes are scored.
Replay stores 200 nodes; the analytic method solves its head from all labels.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

FEATURES, CLASSES, LABELED = 200, 10, 0.2


def make_update(number: int, size: int, distant: float = 0.1) -> Any:
    """Create nodes with class-dependent features, and four edges each."""
    from ergnn.data.tables import EdgeTable, NodeTable

    rng = np.random.default_rng(number)
    first = number * size
    label = rng.integers(0, CLASSES, size)
    own = label[:, None] * (FEATURES // CLASSES) + rng.integers(0, FEATURES // CLASSES, (size, 8))
    columns = np.concatenate([own, rng.integers(0, FEATURES, (size, 8))], axis=1)
    x = scipy.sparse.csr_matrix((np.ones(columns.size), columns.ravel(), np.arange(size + 1) * 16), (size, FEATURES))
    x.sum_duplicates()
    known = rng.random(size) < LABELED
    nodes = NodeTable(
        np.array([f"n{first + i}" for i in range(size)], object),
        np.array([f"class {c}" if k else None for c, k in zip(label, known, strict=True)], object),
        features=x.minimum(1.0),
    )
    source = rng.integers(first, first + size, 4 * size)
    recent = rng.integers(max(0, first - 2 * size), first + size, 4 * size)
    target = np.where(rng.random(4 * size) < distant, rng.integers(0, first + size, 4 * size), recent)
    names = [np.array([f"n{i}" for i in side], object) for side in (source, target)]
    return nodes, EdgeTable(names[0], names[1])


def measure_phases() -> dict[str, float]:
    """Add the processor time that the phases of an update take from now on; a phase contains no other one."""
    from ergnn.folder import network, solved

    parts: dict[str, list[tuple[Any, str]]] = {
        "read graph": [(solved, "read_subgraph"), (network, "read_subgraph"), (solved, "changed_within")],
        "propagate": [(solved.Features, "rows"), (solved.Features, "scores")],
        "cached rows": [(solved, "read_rows"), (solved, "write_rows")],
        "solve": [(solved, "solve")],
        "train": [(network.Learner, "observe")],
    }
    seconds = dict.fromkeys(parts, 0.0)

    def measured(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **options)
            finally:
                seconds[phase] += time.process_time() - start

        return call

    for phase, functions in parts.items():
        for owner, name in functions:
            setattr(owner, name, measured(phase, getattr(owner, name)))
    return seconds


def observe(root: Path, number: int, size: int, distant: float) -> dict[str, Any]:
    """Observe one update in its own process; return its costs."""
    nodes, edges = make_update(number, size, distant)
    out, into = os.pipe()
    child = os.fork()
    if not child:
        from ergnn.folder import LearnerFolder

        split = measure_phases()
        start = time.perf_counter()
        record = LearnerFolder(root).observe(nodes, edges)
        record |= {"seconds": time.perf_counter() - start, "split": split}
        report = {key: record[key] for key in ("touched", "graph", "scores", "seconds", "split")}
        os.write(into, json.dumps(report).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    _, status, usage = os.wait4(child, 0)
    if status or not said:
        raise SystemExit(f"update {number} failed")
    record = json.loads(said)
    right, of = (sum(score[i] for score in record["scores"]) for i in (1, 2))
    cpu = usage.ru_utime + usage.ru_stime
    split = {phase: seconds for phase, seconds in record["split"].items() if seconds}
    return {
        "update": number + 1,
        "cpu_seconds": cpu,
        **split,
        "other": cpu - sum(split.values()),
        "wall_seconds": record["seconds"],
        "peak_mb": usage.ru_maxrss / 1024,
        "touched": record["touched"],
        "nodes": record["graph"]["nodes"],
        "edges": record["graph"]["edges"],
        "disk_mb": sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) / 2**20,
        "accuracy": right / of,
    }


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    from ergnn.pages.figures import Point, Series, line_chart, panels, ticks

    charts = []
    for title, lines in (
        ("nodes", {"touched": "read for learning", "nodes": "in the graph"}),
        ("processor seconds per update", {"cpu_seconds": ""}),
        ("peak memory of the process (MB)", {"peak_mb": ""}),
        ("MB on disk, five versions", {"disk_mb": ""}),
    ):
        series = [
            Series(label, look, [Point(row["update"], row[key], None, f"{row[key]:.4g}") for row in rows])
            for (key, label), look in zip(lines.items(), ("c-mf", "c-cm"), strict=False)
        ]
        chart = line_chart(
            series,
            label=f"{title} after each update",
            x_name="update",
            y_name=title,
            x_ticks=ticks(0, rows[-1]["update"]),
            y_ticks=ticks(0, max(row[key] for row in rows for key in lines)),
            size=(480 if any(lines.values()) else 360, 280),
        )
        charts.append(("", chart))
    panels(charts, label="Cost of each update", columns=2).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--method", choices=("analytic", "replay"), default="replay")
    parser.add_argument("--feature-map", help="feature map of the analytic method, e.g. hops")
    parser.add_argument(
        "--distant", type=float, default=0.1, help="fraction of edges to any earlier node (default: 0.1)"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()

    import warnings

    import torch

    from ergnn.folder import LearnerFolder, Settings

    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
    torch.set_num_threads(1)
    place = Path(tempfile.mkdtemp())
    network = {"backbone": "gcn", "epochs": 30, "per_class": 5, "budget_nodes": 200, "weight_decay": None}
    own = network if args.method == "replay" else {"feature_map": args.feature_map or "auto"}
    settings = Settings.from_settings({"method": args.method, **own, "eval_samples": 300})
    LearnerFolder.create(place / "d", settings)
    rows = []
    for number in range(args.updates):
        rows.append(observe(place / "d", number, args.nodes, args.distant))
        if not (number + 1) % 20:
            print(json.dumps({k: round(v, 3) for k, v in rows[-1].items()}), file=sys.stderr, flush=True)
    shutil.rmtree(place)
    tenth = max(1, len(rows) // 10)
    ends = {
        key: [statistics.median(row.get(key, 0.0) for row in part) for part in (rows[tenth : 2 * tenth], rows[-tenth:])]
        for key in rows[-1]
    }
    print(json.dumps({"second tenth and last tenth, medians": ends}, indent=1))
    if args.out:
        args.out.write_text(json.dumps({"settings": settings.settings(), "updates": rows}) + "\n")
    if args.plot:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
