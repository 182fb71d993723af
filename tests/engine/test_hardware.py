"""CPU threads: chosen by the size of the work, told by the user, and restored."""

from collections.abc import Iterator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
import torch

import ergnn
from ergnn.config.errors import InputError
from ergnn.data import TaskStream
from ergnn.engine import hardware
from ergnn.learning.callbacks import Callback
from graphs import random_graph


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads, as in a process in which no command has run yet."""
    monkeypatch.setattr(hardware, "_threads", ContextVar("threads", default=None))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Seen(Callback):
    """Notes the number of threads in use."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def on_task_end(self, *args: Any) -> None:
        self.threads.add(torch.get_num_threads())


def _seen(monkeypatch: pytest.MonkeyPatch, limit: int, **settings: Any) -> set[int]:
    monkeypatch.setattr(hardware, "SMALL_WORK", limit)
    seen = Seen()
    learner = ergnn.Learner("sgc", "finetune", epochs=1, head="growing", **settings)
    ergnn.evaluate_stream(learner, TaskStream.from_classes(random_graph()), callbacks=[seen])
    learner.predict(torch.arange(3))
    assert torch.get_num_threads() == 2, "the setting of the process is as before"
    return seen.threads


def test_small_work_runs_on_one_thread_and_large_work_on_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _seen(monkeypatch, hardware.SMALL_WORK) == {1}
    assert _seen(monkeypatch, 0) == {2}


def test_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _seen(monkeypatch, 0, threads=1) == {1}
    assert _seen(monkeypatch, hardware.SMALL_WORK, threads=3) == {3}
    context = copy_context()
    context.run(hardware.set_threads, 2)
    assert context.run(_seen, monkeypatch, hardware.SMALL_WORK) == {2}, "as after --threads 2"
    context.run(hardware.set_threads, None)
    assert context.run(torch.get_num_threads) == 1, "as by default on the command line"
    with pytest.raises(InputError, match="threads is 0; it must be 1 or more"):
        _seen(monkeypatch, 0, threads=0)


def test_large_systems_of_small_graphs_use_the_threads_of_the_process() -> None:
    with hardware.use_threads(None):
        assert torch.get_num_threads() == 1
        with hardware.use_threads(None, entries=hardware.SMALL_WORK):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
    with hardware.use_threads(1), hardware.use_threads(None, entries=hardware.SMALL_WORK):
        assert torch.get_num_threads() == 1, "as the user told"


def test_the_setting_is_restored_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), hardware.use_threads(1):
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == 2
