"""The writer: a process that runs jobs of a spool and reports progress on standard output.

    python -m ergnn.serve.worker FOLDER LIMITS_JSON [PLUGIN ...]

Each line of standard input is a job, ``[kind, folder of the job]``. The process exits at the end of standard input,
even while it learns, so that it does not outlive the server. An interrupted update is stored in the folder, and the
same job continues it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

NICE = 5
"""Niceness: requests have priority."""


def say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def receive(jobs: queue.Queue[list[str]]) -> None:
    rest = b""
    while part := os.read(0, 65536):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            jobs.put(json.loads(line))
    os._exit(0)


def observe(folder: Any, place: Path, limits: Any) -> dict[str, Any]:
    from ergnn.serve.uploads import read_upload

    with folder.snapshot() as snapshot:
        epochs = snapshot.learner.epochs
    epoch = 0

    def on_epoch() -> None:
        nonlocal epoch
        epoch += 1
        say(epoch=epoch, epochs=epochs)

    name = json.loads((place / "job.json").read_text(encoding="utf-8"))["name"]
    return dict(folder.observe(*read_upload(place, limits), name=name, on_epoch=on_epoch))


def forget(folder: Any, place: Path, limits: Any) -> dict[str, Any]:
    """Forget the nodes that are still in the graph: the job may have finished before a crash."""
    wanted = json.loads((place / "ids.json").read_text(encoding="utf-8"))
    with folder.snapshot() as snapshot:
        there = snapshot.graph.find(wanted["ids"]) >= 0
    ids = [name for name, found in zip(wanted["ids"], there, strict=True) if found]
    return dict(folder.forget(ids, retrain=wanted["retrain"])) if ids else {"nodes": 0}


def discard(folder: Any, place: Path, limits: Any) -> dict[str, Any]:
    """Discard an interrupted update."""
    return {"discarded": folder.discard()}


def main(argv: list[str]) -> None:
    root, limits_json, *plugins = argv
    jobs: queue.Queue[list[str]] = queue.Queue()
    threading.Thread(target=receive, args=(jobs,), daemon=True).start()
    os.nice(NICE)
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")

    import torch

    from ergnn.config.errors import BusyError, ErgnnError
    from ergnn.config.plugins import import_plugin
    from ergnn.data.tables import Limits
    from ergnn.folder import LearnerFolder

    torch.set_num_threads(1)
    for name in plugins:
        import_plugin(name)
    limits = Limits(**json.loads(limits_json))
    while True:
        kind, place = jobs.get()
        try:
            work = {"observe": observe, "forget": forget, "discard": discard}[kind]
            say(result=work(LearnerFolder(root), Path(place), limits))
        except BusyError as error:
            say(busy=str(error))
        except ErgnnError as error:
            say(error=str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
