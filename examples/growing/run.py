"""Run the files of a stream through ``ergnn init``, ``observe`` and ``evaluate``, and print what came of it.

    python examples/growing/run.py FILES OUT [--memory one|some|all] [--seeds N] [--epochs N]

FILES is a folder of make_files.py. The commands are printed, and run in this process, to save a start each.
OUT gets the learners' folders and ``results.json``, to which every run is added.
"""

import argparse
import contextlib
import io
import json
import shlex
from pathlib import Path
from time import perf_counter

from ergnn.cli import main as ergnn

MEMORY = {
    "one": "--per-class 1 --budget-nodes 1",
    "some": "--per-class 50 --replay-batch 400",
    "all": "--per-class 1000000",
}
"""What is remembered: one node in all (as good as nothing), 50 a class and update, or every node that was learned."""


def command(line: str) -> str:
    """Run a command line; what it printed."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        if ergnn(shlex.split(line)):
            raise SystemExit(f"ergnn {line}: failed")
    return said.getvalue()


def run(files: Path, folder: Path, memory: str, seed: int, epochs: int) -> dict[str, object]:
    """One learner, from init to the last update."""
    count = len(list(files.glob("nodes-*.csv")))
    first = f"init {folder} --backbone gcn --epochs {epochs} --eval-samples 100000 {MEMORY[memory]} --seed {seed}"
    with (files / "features.txt").open() as file:
        first += f" --num-features {int(file.read())}"
    print(f"$ ergnn {first}", flush=True)
    command(first)
    seconds = []
    for number in range(1, count + 1):
        line = f"observe {folder} --nodes {files}/nodes-{number}.csv --edges {files}/edges-{number}.csv"
        start = perf_counter()
        said = command(line)
        seconds.append(perf_counter() - start)
        print(f"$ ergnn {line}\n{said}", flush=True)
    found = json.loads(command(f"inspect {folder} --json"))
    known = json.loads(command(f"evaluate {folder} --task-known --json"))
    return {
        "stream": files.name,
        "memory": memory,
        "seed": seed,
        "epochs": epochs,
        "scores": [[100 * right / of for _, right, of in update["scores"]] for update in found["updates"]],
        "known": [100 * row["accuracy"] for row in known],
        "remembered": [update["remembered"] for update in found["updates"]],
        "read": [update["touched"] / update["graph"]["nodes"] for update in found["updates"]],
        "measures": found["measures"],
        "bytes": found["bytes"],
        "learning": [entry["seconds"] for entry in found["log"] if entry["what"] == "observe"],
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("files", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--memory", choices=MEMORY, action="append")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=50)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):
        for memory in args.memory or MEMORY:
            folder = args.out / f"{args.files.name}-{memory}-{seed}"
            if folder.exists():
                print(f"{folder} is there already")
                continue
            found = run(args.files, folder, memory, seed, args.epochs)
            with (args.out / "results.json").open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(json.dumps(found["measures"]), flush=True)


if __name__ == "__main__":
    main()
