"""How long people wait for the closed form: updates of many labels, an update of one node, short commands.

    python -m benchmarks.waiting [stream] [folder] [busy] [grid] [--out FILE.json]

``stream``: a graph of the shape of Coauthor Physics (34,493 nodes, 8,415 sparse columns, 5 classes), 8,600 labels in
five updates of one class; beside it a GCN with 64 units trained on all labels at once, and the floor of an update: the
operations of one Gram matrix and one Cholesky factorization at the measured speed of a float64 matrix product.

``folder``: a folder of 3,000 nodes with 5,000 dense columns and 1,100 labels: commands, each in its own process, an
update of one node with two edges over HTTP, and the peak memory of the update; beside them ``import torch``.

``busy``: the Python example of the README, alone and beside four processes that compute all the time.

``grid``: 1,000 to 20,000 labels and 500 to 8,000 columns: the first solve, and adding 1 % more labels, with peak
memory, each in its own process.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from multiprocessing import Process
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.graphs import bag_of_words_graph
from benchmarks.measure import seconds
from ergnn.data import Graph, Split, TaskStream
from ergnn.learning.learner import Learner

README = Path(__file__).parents[1] / "README.md"
LABELS, COLUMNS = (1_000, 5_000, 10_000, 20_000), (500, 2_000, 8_000)
Row = tuple[str, float, str]


def seconds_per_operation(size: int = 2_000) -> float:
    """Return the time of a multiplication and an addition in a float64 matrix product."""
    one = torch.randn(size, size, dtype=torch.float64)
    return seconds(lambda: one @ one) / (2 * size**3)


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def labeled_graph(nodes: int, edges: int, columns: int, classes: int, labels: int) -> tuple[Graph, torch.Tensor]:
    """Return a graph and the nodes whose labels are learned, in a random order."""
    graph = bag_of_words_graph(nodes, edges, columns, classes, words=33)
    return graph, torch.randperm(nodes, generator=torch.Generator().manual_seed(1))[:labels]


def make_stream(graph: Graph, train: torch.Tensor, classes_per_task: int) -> TaskStream:
    rest = np.setdiff1d(np.arange(graph.num_nodes), train.numpy())
    split = Split(train=train.sort().values, val=torch.from_numpy(rest[:500]), test=torch.from_numpy(rest[500:1500]))
    return TaskStream.from_classes(graph, classes_per_task=classes_per_task, split=split)


def measure_stream() -> Iterator[Row]:
    graph, train = labeled_graph(34_493, 248_000, 8_415, 5, 8_600)
    rate, labeled = seconds_per_operation(), 0
    learner = Learner("sgc", "analytic", head="growing")
    for task in make_stream(graph, train, 1):
        start = time.perf_counter()
        learner.observe(task)
        yield f"update {task.id + 1} of 5: {task.train.numel():,} labels", time.perf_counter() - start, "s"
        labeled += task.train.numel()
        rows, columns = sorted((labeled, 4 * 2_048 + 1))
        yield f"floor of update {task.id + 1}", rate * (rows**2 * columns + rows**3 / 3), "s"
    yield "peak memory", peak_gb(), "GB"
    joint = Learner("gcn", "joint", head="growing", backbone_options={"hidden": 64})
    (task,) = make_stream(graph, train, 5)
    yield "GCN, 64 units, all labels at once, 200 epochs", seconds(lambda: joint.observe(task), 1, 0), "s"


def make_folder(place: Path) -> tuple[Path, np.ndarray]:
    """Create the folder, and the tables of one more node with two edges."""
    from ergnn.data.tables import EdgeTable, NodeTable, write_edges, write_nodes
    from ergnn.folder import LearnerFolder, Settings

    rng, nodes, columns = np.random.default_rng(0), 3_000, 5_000
    label = rng.integers(0, 5, nodes)
    x = (rng.normal(size=(nodes, columns)) + rng.normal(size=(5, columns))[label] / 4).astype(np.float32)
    ids = np.array([f"n{i}" for i in range(nodes + 1)], object)
    known = np.array([f"class {c}" if i < 1_100 else None for i, c in enumerate(label)], object)
    edges = EdgeTable(ids[rng.integers(0, nodes, 9_000)], ids[rng.integers(0, nodes, 9_000)])
    folder = LearnerFolder.create(place / "learner", Settings.from_settings({"method": "analytic"}))
    folder.observe(NodeTable(ids[:-1], known, features=x), edges)
    write_nodes(NodeTable(ids[-1:], np.array(["class 0"], object), features=x[:1]), place / "node.parquet")
    write_edges(EdgeTable(ids[[-1, -1]], ids[[5, 9]]), place / "edges.csv")
    (place / "three.csv").write_text("id\nn1\nn2\nn3\n")
    (place / "gone.csv").write_text("id\nn7\n")
    return folder.root, x[0]


def run(*command: str) -> Row:
    """Run a command in its own process; return its seconds."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return "", time.perf_counter() - start, "s"


