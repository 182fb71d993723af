"""Learn a task as one transaction: prepare, train (several learners side by side if possible), update the memory.

If any step fails, the learners are restored.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.graph import warn_dominant
from ergnn.data.stream import Task
from ergnn.engine.objective import Objective, architecture, make_objective
from ergnn.engine.step_hooks import StepHook
from ergnn.engine.training import OnEpoch, TaskProgress, train_in_phases
from ergnn.learning.callbacks.base import Callback, CallbackList
from ergnn.methods.base import LearnerView
from ergnn.methods.memory import choose_together
from ergnn.nn.examples import Examples


def observe_together(
    learners: Sequence[LearnerView],
    tasks: Sequence[Task],
    callbacks: Iterable[Callback] = (),
    *,
    resume: dict[str, Any] | None = None,
) -> None:
    """Train several learners on one task each, side by side in stacked tensors if possible.

    Learners with the same backbone, head, training settings and number of tasks are trained side by side (those whose
    method has a step hook, with learners of the same method); the others, and those that use mini-batches, one after
    another. Seeds, tasks, selectors and buffers are separate, and each result is the same as when training alone. If
    anything fails, all learners are restored.

    Args:
        callbacks: see :mod:`ergnn.learning.callbacks`; the hooks are called for each learner.
        resume: ``state_dict`` of a :class:`TaskProgress`; for a single learner only.
    """
    if resume is not None and len(learners) != 1:
        raise InputError(f"resume requires one learner; {len(learners)} were given")
    hooks = CallbackList(callbacks)
    before = [snapshot(learner) for learner in learners]
    try:
        _observe(learners, tasks, hooks, resume)
        for learner, task in zip(learners, tasks, strict=True):
            hooks.call("on_task_end", learner, task, learner.history[-1])
    except BaseException as error:  # also Ctrl-C
        for learner, state in zip(learners, before, strict=True):
            restore(learner, state)
        for learner, task in zip(learners, tasks, strict=True):
            hooks.call("on_task_failed", learner, task, error)
        raise


def _observe(
    learners: Sequence[LearnerView],
    tasks: Sequence[Task],
    callbacks: CallbackList,
    resume: dict[str, Any] | None,
) -> None:
    begun = [begin(learner, task) for learner, task in zip(learners, tasks, strict=True)]
    for learner, (task, _) in zip(learners, begun, strict=True):
        callbacks.call("on_task_begin", learner, task)
    rounds = [
        learner.method.rounds(learner, task, examples)
        for learner, (task, examples) in zip(learners, begun, strict=True)
    ]
    for i, learner in enumerate(learners):
        if not learner.method.trains_network:
            _finish(learner, *begun[i], 0.0, callbacks)
    started: list[tuple[list[int], Iterator[None], float]] = []
    for group in _groups(learners, begun, rounds):
        start = time.perf_counter()
        lead, (task, examples) = learners[group[0]], begun[group[0]]
        heads = torch.unique(examples.heads).tolist()
        objectives = [
            make_objective(
                [model for i in group if (model := learners[i].model) is not None],
                [rounds[i][k] for i in group],
                heads,
                sampling=lead.training.sampling,
            )
            for k in range(len(rounds[group[0]]))
        ]
        phases = train_in_phases(
            objectives,
            lead.training,
            [learners[i].seed for i in group],
            task.id,
            _on_epoch([learners[i] for i in group], callbacks),
            own=task.train.numel(),
            hooks=[_step_hook(learners[i], begun[i][0], objectives[0], k) for k, i in enumerate(group)],
            penalties=[learners[i].method.penalty for i in group],
            validation=_validation([learners[i] for i in group], [begun[i][0] for i in group], heads),
            resume=resume,
            stream=len(started),
        )
        next(phases, None)  # all of the training, unless steps are recorded on a GPU
        started.append((group, phases, time.perf_counter() - start))
    since = time.perf_counter()
    for _, phases, _ in started:
        next(phases, None)  # recorded steps of all groups run at the same time
    for group, phases, seconds in started:
        device = learners[group[0]].device
        for _ in phases:
            pass
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        trained = time.perf_counter()
        seconds += trained - since
        choose_together([(learners[i], *begun[i]) for i in group])
        chosen = time.perf_counter()
        for i in group:
            _finish(learners[i], *begun[i], seconds / len(group), callbacks, (chosen - trained) / len(group))
        since = time.perf_counter()


def _validation(learners: Sequence[LearnerView], tasks: Sequence[Task], heads: list[int]) -> Objective | None:
    """Return the validation examples of learners that keep their best epoch; None if they keep the last."""
    if not learners[0].training.best_epoch:
        return None
    parts = []
    for learner, task in zip(learners, tasks, strict=True):
        parts.append(learner.method.validation(learner, task))
        if not len(parts[-1]):
            raise InputError(f"best_epoch is set, but {task.name} has no validation nodes; use a split that has them")
    return make_objective([model for learner in learners if (model := learner.model) is not None], parts, heads)


def _step_hook(learner: LearnerView, task: Task, objective: Objective, model: int) -> StepHook | None:
    make_hook = learner.method.step_hook
    return None if make_hook is None else make_hook(learner, task, objective.part(model))


def _on_epoch(learners: Sequence[LearnerView], callbacks: CallbackList) -> OnEpoch | None:
    """Return the function to call after each epoch; None if no callback needs it."""
    if not callbacks.wants_epochs:
        return None

    def call(progress: TaskProgress) -> None:
        for i, learner in enumerate(learners):
            callbacks.call("on_epoch_end", learner, progress.of(i))

    return call


def begin(learner: LearnerView, task: Task) -> tuple[Task, Examples]:
    """Prepare for a task: run checks, add outputs for its classes, and collect the training examples."""
    if task.id != learner.num_tasks:
        raise InputError(
            f"{task.name} is number {task.id + 1} of its stream, but the next task must be number "
            f"{learner.num_tasks + 1}; tasks must be learned in order"
        )
    if not learner.method.reads_edge_weights:
        task.graph.require_unweighted(f"method {type(learner.method).__name__}")
    learner.method.check(task)
    task = _on_device(task, learner.device)
    if learner.num_features not in (None, task.graph.num_features):
        raise InputError(
            f"{task.name}: the graph has {task.graph.num_features} features; earlier tasks had {learner.num_features}"
        )
    if learner.num_features is None and getattr(learner.method, "scale", "rows") == "rows":  # others standardize
        warn_dominant(task.graph)
    earlier = learner.heads.classes
    if learner.method.trains_network and (learner.model is None or learner.method.restarts(learner, task)):
        learner.model = learner.new_model(task.graph.num_features)
        learner.heads.classes = []
        for classes in earlier:
            learner.add_head(classes)
    learner.add_head(task.classes)
    if learner.model is not None and any(v.device != learner.device for v in learner.model.state_dict().values()):
        learner.model.to(learner.device)
    learner.num_features = task.graph.num_features
    learner.set_graph(task.graph)
    buffer = learner.method.buffer
    if buffer is not None and buffer.replay == "live":
        learner.method.forget_nodes(task.train)  # nodes that are learned again may be selected again
    return task, learner.method.examples(learner, task)


def _finish(
    learner: LearnerView,
    task: Task,
    trained_on: Examples,
    seconds: float,
    callbacks: CallbackList,
    shared_seconds: float = 0.0,
) -> None:
    start = time.perf_counter() - shared_seconds
    info = learner.method.after_task(learner, task, trained_on)
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
            callbacks.call("on_selection", learner, task, experience)


def _groups(
    learners: Sequence[LearnerView], begun: Sequence[tuple[Task, Examples]], rounds: Sequence[list[Examples]]
) -> list[list[int]]:
    """Return groups of learners, by index, that are trained side by side; those without a network are omitted."""
    groups: list[list[int]] = []
    training = [i for i, learner in enumerate(learners) if learner.method.trains_network]
    shapes = {i: _shape(learners[i], *begun[i], len(rounds[i])) for i in training}
    for i in training:
        for group in groups:
            lead = learners[group[0]]
            if lead.training.batch_size is None and shapes[i][0] is not None and shapes[group[0]] == shapes[i]:
                group.append(i)
                break
        else:
            groups.append([i])
    graphs = [id(examples.graph) for _, examples in begun]
    return [sorted(group, key=lambda i: graphs.index(graphs[i])) for group in groups]  # fields are built per graph


def _shape(learner: LearnerView, task: Task, trained_on: Examples, rounds: int) -> tuple[Any, ...]:
    """Return the properties that learners must share to be trained side by side; None first if that is impossible."""
    return (
        architecture(learner.model),
        learner.backbone,
        learner.backbone_options,
        learner.training,
        None if learner.method.step_hook is None else type(learner.method),
        learner.device,
        learner.heads.kind,
        [len(classes) for classes in learner.heads.classes],
        torch.unique(trained_on.heads).tolist(),
        rounds,
        task.graph.num_features,
    )


def snapshot(learner: LearnerView) -> dict[str, Any]:
    """Copy everything that learning a task changes."""
    return {
        "model": learner.model,
        "parameters": {} if learner.model is None else copied(dict(learner.model.state_dict())),
        "heads": len(getattr(learner.model, "head_widths", ())),
        "classes": list(learner.heads.classes),
        "method": copied(learner.method.state_dict()),
        "own": {name: getattr(learner, name) for name in ("num_features", "seed")},
        "graph": learner.graph,
        "history": list(learner.history),
    }


def restore(learner: LearnerView, state: dict[str, Any]) -> None:
    """Restore a learner from a :func:`snapshot`."""
    learner.model, learner.heads.classes, learner.history = state["model"], state["classes"], state["history"]
    if learner.model is not None:
        del learner.model.head_widths[state["heads"] :]  # type: ignore[union-attr, operator]
        if hasattr(learner.model, "heads"):
            del learner.model.heads[state["heads"] :]  # type: ignore[union-attr, operator]
        learner.model.load_state_dict(state["parameters"])
    for name, value in state["own"].items():
        setattr(learner, name, value)
    learner.set_graph(state["graph"])
    learner.method.load_state_dict(state["method"])


def copied(state: Any, device: torch.device | None = None) -> Any:
    """Copy a state, optionally to a device (``deepcopy`` does not support sparse tensors)."""
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
