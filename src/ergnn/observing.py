"""Learning a task: make ready, train (several learners side by side where they can), let the method remember."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ergnn.callbacks.base import CallbackList
from ergnn.data.stream import Task
from ergnn.engine.objective import Objective, can_stand_side_by_side, make_objective
from ergnn.engine.sampled import SampledObjective
from ergnn.engine.sampling import Sampling
from ergnn.errors import InputError
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.training import OnEpoch, TaskProgress, train

if TYPE_CHECKING:
    from ergnn.learner import Learner


@dataclass(frozen=True)
class Following:
    """Who looks on while one learner learns, and where an interrupted task goes on.

    Args:
        callbacks: told of tasks, epochs and choices.
        checkpoint: given the :class:`TaskProgress` after each epoch.
        resume: the ``state_dict`` of such a progress.
    """

    callbacks: CallbackList = field(default_factory=CallbackList)
    checkpoint: OnEpoch | None = None
    resume: dict[str, Any] | None = None

    def on_epoch(self, learner: Learner) -> OnEpoch | None:
        """What to call after an epoch; None if nobody listens, so that nothing is computed for it."""
        if self.checkpoint is None and not self.callbacks.wants_epochs:
            return None

        def call(progress: TaskProgress) -> None:
            if self.checkpoint is not None:
                self.checkpoint(progress)
            if self.callbacks.wants_epochs:
                self.callbacks.on_epoch_end(learner, progress.epoch, progress.loss)

        return call


def observe_alone(learner: Learner, task: Task, on_epoch: Callable[[], None] | None, following: Following) -> None:
    """Let one learner learn a task, with an audience."""
    before = _snapshot(learner)
    callbacks = following.callbacks
    try:
        _observe([learner], [task], on_epoch, following)
        callbacks.on_task_end(learner, task, learner.history[-1])
    except BaseException as error:  # also Ctrl-C: a task is learnt as a whole or not at all
        _restore(learner, before)
        callbacks.on_task_failed(learner, task, error)
        raise


def observe_together(
    learners: Sequence[Learner], tasks: Sequence[Task], on_epoch: Callable[[], None] | None = None
) -> None:
    """Let several learners learn a task each, side by side in one program where their models allow it.

    Those of one backbone, head, training and number of tasks so far stand side by side; the others, and those that
    train in mini-batches or whose method guides each step, one after another. Seeds, tasks, selectors and buffers are
    each one's own, and so is the result: the same as alone. ``on_epoch`` is called once for each learner's epoch.
    """
    before = [_snapshot(learner) for learner in learners]
    try:
        _observe(learners, tasks, on_epoch, Following())
    except BaseException:
        for learner, state in zip(learners, before, strict=True):
            _restore(learner, state)
        raise


def _observe(
    learners: Sequence[Learner], tasks: Sequence[Task], on_epoch: Callable[[], None] | None, following: Following
) -> None:
    begun = [begin(learner, task) for learner, task in zip(learners, tasks, strict=True)]
    following.callbacks.on_task_begin(learners[0], begun[0][0])
    models = [learner.model for learner in learners if learner.model is not None]
    rounds = [
        learner.method.rounds(learner, examples, task.train.numel())
        for learner, (task, examples) in zip(learners, begun, strict=True)
    ]
    for i, learner in enumerate(learners):
        if not learner.method.trains:
            _finish(learner, *begun[i], 0.0, following)
    for group in _groups(learners, begun, rounds):
        start = time.perf_counter()
        lead, (task, examples) = learners[group[0]], begun[group[0]]
        heads = torch.unique(examples.heads).tolist()
        objectives = [
            _objective([models[i] for i in group], [rounds[i][k] for i in group], heads, lead.training.sampling)
            for k in range(len(rounds[group[0]]))
        ]
        train(
            objectives,
            lead.training,
            [learners[i].seed for i in group],
            task.id,
            _each_epoch(len(group), on_epoch, following.on_epoch(lead)),
            own=task.train.numel(),
            guide=lead.method.guide(lead, task, objectives[0]) if lead.method.guided else None,
            resume=following.resume,
        )
        if lead.device.type == "cuda":
            torch.cuda.synchronize(lead.device)
        seconds = (time.perf_counter() - start) / len(group)
        for i in group:
            _finish(learners[i], *begun[i], seconds, following)


def _objective(
    models: Sequence[nn.Module], examples: Sequence[Examples], heads: list[int], sampling: Sampling | None
) -> Objective:
    if sampling is None:
        return make_objective(models, examples, heads)
    sampling.check(models[0])
    assert isinstance(models[0], Backbone)
    return SampledObjective(models[0], examples[0], sampling, heads)


def begin(learner: Learner, task: Task) -> tuple[Task, Examples]:
    """Make ready for a task: checks, room in the head, and the examples to learn from."""
    if task.id != learner.num_tasks:
        raise InputError(f"{task.name} came as number {learner.num_tasks + 1}; tasks are learnt in their order")
    learner.method.check(task)
    task = _on_device(task, learner.device)
    if learner.num_features not in (None, task.graph.num_features):
        raise InputError(
            f"{task.name}: the graph has {task.graph.num_features} attributes; earlier tasks had {learner.num_features}"
        )
    earlier = learner.heads.classes
    if learner.model is None or learner.method.from_scratch:
        learner.model = learner.new_model(task.graph.num_features)
        learner.heads.classes = []
        for classes in earlier:
            learner.add_head(classes)
    number = learner.add_head(task.classes)
    learner.model.to(learner.device)
    learner.graph, learner.num_features = task.graph, task.graph.num_features
    return task, learner.method.examples(learner, task, number)


def _finish(learner: Learner, task: Task, trained_on: Examples, seconds: float, following: Following) -> None:
    start = time.perf_counter()
    info = learner.method.after_task(learner, task, task.id, trained_on)
    learner.history.append(
        {
            "task": task.id,
            "classes": list(task.classes),
            "trained_on": len(trained_on),
            "train_seconds": seconds,
            "select_seconds": time.perf_counter() - start,
            "selection": info,
        }
    )
    buffer = learner.method.buffer
    for experience in () if buffer is None else buffer.experiences[-1:]:
        if experience.task == task.id:
            following.callbacks.on_selection(learner, task, experience)


def _groups(
    learners: Sequence[Learner], begun: Sequence[tuple[Task, Examples]], rounds: Sequence[list[Examples]]
) -> list[list[int]]:
    """Which learners stand side by side; those that do not train are in none."""
    groups: list[list[int]] = []
    shapes = [_shape(learner, *begun[i], len(rounds[i])) for i, learner in enumerate(learners)]
    for i, learner in enumerate(learners):
        if not learner.method.trains:
            continue
        for group in groups:
            lead = learners[group[0]]
            if (
                not (_goes_alone(lead) or _goes_alone(learner))
                and can_stand_side_by_side([m for m in (lead.model, learner.model) if m is not None])
                and shapes[group[0]] == shapes[i]
            ):
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _goes_alone(learner: Learner) -> bool:
    return learner.method.guided or learner.training.batch_size is not None


def _shape(learner: Learner, task: Task, trained_on: Examples, rounds: int) -> tuple[Any, ...]:
    """What learners must have in common to stand side by side in one program."""
    return (
        learner.backbone,
        learner.backbone_options,
        learner.training,
        learner.device,
        learner.heads.kind,
        [len(classes) for classes in learner.heads.classes],
        torch.unique(trained_on.heads).tolist(),
        rounds,
        task.graph.num_features,
    )


def _each_epoch(count: int, on_epoch: Callable[[], None] | None, follow: OnEpoch | None) -> OnEpoch | None:
    """``on_epoch`` once for each of ``count`` learners, and what follows one learner."""
    if on_epoch is None:
        return follow

    def call(progress: TaskProgress) -> None:
        for _ in range(count):
            on_epoch()
        if follow is not None:
            follow(progress)

    return call


def _snapshot(learner: Learner) -> dict[str, Any]:
    """All that learning a task changes."""
    return {
        "model": learner.model,
        "parameters": {} if learner.model is None else copied(dict(learner.model.state_dict())),
        "heads": len(getattr(learner.model, "head_widths", ())),
        "classes": list(learner.heads.classes),
        "method": copied(learner.method.state_dict()),
        "own": {name: getattr(learner, name) for name in ("graph", "num_features")},
        "history": list(learner.history),
    }


def _restore(learner: Learner, state: dict[str, Any]) -> None:
    learner.model, learner.heads.classes, learner.history = state["model"], state["classes"], state["history"]
    if learner.model is not None:
        del learner.model.head_widths[state["heads"] :]  # type: ignore[union-attr, operator]
        if hasattr(learner.model, "heads"):
            del learner.model.heads[state["heads"] :]  # type: ignore[union-attr, operator]
        learner.model.load_state_dict(state["parameters"])
    for name, value in state["own"].items():
        setattr(learner, name, value)
    learner.method.load_state_dict(state["method"])


def copied(state: Any, device: torch.device | None = None) -> Any:
    """A state that later learning cannot reach, on a device (``deepcopy`` does not take sparse tensors)."""
    if isinstance(state, Tensor):
        return state.clone().to(state.device if device is None else device)
    if isinstance(state, dict):
        return {key: copied(value, device) for key, value in state.items()}
    return [copied(value, device) for value in state] if isinstance(state, list) else copy.deepcopy(state)


def _on_device(task: Task, device: torch.device) -> Task:
    if task.graph.device == device and task.train.device == device:
        return task
    move = {name: getattr(task, name).to(device) for name in ("train", "val", "test")}
    return replace(task, graph=task.graph.to(device), **move)
