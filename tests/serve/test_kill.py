"""SIGKILL in the middle of an update: it goes on after a restart, or never was; nothing else changes."""

import os
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from ergnn.data.tables import read_edges, read_nodes
from ergnn.folder import LearnerFolder
from folder.growing import make_updates, quick, tables, write_tables
from serve.running import Server, wait_for, writers

SAME = ("blobs", "remembered", "classes", "nodes", "labels", "adjacency", "settings")


class Scene:
    """A folder whose third update takes some seconds, and how it ends when nothing goes wrong."""

    def __init__(self, place: Path) -> None:
        self.place, updates = place, make_updates(3, nodes=60)
        folder = LearnerFolder.create(place / "base", quick(epochs=150))
        for nodes, edges in updates[:2]:
            folder.observe(nodes, edges)
        self.files = write_tables(place / "third", *updates[2])
        shutil.copytree(place / "base", place / "whole")
        LearnerFolder(place / "whole").observe(read_nodes(self.files[0]), read_edges(self.files[1]), name="third")
        self.before, self.after = rows(place / "base"), rows(place / "whole")

    def upload(self, server: Server) -> str:
        with open(self.files[0], "rb") as nodes, open(self.files[1], "rb") as edges:
            answer = server.client.post("/observe", files={"nodes": nodes, "edges": edges}, params={"name": "third"})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])


def rows(root: Path) -> dict[str, Any]:
    found = tables(LearnerFolder(root))
    return {name: found[name] for name in SAME}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("kill"))


SLOW = [pytest.param(epoch, marks=pytest.mark.slow) for epoch in (0, 1, 80, 120, 145)]


@pytest.mark.parametrize("epoch", [40, *SLOW])
def test_killed_at_an_epoch(epoch: int, scene: Scene, tmp_path: Path) -> None:
    """Kill the server at an epoch (0: as soon as the update was accepted), restart, and compare."""
    root = tmp_path / "learner"
    shutil.copytree(scene.place / "base", root)
    server = Server(root)
    number = scene.upload(server)
    if epoch:
        server.wait_for(lambda: server.client.get(f"/updates/{number}").json().get("epoch", 0) >= epoch)
    server.kill()
    server.close()
    wait_for(lambda: not writers(root))  # the writer does not outlive the server
    assert rows(root)["settings"] == scene.before["settings"]
    assert LearnerFolder(root).inspect()["version"] in (2, 3), "3 if the kill came after the commit"
    again = Server(root)
    assert again.client.post("/predict", json={"ids": ["n1"]}).json()["version"] in (2, 3)
    update = again.finished(number)
    assert (update["state"], update["version"], update["result"]["name"]) == ("done", 3, "third")
    assert again.client.post("/predict", json={"ids": ["n1"]}).json()["version"] == 3
    again.close()
    assert rows(root) == scene.after, "bit for bit what an uninterrupted update gives"
    assert LearnerFolder(root).check() == []
    assert sorted(path.name for path in (root / "spool").rglob("[!.]*")) == ["00000001", "job.json"]


def test_killed_while_the_update_arrives(scene: Scene, tmp_path: Path) -> None:
    root = tmp_path / "learner"
    shutil.copytree(scene.place / "base", root)
    server = Server(root)
    with socket.create_connection(("127.0.0.1", server.port)) as half:
        half.sendall(b"POST /observe HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
                     b"Content-Length: 99999\r\n\r\nid,label\nn500,c1\n")  # fmt: skip
        wait_for(lambda: list((root / "spool").glob(".new-*/nodes.csv")))
        server.kill()
    server.close()
    again = Server(root)
    assert again.client.get("/updates").json() == {"updates": []}
    assert again.client.get("/health").json() == {"status": "ok", "version": 2, "waiting": 0}
    again.close()
    assert rows(root) == scene.before
    assert not [path for path in (root / "spool").iterdir() if path.is_dir()]


def test_a_writer_that_dies_is_started_again(scene: Scene, tmp_path: Path) -> None:
    root = tmp_path / "learner"
    shutil.copytree(scene.place / "base", root)
    server = Server(root)
    number = scene.upload(server)
    server.wait_for(lambda: server.client.get(f"/updates/{number}").json().get("epoch", 0) >= 5)
    os.kill(*writers(root), signal.SIGKILL)
    update = server.finished(number)
    assert (update["state"], update["attempts"]) == ("done", 2)
    server.close()
    assert rows(root) == scene.after


@pytest.mark.slow
def test_an_update_that_always_kills_the_writer_is_kept_for_the_next_server(scene: Scene, tmp_path: Path) -> None:
    """A method that ends its process in training: the folder is as it was, and the next update can come."""
    root, plugin = tmp_path / "learner", tmp_path / "deadly.py"
    shutil.copytree(scene.place / "base", root)
    plugin.write_text(
        "import os, sys\n"
        "if 'ergnn.serve.writer' in sys.orig_argv:\n"
        "    from ergnn.folder import LearnerFolder\n"
        "    observe = LearnerFolder.observe\n"
        "    die = lambda: os._exit(9)\n"
        "    LearnerFolder.observe = lambda *args, **more: observe(*args, **{**more, 'on_epoch': die})\n"
    )
    server = Server(root, "--import", str(plugin))
    number = scene.upload(server)
    update = server.finished(number)
    assert (update["state"], update["attempts"]) == ("failed", 3)
    assert "the writer ended unexpectedly 3 times; it is tried again after a restart" in update["error"]
    assert server.client.post("/predict", json={"ids": ["n1"]}).json()["version"] == 2
    server.close()
    assert rows(root) == scene.before
    assert LearnerFolder(root).resume() is None
    again = Server(root)
    assert again.finished(number)["state"] == "done"
    again.close()
    assert rows(root) == scene.after
