"""Commands read bundled data only; a test can require that nothing is trained."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _bundled_data_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ERGNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ergnn.learning.observing.train_in_phases", lambda *args, **kwargs: pytest.fail("it trained"))
