"""Eight readers and one writer on one folder.

    python crowd.py ROOT SECONDS

The writer observes, forgets and rolls back without a pause and keeps two versions only; readers open whatever is
current and predict. All answers of one version must be the same. Prints what happened as JSON.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

READERS = 8
LEAST = 8
"""Writes, however long they take."""


def read(root: Path, stop: Path) -> dict[str, Any]:
    from ergnn.folder import LearnerFolder

    seen: dict[str, list[str]] = {}
    reads, failures = 0, []
    while not stop.exists():
        try:
            with LearnerFolder(root).snapshot() as snapshot:
                ids = snapshot.graph.names(snapshot.learner.buffer.nodes.numpy())
                digest = hashlib.sha256(json.dumps(snapshot.records).encode())
                for names, classes, p in snapshot.predict(ids):
                    assert abs(p.sum(1) - 1).max() < 1e-6
                    digest.update(json.dumps([names, classes, p.tolist()]).encode())
            answers = seen.setdefault(f"{snapshot.version.number} {snapshot.version.time}", [])
            if digest.hexdigest() not in answers:
                answers.append(digest.hexdigest())
            reads += 1
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}"[:300])
        time.sleep(0.05)
    return {"reads": reads, "failures": failures, "seen": seen}


def write(root: Path, until: float, stop: Path) -> dict[str, Any]:
    from ergnn.folder import LearnerFolder

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from folder.growing import make_update

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
    return {"writes": writes, "failures": failures}


def main(root: Path, seconds: float) -> None:
    import torch

    import ergnn.folder.learner_folder  # noqa: F401

    torch.set_num_threads(1)
    until, stop = time.time() + seconds, root.with_name("stop")
    pipes = []
    for number in range(READERS + 1):
        out, into = os.pipe()
        if not os.fork():
            answer = write(root, until, stop) if number == READERS else read(root, stop)
            with os.fdopen(into, "w") as file:
                json.dump(answer, file)
            os._exit(0)
        os.close(into)
        pipes.append(out)
    answers = []
    for pipe in pipes:
        with os.fdopen(pipe) as file:
            answers.append(json.loads(file.read() or '{"failures": ["a process died"], "reads": 0, "seen": {}}'))
    versions: dict[str, set[str]] = {}
    for answer in answers[:READERS]:
        for version, digests in answer["seen"].items():
            versions.setdefault(version, set()).update(digests)
    result = {
        "reads": sum(answer["reads"] for answer in answers[:READERS]),
        "writes": answers[READERS].get("writes", 0),
        "versions_seen": len(versions),
        "torn": sorted(version for version, digests in versions.items() if len(digests) > 1),
        "failures": [text for answer in answers for text in answer["failures"]],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
