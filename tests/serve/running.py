"""A server in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

SECONDS = 300.0
"""How long tests wait for something that must happen."""


class Server:
    """``ergnn serve`` on a free port of this machine."""

    def __init__(self, root: Path, *options: str, token: str = "") -> None:
        environment = {**os.environ, "ERGNN_TOKEN": token, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "ergnn", "serve", str(root), "--port", "0", *options]
        self.log = open(root.parent / f"{root.name}.log", "a+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"{line}{self.said()}"
        self.url = found[0]
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=SECONDS)
        self.wait_for(lambda: self.client.get("/health").status_code == 200)

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def wait_for(self, condition: Any) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                if condition():
                    return
            except httpx.TransportError:
                assert self.process.poll() is None, self.said()
            time.sleep(0.05)
        raise TimeoutError(self.said())

    def finished(self, number: str) -> dict[str, Any]:
        """An update, once it is finished."""
        self.wait_for(lambda: self.client.get(f"/updates/{number}").json()["state"] in ("done", "failed"))
        return dict(self.client.get(f"/updates/{number}").json())

    def memory(self) -> int:
        """The largest resident memory so far, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()
