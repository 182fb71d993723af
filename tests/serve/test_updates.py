"""Updates over HTTP end in the folder that the same tables make on the command line."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ergnn.data.tables import read_edges, read_nodes, write_edges, write_nodes
from ergnn.folder import LearnerFolder
from folder.growing import tables
from serve.running import SECONDS

SAME = ("blobs", "remembered", "classes", "nodes", "labels", "adjacency")


def finished(client: TestClient, answer: Any) -> dict[str, Any]:
    """An update, once it is finished."""
    assert answer.status_code == 202, answer.text
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found = client.get(answer.json()["progress"]).json()
        if found["state"] in ("done", "failed"):
            return dict(found)
        time.sleep(0.05)
    raise TimeoutError(found)


@pytest.fixture(scope="module")
def after(place: Path) -> dict[str, Any]:
    """Rows of the folder after the third update."""
    import shutil

    shutil.copytree(place / "base", place / "whole")
    folder = LearnerFolder(place / "whole")
    folder.observe(read_nodes(place / "third_nodes.csv"), read_edges(place / "third_edges.csv"), name="third")
    return rows(folder)


def rows(folder: LearnerFolder) -> dict[str, Any]:
    found = tables(folder)
    return {name: found[name] for name in SAME}


def json_lines(place: Path) -> bytes:
    nodes, edges = read_nodes(place / "third_nodes.csv"), read_edges(place / "third_edges.csv")
    lines = [
        {"id": i, "label": label, "features": x.tolist()}
        for i, label, x in zip(nodes.ids, nodes.labels, nodes.features, strict=True)
    ]
    lines += [{"source": a, "target": b} for a, b in zip(edges.source, edges.target, strict=True)]
    return "\n".join(map(json.dumps, lines)).encode()


def request(kind: str, place: Path) -> dict[str, Any]:
    """The third update in some format."""
    nodes, edges = place / "third_nodes.csv", place / "third_edges.csv"
    if kind == "csv":
        return {"files": {"nodes": nodes.open("rb"), "edges": edges.open("rb")}, "data": {"name": "third"}}
    if kind == "parquet":
        write_nodes(read_nodes(nodes), place / "n.parquet")
        write_edges(read_edges(edges), place / "e.parquet")
        media = "application/vnd.apache.parquet"
        files = {"nodes": ("x", (place / "n.parquet").read_bytes(), media), "edges": (place / "e.parquet").open("rb")}
        return {"files": files, "params": {"name": "third"}}
    if kind == "gzip":
        body, packed = gzip.compress(json_lines(place)), {"content-encoding": "gzip"}
        headers = {"content-type": "application/x-ndjson", **packed}
        return {"content": body, "headers": headers, "params": {"name": "third"}}
    lines = b"\n".join(line for line in json_lines(place).splitlines() if b"source" in line)
    files = {"nodes": ("../../nodes.csv.gz", gzip.compress(nodes.read_bytes())), "edges": ("e.jsonl", lines)}
    return {"files": files, "params": {"name": "third"}}


@pytest.mark.parametrize("kind", ["csv", "parquet", "gzip", "mixed"])
def test_an_update_in_each_format(
    kind: str, client: TestClient, root: Path, place: Path, after: dict[str, Any]
) -> None:
    update = finished(client, client.post("/observe", **request(kind, place)))
    assert (update["state"], update["version"], update["error"]) == ("done", 3, None)
    assert update["result"]["name"] == "third"
    assert (update["epoch"], update["epochs"]) == (10, 10)
    answer = client.post("/predict", json={"ids": ["n100"]}).json()
    assert answer["version"] == 3
    assert rows(LearnerFolder(root)) == after
    assert [path.name for path in (root / "spool" / "00000001").iterdir()] == ["job.json"]
    text = client.get("/metrics").text
    assert "ergnn_version 3.0" in text
    assert 'ergnn_updates_total{kind="observe",state="done"} 1.0' in text
    assert "ergnn_learning_seconds_total" in text


def test_nodes_alone_then_edges_alone_in_their_order(client: TestClient, root: Path, place: Path) -> None:
    headers = {"content-type": "text/csv"}
    first = client.post("/observe", content=(place / "third_nodes.csv").read_bytes(), headers=headers)
    second = client.post(
        "/observe", content=(place / "third_edges.csv").read_bytes(), headers=headers, params={"table": "edges"}
    )
    assert first.json()["id"] == "1"
    assert finished(client, second)["result"]["update"] == 3
    assert [job["state"] for job in client.get("/updates").json()["updates"]] == ["done", "done"]
    assert client.get("/health").json() == {"status": "ok", "version": 4, "waiting": 0}


def test_forget_and_rollback(client: TestClient, root: Path) -> None:
    report = finished(client, client.post("/forget", json={"ids": ["n1", "n2", "n1"]}))
    assert (report["state"], report["result"]["nodes"], report["version"]) == ("done", 2, 3)
    assert client.post("/predict", json={"ids": ["n1"]}).status_code == 422
    assert client.post("/forget", json={"ids": ["n1"]}).status_code == 422
    assert client.post("/rollback", json={}).json() == {"version": 2}
    assert client.post("/predict", json={"ids": ["n1"]}).json()["version"] == 2
    assert client.post("/rollback", json={"version": 3}).json() == {"version": 3}
    assert client.post("/rollback", json={"version": 9}).json()["error"] == (
        "version 9 is not kept; versions 0, 1, 2, 3 are"
    )
    assert LearnerFolder(root).inspect()["version"] == 3
    assert "ergnn_version 3.0" in client.get("/metrics").text


def test_what_cannot_be_learned_is_refused_or_reported(client: TestClient, root: Path) -> None:
    before = rows(LearnerFolder(root))
    headers = {"content-type": "text/csv"}
    for body, said in (
        (b"id,label,f0\nn900,c0,1\n", "the nodes have 1 features; 12 are required"),
        (b"id,label\nn900,c0\n", "features"),
        (b"id\nn1,x\n", "nodes.csv: cannot be read as a table"),
        (b"id\nn1\nn1\n", "nodes.csv, row 2: id 'n1' occurs again"),
        (b"", "nodes.csv: the file is empty"),
    ):
        answer = client.post("/observe", content=body, headers=headers)
        assert answer.status_code == 422
        assert said in answer.json()["error"]
        assert str(root) not in answer.json()["error"]
    edges = b"source,target\nn1,ghost\n"
    answer = client.post("/observe", content=edges, headers=headers, params={"table": "edges"})
    assert "an edge names node 'ghost'" in answer.json()["error"]
    # behind an update that waits, the writer finds it out
    good = b"source,target\nn1,n70\n"
    client.post("/observe", content=good, headers=headers, params={"table": "edges"})
    update = finished(client, client.post("/observe", content=edges, headers=headers, params={"table": "edges"}))
    assert update["state"] == "failed"
    assert "an edge names node 'ghost'" in update["error"]
    assert rows(LearnerFolder(root))["nodes"] == before["nodes"]
    assert client.get("/health").json()["status"] == "ok"


def test_another_program_writes(client: TestClient, root: Path, place: Path) -> None:
    LearnerFolder(root).observe(read_nodes(place / "third_nodes.csv"))
    end = time.monotonic() + SECONDS
    while client.post("/predict", json={"ids": ["n0"]}).json()["version"] != 3:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert client.post("/predict", json={"ids": ["n100"]}).status_code == 200
