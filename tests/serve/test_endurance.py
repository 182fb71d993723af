"""Sixteen clients predict, upload and forget while processes are killed, the disk fills up, and a plug-in prints."""

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from ergnn.folder import LearnerFolder
from folder.disk import fill, mounted
from folder.growing import FEATURES, make_updates, quick
from serve.running import SECONDS, Server, check_answers, writers

IDS = [f"n{i}" for i in range(40)]
PRINTS = """
import json
from ergnn.folder import LearnerFolder
learn = LearnerFolder.observe
def observe(self, *tables, on_epoch=None, **more):
    def print_epoch():
        print(json.dumps({"number": 1, "result": {"name": "printed"}}), flush=True)
        on_epoch()
    print("learning", flush=True)
    return learn(self, *tables, on_epoch=print_epoch, **more)
LearnerFolder.observe = observe
"""


class Clients:
    """Clients of a server, which is killed and started again at the same address; they note what they were told."""

    def __init__(self, url: str) -> None:
        self.url, self.stopped = url, threading.Event()
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.uploads: dict[str, tuple[int, str]] = {}
        """Status (0 without a response) and id of each upload, by name."""
        self.forgotten: dict[str, tuple[int, str]] = {}
        self.statuses: Counter[tuple[str, int]] = Counter()
        work = [self.predict] * 11 + [self.upload] * 4 + [self.forget]
        self.threads = [threading.Thread(target=self.run, args=(i, each)) for i, each in enumerate(work)]

    def run(self, number: int, work: Any) -> None:
        rng = random.Random(number)
        with httpx.Client(base_url=self.url, timeout=SECONDS) as client:
            step = 0
            while not self.stopped.is_set():
                work(client, number, step, rng)
                step += 1
                time.sleep(0.1)

    def post(self, client: httpx.Client, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """Status and body of a response; status 0 if there is none."""
        try:
            response = client.post(path, **body)
            status, answer = response.status_code, response.json()
        except httpx.TransportError:
            status, answer = 0, {}
        self.statuses[path, status] += 1
        return status, answer

    def predict(self, client: httpx.Client, number: int, step: int, rng: random.Random) -> None:
        status, answer = self.post(client, "/predict", json={"ids": rng.sample(IDS, 4)})
        if status == 200:
            self.answers.append((number, answer))

    def upload(self, client: httpx.Client, number: int, step: int, rng: random.Random) -> None:
        name = f"update-{number}-{step}"
        features = [round(rng.random(), 3) for _ in range(FEATURES)]
        lines: list[Any] = [{"id": f"{name}-{i}", "label": f"c{i}", "features": features} for i in range(2)]
        lines += [{"source": f"{name}-0", "target": target} for target in rng.sample(IDS, 5)]
        body = {"content": "\n".join(map(json.dumps, lines)), "headers": {"content-type": "application/x-ndjson"}}
        status, answer = self.post(client, "/observe", **body, params={"name": name})
        self.uploads[name] = status, answer.get("id", "")
        time.sleep(rng.uniform(3, 6))

    def forget(self, client: httpx.Client, number: int, step: int, rng: random.Random) -> None:
        time.sleep(1)
        accepted = [name for name, (status, _) in list(self.uploads.items()) if status == 202]
        if accepted and (node := f"{rng.choice(accepted)}-1") not in self.forgotten:
            status, answer = self.post(client, "/forget", json={"ids": [node]})
            if status != 422:  # it has not been learned yet
                self.forgotten[node] = status, answer.get("id", "")


DISTURBANCES = ("writer", "server", "full", "writer", "empty", "almost full", "server", "empty", "writer", "end")


def disturb(server: Server, disk: Path, seconds: float, restart: Any) -> Server:
    """Kill the writer and the server, and fill and empty the disk, in turn; in between, something is learned."""

    def version() -> int:
        return int(server.client.get("/health").json()["version"])

    filler = disk / "filler"
    for what in DISTURBANCES:
        before = version()
        time.sleep(seconds / len(DISTURBANCES))
        if not filler.exists():
            server.wait_for(lambda before=before: version() > before)
        if what == "writer":
            for number in writers(server.root):
                os.kill(number, signal.SIGKILL)
        elif what == "server":
            server.kill()
            server.close()
            server = restart()
        elif what == "full":
            fill(disk)
        elif what == "almost full":
            fill(disk, leave=300_000)
        elif what == "empty":
            filler.unlink()
    return server


def run(tmp_path: Path, disk: Path, seconds: float) -> None:
    root, plugin = disk / "learner", tmp_path / "prints.py"
    plugin.write_text(PRINTS)
    folder = LearnerFolder.create(root, quick(epochs=4, keep=10_000))
    folder.observe(*make_updates(1)[0], name="base")
    server = Server(root, "--import", str(plugin))
    port = str(server.port)
    clients = Clients(server.url)
    for thread in clients.threads:
        thread.start()
    try:
        server = disturb(server, disk, seconds, lambda: Server(root, "--import", str(plugin), "--port", port))
    finally:
        clients.stopped.set()
        for thread in clients.threads:
            thread.join()
    jobs = {}
    with server:
        server.wait_for(lambda: server.client.get("/health").json()["waiting"] == 0)
        server.wait_for(lambda: server.client.get("/health").json()["status"] == "ok")
        for name, (status, number) in {**clients.uploads, **clients.forgotten}.items():
            if status == 202 and (answer := server.client.get(f"/updates/{number}")).status_code == 200:
                jobs[name] = answer.json()
    check(folder, clients, jobs)


def check(folder: LearnerFolder, clients: Clients, jobs: dict[str, Any]) -> None:
    inspected = folder.inspect()
    learned = Counter(record["name"] for record in inspected["updates"])
    accepted = {name for name, (status, _) in clients.uploads.items() if status == 202}
    refused = {name for name, (status, _) in clients.uploads.items() if status not in (0, 202)}
    print(f"statuses: {dict(sorted(clients.statuses.items()))}")
    print(f"{len(accepted)} updates accepted, {len(refused)} refused, {inspected['graph']['nodes']} nodes, ", end="")
    print(f"version {inspected['version']}, {len(clients.answers)} predictions compared")
    assert len(accepted) > 5
    assert clients.statuses["/observe", 507], "the disk was full"
    assert all(learned[name] == 1 for name in accepted), "none is lost"
    assert max(learned.values()) == 1, "none is learned twice"
    assert not refused & learned.keys()
    assert {job["state"] for job in jobs.values()} == {"done"}
    assert all(job["result"]["name"] == name for name, job in jobs.items() if job["kind"] == "observe")
    with folder.snapshot() as snapshot:
        nodes = [f"{name}-{i}" for name in accepted for i in range(2)]
        there = dict(zip(nodes, snapshot.graph.find(nodes) >= 0, strict=True))
    for node, is_there in there.items():
        status, _ = clients.forgotten.get(node, (-1, ""))
        assert is_there or status in (0, 202), f"{node} is missing"
        assert not is_there or status != 202, f"{node} was not forgotten"
    versions = check_answers(folder, IDS, clients.answers)
    assert len(versions) > 5, "versions changed while clients asked"
    assert folder.check() == []


@pytest.mark.slow
def test_nothing_is_lost_in_60_seconds(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 64 << 20) as disk:
        run(tmp_path, disk, 60)
