"""Rules for methods."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from ergnn.data import Task, TaskStream
from ergnn.data.scenarios import assigned_stream
from ergnn.engine.objective import make_objective
from ergnn.learning.learner import Learner
from ergnn.methods import LearnerView, Method
from ergnn.nn.examples import Examples
from ergnn.nn.heads import HEADS
from ergnn.replay import ExperienceBuffer
from ergnn.testing.examples import EPOCHS, example_graph, example_stream, scrambled
from ergnn.testing.rules import Subject, random_state, require, rule, run, same, saved_and_loaded, unchanged


def check_method(method: str | Method | Callable[..., Method], **options: Any) -> None:
    """Check all rules for a method; ``options`` go to the constructor."""
    run("method", method, options)


def _learner(method: Method, head: str = "per-task", seed: int = 0) -> Learner:
    head = head if head in method.supported_heads else method.supported_heads[-1]
    return Learner("gcn", method, head=head, epochs=EPOCHS, seed=seed, backbone_options={"hidden": 8})


def _learned(subject: Subject, stream: TaskStream, head: str = "per-task") -> Learner:
    learner = _learner(subject.make(), head)
    for task in stream:
        learner.observe(task)
    return learner


def _reference(subject: Subject, head: str = "per-task", sparse: bool = False) -> Learner:
    """Return a learner of :func:`example_stream`, with which several rules compare others."""
    key = head, sparse
    if key not in subject.shared:
        subject.shared[key] = _learned(subject, example_stream(sparse=sparse), head)
    return subject.shared[key]


def _bits(learner: Learner) -> dict[str, Any]:
    """Return the full state after learning, without times."""
    state = learner.state_dict()
    return {key: state[key] for key in ("model", "method", "classes")}


def _require_scores(learner: Learner, stream: TaskStream) -> None:
    for task in stream:
        score = learner.evaluate(task)
        require(0.0 <= score <= 1.0, f"With head {learner.heads.kind!r} {task.name} scores {score}.")


@rule("supports at least one kind of head, and buffer is a buffer", "method")
def _method_declares(subject: Subject) -> None:
    heads, buffer = subject.make().supported_heads, subject.make().buffer
    require(bool(heads) and set(heads) <= set(HEADS), f"supported_heads is {heads!r}; allowed are {HEADS}.")
    require(buffer is None or isinstance(buffer, ExperienceBuffer), f"buffer is {type(buffer).__name__}.")


@rule("trains on weighted training nodes: the task's own first, none of later tasks, no negative weight", "method")
def _method_examples(subject: Subject) -> None:
    method, stream = subject.make(), example_stream()
    learner, given = _learner(method), method.examples
    seen = torch.empty(0, dtype=torch.long)

    def watched(learner: LearnerView, task: Task) -> Examples:
        examples = given(learner, task)
        _check_examples(examples, task, torch.cat([seen, task.train]))
        return examples

    with mock.patch.object(method, "examples", watched):
        for task in stream:
            learner.observe(task)
            seen = torch.cat([seen, task.train])


def _check_examples(examples: Examples, task: Task, allowed: Tensor) -> None:
    first = examples.nodes[: task.train.numel()]
    require(torch.equal(first, task.train), f"{task.name}: the first examples are not the task's training nodes.")
    live = examples.nodes[examples.nodes < task.graph.num_nodes]
    stray = live[~torch.isin(live, allowed)].tolist()
    require(not stray, f"{task.name}: node {stray[:1]} is not a training node of this or an earlier task.")
    weights = examples.weights
    require(weights.shape == examples.nodes.shape, f"{task.name}: weights have shape {tuple(weights.shape)}.")
    fit = bool(torch.isfinite(weights).all()) and float(weights.min()) >= 0 and float(weights.sum()) > 0
    require(fit, f"{task.name}: weights must be finite, 0 or more, and not all 0; they are {weights.tolist()[:5]}….")


@rule("its loss is one finite value per example and needs no extras; a penalty is a scalar", "method")
def _method_loss(subject: Subject) -> None:
    method, stream = subject.make(), example_stream()
    learner = _learner(method, "growing")
    for task in stream[:2]:
        learner.observe(task)
    if learner.model is None:
        return
    task = stream[1]
    for examples in (method.examples(learner, task), learner.examples(task.graph, task.val, task.id)):
        objective = make_objective([learner.model], [examples])
        losses = objective.losses(objective.parameters())
        require(
            losses.shape == examples.nodes.shape, f"loss returned {tuple(losses.shape)} for {len(examples)} examples."
        )
        require(bool(torch.isfinite(losses).all()), "A loss is NaN or infinite.")
    term = None if method.penalty is None else method.penalty(objective.by_name(objective.parameters()))
    require(term is None or term.dim() == 0, f"penalty returned {'None' if term is None else tuple(term.shape)}.")


@rule("learns three tasks with every kind of head that it supports, and on sparse features", "method")
def _method_heads(subject: Subject) -> None:
    for head in subject.make().supported_heads:
        learner = _reference(subject, head)
        _require_scores(learner, example_stream())
        json.dumps(learner.history)
    _require_scores(_reference(subject, sparse=True), example_stream(sparse=True))


@rule("predicts each node on its own: other nodes in the same call do not matter, nor does their order", "method")
def _method_per_node(subject: Subject) -> None:
    stream = example_stream()
    for head in subject.make().supported_heads:
        learner = _reference(subject, head)
        growing = (None, torch.cat([task.test for task in stream]))
        for of, nodes in [growing] if head == "growing" else [(task.id, task.test) for task in stream]:
            together = learner.predict_proba(nodes, of)
            alone = torch.cat([learner.predict_proba(node, of) for node in nodes.split(1)])
            back = learner.predict_proba(nodes.flip(0), of).flip(0)
            for other, what in ((alone, "alone"), (back, "in another order")):
                gap = float((together - other).abs().max())
                require(
                    gap < 1e-4, f"With head {head!r}, a node predicted {what} has other probabilities (by {gap:g})."
                )


@rule("learns tasks whose classes come again, if it supports a growing head", "method")
def _method_classes_again(subject: Subject) -> None:
    if "growing" not in subject.make().supported_heads:
        return
    graph = example_graph(per_class=45)
    home = torch.maximum(torch.arange(graph.num_nodes) % 3, graph.y // 2)  # two new classes per task, which then stay
    learner = _learned(subject, stream := assigned_stream(graph, home), "growing")
    classes = learner.classes().tolist()
    require(
        sorted(classes) == sorted(set(stream.classes)), f"Its classes are {classes}; the stream's {stream.classes}."
    )
    _require_scores(learner, stream)


@rule("gives the same bits for the same seed, and does not touch global random generators", "method")
def _method_deterministic(subject: Subject) -> None:
    torch.manual_seed(1)
    reference = _reference(subject)
    torch.manual_seed(2)
    with unchanged("The state of a global random generator", random_state):
        again = _learned(subject, example_stream())
    require(same(_bits(reference), _bits(again)), "A second run with the same seed gave a different result.")


@rule("shares nothing between learners, and does not change the tasks", "method")
def _method_apart(subject: Subject) -> None:
    stream, alone = example_stream(), _bits(_reference(subject))
    one, two = _learner(subject.make()), _learner(subject.make(), seed=1)
    graph = stream[0].graph
    with unchanged(
        "The graph or a task",
        lambda: [graph.x, graph.edge_index, graph.y, [[task.train, task.val, task.test] for task in stream]],
    ):
        for task in stream:
            two.observe(task)
            one.observe(task)
    require(same(alone, _bits(one)), "A learner gave a different result when another one learned at the same time.")


@rule(
    "its state_dict is a snapshot of tensors, numbers and strings from which learning resumes to the same bits",
    "method",
)
def _method_resumes(subject: Subject) -> None:
    for sparse in (False, True):
        stream, stopped, resumed = example_stream(sparse=sparse), _learner(subject.make()), _learner(subject.make())
        for task in stream[:2]:
            stopped.observe(task)
        before = stopped.method.state_dict()
        state = saved_and_loaded(stopped.state_dict())
        stopped.observe(stream[2])
        require(same(before, state["method"]), "The value of state_dict() changed during later learning.")
        resumed.load_state_dict(state)
        require(same(resumed.method.state_dict(), state["method"]), "load_state_dict() did not restore the state.")
        same_result = same(_bits(stopped), _bits(resumed.observe(stream[2])))
        require(same_result, "A resumed run gave a different result from an uninterrupted one.")


@rule("does not use test labels unless it is leaky", "method")
def _method_leakage(subject: Subject) -> None:
    if subject.make().leaky:
        return
    other = _learned(subject, scrambled(example_stream()))
    require(same(_bits(_reference(subject)), _bits(other)), "Different test labels gave a different result.")
