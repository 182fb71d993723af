"""The progress bar: shown on a terminal only, removed after an error."""

import io

import pytest
from rich.console import Console

from ergnn.config.errors import DivergedError
from ergnn.data import TaskStream
from ergnn.learning.callbacks import Progress
from ergnn.learning.learner import Learner
from graphs import random_graph


@pytest.fixture(scope="module")
def stream() -> TaskStream:
    return TaskStream.from_classes(random_graph(n=40, f=6, classes=4, p_edge=0.08, seed=1))


def test_a_terminal_shows_one_line_per_task_and_the_epochs(stream: TaskStream) -> None:
    screen = io.StringIO()
    progress = Progress(Console(file=screen, force_terminal=True, width=100))
    learner = Learner("gcn", per_class=1, epochs=5)
    for task in stream:
        learner.observe(task, callbacks=[progress])
    said = screen.getvalue()
    assert "5/5" in said
    assert "task 1 (classes 0, 1): learned in" in said
    assert "task 2 (classes 2, 3): learned in" in said
    assert "4 nodes stored" in said


def test_nothing_is_shown_without_a_terminal(stream: TaskStream, capsys: pytest.CaptureFixture[str]) -> None:
    Learner("gcn", epochs=2).observe(stream[0], callbacks=[Progress()])
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "")


def test_the_bar_is_removed_when_a_task_fails(stream: TaskStream) -> None:
    screen = io.StringIO()
    progress = Progress(Console(file=screen, force_terminal=True, width=100))
    with pytest.raises(DivergedError):
        Learner("gcn", epochs=3, lr=1e38).observe(stream[0], callbacks=[progress])
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h") == 1  # the cursor is back
    assert "learned in" not in screen.getvalue()
