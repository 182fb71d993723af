"""The writer's protocol: a socket of its own; what breaks it is ended and tried again."""

import json
import select
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ergnn.data.tables import Limits
from ergnn.folder import LearnerFolder, Settings
from ergnn.serve.app import make_app
from ergnn.serve.service import Service
from folder.growing import make_updates, quick
from serve.conftest import BASE
from serve.running import SECONDS, wait_for
from serve.test_updates import finished

IN_WRITER = """
import json, os, pathlib, sys
from ergnn.folder import LearnerFolder
learn = LearnerFolder.observe
def observe(self, nodes, edges, **more):
    misbehave()
    return learn(self, nodes, edges, **more)
LearnerFolder.observe = observe
"""
PRINTS = """
def misbehave():
    print("learning", end="")
    print(json.dumps({"number": 1, "result": {"name": "of another job"}}), flush=True)
    os.write(1, b'{"result": {"name": "of another job"}}\\n')
misbehave()
"""
BREAKS = """
import time
ways = [
    lambda: os.write(socket, b'hello\\n'),
    lambda: None,
    lambda: os.fork() and os._exit(9) or time.sleep(9),  # the child holds the socket open
]
socket, count = int(sys.argv[1]), pathlib.Path(__file__).with_suffix(".count")
def misbehave():
    number = len(count.read_bytes()) if count.exists() else 0
    count.write_bytes(b"." * (number + 1))
    ways[number]() if number < len(ways) else None
"""


def upload(client: TestClient, name: str) -> Any:
    edge = f"source,target\nn{len(name)},n39\n".encode()
    return client.post(
        "/observe", content=edge, headers={"content-type": "text/csv"}, params={"table": "edges", "name": name}
    )


def test_what_a_plug_in_prints_is_no_message(root: Path, tmp_path: Path) -> None:
    (plugin := tmp_path / "prints.py").write_text(IN_WRITER + PRINTS)
    with TestClient(make_app(Service(root, plugins=[str(plugin)])), BASE) as client:
        answers = {name: upload(client, name) for name in ("a", "bb", "ccc")}
        for number, (name, answer) in enumerate(answers.items(), start=3):
            update = finished(client, answer)
            assert (update["state"], update["attempts"], update["version"]) == ("done", 1, number)
            assert update["result"]["name"] == name
    assert [record["name"] for record in LearnerFolder(root).inspect()["updates"][2:]] == ["a", "bb", "ccc"]


def test_a_writer_that_breaks_the_protocol_is_ended_and_its_job_tried_again(root: Path, tmp_path: Path) -> None:
    (plugin := tmp_path / "breaks.py").write_text(IN_WRITER + BREAKS)
    with TestClient(make_app(Service(root, plugins=[str(plugin)])), BASE) as client:
        first, second = upload(client, "a"), upload(client, "bb")
        assert [finished(client, first)[key] for key in ("state", "attempts", "version")] == ["done", 2, 3]
        assert [finished(client, second)[key] for key in ("state", "attempts", "version")] == ["done", 2, 4]
    assert [record["name"] for record in LearnerFolder(root).inspect()["updates"][2:]] == ["a", "bb"]


WAITS = """
import time
def misbehave():
    while not pathlib.Path(__file__).with_suffix(".go").exists():
        time.sleep(0.02)
"""


@pytest.mark.parametrize(("method", "phase", "share"), [("analytic", "solving", None), ("replay", "training", 0.0)])
def test_a_running_update_reports_its_phase(method: str, phase: str, share: float | None, tmp_path: Path) -> None:
    (plugin := tmp_path / "waits.py").write_text(IN_WRITER + WAITS)
    settings = Settings.from_settings({"method": "analytic"}) if method == "analytic" else quick()
    folder = LearnerFolder.create(tmp_path / "learner", settings)
    folder.observe(*make_updates(1)[0])
    with TestClient(make_app(Service(folder.root, plugins=[str(plugin)])), BASE) as client:
        answer = upload(client, "a")
        path = answer.json()["progress"]
        wait_for(lambda: client.get(path).json()["phase"] == phase)
        running = client.get("/updates").json()["updates"][0]
        assert (running["state"], running["share"], "epoch" in running) == ("running", share, method == "replay")
        plugin.with_suffix(".go").touch()
        update = finished(client, answer)
    assert [update[key] for key in ("state", "phase", "share")] == ["done", None, None]


def test_a_writer_ends_with_the_server_even_if_its_last_message_was_not_read(root: Path) -> None:
    ours, its = socket.socketpair()
    command = [sys.executable, "-m", "ergnn.serve.writer", str(its.fileno()), str(root), json.dumps(asdict(Limits()))]
    with its, ours:
        writer = subprocess.Popen(command, pass_fds=[its.fileno()])
        its.close()
        ours.sendall(json.dumps({"kind": "discard", "digest": ""}).encode() + b"\n")
        assert select.select([ours], [], [], SECONDS)[0]
    try:
        assert writer.wait(SECONDS) == 0  # its next read fails, as the peer was reset
    finally:
        writer.kill()
