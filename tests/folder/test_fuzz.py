"""No database, however mutated, crashes, hangs, or takes 200 MB more than an intact one; see :mod:`folder.fuzz`."""

import shutil
from pathlib import Path

import pytest

from ergnn.folder import LearnerFolder
from folder.forks import Fork
from folder.fuzz import fuzz
from folder.growing import make_updates


class Stopped(Exception):
    pass


@pytest.fixture
def folders(base: Path, tmp_path: Path) -> Path:
    """A folder between updates (``whole``), and one in the middle of an update (``begun``)."""
    shutil.copytree(base, tmp_path / "base" / "whole")
    shutil.copytree(base, tmp_path / "base" / "begun")
    epochs = 0

    def stop() -> None:
        nonlocal epochs
        epochs += 1
        if epochs == 4:
            raise Stopped

    with pytest.raises(Stopped):
        LearnerFolder(tmp_path / "base" / "begun").observe(*make_updates(3)[2], checkpoint_seconds=0, on_epoch=stop)
    return tmp_path / "base"


@pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.slow)])
def test_mutated_databases_are_refused_or_read_correctly(count: int, folders: Path, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    result = Fork(fuzz, folders, tmp_path / "place", count, count).result()
    print(result)
    assert result["wrong"] == []
    assert result["refused"] > 0.3 * count  # others hit older versions, or nothing that is read
    assert result["extra_mb"] < 200
