"""Mutated files of every format are refused with an ergnn error, or read as an independent reader reads them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("fuzz_worker.py")


def fuzz(folder: Path, count: int, seed: int) -> None:
    # the default allocator reserves a gigabyte of address space, most of which it never uses
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(WORKER), str(folder), str(count), str(seed)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"crashed with {done.returncode}: {done.stderr[-2000:]}"
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    assert sum(part.get("read", 0) + part.get("refused", 0) for part in result["tally"].values()) == count
    for name, part in result["tally"].items():
        assert part.get("refused"), f"no mutant of {name} was refused"
    assert sum(part.get("read", 0) for part in result["tally"].values()) > count // 50
    assert result["grown"] < 1 << 30


def test_some_mutated_files(tmp_path: Path) -> None:
    fuzz(tmp_path, 100, seed=0)


@pytest.mark.slow
def test_ten_thousand_mutated_files(tmp_path: Path) -> None:
    fuzz(tmp_path, 10_000, seed=1)
