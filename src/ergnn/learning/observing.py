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
from ergnn.engine.objective import architecture, make_objective
from ergnn.engine.step_hooks import Penalty, StepHook
from ergnn.engine.training import OnEpoch, TaskProgress, train_in_phases
from ergnn.learning.callbacks import Callback, call
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
    callbacks = list(callbacks)
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise InputError(
                f"callbacks contains {callback!r}; each must be an instance of ergnn.learning.callbacks.Callback"
            )
    before = [(learner.state_dict(), learner.graph) for learner in learners]
    try:
        _observe(learners, tasks, callbacks, resume)
        for learner, task in zip(learners, tasks, strict=True):
            call(callbacks, "on_task_end", learner, task, learner.history[-1])
    except BaseException as error:  # also Ctrl-C
        for learner, (state, graph) in zip(learners, before, strict=True):
            learner.restore(state, graph)
        for learner, task in zip(learners, tasks, strict=True):
            call(callbacks, "on_task_failed", learner, task, error)
        raise


class _Begun:
    """A learner that is ready to learn a task: the training examples, the sets of them that epochs use in turn, and the
    hook and the penalty of each step."""

    hook: StepHook | None = None
    penalty: Penalty | None = None

    def __init__(self, learner: Learner, task: Task, examples: Examples) -> None:
        self.learner, self.task, self.examples, method = learner, task, examples, learner.method
        self.rounds, term = method.rounds(learner, task, examples), method.penalty
        if learner.model is not None and (method.step_hook is not None or term is not None):
            heads, sampling = torch.unique(examples.heads).tolist(), learner.training.sampling
            objective = make_objective([learner.model], self.rounds[:1], heads, lazy=True, sampling=sampling)
            self.hook = None if method.step_hook is None else method.step_hook(learner, task, objective)
            self.penalty = None if term is None else lambda params: term(objective.by_name(params))


def _observe(
    learners: Sequence[Learner], tasks: Sequence[Task], callbacks: Sequence[Callback], resume: dict[str, Any] | None
) -> None:
    ready = [(learner, *begin(learner, task)) for learner, task in zip(learners, tasks, strict=True)]
    for learner, task, _ in ready:
        call(callbacks, "on_task_begin", learner, task)
    begun = [_Begun(*of_learner) for of_learner in ready]
    for one in begun:
        if not one.learner.method.trains_network:
            _finish(one, 0.0, callbacks)
    started: list[tuple[list[_Begun], Iterator[None], float]] = []
    for group in _groups(begun):
        start, first = time.perf_counter(), group[0]
        models = [one.learner.model for one in group if one.learner.model is not None]
        heads, training = torch.unique(first.examples.heads).tolist(), first.learner.training
        objectives = [
            make_objective(models, examples, heads, sampling=training.sampling)
            for examples in map(list, zip(*(one.rounds for one in group), strict=True))
        ]
        phases = train_in_phases(
            objectives,
            training,
            [one.learner.seed for one in group],
            first.task.id,
            _on_epoch([one.learner for one in group], callbacks),
            task_size=first.task.train.numel(),
            hooks=[one.hook for one in group],
            penalties=[one.penalty for one in group],
            validation=make_objective(models, _validation(group), heads) if training.best_epoch else None,
            resume=resume,
            stream=len(started),
        )
        next(phases, None)  # all of the training, unless steps are recorded on a GPU
        started.append((group, phases, time.perf_counter() - start))
    since = time.perf_counter()
    for _, phases, _ in started:
        next(phases, None)  # recorded steps of all groups run at the same time
    for group, phases, seconds in started:
        device = group[0].learner.device
        for _ in phases:
            pass
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        trained = time.perf_counter()
        seconds += trained - since
        choose_together([(one.learner, one.task, one.examples) for one in group])
        chosen = time.perf_counter()
        for one in group:
            _finish(one, seconds / len(group), callbacks, (chosen - trained) / len(group))
        since = time.perf_counter()


def _validation(group: Sequence[_Begun]) -> list[Examples]:
    examples = [one.learner.method.validation(one.learner, one.task) for one in group]
    for one, nodes in zip(group, examples, strict=True):
        if not len(nodes):
            raise InputError(
                f"best_epoch is set, but {one.task.name} has no validation nodes; use a split that has them"
            )
    return examples


def _on_epoch(learners: Sequence[Learner], callbacks: Sequence[Callback]) -> OnEpoch | None:
    """Return the function to call after each epoch; None if no callback needs it."""
    if all(type(callback).on_epoch_end is Callback.on_epoch_end for callback in callbacks):
        return None

    def on_epoch(progress: TaskProgress) -> None:
        for i, learner in enumerate(learners):
            call(callbacks, "on_epoch_end", learner, replace(progress, model=i))

    return on_epoch


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
    if task.graph.device != learner.device or task.train.device != learner.device:
        task = task.to(learner.device)
    learner.set_graph(task.graph)
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
    buffer = learner.method.buffer
    if buffer is not None and buffer.replay == "live":
        learner.method.forget_nodes(task.train)  # nodes that are learned again may be selected again
    return task, learner.method.examples(learner, task)


def _finish(begun: _Begun, seconds: float, callbacks: Sequence[Callback], shared_seconds: float = 0.0) -> None:
    start, learner, task = time.perf_counter() - shared_seconds, begun.learner, begun.task
    info = learner.method.after_task(learner, task, begun.examples)
    learner.history.append(
        {
            "task": task.id,
            "classes": list(task.classes),
            "trained_on": len(begun.examples),
            "train_seconds": seconds,
            "select_seconds": time.perf_counter() - start,
            "selection": info,
        }
    )
    buffer = learner.method.buffer
    for experience in () if buffer is None else buffer.experiences[-1:]:
        if experience.task == task.id:
            call(callbacks, "on_selection", learner, task, experience)


def _groups(begun: Sequence[_Begun]) -> list[list[_Begun]]:
    """Return groups of learners that are trained side by side; those without a network are omitted."""
    groups: dict[Any, list[_Begun]] = {}
    for one in begun:
        if one.learner.method.trains_network:
            alone = one.learner.training.batch_size is not None or architecture(one.learner.model) is None
            alone |= one.hook is not None and one.hook.stacks_with is None
            groups.setdefault(id(one) if alone else _shape(one), []).append(one)
    graphs = [id(one.examples.graph) for one in begun]  # the order makes a field per graph
    return [sorted(group, key=lambda one: graphs.index(id(one.examples.graph))) for group in groups.values()]


def _shape(begun: _Begun) -> tuple[Any, ...]:
    """Return the properties that learners must share to be trained side by side."""
    learner = begun.learner
    return (
        str(architecture(learner.model)),
        learner.backbone,
        str(learner.backbone_options),
        learner.training,
        None if learner.method.step_hook is None else type(learner.method),
        None if begun.hook is None else (type(begun.hook), begun.hook.stacks_with),
        learner.device,
        learner.heads.kind,
        tuple(len(classes) for classes in learner.heads.classes),
        tuple(torch.unique(begun.examples.heads).tolist()),
        len(begun.rounds),
        begun.task.graph.num_features,
    )
