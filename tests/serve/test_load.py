"""Sixteen clients while an update is learned and swapped in: no failed request, no answer of two versions."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.load import summary
from benchmarks.serve import load, upload
from ergnn.folder import LearnerFolder
from serve.running import Server

IDS = [f"n{i}" for i in range(80)]


def run(place: Path, root: Path, seconds: float, clients: int) -> None:
    shutil.copytree(place / "base", root)
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
    folder = LearnerFolder(root)
    truth = {v: next(folder.predict(IDS, version=v)) for v in (2, 3)}
    newest = dict.fromkeys(range(clients), 0)
    for answer in answers:  # in the order in which they came
        found, body = json.loads(answer["text"]), bodies[answer["body"]]
        ids, classes, probabilities = truth[found["version"]]
        assert found["classes"] == classes
        assert found["version"] >= newest[answer["client"]], "a client never sees an older version again"
        newest[answer["client"]] = found["version"]
        if "ids" in body:
            rows = np.array([row["probabilities"] for row in found["predictions"]])
            assert np.abs(rows - probabilities[[ids.index(name) for name in body["ids"]]]).max() < 2e-6
    assert {json.loads(answer["text"])["version"] for answer in answers} == {2, 3}, "the update came in the middle"


@pytest.mark.slow
def test_16_clients_for_60_seconds(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "learner", 60, 16)
