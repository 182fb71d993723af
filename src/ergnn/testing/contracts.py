"""The rules of selectors, backbones, methods and data sets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from ergnn.data import UNLABELED, Graph, Split, Task, TaskStream, splits
from ergnn.data.datasets import Dataset, DataUnavailable, PublicSplitUnavailable
from ergnn.data.datasets.base import OFFLINE_VARIABLE
from ergnn.data.scenarios import assigned_stream
from ergnn.data.stream import METRICS
from ergnn.engine.objective import make_objective
from ergnn.engine.outputs import embed
from ergnn.learning.learner import Learner
from ergnn.methods import LearnerView, Method
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.heads import HEADS
from ergnn.replay import ExperienceBuffer, Selection, SelectionContext, Selector
from ergnn.testing.examples import EPOCHS, FEATURES, example_context, example_graph, example_stream, in_graph, scrambled
from ergnn.testing.rules import Skipped, Subject, random_state, require, rule, run, same, saved_and_loaded, unchanged


def check_selector(selector: str | Selector | Callable[..., Selector], **options: Any) -> None:
    """Check all rules for a selector; ``options`` go to the constructor."""
    run("selector", selector, options)


def _select(subject: Subject, context: SelectionContext) -> Selection:
    selector = subject.make()
    return selector.select(replace(context, allow_test=selector.leaky))


@rule("chooses e different training nodes of each class of the task, grouped by class", "selector")
def _selector_choice(subject: Subject) -> None:
    for sparse in (False, True):
        for classes in (2, 3):
            context = example_context(sparse=sparse, classes_per_task=classes, head=HEADS[classes + sparse - 2])
            for e in (1, 2, 6):
                _check_choice(_select(subject, replace(context, per_class=e)), replace(context, per_class=e))


def _check_choice(selection: Selection, context: SelectionContext) -> None:
    task, e = context.task, context.per_class
    require(isinstance(selection, Selection), f"select() returned {type(selection).__name__}, not a Selection.")
    nodes = selection.nodes
    require(nodes.dtype == torch.long and nodes.dim() == 1, f"nodes are {nodes.dtype} of shape {tuple(nodes.shape)}.")
    stray = nodes[~torch.isin(nodes, task.train)].tolist()
    where = [role for role in ("val", "test") if stray and stray[0] in getattr(task, role).tolist()]
    require(not stray, f"Node {stray[:1]} is not a training node of the task ({where[0] if where else 'elsewhere'}).")
    require(nodes.unique().numel() == nodes.numel(), f"A node was chosen twice: {nodes.tolist()}.")
    wanted = [c for c in task.classes for _ in range(e)]
    given = context.graph.y[nodes].tolist()
    require(given == wanted, f"With e = {e} and classes {task.classes} the chosen nodes' classes are {given}.")
    require(selection.scores.shape == nodes.shape, f"scores have shape {tuple(selection.scores.shape)}.")
    require(bool(torch.isfinite(selection.scores).all()), f"A score is not finite: {selection.scores.tolist()}.")
    json.dumps(selection.info)


@rule("does not modify the model, the graph, the task or global random generators", "selector")
def _selector_pure(subject: Subject) -> None:
    context = example_context(per_class=2)
    task, graph = context.task, context.graph
    with (
        unchanged("The model", context.model.state_dict),
        unchanged("The graph", lambda: [graph.x, graph.edge_index, graph.y]),
        unchanged("The task", lambda: [task.train, task.val, task.test]),
        unchanged("The state of a global random generator", random_state),
    ):
        _select(subject, context)


@rule("makes the same choice for the same seed, independent of earlier choices", "selector")
def _selector_deterministic(subject: Subject) -> None:
    context = example_context(per_class=2)
    torch.manual_seed(1)
    first = _select(subject, context)
    torch.manual_seed(2)
    require(same(first.nodes, _select(subject, context).nodes), "A second instance made a different choice.")
    used = subject.make()
    used.select(replace(example_context(classes_per_task=3), allow_test=used.leaky))
    again = used.select(replace(context, allow_test=used.leaky))
    require(same(first.nodes, again.nodes), "After another selection, the same instance made a different choice.")


@rule("does not use test labels unless it is leaky", "selector")
def _selector_leakage(subject: Subject) -> None:
    if subject.make().leaky:
        return
    context = example_context(per_class=2)
    other = in_graph(context, scrambled(example_stream())[context.task.id].graph)
    a, b = (_select(subject, replace(c, allow_test=False)) for c in (context, other))
    require(same([a.nodes, a.scores], [b.nodes, b.scores]), "Different test labels gave a different choice or score.")


@rule("does not depend on the numbering of nodes", "selector")
def _selector_relabeling(subject: Subject) -> None:
    context = example_context(per_class=2)
    context.model.double()
    context = in_graph(context, replace(context.graph, x=context.graph.x.double()))
    graph, task, trained_on = context.graph, context.task, context.trained_on
    new_id = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(3))
    order = new_id.argsort()
    moved = replace(graph, x=graph.x[order], y=graph.y[order], edge_index=new_id[graph.edge_index])
    task = replace(task, graph=moved, train=new_id[task.train], val=new_id[task.val], test=new_id[task.test])
    trained_on = replace(trained_on, graph=moved, nodes=new_id[trained_on.nodes])
    relabeled = replace(context, task=task, trained_on=trained_on)
    chosen, again = _select(subject, context).nodes, _select(subject, relabeled).nodes
    require(same(new_id[chosen], again), "With nodes renumbered (candidates in the same order), the choice differs.")


@rule("breaks ties by seed, never by node order", "selector")
def _selector_ties(subject: Subject) -> None:
    context = example_context()
    alike = replace(context.graph, x=torch.ones_like(context.graph.x), edge_index=context.graph.edge_index[:, :0])
    context = in_graph(context, alike)
    choices = {tuple(_select(subject, replace(context, seed=seed)).nodes.tolist()) for seed in range(8)}
    require(len(choices) > 1, "With identical nodes, eight seeds gave the same choice; use context.generator().")


def check_backbone(backbone: str | Callable[..., Backbone], **options: Any) -> None:
    """Check all rules for a backbone: a name, or a factory that takes ``in_channels``, ``out_channels`` and options."""
    run("backbone", backbone, options)


def _backbone(subject: Subject, seed: int = 0, out_channels: int | None = 3) -> Backbone:
    torch.manual_seed(seed)
    model: Backbone = subject.make(in_channels=FEATURES, out_channels=out_channels)
    return model.eval()


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    a, b = a.detach(), b.detach()
    return a.shape == b.shape and bool(torch.allclose(a, b, rtol=tolerance, atol=tolerance * float(b.abs().max() + 1)))


@rule("gives scores [n, out_channels] for each head, and embed() gives [n, embedding_size]", "backbone")
def _backbone_shapes(subject: Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    n = graph.num_nodes
    model.add_head(4)
    require(model.head_widths == [3, 4], f"After add_head(4) head_widths are {model.head_widths}, not [3, 4].")
    for head, width in enumerate(model.head_widths):
        shape = tuple(model(graph.x, graph.edge_index, head).shape)
        require(shape == (n, width), f"forward(x, adj, {head}) has shape {shape}, not {(n, width)}.")
    require(
        torch.equal(model(graph.x, graph.edge_index), model(graph.x, graph.edge_index, 0)), "Head 0 is not the default."
    )
    shape = tuple(model.embed(graph.x, graph.edge_index).shape)
    require(shape == (n, model.embedding_size), f"embed() has shape {shape}; embedding_size is {model.embedding_size}.")
    require(_backbone(subject, out_channels=None).head_widths == [], "It has a head without out_channels.")
    require(model.lr > 0 and model.weight_decay >= 0, f"lr is {model.lr}, weight_decay {model.weight_decay}.")


@rule("gives finite scores on isolated nodes, self-loops, repeated edges and no edges", "backbone")
def _backbone_edges(subject: Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    loops = torch.arange(graph.num_nodes).expand(2, -1)
    cases = {
        "isolated nodes": graph.edge_index,
        "self-loops": torch.cat([graph.edge_index, loops], 1),
        "repeated edges": graph.edge_index.repeat(1, 2),
        "no edges": graph.edge_index[:, :0],
        "one-way edges": graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]],
    }
    for case, edges in cases.items():
        require(bool(torch.isfinite(model(graph.x, edges)).all()), f"With {case} a score is not finite.")


@rule("depends on torch's seed alone, and its state_dict restores it", "backbone")
def _backbone_state(subject: Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    twin = _backbone(subject)
    require(same(dict(model.state_dict()), dict(twin.state_dict())), "The same seed gave different parameters.")
    other = _backbone(subject, seed=1)
    other.load_state_dict(saved_and_loaded(dict(model.state_dict())))
    a, b = (network(graph.x, graph.edge_index) for network in (model, other))
    require(torch.equal(a, b), "After load_state_dict(state_dict()) the scores differ.")


@rule("is deterministic in evaluation, and a forward pass does not modify it", "backbone")
def _backbone_pure(subject: Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    with unchanged("In evaluation the state of a global random generator", random_state):
        first = model(graph.x, graph.edge_index)
    require(torch.equal(first, model(graph.x, graph.edge_index)), "Two passes gave different scores.")
    with (
        unchanged("In training, parameters or buffers", lambda: dict(model.state_dict())),
        unchanged("The features", lambda: graph.x),
    ):
        model.train()(graph.x, graph.edge_index)


@rule("does not depend on the numbering of nodes", "backbone")
def _backbone_relabeling(subject: Subject) -> None:
    model, graph = _backbone(subject).double(), example_graph()
    x, new_id = graph.x.double(), torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(3))
    for function in (model, model.embed):
        plain, moved = function(x, graph.edge_index), function(x[new_id.argsort()], new_id[graph.edge_index])
        require(_close(moved[new_id], plain, 1e-6), "With nodes renumbered, scores or embeddings differ.")


@rule("a node's scores depend only on its own component of the graph", "backbone")
def _backbone_locality(subject: Subject) -> None:
    model, one, two = _backbone(subject), example_graph(), example_graph(seed=1)
    n = one.num_nodes
    edges = torch.cat([one.edge_index, two.edge_index + n], 1)
    for training in (False, True):
        model.train(training)
        scores = []
        for other in (two.x, -3 * two.x):
            torch.manual_seed(5)
            scores.append(model(torch.cat([one.x, other]), edges)[:n])
        mode = "training" if training else "evaluation"
        require(_close(scores[0], scores[1], 1e-5), f"In {mode} they change with the features of another component.")


@rule("is the same function on receptive fields as on the whole graph", "backbone")
def _backbone_fields(subject: Subject) -> None:
    for sparse in (False, True):
        model, graph = _backbone(subject), example_graph(sparse=sparse)
        model.add_head(3)
        nodes = torch.arange(0, graph.num_nodes, 7)
        with torch.no_grad():
            whole = model.embed(graph.dense_x(), graph.edge_index)[nodes]
            require(_close(embed(model, graph, nodes), whole, 1e-4), "embed() differs (see runs_on_fields).")
            for head in (0, 1):
                heads, zeros = torch.full((nodes.numel(), 1), head), torch.zeros_like(nodes)
                objective = make_objective([model], [Examples(graph, nodes, heads, zeros, zeros.float())])
                scores = objective.logits(objective.parameters())
                whole = model.eval()(graph.dense_x(), graph.edge_index, head)[nodes]
                require(_close(scores, whole, 1e-4), f"Scores of head {head} differ (see runs_on_fields).")


@rule("learns a stream with every head: all parameters are trained, and the same seed gives the same bits", "backbone")
def _backbone_learns(subject: Subject) -> None:
    # five epochs are far from a minimum, where influence needs more damping than its default
    selectors: list[tuple[str, dict[str, Any]]] = [("mf*", {}), ("cm*", {}), ("im", {"damping": 1.0})]
    for head, (selector, options) in zip(HEADS, selectors, strict=True):
        states = []
        for _ in range(2):
            model = _backbone(subject, out_channels=None)
            learner = Learner(model, "replay", head=head, epochs=EPOCHS, selector=selector, selector_options=options)
            for task in example_stream():
                learner.observe(task).evaluate(task)
            assert learner.model is not None
            states.append(dict(learner.model.state_dict()))
        for name, before in model.named_parameters():
            require(not same(before.detach(), states[0][name]), f"{name} was not trained (see runs_on_fields).")
        require(same(*states), f"With head {head!r} the same seed gave different parameters.")


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
        json.dumps(_reference(subject, head).history)
    learner = _reference(subject, sparse=True)
    for task in example_stream(sparse=True):
        learner.evaluate(task)


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
    for task in stream:
        learner.evaluate(task)


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
    graph, subsets = stream[0].graph, [[task.train, task.val, task.test] for task in stream]
    with unchanged("The graph or a task", lambda: [graph.x, graph.edge_index, graph.y, subsets]):
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


def check_dataset(dataset: str | Dataset | Callable[..., Dataset], **options: Any) -> None:
    """Check all rules for a data set, with downloads forbidden.

    Raises:
        Skipped: the files are not on disk, so that only the metadata could be checked.
    """
    run("dataset", dataset, options)


@contextmanager
def _offline() -> Iterator[list[str]]:
    """Forbid downloads through the environment variable, and record and reject every attempt to reach a host."""
    attempts: list[str] = []

    def refuse(*args: Any, **kwargs: Any) -> Any:
        attempts.append(str(args[:2]))
        raise OSError("no network while a data set is checked")

    with (
        mock.patch.dict(os.environ, {OFFLINE_VARIABLE: "1"}),
        mock.patch("socket.getaddrinfo", refuse),
        mock.patch("socket.socket.connect", refuse),
    ):
        yield attempts


def _load(dataset: Dataset, split: str) -> Graph:
    """Load the graph, if its files are on disk."""
    with _offline() as attempts:
        try:
            return dataset.load(split)
        except DataUnavailable as error:
            raise Skipped(f"{dataset.name}, {split} split: {error}") from error
        finally:
            require(not attempts, f"It tried to reach {attempts[0] if attempts else ''} with {OFFLINE_VARIABLE}=1.")


def _check_nodes(split: Split, graph: Graph) -> None:
    splits.check_split(split, graph.num_nodes)
    for role in ("train", "val", "test"):
        nodes = getattr(split, role)
        require(bool((graph.y[nodes] != UNLABELED).all()), f"A {role} node has no label.")
        require(role == "val" or nodes.numel() > 0, f"There are no {role} nodes.")


@rule("has metadata (names, counts, tasks and metric) without loading anything", "dataset")
def _dataset_facts(subject: Subject) -> None:
    dataset = subject.make()
    require(
        subject.name in (None, dataset.name), f"It is registered as {subject.name!r}; its name is {dataset.name!r}."
    )
    require(bool(dataset.title.strip()), "title is empty.")
    for fact in ("nodes", "features", "classes"):
        value = getattr(dataset, fact)
        require(isinstance(value, int) and value > 0, f"{fact} is {value!r}.")
    require(isinstance(dataset.edges, int) and dataset.edges >= 0, f"edges is {dataset.edges!r}.")
    names = dataset.class_names
    require(names is None or len(names) == dataset.classes, f"{len(names or ())} names for {dataset.classes} classes.")
    per_task = dataset.classes_per_task
    require(1 <= per_task <= dataset.classes, f"classes_per_task is {per_task}; there are {dataset.classes} classes.")
    require(dataset.metric in METRICS, f"metric is {dataset.metric!r}; choose one of: {', '.join(METRICS)}.")
    with _offline() as attempts:
        require(bool(dataset.location().strip()), "location() is empty.")
    require(not attempts, "location() tried to reach a host.")


@rule("loads the graph that its metadata describe, and splits it by seed into disjoint, labeled parts", "dataset")
def _dataset_graph(subject: Subject) -> None:
    dataset = subject.make()
    graph = _load(dataset, "seeded").validate()
    source, target = graph.edge_index
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    pairs = (low * graph.num_nodes + high)[low != high]
    counts = {
        "nodes": graph.num_nodes,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "edges": pairs.unique().numel(),
    }
    for fact, count in counts.items():
        require(count == getattr(dataset, fact), f"{fact} is {getattr(dataset, fact)}; the graph has {count}.")
    missing = set(range(dataset.classes)) - set(graph.y.unique().tolist())
    require(not missing, f"Class {min(missing, default=0)} has no nodes.")
    require(graph.name == dataset.name, f"The graph's name is {graph.name!r}.")
    with unchanged("The state of a global random generator", random_state):
        split = dataset.seeded_split(graph, 0)
    _check_nodes(split, graph)
    again, other = dataset.seeded_split(graph, 0), dataset.seeded_split(graph, 1)
    require(same(split.train, again.train) and same(split.test, again.test), "Seed 0 gave two splits.")
    require(not same(split.train, other.train), "Seeds 0 and 1 gave the same training nodes.")
    TaskStream.from_classes(graph, classes_per_task=dataset.classes_per_task, split=split, metric=dataset.metric)


@rule("its public split is disjoint if it has one, and raises PublicSplitUnavailable if not", "dataset")
def _dataset_public(subject: Subject) -> None:
    dataset = subject.make()
    if dataset.public_split:
        graph = _load(dataset, "public")
        require(
            graph.public_split is not None, "public_split is True, but load('public') returned a graph without one."
        )
        assert graph.public_split is not None
        _check_nodes(graph.public_split, graph)
        return
    try:
        with _offline():
            dataset.load("public")
    except PublicSplitUnavailable:
        return
    require(False, "public_split is False, but load('public') did not raise.")
