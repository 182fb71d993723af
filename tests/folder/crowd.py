"""Readers and a writer of one folder, in processes of their own.

The writer observes, forgets and rolls back without a pause and keeps two versions only; readers open whatever is
current and predict. All answers of one version must be the same.
"""

import hashlib
import json
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from ergnn.folder import LearnerFolder
from folder.growing import make_update

LEAST = 8
"""Writes, and reads of each reader, however long they take."""


def read(send: Connection, start: Barrier, root: Path, stop: Path) -> None:
    start.wait()
    seen: dict[str, list[str]] = {}
    reads, failures = 0, []
    while not stop.exists() or reads + len(failures) < LEAST:
        try:
            with LearnerFolder(root).snapshot() as snapshot:
                ids = snapshot.graph.names(snapshot.learner.buffer.nodes.numpy())
                digest = hashlib.sha256(json.dumps(snapshot.records).encode())
                names, classes, p = snapshot.predict(ids)
                assert abs(p.sum(1) - 1).max() < 1e-6
                digest.update(json.dumps([names, classes, p.tolist()]).encode())
            answers = seen.setdefault(f"{snapshot.version.number} {snapshot.version.time}", [])
            if digest.hexdigest() not in answers:
                answers.append(digest.hexdigest())
            reads += 1
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}"[:300])
        time.sleep(0.05)
    send.send({"reads": reads, "failures": failures, "seen": seen})


def write(send: Connection, start: Barrier, root: Path, seconds: float, stop: Path) -> None:
    start.wait()
    until = time.time() + seconds
    folder, writes, count, failures = LearnerFolder(root), 0, 40, []
    while time.time() < until or (writes < LEAST and len(failures) < LEAST):
        try:
            if writes % 7 == 5:
                folder.forget([f"n{count - 1}"])
            elif writes % 7 == 6:
                folder.rollback()
            else:
                folder.observe(*make_update(writes, [0, 1], nodes=8, before=count, links=1))
                count += 8
            writes += 1
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}"[:300])
            count += 8
    stop.touch()
    send.send({"writes": writes, "failures": failures})
