"""Code version of a result: the package version, and the commit of its own checkout only."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ergnn

PACKAGE = Path(ergnn.__file__).parent
CODE = "from ergnn.lab.store import code_version; print(code_version())"


def git(at: Path, *args: str) -> str:
    identity = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    done = subprocess.run(["git", *identity, *args], cwd=at, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "first")
    return tmp_path


def version_below(folder: Path) -> str:
    """What the package says of itself when it lies in a folder."""
    shutil.copytree(PACKAGE, folder / "ergnn", ignore=shutil.ignore_patterns("__pycache__", "bundled"))
    done = subprocess.run([sys.executable, "-c", CODE], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_unrelated_enclosing_repository_is_not_recorded(repository: Path) -> None:
    site = repository / "venv" / "site-packages"
    site.mkdir(parents=True)
    assert version_below(site) == ergnn.__version__


def test_the_commit_of_its_own_checkout_is_recorded(repository: Path) -> None:
    (repository / "src").mkdir()
    found = version_below(repository / "src")
    assert found == f"{ergnn.__version__}+{git(repository, 'describe', '--always')}"
