"""Updates over HTTP end in the folder that the same tables make on the command line."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ergnn.config.errors import BusyError
from ergnn.data.tables import read_edges, read_nodes, write_edges, write_nodes
from ergnn.folder import LearnerFolder
from ergnn.folder.database import FILE
from ergnn.folder.spool import PURGED, Spool, purge_spool
from ergnn.serve.app import make_app
from ergnn.serve.service import Service
from folder.growing import tables
from serve.conftest import BASE
from serve.running import wait_for

SAME = ("blobs", "remembered", "classes", "nodes", "labels", "adjacency")


def finished(client: TestClient, answer: Any) -> dict[str, Any]:
    """An update, once it is finished."""
    assert answer.status_code == 202, answer.text
    return wait_until_finished(client, answer.json()["progress"])


def wait_until_finished(client: TestClient, path: str) -> dict[str, Any]:
    wait_for(lambda: client.get(path).json()["state"] in ("done", "failed"))
    return dict(client.get(path).json())


@pytest.fixture(scope="module")
def after(place: Path) -> dict[str, Any]:
    """Rows of the folder after the third update."""
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
    assert (update["epoch"], update["epochs"], update["phase"], update["share"]) == (10, 10, None, None)
    answer = client.post("/predict", json={"ids": ["n100"]}).json()
    assert answer["version"] == 3
    assert rows(LearnerFolder(root)) == after
    assert [path.name for path in (root / "spool" / "00000001").iterdir()] == ["job.json"]
    text = client.get("/metrics").text
    assert "ergnn_version 3.0" in text
    assert 'ergnn_updates_total{kind="observe",state="done"} 1.0' in text
    assert "ergnn_learning_seconds_total" in text


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
    wait_for(lambda: client.post("/predict", json={"ids": ["n0"]}).json()["version"] == 3)
    assert client.post("/predict", json={"ids": ["n100"]}).status_code == 200


def upload(client: TestClient, body: bytes, **params: str) -> Any:
    return client.post("/observe", content=body, headers={"content-type": "text/csv"}, params=params)


def test_unknown_ids_behind_a_queued_update_are_reported(client: TestClient, root: Path) -> None:
    upload(client, b"source,target\nn1,n70\n", table="edges")
    some = client.post("/forget", json={"ids": ["ghost", "n1", "phantom"]})
    none = client.post("/forget", json={"ids": ["ghost", "phantom"]})
    report = finished(client, some)
    assert (report["state"], report["result"]["nodes"]) == ("done", 1)
    assert report["result"]["unknown"] == ["ghost", "phantom"]
    report = finished(client, none)
    assert (report["state"], report["error"]) == ("failed", "none of the 2 nodes is in the graph: 'ghost', 'phantom'")


def test_nodes_that_were_forgotten_before_a_crash_are_not_unknown(root: Path) -> None:
    """The writer was killed after the nodes were forgotten and before it could say so."""
    spool = Spool(root)
    with spool.incoming() as directory:
        wanted = {"ids": ["ghost", "n1"], "retrain": False, "unknown": ["ghost"]}
        (directory / "ids.json").write_text(json.dumps(wanted))
        spool.add(directory, "forget")
    spool.close()
    LearnerFolder(root).forget(["n1"])
    with TestClient(make_app(Service(root)), BASE) as client:
        report = wait_until_finished(client, "/updates/1")
    assert (report["state"], report["result"]) == ("done", {"nodes": 1, "unknown": ["ghost"]})


def test_a_damaged_job_is_named_and_blocks_nothing(root: Path) -> None:
    for number, text in ((1, '{"number": 1, "ki'), (2, '{"kind": "observe", "of a newer version": 1}')):
        directory = root / "spool" / f"{number:08d}"
        directory.mkdir(parents=True)
        (directory / "job.json").write_text(text)
        (directory / "edges.csv").write_text(f"source,target\nn1,n7{number}\n")
    with TestClient(make_app(Service(root)), BASE) as client:
        assert finished(client, upload(client, b"source,target\nn1,n70\n", table="edges"))["id"] == "3"
        states = [(job["id"], job["state"]) for job in client.get("/updates").json()["updates"]]
        assert states == [("1", "unreadable"), ("2", "done"), ("3", "done")]
        health = client.get("/health").json()
        assert health["status"] == "degraded"
        assert "update 1 is set aside, as its job.json cannot be read" in health["trouble"]
        assert (root / "spool" / "00000001" / "edges.csv").exists()
        assert client.delete("/updates/1", headers={"origin": "http://evil.example"}).status_code == 403
        assert client.delete("/updates/1").json()["state"] == "deleted"
        assert client.get("/health").json() == {"status": "ok", "version": 4, "waiting": 0}
        assert client.delete("/updates/3").status_code == 409, "it was learned"
        assert client.delete("/updates/4").status_code == 404
    assert sorted(path.name for path in (root / "spool" / "00000001").iterdir()) == ["job.json"]


class Interrupted(Exception):
    """Ctrl+C in the middle of ``ergnn observe``."""


def interrupt(root: Path, place: Path) -> None:
    """Leave an unfinished update in a folder."""

    def stop() -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        LearnerFolder(root).observe(read_nodes(place / "third_nodes.csv"), name="interrupted", on_epoch=stop)


def test_updates_wait_until_the_folder_can_be_written(root: Path, place: Path) -> None:
    """Queued updates wait, and can be purged or deleted meanwhile; nothing is left of them."""
    interrupt(root, place)
    rows_of_nodes = "id,label,f0\nsecret-node,c0,0.4815162\n".replace("f0", ",".join(f"f{i}" for i in range(12)))
    secret = rows_of_nodes.replace("0.4815162", ",".join(["0.4815162"] * 12)).encode()
    with TestClient(make_app(Service(root)), BASE) as client:
        upload(client, secret, name="first")
        upload(client, secret.replace(b"secret-node", b"open-node"), name="second")
        upload(client, b"source,target\nn1,n70\n", table="edges", name="third")
        upload(client, (place / "third_nodes.csv").read_bytes(), name="the interrupted one")
        wait_for(lambda: client.get("/health").json()["status"] == "degraded")
        health = client.get("/health").json()
        assert health["waiting"] == 4
        assert "accepted updates wait: learner: update 'interrupted' is unfinished" in health["trouble"]
        assert str(root.parent) not in health["trouble"]

        def purged() -> bool:
            try:
                return purge_spool(root, ["secret-node"]) == [1]
            except BusyError:  # an attempt to learn it
                return False

        wait_for(purged)
        first = client.get("/updates/1").json()
        assert (first["state"], first["error"]) == ("failed", PURGED)
        wait_for(lambda: client.delete("/updates/2").status_code == 200)
        wait_for(lambda: client.delete("/updates/4").status_code == 200)  # which discards it
        assert wait_until_finished(client, "/updates/3")["state"] == "done"
        assert client.post("/predict", json={"ids": ["secret-node"]}).status_code == 422
        assert client.post("/predict", json={"ids": ["open-node"]}).status_code == 422
        wait_for(lambda: client.get("/health").json() == {"status": "ok", "version": 3, "waiting": 0})
    assert LearnerFolder(root).resume() is None
    files = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
    assert not any(b"secret-node" in data or b"0.4815162" in data or b"open-node" in data for data in files)


def test_paths_of_the_server_are_not_shown(root: Path) -> None:
    with TestClient(make_app(Service(root)), BASE) as client:
        for file in root.glob(f"{FILE}*"):
            file.write_bytes(b"damaged" * 1000)
        wait_for(lambda: client.get("/health").json()["status"] == "degraded")
        answers = [client.get("/health"), client.post("/rollback", json={}), client.get("/")]
    assert [answer.status_code for answer in answers[:2]] == [200, 500]
    assert "the last good version is still served: learner" in answers[0].json()["trouble"]
    assert not [answer.text for answer in answers if str(root.parent) in answer.text]


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "\x7f", "n" * 201])
def test_names_of_updates(name: str, reader: TestClient) -> None:
    edges = b"source,target\nn1,n70\n"
    assert upload(reader, edges, table="edges", name=name).status_code == 422
    form = {"files": {"edges": ("edges.csv", edges)}, "data": {"name": name}}
    answer = reader.post("/observe", **form)
    assert answer.status_code == 422
    assert "the name of the update" in answer.json()["error"]
    assert reader.get("/updates").json() == {"updates": []}
