"""Examples that are run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_first_hour(tmp_path: Path) -> None:
    for module in ("pandas", "pyarrow", "jinja2"):
        pytest.importorskip(module)
    script = [sys.executable, str(EXAMPLES / "first_hour.py"), str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    for words in ("offline, all updates at once", "true \\ predicted", "nodes with the most neighbors", "--old-weight"):
        assert words in done.stdout
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_a_graph_and_a_model_of_one_s_own() -> None:
    script = [sys.executable, str(EXAMPLES / "own_graph.py"), "20"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("after task") == 3
