"""The writer: a process that runs the jobs of a spool.

    python -m ergnn.serve.worker DESCRIPTOR FOLDER LIMITS_JSON [PLUGIN ...]

Messages are lines of JSON on a socket of their own (``DESCRIPTOR``), so that output of plug-ins is no message. A
request is ``{"number": n, "kind": kind, …}``; every message about it has its number and one of :data:`MESSAGES`. The
process exits when the socket is closed, even while it learns, so that it does not outlive the server. An interrupted
update is stored in the folder, and the same job continues it.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

NICE = 5
"""Niceness: requests have priority."""
MESSAGES = {"phase": str, "result": dict, "busy": str, "delayed": str, "refused": str}
"""What a message reports, and the type of its value: progress, success, another process that writes to the folder, a
problem of the folder or the machine (the job is tried again), or an error of the job."""
Report = Callable[..., None]


def receive(channel: socket.socket, requests: queue.Queue[dict[str, Any]]) -> None:
    for line in channel.makefile("rb"):
        requests.put(json.loads(line))
    os._exit(0)


def send(channel: socket.socket, number: int, **message: Any) -> None:
    channel.sendall(json.dumps({"number": number, **message}).encode() + b"\n")


def observe(folder: Any, request: dict[str, Any], limits: Any, report: Report) -> dict[str, Any]:
    from ergnn.serve.uploads import read_upload

    report(phase="reading")
    with folder.snapshot() as snapshot:
        epochs = snapshot.learner.epochs
    epoch = 0

    def on_epoch() -> None:
        nonlocal epoch
        epoch += 1
        report(phase="training", epoch=epoch, epochs=epochs)

    tables = read_upload(Path(request["directory"]), limits)
    report(**{"phase": "solving"} if epochs is None else {"phase": "training", "epoch": 0, "epochs": epochs})
    return dict(folder.observe(*tables, name=request["name"], on_epoch=on_epoch))


def forget(folder: Any, request: dict[str, Any], limits: Any, report: Report) -> dict[str, Any]:
    """Forget nodes, and report unknown ids. The first attempt stores these: after a crash, the others may be gone."""
    from ergnn.config.errors import InputError, listed
    from ergnn.config.files import write_file
    from ergnn.folder.spool import IDS

    path = Path(request["directory"]) / IDS
    wanted = json.loads(path.read_bytes())
    with folder.snapshot() as snapshot:
        is_known = snapshot.graph.find(wanted["ids"]) >= 0
    known = [name for name, there in zip(wanted["ids"], is_known, strict=True) if there]
    if "unknown" not in wanted:
        wanted["unknown"] = [name for name, there in zip(wanted["ids"], is_known, strict=True) if not there]
        write_file(path, json.dumps(wanted).encode())
    unknown = wanted["unknown"]
    if unknown and len(unknown) == len(wanted["ids"]):
        raise InputError(f"none of the {len(unknown)} nodes is in the graph: {listed(unknown)}")
    report(phase="forgetting")
    done = folder.forget(known, retrain=wanted["retrain"]) if known else {"nodes": len(wanted["ids"]) - len(unknown)}
    return {**done, "unknown": unknown}


def discard(folder: Any, request: dict[str, Any], limits: Any, report: Report) -> dict[str, Any]:
    """Discard an interrupted update of the server; one of ``ergnn observe`` stays."""
    return {"discarded": folder.discard(request["digest"])}


def main(argv: list[str]) -> None:
    descriptor, root, limits_json, *plugins = argv
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)
    threading.Thread(target=receive, args=(channel, requests), daemon=True).start()
    os.nice(NICE)
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")

    import torch

    from ergnn.config.errors import BusyError, ErgnnError, FolderError
    from ergnn.config.plugins import import_plugin
    from ergnn.data.tables import Limits
    from ergnn.folder import LearnerFolder

    torch.set_num_threads(1)
    for name in plugins:
        import_plugin(name)
    limits = Limits(**json.loads(limits_json))
    import_module("ergnn.serve.uploads")  # before the first update comes
    runners = {"observe": observe, "forget": forget, "discard": discard}
    while True:
        request = requests.get()
        report = partial(send, channel, request["number"])
        try:
            report(result=runners[request["kind"]](LearnerFolder(root), request, limits, report))
        except BusyError as error:
            report(busy=str(error))
        except (FolderError, OSError) as error:
            report(delayed=str(error))
        except ErgnnError as error:
            report(**{"delayed" if isinstance(error.__context__, OSError) else "refused": str(error)})


if __name__ == "__main__":
    main(sys.argv[1:])
