"""Measure the time of imports and usage errors, compared with ``import torch`` in the same run.

    python -m benchmarks.startup

Each time is the minimum over several fresh interpreters, run alternately.
"""

from __future__ import annotations

import subprocess
import sys
import time

CASES = {
    "python": ["-c", ""],
    "import torch": ["-c", "import torch"],
    "import ergnn": ["-c", "import ergnn"],
    "from ergnn import Learner": ["-c", "from ergnn import Learner"],
    "ergnn --help": ["-m", "ergnn", "--help"],
    "ergnn run --help": ["-m", "ergnn", "run", "--help"],
    "unknown command": ["-m", "ergnn", "walk"],
    "unknown option": ["-m", "ergnn", "run", "cora", "--color", "red"],
    "bad number": ["-m", "ergnn", "run", "cora", "--seeds", "many"],
    "missing argument": ["-m", "ergnn", "run"],
}


def main(repeats: int = 5) -> None:
    least = dict.fromkeys(CASES, float("inf"))
    for _ in range(repeats):
        for name, arguments in CASES.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], capture_output=True)
            least[name] = min(least[name], time.perf_counter() - start)
    for name, seconds in least.items():
        print(f"{name:<26} {seconds:6.2f} s  {seconds / least['import torch']:5.2f} × import torch")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
