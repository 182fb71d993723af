"""A folder after two updates, and a client of an application that serves a copy of it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

from fastapi.testclient import TestClient

from ergnn.folder import LearnerFolder
from ergnn.serve.app import make_app
from ergnn.serve.service import Service
from folder.growing import make_updates, quick, write_tables

BASE = "http://localhost"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``base``, a folder after two updates, and the CSV files of the third."""
    place = tmp_path_factory.mktemp("serve")
    folder = LearnerFolder.create(place / "base", quick(epochs=10))
    updates = make_updates(3)
    for nodes, edges in updates[:2]:
        folder.observe(nodes, edges)
    write_tables(place / "third", *updates[2])
    return place


@pytest.fixture
def root(place: Path, tmp_path: Path) -> Path:
    shutil.copytree(place / "base", tmp_path / "learner")
    return tmp_path / "learner"


@pytest.fixture
def client(root: Path) -> Iterator[TestClient]:
    """A client of an application of its own."""
    with TestClient(make_app(Service(root)), BASE, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def reader(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client for tests that change nothing."""
    root = tmp_path_factory.mktemp("reader") / "learner"
    shutil.copytree(place / "base", root)
    with TestClient(make_app(Service(root)), BASE, raise_server_exceptions=False) as client:
        yield client
