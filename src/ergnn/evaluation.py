"""Evaluation of learners on streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from ergnn.callbacks import Callback
from ergnn.data.stream import TaskStream
from ergnn.engine.plain import PlainModel
from ergnn.errors import InputError
from ergnn.learner import Learner
from ergnn.metrics import AccuracyMatrix
from ergnn.nn.heads import HeadPolicy
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
    """Apply :func:`evaluate_stream` to several learners at once, each on its own stream of the same length."""
    for learner in learners:
        if learner.num_tasks:
            raise InputError(f"the learner has already observed {learner.num_tasks} task(s); use a new learner")
    for learner, stream in zip(learners, streams, strict=True):
        check_stream(learner, stream)
    callbacks = list(callbacks)
    rows: list[list[list[float]]] = [[] for _ in learners]
    for i in range(len(streams[0])):
        observe_together(list(learners), [stream[i] for stream in streams], callbacks)
        for learner, stream, own in zip(learners, streams, rows, strict=True):
            own.append(scores_so_far(learner, stream, split))
    return [AccuracyMatrix(own, stream.metric) for own, stream in zip(rows, streams, strict=True)]


def check_stream(learner: Learner, stream: TaskStream) -> None:
    """Raise an error if a new learner cannot learn every task of a stream.

    The method checks each task, heads must fit the classes of all tasks, and a custom module must have an output for
    each of them.
    """
    own_module = not isinstance(learner.backbone, str)
    model = learner.new_model(stream.num_features) if own_module else None
    plain = model if isinstance(model, PlainModel) else PlainModel(torch.nn.Identity())
    heads = HeadPolicy(learner.heads.kind)
    for task in stream:
        learner.method.check(task)
        try:
            heads.add_task(plain, task.classes)
        except InputError as error:
            raise InputError(f"{task.name}: {error}") from None
    if plain is model:
        plain.check_outputs(plain.num_outputs(stream[0].graph))


def scores_so_far(learner: Learner, stream: TaskStream, split: str = "test") -> list[float]:
    """Return the latest row of the accuracy matrix: scores on the observed tasks, NaN for the others."""
    done = learner.num_tasks
    scores = [learner.evaluate(stream[j], split, stream.metric) for j in range(done)]
    return scores + [float("nan")] * (len(stream) - done)
