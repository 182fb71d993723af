"""How long people wait for the closed form: updates of many labels, an update of one node, short commands.

    python -m benchmarks.waiting [stream] [folder] [busy] [labels] [--labels N ...] [--columns N ...]
        [--kernel auto|linear|rbf] [--device NAME] [--out FILE.json]

``stream``: a graph of the shape of Coauthor Physics (34,493 nodes, 8,415 sparse columns, 5 classes), 8,600 labels in
five updates of one class; beside it a GCN with 64 units trained on all labels at once.

``folder``: a folder of 3,000 nodes with 5,000 dense columns and 1,100 labels, and one of 300 nodes with 50: commands,
each in its own process, with their processor time and peak memory, and an update of one node with two edges over HTTP.

``busy``: the Python example of the README, and the imports that it needs, alone and beside four processes that compute
all the time.

``labels``: 1,000 to 20,000 labels and 500 to 8,000 columns: the first solve, and adding 1 % more labels, with peak
memory, each in its own process; on a GPU, its memory.

The floor of a command is ``import torch``. That of an update is the operations of the Gram matrix and the Cholesky
factorization of its head, at the speed of a matrix product that is measured first, in the dtype of each.
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
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Process
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from benchmarks.graphs import bag_of_words_graph
from benchmarks.measure import seconds
from ergnn.analytic import AnalyticHead
from ergnn.analytic.inputs import working_dtype
from ergnn.analytic.ridge import DUAL, EXACT_ROWS
from ergnn.data import Graph, Split, TaskStream
from ergnn.learning.learner import Learner

README = Path(__file__).parents[1] / "README.md"
MEASURE = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run([sys.executable, *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
taken, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([taken, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6]))
"""
LABELS, COLUMNS = (1_000, 5_000, 10_000, 20_000), (500, 2_000, 8_000)


class Row(NamedTuple):
    name: str
    value: float
    unit: str = "s"
    floor: float | None = None


def synchronized(work: Callable[[], Any], device: str) -> Callable[[], None]:
    """Return a function that also waits for the GPU."""

    def run() -> None:
        work()
        if device != "cpu":
            torch.cuda.synchronize()

    return run


def seconds_per_operation(dtype: torch.dtype, device: str = "cpu", size: int = 2_000) -> float:
    """Return the time of a multiplication, or an addition, in a matrix product."""
    size *= 1 if device == "cpu" else 4
    one = torch.randn(size, size, dtype=dtype, device=device)
    return seconds(synchronized(lambda: one @ one, device)) / (2 * size**3)


class Floor:
    """The least seconds of an update: one triangle of inner products, and a factorization of the smaller system."""

    def __init__(self, device: str = "cpu") -> None:
        self.rates = {dtype: seconds_per_operation(dtype, device) for dtype in (torch.float32, torch.float64)}

    def __call__(self, head: AnalyticHead, graph: Graph, labels: int, new: int) -> float:
        """Return the seconds of adding the last ``new`` of ``labels`` labels."""
        assert head.solution is not None
        columns = head.sketched or graph.num_features
        width = head.maps[head.chosen].num_blocks * columns + 1
        gram = self.rates[working_dtype(graph.num_nodes, graph.num_features)]
        if labels <= (EXACT_ROWS if head.solution.kernel.s else DUAL * width):
            return gram * (labels**2 - (labels - new) ** 2) * width + self.rates[torch.float64] * labels**3 / 3
        return gram * new * width**2 + self.rates[torch.float64] * width**3 / 3


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


def measure_stream(args: argparse.Namespace) -> Iterator[Row]:
    graph, train = labeled_graph(34_493, 248_000, 8_415, 5, 8_600)
    floor, labeled = Floor(), 0
    learner = Learner("sgc", "analytic", head="growing")
    for task in make_stream(graph, train, 1):
        new = task.train.numel()
        labeled += new
        taken = seconds(partial(learner.observe, task), 1, 0)
        head = cast(Any, learner.method)
        yield Row(f"update {task.id + 1} of 5: {new:,} labels", taken, "s", floor(head, graph, labeled, new))
    yield Row("peak memory", peak_gb(), "GB")
    joint = Learner("gcn", "joint", head="growing", backbone_options={"hidden": 64})
    (task,) = make_stream(graph, train, 5)
    yield Row("GCN, 64 units, all labels at once, 200 epochs", seconds(lambda: joint.observe(task), 1, 0))


def make_folder(place: Path, nodes: int, columns: int, labels: int) -> tuple[Path, np.ndarray]:
    """Create the folder, and the tables of one more node with two edges."""
    from ergnn.data.tables import EdgeTable, NodeTable, write_edges, write_nodes
    from ergnn.folder import LearnerFolder, Settings

    rng = np.random.default_rng(0)
    label = rng.integers(0, 5, nodes)
    x = (rng.normal(size=(nodes, columns)) + rng.normal(size=(5, columns))[label] / 4).astype(np.float32)
    ids = np.array([f"n{i}" for i in range(nodes + 1)], object)
    known = np.array([f"class {c}" if i < labels else None for i, c in enumerate(label)], object)
    edges = EdgeTable(ids[rng.integers(0, nodes, 3 * nodes)], ids[rng.integers(0, nodes, 3 * nodes)])
    folder = LearnerFolder.create(place / "learner", Settings.from_settings({"method": "analytic"}))
    folder.observe(NodeTable(ids[:-1], known, features=x), edges)
    write_nodes(NodeTable(ids[-1:], np.array(["class 0"], object), features=x[:1]), place / "node.parquet")
    write_edges(EdgeTable(ids[[-1, -1]], ids[[5, 9]]), place / "edges.csv")
    (place / "three.csv").write_text("id\nn1\nn2\nn3\n")
    (place / "gone.csv").write_text("id\nn7\n")
    return folder.root, x[0]


