"""Sixteen clients while an update is learned and swapped in: no failed request, no answer of two versions."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.load import summary
from benchmarks.serve import load, upload
from ergnn.folder import LearnerFolder
from serve.running import Server, check_answers

IDS = [f"n{i}" for i in range(80)]


@pytest.mark.slow
def test_16_clients_for_60_seconds(place: Path, root: Path) -> None:
    seconds, clients = 60, 16
    rng = np.random.default_rng(0)
    bodies: list[Any] = [{"ids": rng.choice(IDS, 4, replace=False).tolist()} for _ in range(60)]
    bodies += [{"nodes": [{"id": "new", "features": {"3": 1.0}}], "edges": [{"source": "new", "target": "n1"}]}]
    server = Server(root)
    learn = partial(upload, server.url, place / "third_nodes.csv", place / "third_edges.csv")
    answers = load(int(server.url.rpartition(":")[2]), bodies, seconds, clients, root.parent, learn)
    text = server.client.get("/metrics").text
    server.close()
    print(summary(answers))
    assert {answer["status"] for answer in answers} == {200}
    assert f'path="/predict",status="200"}} {len(answers)}.0' in text
    versions = check_answers(LearnerFolder(root), IDS, [(a["client"], json.loads(a["text"])) for a in answers])
    assert versions == {2, 3}, "the update came in the middle"
