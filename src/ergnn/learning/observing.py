"""Learn a task as one transaction: prepare, train (several learners side by side if possible), update the memory.

If any step fails, the learners are restored.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ergnn.config.errors import InputError
from ergnn.data.graph import warn_dominant
from ergnn.data.stream import Task
from ergnn.engine.objective import Objective, architecture, make_objective
from ergnn.engine.step_hooks import StepHook
from ergnn.engine.training import OnEpoch, TaskProgress, train_in_phases
from ergnn.learning.callbacks.base import Callback, CallbackList
from ergnn.methods.memory import choose_together
from ergnn.nn.examples import Examples

if TYPE_CHECKING:
    from ergnn.learning.learner import Learner


def observe_together(
    learners: Sequence[Learner],
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
    before = [(learner.state_dict(), learner.graph) for learner in learners]
    try:
        _observe(learners, tasks, hooks, resume)
        for learner, task in zip(learners, tasks, strict=True):
            hooks.call("on_task_end", learner, task, learner.history[-1])
    except BaseException as error:  # also Ctrl-C
        for learner, (state, graph) in zip(learners, before, strict=True):
            learner.restore(state, graph)
        for learner, task in zip(learners, tasks, strict=True):
            hooks.call("on_task_failed", learner, task, error)
        raise


def _observe(
    learners: Sequence[Learner],
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


def _validation(learners: Sequence[Learner], tasks: Sequence[Task], heads: list[int]) -> Objective | None:
    """Return the validation examples of learners that keep their best epoch; None if they keep the last."""
    if not learners[0].training.best_epoch:
        return None
    parts = []
    for learner, task in zip(learners, tasks, strict=True):
        parts.append(learner.method.validation(learner, task))
        if not len(parts[-1]):
            raise InputError(f"best_epoch is set, but {task.name} has no validation nodes; use a split that has them")
    return make_objective([model for learner in learners if (model := learner.model) is not None], parts, heads)


def _step_hook(learner: Learner, task: Task, objective: Objective, model: int) -> StepHook | None:
    make_hook = learner.method.step_hook
    return None if make_hook is None else make_hook(learner, task, objective.part(model))


def _on_epoch(learners: Sequence[Learner], callbacks: CallbackList) -> OnEpoch | None:
    """Return the function to call after each epoch; None if no callback needs it."""
    if not callbacks.wants_epochs:
        return None

    def call(progress: TaskProgress) -> None:
        for i, learner in enumerate(learners):
            callbacks.call("on_epoch_end", learner, progress.of(i))

    return call


def begin(learner: Learner, task: Task) -> tuple[Task, Examples]:
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
    learner: Learner,
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
    learners: Sequence[Learner], begun: Sequence[tuple[Task, Examples]], rounds: Sequence[list[Examples]]
) -> list[list[int]]:
    """Return groups of learners, by index, that are trained side by side; those without a network are omitted."""
    groups: dict[Any, list[int]] = {}
    for i, (learner, (task, examples)) in enumerate(zip(learners, begun, strict=True)):
        if not learner.method.trains_network:
            continue
        alone = learner.training.batch_size is not None or architecture(learner.model) is None
        key = i if alone else _shape(learner, task, examples, len(rounds[i]))
        groups.setdefault(key, []).append(i)
    graphs = [id(examples.graph) for _, examples in begun]
    return [sorted(group, key=lambda i: graphs.index(graphs[i])) for group in groups.values()]  # a field per graph


def _shape(learner: Learner, task: Task, trained_on: Examples, rounds: int) -> tuple[Any, ...]:
    """Return the properties that learners must share to be trained side by side."""
    return (
        str(architecture(learner.model)),
        learner.backbone,
        str(learner.backbone_options),
        learner.training,
        None if learner.method.step_hook is None else type(learner.method),
        learner.device,
        learner.heads.kind,
        tuple(len(classes) for classes in learner.heads.classes),
        tuple(torch.unique(trained_on.heads).tolist()),
        rounds,
        task.graph.num_features,
    )


def _on_device(task: Task, device: torch.device) -> Task:
    if task.graph.device == device and task.train.device == device:
        return task
    move = {name: getattr(task, name).to(device) for name in ("train", "val", "test")}
    return replace(task, graph=task.graph.to(device), **move)
