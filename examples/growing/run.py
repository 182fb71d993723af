"""Run the files of a stream through ``ergnn init``, ``observe`` and ``evaluate``, and print the results.

    python examples/growing/run.py FILES OUT [--learner analytic|one|some|all] [--seeds N] [--epochs N]

FILES is a folder written by make_files.py. The commands are printed, and run in this process to save start-up time.
OUT gets the learners' folders and ``results.json``, to which every run is appended.
"""

import argparse
import contextlib
import io
import json
import shlex
from pathlib import Path
from time import perf_counter

from ergnn.cli.main import main as ergnn

REPLAY = "--method replay --backbone gcn --epochs {epochs} --seed {seed}"
LEARNERS = {
    "analytic": "--method analytic",
    "one": f"{REPLAY} --per-class 1 --budget-nodes 1",
    "some": f"{REPLAY} --per-class 50 --replay-batch 400",
    "all": f"{REPLAY} --per-class 1000000",
}
"""The closed form, which has no seed, and replay with one node in total, 50 per class and update, or every node."""


def command(line: str) -> str:
    """Run a command line and return its output."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        if ergnn(shlex.split(line)):
            raise SystemExit(f"ergnn {line}: failed")
    return said.getvalue()


def run(files: Path, folder: Path, learner: str, seed: int, epochs: int) -> dict[str, object]:
    """Run one learner, from init to the last update."""
    count = len(list(files.glob("nodes-*.csv")))
    first = f"init {folder} {LEARNERS[learner].format(epochs=epochs, seed=seed)} --eval-samples 100000"
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
        "learner": learner,
        "seed": seed,
        "epochs": epochs,
        "scores": [[100 * right / of for _, right, of in update["scores"]] for update in found["updates"]],
        "known": [100 * row["accuracy"] for row in known["updates"]],
        "remembered": [update["remembered"] for update in found["updates"]],
        "read": [update["touched"] / update["graph"]["nodes"] for update in found["updates"]],
        "measures": found["measures"],
        "bytes": found["bytes"],
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("files", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--learner", choices=LEARNERS, action="append")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=50)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):
        for learner in args.learner or LEARNERS:
            folder = args.out / f"{args.files.name}-{learner}-{seed}"
            if folder.exists() or (learner == "analytic" and seed):
                continue
            found = run(args.files, folder, learner, seed, args.epochs)
            with (args.out / "results.json").open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(json.dumps(found["measures"]), flush=True)


if __name__ == "__main__":
    main()
