"""Run the tutorial (docs/tutorial.md) in the folder where you are, which should be an empty one.

    mkdir try && cd try && python ../examples/growing/tutorial.py

Python blocks share their names, as in one session; ``ergnn`` commands run in this process, to save a start each; every
other line goes to a shell.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from ergnn.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(text: str) -> None:
    """Run the blocks of a page in their order; stops at the first that fails."""
    names = {"__name__": "__main__"}
    for language, body in BLOCK.findall(text):
        if language == "python":
            exec(compile(body, str(PAGE), "exec"), names)
            continue
        for line in body.splitlines():
            if line.startswith("$ "):
                print(line, flush=True)
                command(line.removeprefix("$ "))


def command(line: str) -> None:
    if line.startswith("ergnn "):
        failed = main(shlex.split(line)[1:])
    else:
        failed = subprocess.run(["bash", "-euo", "pipefail", "-c", line], check=False).returncode
    if failed:
        sys.exit(f"{line}: failed")


if __name__ == "__main__":
    run(PAGE.read_text(encoding="utf-8"))
