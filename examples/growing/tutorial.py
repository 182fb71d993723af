"""Run the tutorial (docs/tutorial.md) in the current folder, which should be empty.

    mkdir try && cd try && python ../examples/growing/tutorial.py

Python blocks share their variables; ``ergnn`` commands run in this process to save start-up time; other lines run in a
shell.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from ergnn.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(text: str) -> None:
    """Run the blocks of a page in order; stop at the first that fails."""
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
