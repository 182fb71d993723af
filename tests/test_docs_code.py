"""Every code block of the README and the documentation runs, or gives a reason why not."""

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doc_blocks import PAGES, ROOT, TEXT, Block, blocks, name

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ELSEWHERE = {"docs/extending.md", "docs/tutorial.md"}
"""The blocks of the one are the files of a package: tests/test_third_party.py runs them as such. The other is run by
tests/test_tutorial.py, which looks at its results, too."""


SMALL_EXAMPLES = {"influence_and_typicality.py": ("--seeds", "1", "--epochs", "3")}
"""An example's arguments for the same purpose; for others, the number of epochs."""

RUNNER = """
import contextlib, io, json, os, runpy, subprocess, sys, tempfile, traceback
import torch
from ergnn.cli.main import main

torch.set_num_threads(1)
examples = sys.argv[1]

def outcome(steps):
    space, said = {"__name__": "__main__"}, io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        os.chdir(folder)
        os.symlink(examples, "examples")  # pages are run as in a clone
        try:
            for kind, what in steps:
                if kind == "python":
                    exec(compile(what, "block", "exec"), space)
                elif kind == "example":
                    sys.argv = what
                    runpy.run_path(what[0], run_name="__main__")
                elif kind == "bash":
                    done = subprocess.run(["bash", "-euo", "pipefail", "-c", what], capture_output=True, text=True)
                    print(done.stdout)
                    if done.returncode:
                        raise SystemExit(f"{what} failed: {done.stderr}")
                elif main(what):
                    raise SystemExit(f"{what} failed")
            failed = ""
        except BaseException:
            failed = traceback.format_exc()
        os.chdir("/")
    return {"failed": failed, "said": said.getvalue()}

print(json.dumps({name: outcome(steps) for name, steps in json.load(sys.stdin).items()}))
"""


def steps(block: Block) -> list[tuple[str, Any]]:
    """What a block asks to be done: python; ``ergnn`` commands; anything else a shell does."""
    if block.reason is not None or block.language in TEXT:
        return []
    if block.language == "python":
        return [("python", block.body)]
    spoken = [line for line in block.lines if line.strip() and not line.lstrip().startswith("#")]
    if len(block.commands) == len(spoken):
        return [("command", [*line, *_smaller(line)]) for line in block.commands]
    return [("bash", "\n".join(block.lines))]


def _smaller(command: list[str]) -> tuple[str, ...]:
    """Arguments added to a command so that it takes a second."""
    if command[0] != "run":
        return ()
    orders = ("--orders", "1") if "--orders" in command else ()
    return ("--seeds", "1", *orders, "--quiet", *(() if "analytic" in command else ("--epochs", "2")))


def run_everything() -> str:
    """All pages and examples, run in one process of their own: what they register stays there."""
    work: dict[str, Any] = {
        name(page): [step for block in blocks(page) for step in steps(block)]
        for page in PAGES
        if name(page) not in ELSEWHERE
    }
    work |= {
        name(example): [("example", [str(example), *SMALL_EXAMPLES.get(example.name, ("3",))])] for example in EXAMPLES
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ERGNN_OFFLINE": "1", "PATH": path}
    environment.pop("ERGNN_DATA", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUNNER, str(ROOT / "examples")],
        env=environment,
        input=json.dumps(work),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What came of every page; where tests run in several processes, the first one runs them for all."""
    base = tmp_path_factory.getbasetemp()
    result = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "docs_outcomes.json"
    with result.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            result.write_text(run_everything())
    return json.loads(result.read_text())


@pytest.mark.parametrize("page", [name(page) for page in PAGES if name(page) not in ELSEWHERE])
def test_the_blocks_of_a_page_run_in_order(page: str, outcomes: dict[str, dict[str, str]]) -> None:
    assert outcomes[page]["failed"] == ""


@pytest.mark.parametrize("example", [name(example) for example in EXAMPLES])
def test_an_example_runs_and_prints_output(example: str, outcomes: dict[str, dict[str, str]]) -> None:
    assert outcomes[example]["failed"] == ""
    assert outcomes[example]["said"].count("\n") >= 3


def test_the_readme_goes_from_import_to_pm_fm_and_aa_in_ten_lines(outcomes: dict[str, dict[str, str]]) -> None:
    first = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    lines = [line for line in first.body.splitlines() if line.strip()]
    assert lines[0] == "import ergnn"
    assert len(lines) <= 10
    assert re.search(r"^PM \d+\.\d+ %, FM -?\d+\.\d+ %, AA \d+\.\d+ %$", outcomes["README.md"]["said"], re.MULTILINE)
