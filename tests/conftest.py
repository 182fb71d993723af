"""Shared fixtures and settings: no downloads, one thread, no deadlines, and access to external data sets."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

try:
    from hypothesis import settings
except ImportError:  # the GPU tests run without it
    pass
else:  # no deadlines: a shared machine can be slow at any time
    settings.register_profile("quick", deadline=None, max_examples=50)
    settings.register_profile("thorough", deadline=None, max_examples=500)
    settings.load_profile("quick")


@pytest.fixture(autouse=True, scope="session")
def _quiet_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forbid downloads, and files in the user's cache; one torch thread, which is also faster on graphs this small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ERGNN_OFFLINE", "1")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """``ERGNN_DATA``, for tests of the real data sets; skips where it is not set."""
    value = os.environ.get("ERGNN_DATA")
    if not value:
        pytest.skip("ERGNN_DATA is not set")
    root = Path(value)
    if not (root / "planetoid").is_dir():
        pytest.skip(f"ERGNN_DATA={value} has no folder 'planetoid'")
    return root
