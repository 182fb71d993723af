"""Several commands in one fresh interpreter, as on a command line: what is registered in it stays there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

RUNNER = """
import contextlib, io, json, sys
from ergnn.cli.main import main

done = []
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    done.append([code or 0, out.getvalue(), err.getvalue()])
print(json.dumps(done))
"""


class Done(NamedTuple):
    """The outcome of a command."""

    code: int
    out: str
    err: str


def python(*args: str, site: Path | None = None, stdin: str = "") -> str:
    """Run a fresh interpreter, with ``site`` importable, and return what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ERGNN_OFFLINE": "1", "COLUMNS": "200"}
    if site is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *args], env=environment, input=stdin, capture_output=True, text=True, cwd=site
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(*lines: str | list[str], site: Path | None = None) -> list[Done]:
    """Run ``ergnn`` commands, one after another; each is a line or its words."""
    words = [line.split() if isinstance(line, str) else line for line in lines]
    outcomes = json.loads(python("-c", RUNNER, site=site, stdin=json.dumps(words)))
    return [Done(*outcome) for outcome in outcomes]
