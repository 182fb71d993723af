"""The GPU tests need nothing but the package and pytest: a GPU machine seldom has the extras of the other tests."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

BLOCKER = """
import sys

EXTRAS = {"curvlinops", "gensim", "hypothesis", "networkx", "pandas", "polars", "psycopg", "pyarrow"}
EXTRAS |= {"ray", "sklearn", "sqlalchemy", "tensorboard"}

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in EXTRAS else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def test_gpu_tests_are_collected_without_the_extras(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"],
        env={**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (ROOT / "tests" / "gpu").glob("test_*.py"):
        assert path.name in done.stdout


def test_every_gpu_test_is_in_the_folder_that_make_runs() -> None:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text(encoding="utf-8")]
    assert {path.parent.name for path in marked if path != Path(__file__)} == {"gpu"}
    assert "pytest -m gpu tests/gpu\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
