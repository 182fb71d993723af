"""The distribution: what it says about itself, and a wheel that runs in an empty environment."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


def test_the_hooks_of_pre_commit_are_the_linters_of_make() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for hook in hooks:
        assert f"$(BIN)/{hook['entry']}" in makefile, hook["id"]


@pytest.mark.slow
def test_the_wheel_runs_the_demo_in_an_empty_environment(tmp_path: Path) -> None:
    def run(*words: str | Path) -> str:
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ERGNN_DATA")}
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, cwd=tmp_path, env=clean)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", ROOT)
    run(sys.executable, "-m", "twine", "check", "--strict", *(tmp_path / "dist").iterdir())
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(("tests/", "benchmarks/"))]
    run(sys.executable, "-m", "venv", tmp_path / "env")
    install = (tmp_path / "env" / "bin" / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt")
    run(*install, "torch")
    run(*install, wheel)
    printed = run(tmp_path / "env" / "bin" / "ergnn", "demo", "shop")
    assert "The page about the learner" in printed
    assert (tmp_path / "shop" / "learner.html").is_file()
