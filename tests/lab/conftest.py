"""Fixtures for SQLite and PostgreSQL stores, and for plug-ins."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from ergnn.config import imports
from ergnn.data import DATASETS
from ergnn.methods import METHODS
from lab.servers import new_database, postgresql_server

_numbers = count()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A real PostgreSQL server; skips with a reason where none is installed."""
    with postgresql_server() as url:
        yield url


@pytest.fixture
def _plugins_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (METHODS, DATASETS):
        registry.names()  # imports all modules, whose entries stay
        for name in ("_entries", "_help"):
            monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    monkeypatch.setattr(imports, "imported", [])


@pytest.fixture
def postgresql(server: str) -> str:
    """The URL of an empty data base."""
    return new_database(server, f"runs{next(_numbers)}")


@pytest.fixture(params=["sqlite", "postgresql"])
def store_path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store may be made."""
    if request.param == "sqlite":
        return str(tmp_path / "runs.sqlite")
    return str(request.getfixturevalue("postgresql"))
