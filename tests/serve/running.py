"""A server in a process of its own."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from ergnn.folder import LearnerFolder

SECONDS = 300.0
"""How long tests wait for something that must happen."""


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def writers(root: Path) -> list[int]:
    """The processes of writers that work on a folder, as the system lists them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"ergnn.serve.writer" in words and str(root).encode() in words:
            found.append(int(path.parent.name))
    return found


def check_answers(folder: LearnerFolder, ids: list[str], answers: Iterable[tuple[int, dict[str, Any]]]) -> set[int]:
    """Predictions are those of the version that they name, which clients see in order; returns the versions."""
    truth, newest = dict[int, Any](), Counter[int]()
    for client, answer in answers:
        version = answer["version"]
        assert version >= newest[client], "a client never sees an older version again"
        newest[client] = version
        if version not in truth:
            truth[version] = next(folder.predict(ids, version=version))
        known = [row for row in answer["predictions"] if row["id"] in ids]
        expected = truth[version][2][[ids.index(row["id"]) for row in known]]
        assert answer["classes"] == truth[version][1]
        np.testing.assert_allclose([row["probabilities"] for row in known], expected.tolist(), atol=2e-6, rtol=0)
    return set(truth)


class Server:
    """``ergnn serve`` on a free port of this machine, with at most ``files`` open files."""

    def __init__(self, root: Path, *options: str, token: str = "", files: int | None = None) -> None:
        environment = {**os.environ, "ERGNN_TOKEN": token, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "ergnn", "serve", str(root), "--port", "0", *options]
        if files is not None:
            command = ["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash", *command]
        self.root = root
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True
        )
        found = None
        while not found and (line := self.process.stdout.readline()):  # plug-ins may print, too
            found = re.search(r"ergnn: serving .* at (http://\S+)", line)
        assert found, self.said()
        self.url = found[1]
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=SECONDS)
        self.wait_for(lambda: self.client.get("/health").status_code == 200)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def wait_for(self, condition: Callable[[], object]) -> None:
        def holds() -> object:
            try:
                return condition()
            except httpx.TransportError:
                assert self.process.poll() is None, self.said()
                return False

        wait_for(holds)

    def finished(self, number: str) -> dict[str, Any]:
        """An update, once it is finished."""
        self.wait_for(lambda: self.client.get(f"/updates/{number}").json()["state"] in ("done", "failed"))
        return dict(self.client.get(f"/updates/{number}").json())

    def memory(self) -> int:
        """The largest resident memory so far, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(SECONDS)
        self.process.stdout.close()
        self.log.close()
