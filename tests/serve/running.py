"""A server in a process of its own."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

SECONDS = 300.0
"""How long tests wait for something that must happen."""


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


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

    def writers(self) -> list[int]:
        """The processes of the writer."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(number) for number in children.split()]

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
