"""Readers are never blocked and never see half a state; see :mod:`folder.crowd`."""

from pathlib import Path

import pytest

from ergnn.folder import LearnerFolder
from folder.crowd import LEAST, read, write
from folder.forks import PROCESSES, Fork
from folder.growing import make_update, quick

READERS = 8


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_eight_readers_and_one_writer(seconds: int, tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d", quick(epochs=1, per_class=2, keep=2, budget_nodes=8))
    folder.observe(*make_update(0, [0, 1]))
    start, stop = PROCESSES.Barrier(READERS + 1), tmp_path / "stop"
    readers = [Fork(read, start, folder.root, stop) for _ in range(READERS)]
    written = Fork(write, start, folder.root, seconds, stop).result()
    answers = [reader.result() for reader in readers]
    versions: dict[str, set[str]] = {}
    for answer in answers:
        for version, digests in answer["seen"].items():
            versions.setdefault(version, set()).update(digests)
    print(f"{sum(answer['reads'] for answer in answers)} reads of {len(versions)} versions, {written['writes']} writes")
    assert [text for answer in (written, *answers) for text in answer["failures"]] == []
    assert all(len(digests) == 1 for digests in versions.values()), "a torn state"
    assert written["writes"] >= LEAST
    assert len(versions) > 2
