"""The writer: a process that carries out one job of a spool and says on standard output how far it is.

    python -m ergnn.serve.worker FOLDER JOB_FOLDER KIND LIMITS_JSON [PLUGIN ...]

It ends when its standard input does, so that it does not outlive the server. What was begun is in the folder then, and
the same job goes on with it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

NICE = 10
"""Answering requests comes first."""


def say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def end_with_the_server() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def observe(folder: Any, place: Path, limits: Any) -> dict[str, Any]:
    from ergnn.serve.uploads import read_upload

    learner = folder.settings.learner
    epochs = None if learner.method == "analytic" else learner.epochs
    epoch = 0

    def on_epoch() -> None:
        nonlocal epoch
        epoch += 1
        say(epoch=epoch, epochs=epochs)

    name = json.loads((place / "job.json").read_text(encoding="utf-8"))["name"]
    return dict(folder.observe(*read_upload(place, limits), name=name, on_epoch=on_epoch))


def forget(folder: Any, place: Path, limits: Any) -> dict[str, Any]:
    """Forget the nodes that are still there: the job may have been done before a crash."""
    wanted = json.loads((place / "ids.json").read_text(encoding="utf-8"))
    with folder.snapshot() as snapshot:
        there = snapshot.graph.find(wanted["ids"]) >= 0
    ids = [name for name, found in zip(wanted["ids"], there, strict=True) if found]
    return dict(folder.forget(ids, retrain=wanted["retrain"])) if ids else {"nodes": 0}


def main(argv: list[str]) -> int:
    root, place, kind, limits, *plugins = argv
    threading.Thread(target=end_with_the_server, daemon=True).start()
    os.nice(NICE)

    import torch

    from ergnn.data.formats import Limits
    from ergnn.errors import ErgnnError
    from ergnn.folder import LearnerFolder
    from ergnn.folder.database import BusyError
    from ergnn.plugins import import_plugin

    torch.set_num_threads(1)
    try:
        for name in plugins:
            import_plugin(name)
        folder = LearnerFolder(root)
        if kind == "discard":
            folder.discard()
            say(result={})
        else:
            job = {"observe": observe, "forget": forget}[kind]
            say(result=job(folder, Path(place), Limits(**json.loads(limits))))
    except BusyError as error:
        say(busy=str(error))
    except ErgnnError as error:
        say(error=str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