def measure_folder() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as root:
        place = Path(root)
        folder, features = make_folder(place)
        yield "import torch", min(run("-c", "import torch")[1] for _ in range(3)), "s"
        three = ("--nodes", str(place / "three.csv"), "-o", str(place / "out.csv"))
        update = ("--nodes", str(place / "node.parquet"), "--edges", str(place / "edges.csv"))
        gone = ("--nodes", str(place / "gone.csv"))
        for name, *more in (("predict", *three), ("evaluate",), ("inspect",), ("observe", *update), ("forget", *gone)):
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            yield f"ergnn {name}", run("-m", "ergnn", name, str(folder), *more)[1], "s"
            after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            if after > before:
                yield f"peak memory of ergnn {name}", after / 1e6, "GB"
        yield "update of one node over HTTP, in a warm process", serve_update(folder, features), "s"


def serve_update(folder: Path, features: np.ndarray) -> float:
    """Return the seconds between sending a node and a prediction for it, with the second of two updates."""
    command = [sys.executable, "-m", "ergnn", "serve", str(folder), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    found = re.search(r"http://\S+", server.stdout.readline())
    assert found is not None
    url = found.group()

    def post(path: str, body: Any) -> Any:
        request = urllib.request.Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    try:
        taken = 0.0
        for name in ("first", "second"):
            node = {"id": name, "label": "class 0", "features": [float(value) for value in features]}
            edges = [{"source": name, "target": "n11"}, {"source": name, "target": "n12"}]
            start = time.perf_counter()
            job = post("/observe", {"nodes": [node], "edges": edges})["id"]
            while True:
                with urllib.request.urlopen(f"{url}/updates/{job}") as response:
                    state = json.load(response)["state"]
                if state == "done":
                    break
                if state not in ("queued", "running"):
                    raise RuntimeError(f"the update is {state}")
                time.sleep(0.01)
            post("/predict", {"ids": [name]})
            taken = time.perf_counter() - start
        return taken
    finally:
        server.terminate()
        server.wait()


def spin() -> None:
    while True:
        sum(range(1_000_000))


def measure_busy() -> Iterator[Row]:
    text = README.read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    with tempfile.TemporaryDirectory() as root:
        example = Path(root) / "example.py"
        example.write_text(code.replace('"learner.safetensors"', repr(str(Path(root) / "learner.safetensors"))))
        yield "README's example, alone", run(str(example))[1], "s"
        others = [Process(target=spin, daemon=True) for _ in range(4)]
        for process in others:
            process.start()
        yield "beside four busy processes", run(str(example))[1], "s"
        for process in others:
            process.kill()


def measure_solves(labels: int, columns: int) -> dict[str, float]:
    """Learn ``labels`` labels, then 1 % more; in a process of its own."""
    classes, more = 10, labels // 100
    graph, train = labeled_graph(labels * 5 // 4, labels * 5, columns, classes, labels + more)
    split = np.full(graph.num_nodes, -1)
    split[train[:labels].numpy()], split[train[labels:].numpy()] = 0, 1
    learner = Learner("sgc", "analytic", head="growing")
    out = {}
    for number, name in enumerate(("first", "more")):
        nodes = torch.from_numpy(np.flatnonzero(split == number))
        rest = torch.from_numpy(np.flatnonzero(split == -1)[:100])
        task = TaskStream.from_classes(
            graph, classes_per_task=classes, split=Split(train=nodes, val=rest[:50], test=rest[50:])
        )[0]
        start = time.perf_counter()
        learner.observe(task)
        out[name] = time.perf_counter() - start
    return {**out, "memory": peak_gb()}


def measure_grid() -> Iterator[Row]:
    for labels in LABELS:
        for columns in COLUMNS:
            command = [sys.executable, "-m", "benchmarks.waiting", "--solve", str(labels), str(columns)]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            values = json.loads(printed.splitlines()[-1])
            title = f"{labels:,} labels, {columns:,} columns"
            yield f"{title}: first solve", values["first"], "s"
            yield f"{title}: 1 % more labels", values["more"], "s"
            yield f"{title}: peak memory", values["memory"], "GB"


CASES = {"stream": measure_stream, "folder": measure_folder, "busy": measure_busy, "grid": measure_grid}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    parser.add_argument("--solve", type=int, nargs=2, metavar=("LABELS", "COLUMNS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.solve:
        print(json.dumps(measure_solves(*args.solve)))
        return
    results: dict[str, dict[str, list[Any]]] = {}
    for case in args.cases:
        results[case] = {}
        for name, value, unit in CASES[case]():
            print(f"{case:<8} {name:<55} {value:8.2f} {unit}", flush=True)
            results[case][name] = [round(value, 3), unit]
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
