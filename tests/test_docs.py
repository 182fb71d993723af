"""What the README and the documentation show is true: code runs, commands are understood, links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ergnn.cli import _parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ELSEWHERE = {"extending.md"}
"""Its blocks are the files of a package: tests/test_third_party.py runs them as such."""
LONG = {"results.md", "performance.md"}
"""Commands there take as long as their figures took; they only have to be understood."""

FENCE = re.compile(r"(?P<before>[^\n]*\n)?^```(?P<language>[\w-]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
SMALL = {"run": ("--seeds", "1", "--epochs", "2", "--quiet")}
"""What is added to a command so that trying it takes a second."""

RUNNER = """
import contextlib, io, json, os, runpy, sys, tempfile, traceback
import torch
from ergnn.cli import main

torch.set_num_threads(1)

def outcome(steps):
    space, said = {"__name__": "__main__"}, io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        os.chdir(folder)
        try:
            for kind, what in steps:
                if kind == "python":
                    exec(compile(what, "block", "exec"), space)
                elif kind == "example":
                    sys.argv = what
                    runpy.run_path(what[0], run_name="__main__")
                elif main(what):
                    raise SystemExit(f"{what} failed")
            failed = ""
        except BaseException:
            failed = traceback.format_exc()
        os.chdir("/")
    return {"failed": failed, "said": said.getvalue()}

print(json.dumps({name: outcome(steps) for name, steps in json.load(sys.stdin).items()}))
"""


def fences(page: Path, *languages: str) -> list[str]:
    """The blocks of a page in some languages, but for those marked ``<!-- not run: reason -->`` in the line above."""
    return [
        found["body"]
        for found in FENCE.finditer(page.read_text(encoding="utf-8"))
        if found["language"] in languages and not re.match(r"<!-- not run: .+ -->", found["before"] or "")
    ]


def commands(page: Path) -> list[list[str]]:
    """What follows ``ergnn`` in the page's shell blocks, one list a line."""
    text = "\n".join(fences(page, "console", "bash", "sh"))
    lines = re.sub(r"\\\n", " ", text).splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [line[1:] for line in words if line[:1] == ["ergnn"]]


def steps(page: Path) -> list[tuple[str, Any]]:
    """A page's blocks in the order in which they stand."""
    if page.name in ELSEWHERE | LONG:
        return []
    out: list[tuple[str, Any]] = [("python", block) for block in fences(page, "python")]
    return out + [("command", [*line, *SMALL.get(line[0], ())]) for line in commands(page)]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, str]]:
    """All pages and examples, run in one process of their own: what they register stays there."""
    work: dict[str, Any] = {page.name: steps(page) for page in PAGES}
    work |= {example.name: [("example", [str(example), "3"])] for example in EXAMPLES}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ERGNN_OFFLINE": "1"}
    environment.pop("ERGNN_DATA", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUNNER],
        env=environment,
        input=json.dumps(work),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("page", [page.name for page in PAGES if page.name not in ELSEWHERE | LONG])
def test_the_code_and_the_commands_of_a_page_run(page: str, outcomes: dict[str, dict[str, str]]) -> None:
    assert outcomes[page]["failed"] == ""


@pytest.mark.parametrize("example", [example.name for example in EXAMPLES])
def test_an_example_runs_and_has_something_to_say(example: str, outcomes: dict[str, dict[str, str]]) -> None:
    assert outcomes[example]["failed"] == ""
    assert outcomes[example]["said"].count("\n") >= 3


def test_the_readme_goes_from_import_to_pm_and_fm_in_ten_lines(outcomes: dict[str, dict[str, str]]) -> None:
    first = fences(ROOT / "README.md", "python")[0]
    lines = [line for line in first.splitlines() if line.strip()]
    assert lines[0] == "import ergnn"
    assert len(lines) <= 10
    assert re.match(r"PM \d+\.\d%, FM -?\d+\.\d%\n", outcomes["README.md"]["said"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_understood(page: Path) -> None:
    for line in commands(page):
        _parser().parse_args(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_option_in_the_text_exists(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = set()
    for command in ([], *([name] for name in ("run", "reproduce", "runs", "report", "bench", "datasets", "selectors"))):
        with pytest.raises(SystemExit) as stop:
            _parser().parse_args([*command, "--help"])
        assert stop.value.code == 0
        known |= set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = {flag for code in re.findall(r"`([^`\n]+)`", text) for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)}
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {_anchor(heading) for heading in headings}, f"{page.name} links to {target}"


def _anchor(heading: str) -> str:
    """A heading's name in a link, as GitHub and mkdocs make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
