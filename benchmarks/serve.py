"""``ergnn serve`` under load while it learns, beside a plain FastAPI handler with the same model.

    python -m benchmarks.serve [--seconds 60] [--clients 16] [--out FILE.json]

Cora in three updates, GCN with replay: two are learned before, the third is uploaded a second after the clients begin
and answers as soon as it is learned. The handler (benchmarks/plain_server.py) has the model of the second update and
learns nothing. Clients ask for known nodes, or for new ones with their features and edges; their process and the
server share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.load import summary

SETTINGS = {"method": "replay", "backbone": "gcn", "selector": "mf*", "epochs": 100}


def make_folder(place: Path) -> tuple[Path, dict[str, list[Any]]]:
    """A folder after two of three updates, the files of the third, and requests of both kinds."""
    import torch

    import ergnn
    from ergnn.data.tables import EdgeTable, NodeTable, write_edges, write_nodes
    from ergnn.folder import LearnerFolder, Settings

    graph = ergnn.load_graph("cora").graph
    week = np.minimum(graph.y.numpy() // 2, 2)
    ids = np.array([f"paper {i}" for i in range(graph.num_nodes)], dtype=object)
    source, target = graph.edge_index.numpy()
    newest = np.maximum(week[source], week[target])
    folder = LearnerFolder.create(place / "learner", Settings.from_settings(SETTINGS))
    for number in range(3):
        new = np.flatnonzero(week == number)
        labels = np.array([f"topic {c}" for c in graph.y[new]], dtype=object)
        nodes = NodeTable(ids[new], labels, features=csr_matrix(graph.rows(torch.from_numpy(new))))
        edges = EdgeTable(ids[source[newest == number]], ids[target[newest == number]])
        if number < 2:
            folder.observe(nodes, edges)
        else:
            write_nodes(nodes, place / "nodes.csv")
            write_edges(edges, place / "edges.csv")
    known = ids[week < 2]
    rng = np.random.default_rng(0)
    by_id = [{"ids": rng.choice(known, rng.integers(1, 5), replace=False).tolist()} for _ in range(500)]
    rows = graph.rows(torch.from_numpy(np.flatnonzero(week == 0)[:200])).numpy()
    new_nodes = [
        {
            "nodes": [{"id": "new", "features": {str(c): float(row[c]) for c in np.flatnonzero(row)}}],
            "edges": [{"source": "new", "target": name} for name in rng.choice(known, 3, replace=False)],
        }
        for row in rows
    ]
    return folder.root, {"known nodes": by_id, "new nodes": new_nodes}


def start(command: list[str], port: int | None = None) -> tuple[subprocess.Popen[str], int]:
    """A server, once it answers, and its port."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    if port is None:
        assert process.stdout is not None
        port = int(re.findall(r":(\d+)\s*$", process.stdout.readline())[0])
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, port
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"{command[2:4]} does not answer")


def load(port: int, bodies: list[Any], seconds: float, clients: int, place: Path, during: Any = None) -> list[Any]:
    """The answers to clients in a process of their own; they go on while ``during`` runs."""
    command = [sys.executable, "-m", "benchmarks.load", str(port), str(seconds), str(clients), str(place / "out.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(bodies) + "\n")
        process.stdin.flush()
        if during is not None:
            time.sleep(1)
            during()
            time.sleep(5)
        process.stdin.close()
    answers: list[Any] = json.loads((place / "out.json").read_text())
    return answers


def upload(url: str, nodes: Path, edges: Path) -> None:
    """Upload an update, and wait until its version answers."""
    import httpx

    with nodes.open("rb") as first, edges.open("rb") as second, httpx.Client(base_url=url, timeout=600) as client:
        where = client.post("/observe", files={"nodes": first, "edges": second}).json()["progress"]
        while client.get(where).json()["state"] != "done":
            time.sleep(0.2)


def probabilities(answer: Any) -> Any:
    found = json.loads(answer["text"])
    order = np.argsort(found["classes"])
    return np.array([row["probabilities"] for row in found["predictions"]])[:, order]


def measure(seconds: float, clients: int) -> dict[str, Any]:
    from ergnn.folder import LearnerFolder

    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        root, requests = make_folder(place)
        LearnerFolder(root).export(place / "exported", graph=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            free = probe.getsockname()[1]
        plain, port = start([sys.executable, "-m", "benchmarks.plain_server", str(place / "exported"), str(free)], free)
        theirs = {}
        for kind, bodies in requests.items():
            answers = load(port, bodies, seconds, clients, place)
            results[f"plain FastAPI handler, {kind}"] = summary(answers)
            theirs[kind] = {answer["body"]: probabilities(answer) for answer in answers}
        plain.kill()
        plain.wait()
        server, port = start([sys.executable, "-m", "ergnn", "serve", str(root), "--port", "0"])
        for kind, bodies in reversed(requests.items()):
            learns = (
                None
                if kind == "new nodes"
                else partial(upload, f"http://127.0.0.1:{port}", place / "nodes.csv", place / "edges.csv")
            )
            answers = load(port, bodies, seconds, clients, place, learns)
            for answer in answers:
                if answer["body"] in theirs[kind] and json.loads(answer["text"])["version"] == 2:
                    assert np.abs(probabilities(answer) - theirs[kind][answer["body"]]).max() < 1e-4
            versions = sorted({json.loads(answer["text"])["version"] for answer in answers})
            results[f"ergnn serve, {kind}"] = {**summary(answers), "versions": versions}
        server.terminate()
        server.wait()
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--out", help="write the figures as JSON")
    options = parser.parse_args()
    found = measure(options.seconds, options.clients)
    for name, row in found.items():
        print(f"{name}: {json.dumps(row)}")
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=1) + "\n")
