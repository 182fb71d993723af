"""Evaluation of learners on streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ergnn.callbacks import Callback
from ergnn.data.stream import TaskStream
from ergnn.errors import InputError
from ergnn.learner import Learner
from ergnn.metrics import AccuracyMatrix
from ergnn.observing import observe_together


def evaluate_stream(
    learner: Learner, stream: TaskStream, *, split: str = "test", callbacks: Iterable[Callback] = ()
) -> AccuracyMatrix:
    """Let a new learner observe every task of a stream, and score it on all tasks so far after each task.

    Args:
        learner: a learner that has not observed a task yet.
        stream: the tasks and their metric.
        split: the nodes to score on: ``train``, ``val`` or ``test``.
        callbacks: see :mod:`ergnn.callbacks`.
    """
    return evaluate_streams([learner], [stream], split=split, callbacks=callbacks)[0]


def evaluate_streams(
    learners: Sequence[Learner],
    streams: Sequence[TaskStream],
    *,
    split: str = "test",
    callbacks: Iterable[Callback] = (),
) -> list[AccuracyMatrix]:
    """:func:`evaluate_stream` for several learners side by side, each on its own stream of the same length."""
    for learner in learners:
        if learner.num_tasks:
            raise InputError(f"the learner has already observed {learner.num_tasks} task(s); use a new learner")
    callbacks = list(callbacks)
    rows: list[list[list[float]]] = [[] for _ in learners]
    for i in range(len(streams[0])):
        observe_together(list(learners), [stream[i] for stream in streams], callbacks)
        for learner, stream, own in zip(learners, streams, rows, strict=True):
            own.append(scores_so_far(learner, stream, split))
    return [AccuracyMatrix(own, stream.metric) for own, stream in zip(rows, streams, strict=True)]


def scores_so_far(learner: Learner, stream: TaskStream, split: str = "test") -> list[float]:
    """The latest row of the accuracy matrix: scores on the observed tasks, NaN for the others."""
    done = learner.num_tasks
    scores = [learner.evaluate(stream[j], split, stream.metric) for j in range(done)]
    return scores + [float("nan")] * (len(stream) - done)
