"""Shared fixtures of the page tests."""

from pathlib import Path

import pytest

from lab.report.stores import fill


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run store with real runs."""
    return fill(tmp_path_factory.mktemp("store") / "runs.sqlite")
