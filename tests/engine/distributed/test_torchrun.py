"""``torchrun … -m ergnn run …`` on the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

RUN = ["run", "cora", "--backbone", "gat", "--split", "seeded", "--batch-size", "16", "--json", "--quiet"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "ergnn"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "ERGNN_OFFLINE": "1"}
COSTS = ("seconds", "train_seconds", "select_seconds", "peak_memory_mb")


def torchrun(*options: str) -> list[str]:
    """On a port that is free, whatever else runs on this machine."""
    return [*TORCHRUN[:3], "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", *TORCHRUN[3:], *RUN, *options]


def result_of(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)  # one object: of two ranks only the first prints
    return {name: value for name, value in result.items() if name not in COSTS}


def rank_of(pid: int) -> str | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((part.removeprefix(b"RANK=").decode() for part in variables if part.startswith(b"RANK=")), None)


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_and_the_same_command_resumes(tmp_path: Path) -> None:
    settings = ["--seeds", "2", "--epochs", "30"]
    command = torchrun(*settings, "--checkpoint", str(tmp_path))
    program = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("*.pt")):
        assert program.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (second,) = [pid for pid in children_of(program.pid) if rank_of(pid) == "1"]
    os.kill(second, signal.SIGKILL)
    out, errors = program.communicate()
    assert program.returncode != 0
    assert out == ""
    assert "ergnn: rank 0 of 2" in errors
    assert f"the same command continues from {tmp_path}" in errors
    assert result_of(command) == result_of(torchrun(*settings))
