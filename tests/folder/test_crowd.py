"""Readers are never blocked and never see half a state; see :mod:`folder.crowd`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ergnn.folder import LearnerFolder
from folder.growing import make_update, quick

SCRIPT = Path(__file__).with_name("crowd.py")


def crowd(place: Path, seconds: float) -> dict:
    folder = LearnerFolder.create(place / "d", quick(epochs=1, per_class=2, keep=2, budget_nodes=8))
    folder.observe(*make_update(0, [0, 1]))
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(folder.root), str(seconds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(result: dict) -> None:
    assert result["failures"] == []
    assert result["torn"] == []
    assert result["writes"] >= 8
    assert result["versions_seen"] > 2
    assert result["reads"] > 20


def test_eight_readers_and_one_writer(tmp_path: Path) -> None:
    check(crowd(tmp_path, 2))


@pytest.mark.slow
def test_eight_readers_and_one_writer_for_a_minute(tmp_path: Path) -> None:
    result = crowd(tmp_path, 60)
    print(result)
    check(result)
