"""A folder after two updates, and copies of it."""

import shutil
from pathlib import Path

import pytest

from ergnn.folder import LearnerFolder
from folder.growing import QUICK, make_updates


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder after two updates."""
    root = tmp_path_factory.mktemp("folder") / "base"
    folder = LearnerFolder.create(root, QUICK)
    for nodes, edges in make_updates(2):
        folder.observe(nodes, edges)
    return root


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> LearnerFolder:
    shutil.copytree(base, tmp_path / "learner")
    return LearnerFolder(tmp_path / "learner")