def run(*command: str) -> tuple[float, float, float]:
    """Run a Python command in its own process; return its seconds, processor time, and peak memory in GB.

    A process of little memory starts it: the peak of a process is at least that of the one that starts it.
    """
    printed = subprocess.run([sys.executable, "-c", MEASURE, *command], check=True, stdout=subprocess.PIPE).stdout
    taken, processor, memory = json.loads(printed)
    return taken, processor, memory


def measure_folder(args: argparse.Namespace) -> Iterator[Row]:
    floor = min(run("-c", "import torch")[0] for _ in range(3))
    yield Row("import torch", floor)
    for size, shape in (("small", (300, 50, 200)), ("wide", (3_000, 5_000, 1_100))):
        with tempfile.TemporaryDirectory() as root:
            place = Path(root)
            folder, features = make_folder(place, *shape)
            three = ("--nodes", str(place / "three.csv"), "-o", str(place / "out.csv"))
            update = ("--nodes", str(place / "node.parquet"), "--edges", str(place / "edges.csv"))
            gone = ("--nodes", str(place / "gone.csv"))
            for name, *more in (
                ("predict", *three),
                ("evaluate",),
                ("inspect",),
                ("observe", *update),
                ("forget", *gone),
            ):
                taken, processor, memory = run("-m", "ergnn", name, str(folder), *more)
                yield Row(f"{size}: ergnn {name}", taken, "s", floor)
                yield Row(f"{size}: ergnn {name}, processor time", processor)
                yield Row(f"{size}: ergnn {name}, peak memory", memory, "GB")
            yield Row(f"{size}: update of one node over HTTP, in a warm process", serve_update(folder, features))


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


def measure_busy(args: argparse.Namespace) -> Iterator[Row]:
    text = README.read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    with tempfile.TemporaryDirectory() as root:
        example = Path(root) / "example.py"
        example.write_text(f"import os\nos.chdir({root!r})\n{code}")
        commands = {"imports of torch and PyG": ("-c", "import torch_geometric"), "README's example": (str(example),)}
        alone = {name: run(*command) for name, command in commands.items()}
        for name, (taken, processor, _) in alone.items():
            yield Row(f"{name}, alone", taken)
            yield Row(f"{name}, processor time", processor)
        others = [Process(target=spin, daemon=True) for _ in range(4)]
        for process in others:
            process.start()
        for name, command in commands.items():
            yield Row(f"{name}, beside four busy processes", run(*command)[0], "s", alone[name][0])
        for process in others:
            process.kill()


def measure_solves(labels: int, columns: int, kernel: Any, device: str) -> dict[str, float]:
    """Learn ``labels`` labels, then 1 % more; in a process of its own."""
    more, floor, out = labels // 100, Floor(device), dict[str, float]()
    graph, train = labeled_graph(labels * 5 // 4, labels * 5, columns, 10, labels + more)
    graph, train = graph.to(device), train.to(device)
    head = AnalyticHead(kernel=kernel)
    for name, nodes in (("first solve", train[:labels]), ("1 % more labels", train[labels:])):
        out[name] = seconds(synchronized(partial(head.learn, graph, nodes, graph.y[nodes]), device), 1, 0)
        out[f"floor of {name}"] = floor(head, graph, head.state.nodes.numel(), nodes.numel())
    return {**out, "peak memory": peak_gb() if device == "cpu" else torch.cuda.max_memory_allocated() / 1e9}


def measure_labels(args: argparse.Namespace) -> Iterator[Row]:
    for labels in args.labels:
        for columns in args.columns:
            command = [sys.executable, "-m", "benchmarks.waiting", "--solve", str(labels), str(columns)]
            command += ["--kernel", args.kernel, "--device", args.device]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            values = json.loads(printed.splitlines()[-1])
            title = f"{labels:,} labels, {columns:,} columns"
            for name in ("first solve", "1 % more labels"):
                yield Row(f"{title}: {name}", values[name], "s", values[f"floor of {name}"])
            yield Row(f"{title}: peak memory", values["peak memory"], "GB")


CASES = {"stream": measure_stream, "folder": measure_folder, "busy": measure_busy, "labels": measure_labels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; by default all")
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS, help="numbers of labels of the case labels")
    parser.add_argument("--columns", type=int, nargs="+", default=COLUMNS, help="numbers of columns of the case labels")
    parser.add_argument("--kernel", default="auto", help="kernel of the closed form in the case labels")
    parser.add_argument("--device", default="cpu", help="device of the case labels")
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    parser.add_argument("--solve", type=int, nargs=2, metavar=("LABELS", "COLUMNS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}; {', '.join(CASES)} are known")
    if args.solve:
        print(json.dumps(measure_solves(args.solve[0], args.solve[1], args.kernel, args.device)))
        return
    results: dict[str, list[dict[str, Any]]] = {}
    print(f"{'':<72} {'value':>8}    {'floor':>8} {'ratio':>6}")
    for case in args.cases or CASES:
        results[case] = []
        for row in CASES[case](args):
            beside = "" if row.floor is None else f"{row.floor:8.2f} {row.value / row.floor:6.1f}"
            print(f"{case:<8} {row.name:<63} {row.value:8.2f} {row.unit:<2} {beside}", flush=True)
            results[case].append(row._asdict())
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
