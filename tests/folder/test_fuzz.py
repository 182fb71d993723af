"""No database, however mutated, crashes, hangs, or takes 200 MB more than an intact one; see :mod:`folder.fuzz`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ergnn.folder import LearnerFolder
from folder.growing import make_updates

SCRIPT = Path(__file__).with_name("fuzz.py")


class Stopped(Exception):
    pass


@pytest.fixture
def folders(base: Path, tmp_path: Path) -> Path:
    """A folder between updates (``whole``), and one in the middle of an update (``begun``)."""
    shutil.copytree(base, tmp_path / "base" / "whole")
    shutil.copytree(base, tmp_path / "base" / "begun")
    epochs = 0

    def stop() -> None:
        nonlocal epochs
        epochs += 1
        if epochs == 4:
            raise Stopped

    with pytest.raises(Stopped):
        LearnerFolder(tmp_path / "base" / "begun").observe(*make_updates(3)[2], checkpoint_seconds=0, on_epoch=stop)
    return tmp_path / "base"


def fuzz(folders: Path, seed: int, count: int) -> dict:
    place = folders.parent / "place"
    place.mkdir()
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(folders), str(place), str(seed), str(count)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=3600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_mutated_databases_are_refused_or_read_correctly(folders: Path) -> None:
    result = fuzz(folders, 0, 100)
    assert result["wrong"] == []
    assert result["refused"] > 30  # others hit older versions, or nothing that is read
    assert result["extra_mb"] < 200


@pytest.mark.slow
def test_3000_mutated_databases(folders: Path) -> None:
    result = fuzz(folders, 1, 3000)
    print(result)
    assert result["wrong"] == []
    assert result["extra_mb"] < 200
