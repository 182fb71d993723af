"""The contract suite: what every selector, backbone, method and data set promises, as checks that anybody can run.

>>> from ergnn.testing import check_selector
>>> check_selector("mf")

A check takes a registered name, a class, any function that makes an instance, or (but for backbones) an instance,
and options for its constructor. It raises an :class:`AssertionError` that names the broken rule. For one test a
rule, :func:`checks` lists them. All graphs are small, synthetic and seeded; nothing is downloaded, and pytest is not
needed.
"""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import SkipTest, mock

import numpy as np
import torch
from torch import Tensor, nn

from ergnn.data import DATASETS, UNLABELLED, Graph, Split, Task, TaskStream, splits
from ergnn.data.datasets import Dataset, DataUnavailable, PublicSplitUnavailable
from ergnn.data.datasets.storage import OFFLINE_VARIABLE
from ergnn.data.stream import METRICS
from ergnn.errors import InputError
from ergnn.learner import Learner
from ergnn.methods import METHODS, Method
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.heads import HEADS
from ergnn.nn.objective import embed, make_objective
from ergnn.registry import Registry
from ergnn.replay import SELECTORS, ExperienceBuffer, Selection, SelectionContext, Selector

__all__ = [
    "KINDS",
    "Check",
    "Skipped",
    "check_backbone",
    "check_dataset",
    "check_method",
    "check_selector",
    "checks",
    "example_context",
    "example_graph",
    "example_stream",
]

KINDS: dict[str, tuple[Registry[Any], type]] = {
    "selector": (SELECTORS, Selector),
    "backbone": (BACKBONES, Backbone),
    "method": (METHODS, Method),
    "dataset": (DATASETS, Dataset),
}
"""Kind → where its names are registered, and the class that its instances derive from."""

FEATURES = 12
EPOCHS = 5


class Skipped(SkipTest):
    """A rule that cannot be checked here, and why; pytest and unittest show it as a skipped test."""


# --- what is checked, and how ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Subject:
    """The thing under test: what to call it, how to make one, and the name it is registered by, if any."""

    label: str
    make: Callable[..., Any]
    registry: Registry[Any]
    name: str | None = None


@dataclass(frozen=True)
class Check:
    """One rule of a contract. Call it with what :func:`check_selector` and its kin take.

    Attributes:
        kind: ``selector``, ``backbone``, ``method`` or ``dataset``.
        rule: what is promised; also how the check prints.
    """

    kind: str
    rule: str
    function: Callable[[_Subject], None]

    def __str__(self) -> str:
        return self.rule

    def __call__(self, thing: Any, **options: Any) -> None:
        subject = _subject(self.kind, thing, options)
        with _global_state_restored():
            try:
                self.function(subject)
            except SkipTest:
                raise
            except Exception as error:
                said = str(error) if isinstance(error, _Broken) else f"It raised {type(error).__name__}: {error}"
                raise AssertionError(f"{subject.label} breaks the rule {self.rule!r}. {said}") from error


class _Broken(Exception):
    """What was seen that breaks the rule being checked."""


_CHECKS: list[Check] = []


def _rule(rule: str, *kinds: str) -> Callable[[Callable[[_Subject], None]], Callable[[_Subject], None]]:
    def add(function: Callable[[_Subject], None]) -> Callable[[_Subject], None]:
        _CHECKS.extend(Check(kind, rule, function) for kind in kinds)
        return function

    return add


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _Broken(otherwise)


def checks(kind: str) -> list[Check]:
    """The rules of a kind, in an order in which the first one broken says most.

    ``@pytest.mark.parametrize("check", checks("selector"), ids=str)`` makes one test of each.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind {kind!r}; choose one of: {', '.join(KINDS)}")
    return [check for check in _CHECKS if check.kind == kind]


def check_selector(selector: str | Selector | Callable[..., Selector], **options: Any) -> None:
    """Run every rule for selectors; ``options`` go to the constructor."""
    _run("selector", selector, options)


def check_backbone(backbone: str | Callable[..., Backbone], **options: Any) -> None:
    """Run every rule for backbones: a name, or what makes one from ``in_channels``, ``out_channels`` and options."""
    _run("backbone", backbone, options)


def check_method(method: str | Method | Callable[..., Method], **options: Any) -> None:
    """Run every rule for methods; ``options`` go to the constructor."""
    _run("method", method, options)


def check_dataset(dataset: str | Dataset | Callable[..., Dataset], **options: Any) -> None:
    """Run every rule for data sets, with downloads forbidden.

    Raises:
        Skipped: the files are not on disk, so that only the facts could be checked.
    """
    _run("dataset", dataset, options)


def _run(kind: str, thing: Any, options: dict[str, Any]) -> None:
    skipped: SkipTest | None = None
    for check in checks(kind):
        try:
            check(thing, **options)
        except SkipTest as reason:
            skipped = skipped or reason
    if skipped is not None:
        raise skipped


def _subject(kind: str, thing: Any, options: dict[str, Any]) -> _Subject:
    registry, base = KINDS[kind]
    if isinstance(thing, str):
        name = registry.resolve(thing)
        return _Subject(f"{kind} {name!r}", partial(registry.create, name, **options), registry, name)
    if isinstance(thing, base) and kind != "backbone":
        if options:
            raise InputError(f"option {min(options)!r} goes with a name or a class; this {kind} is already made")
        return _Subject(f"{kind} {type(thing).__name__}", lambda: deepcopy(thing), registry)
    if isinstance(thing, nn.Module) or not callable(thing):
        raise InputError(f"check_{kind} got {type(thing).__name__}; give a name, a class or a function that makes one")
    return _Subject(f"{kind} {getattr(thing, '__name__', thing)}", partial(thing, **options), registry)


# --- small graphs ----------------------------------------------------------------------------------------


def example_graph(*, classes: int = 6, per_class: int = 15, sparse: bool = False, seed: int = 0) -> Graph:
    """A random graph with self-loops and isolated nodes; class means are well apart.

    Args:
        classes: how many, of ``per_class`` nodes each.
        sparse: attributes as CSR, about half of them zeros.
        seed: of everything.
    """
    generator = torch.Generator().manual_seed(seed)
    n = classes * per_class
    y = torch.arange(n)[torch.randperm(n, generator=generator)] % classes
    x = 2 * torch.randn(classes, FEATURES, generator=generator)[y] + torch.randn(n, FEATURES, generator=generator)
    alike = (y.unsqueeze(0) == y.unsqueeze(1)).float()
    linked = torch.rand(n, n, generator=generator) < 0.01 + 0.1 * alike
    linked = linked.triu() | linked.triu().T
    alone = torch.randperm(n, generator=generator)[: n // 10]
    linked[alone], linked[:, alone] = False, False
    edges = linked.nonzero().T.contiguous()
    return Graph(x.clamp(min=0).to_sparse_csr() if sparse else x, edges, y, name="example").validate()


def example_stream(*, sparse: bool = False, classes_per_task: int = 2, seed: int = 0) -> TaskStream:
    """:func:`example_graph`, cut into tasks: 6 training, 4 validation and 5 test nodes a class."""
    graph = example_graph(sparse=sparse, seed=seed)
    split = splits.per_class(graph.y, train=6, val=4, seed=seed)
    return TaskStream.from_classes(graph, classes_per_task=classes_per_task, split=split)


def example_context(
    *,
    per_class: int = 1,
    sparse: bool = False,
    classes_per_task: int = 2,
    head: str = "per-task",
    seed: int = 0,
    allow_test: bool = False,
) -> SelectionContext:
    """What a selector is given after the second task of :func:`example_stream`, learnt by a small GCN."""
    learner = Learner("gcn", "finetune", head=head, epochs=30, seed=seed, backbone_options={"hidden": 8})
    for task in example_stream(sparse=sparse, classes_per_task=classes_per_task)[:2]:
        learner.observe(task)
    trained_on = learner.method.examples(learner, task, task.id)
    return learner.selection_context(task, task.id, trained_on, per_class, allow_test)


def _scrambled(stream: TaskStream) -> TaskStream:
    """The same stream with every test label wrong."""
    y = stream[0].graph.y.clone()
    for task in stream:
        y[task.test] = torch.tensor(task.classes).roll(1)[task.targets(task.test)]
    graph = replace(stream[0].graph, y=y)
    return TaskStream([replace(task, graph=graph) for task in stream], name=stream.name)


def _in_graph(context: SelectionContext, graph: Graph) -> SelectionContext:
    return replace(
        context, task=replace(context.task, graph=graph), trained_on=replace(context.trained_on, graph=graph)
    )


def _relabelled(context: SelectionContext, place: Tensor) -> SelectionContext:
    """Node v is called ``place[v]``; candidates are listed in the order they were."""
    order, graph, task = place.argsort(), context.graph, context.task
    moved = replace(graph, x=graph.x[order], y=graph.y[order], edge_index=place[graph.edge_index])
    task = replace(task, graph=moved, train=place[task.train], val=place[task.val], test=place[task.test])
    trained_on = replace(context.trained_on, graph=moved, nodes=place[context.trained_on.nodes])
    return replace(context, task=task, trained_on=trained_on)


# --- comparing and watching ------------------------------------------------------------------------------


def _same(a: Any, b: Any) -> bool:
    """Equal to the last bit, through dictionaries, lists and (sparse) tensors."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.layout != b.layout or a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.layout == torch.sparse_csr:
            parts = ("crow_indices", "col_indices", "values")
            return all(torch.equal(getattr(a, part)(), getattr(b, part)()) for part in parts)
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(p, q) for p, q in zip(a, b, strict=True))
    return bool(a == b)


def _through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _random_state() -> tuple[Any, ...]:
    _, key, position, *_ = np.random.get_state()  # noqa: NPY002 - the global generator is what is watched
    return torch.get_rng_state(), random.getstate(), np.asarray(key).tobytes(), position


@contextmanager
def _global_state_restored() -> Iterator[None]:
    state, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numbers)  # noqa: NPY002


@contextmanager
def _unchanged(what: str, read: Callable[[], Any]) -> Iterator[None]:
    before = deepcopy(read())
    yield
    _require(_same(before, read()), f"{what} changed.")


@contextmanager
def _offline() -> Iterator[list[str]]:
    """Downloads forbidden as a user forbids them, and every attempt to reach a host noted and refused."""
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


# --- registration ----------------------------------------------------------------------------------------


@_rule("is registered by a lower-case name, with a help text", *KINDS)
def _registered(subject: _Subject) -> None:
    if subject.name is None:
        return
    registry, name = subject.registry, subject.name
    for key in (name, *registry.aliases(name)):
        _require(key == key.lower() and key.split() == [key], f"{key!r} is not one lower-case word.")
        _require(registry.resolve(key) == name, f"{key!r} stands for {registry.resolve(key)!r}.")
    _require(bool(registry.help(name).strip()), "help= is empty, and so is the docstring.")


@_rule("refuses an unknown option with an InputError that lists its options", *KINDS)
def _unknown_option(subject: _Subject) -> None:
    if subject.name is None:
        return
    try:
        subject.registry.create(subject.name, no_such_option=1)
    except InputError as error:
        _require("no_such_option" in str(error), f"The message does not name the option: {error}")
    else:
        raise _Broken("It took no_such_option=1.")


# --- selectors -------------------------------------------------------------------------------------------


def _selector(subject: _Subject) -> Selector:
    selector = subject.make()
    _require(isinstance(selector, Selector), f"{type(selector).__name__} does not derive from ergnn.replay.Selector.")
    return selector


def _select(subject: _Subject, context: SelectionContext) -> Selection:
    selector = _selector(subject)
    return selector.select(replace(context, allow_test=selector.leaky))


@_rule("its constructor only stores and checks arguments, and leaky is a bool", "selector")
def _selector_constructor(subject: _Subject) -> None:
    with _unchanged("Constructing it drew random numbers: the state of a global generator", _random_state):
        selector = _selector(subject)
    _require(isinstance(selector.leaky, bool), f"leaky is {selector.leaky!r}.")


@_rule("chooses e different training nodes of each class of the task, class by class", "selector")
def _selector_choice(subject: _Subject) -> None:
    for sparse in (False, True):
        for classes in (2, 3):
            context = example_context(sparse=sparse, classes_per_task=classes, head=HEADS[classes + sparse - 2])
            for e in (1, 2, 6):
                _check_choice(_select(subject, replace(context, per_class=e)), replace(context, per_class=e))


def _check_choice(selection: Selection, context: SelectionContext) -> None:
    task, e = context.task, context.per_class
    _require(isinstance(selection, Selection), f"select() gave {type(selection).__name__}, not a Selection.")
    nodes = selection.nodes
    _require(nodes.dtype == torch.long and nodes.dim() == 1, f"nodes are {nodes.dtype} of shape {tuple(nodes.shape)}.")
    stray = nodes[~torch.isin(nodes, task.train)].tolist()
    where = [part for part in ("val", "test") if stray and stray[0] in getattr(task, part).tolist()]
    _require(not stray, f"Node {stray[:1]} is not a training node of the task ({where[0] if where else 'elsewhere'}).")
    _require(nodes.unique().numel() == nodes.numel(), f"A node was chosen twice: {nodes.tolist()}.")
    wanted = [c for c in task.classes for _ in range(e)]
    given = context.graph.y[nodes].tolist()
    _require(given == wanted, f"With e = {e} and classes {task.classes} the chosen nodes' classes are {given}.")
    _require(selection.scores.shape == nodes.shape, f"scores have shape {tuple(selection.scores.shape)}.")
    _require(bool(torch.isfinite(selection.scores).all()), f"A score is not finite: {selection.scores.tolist()}.")
    json.dumps(selection.info)


@_rule("leaves the model, the graph, the task and global random generators as they were", "selector")
def _selector_pure(subject: _Subject) -> None:
    context = example_context(per_class=2)
    task, graph = context.task, context.graph
    with (
        _unchanged("The model", context.model.state_dict),
        _unchanged("The graph", lambda: [graph.x, graph.edge_index, graph.y]),
        _unchanged("The task", lambda: [task.train, task.val, task.test]),
        _unchanged("The state of a global random generator", _random_state),
    ):
        _select(subject, context)


@_rule("makes the same choice for the same seed, whatever it chose before", "selector")
def _selector_deterministic(subject: _Subject) -> None:
    context = example_context(per_class=2)
    torch.manual_seed(1)
    first = _select(subject, context)
    torch.manual_seed(2)
    _require(_same(first.nodes, _select(subject, context).nodes), "A second instance chose otherwise.")
    used = _selector(subject)
    used.select(replace(example_context(classes_per_task=3), allow_test=used.leaky))
    again = used.select(replace(context, allow_test=used.leaky))
    _require(_same(first.nodes, again.nodes), "After another selection the same instance chose otherwise.")


@_rule("does not look at test labels unless it is leaky", "selector")
def _selector_leakage(subject: _Subject) -> None:
    if _selector(subject).leaky:
        return
    context = example_context(per_class=2)
    other = _in_graph(context, _scrambled(example_stream())[context.task.id].graph)
    a, b = (_select(subject, replace(each, allow_test=False)) for each in (context, other))
    _require(_same([a.nodes, a.scores], [b.nodes, b.scores]), "With other test labels it chose or scored otherwise.")


@_rule("does not depend on what nodes are numbered", "selector")
def _selector_relabelling(subject: _Subject) -> None:
    context = example_context(per_class=2)
    context.model.double()
    context = _in_graph(context, replace(context.graph, x=context.graph.x.double()))
    place = torch.randperm(context.graph.num_nodes, generator=torch.Generator().manual_seed(3))
    chosen, moved = _select(subject, context).nodes, _select(subject, _relabelled(context, place)).nodes
    _require(_same(place[chosen], moved), "With nodes renumbered (and candidates in the same order) it chose others.")


@_rule("breaks ties by seed, never by the order of the nodes", "selector")
def _selector_ties(subject: _Subject) -> None:
    context = example_context()
    alike = replace(context.graph, x=torch.ones_like(context.graph.x), edge_index=context.graph.edge_index[:, :0])
    context = _in_graph(context, alike)
    choices = {tuple(_select(subject, replace(context, seed=seed)).nodes.tolist()) for seed in range(8)}
    _require(len(choices) > 1, "Where all nodes are alike, eight seeds gave one choice; use context.generator().")


# --- backbones -------------------------------------------------------------------------------------------


def _backbone(subject: _Subject, seed: int = 0, out_channels: int | None = 3) -> Backbone:
    torch.manual_seed(seed)
    model = subject.make(in_channels=FEATURES, out_channels=out_channels)
    _require(isinstance(model, Backbone), f"{type(model).__name__} does not derive from Backbone.")
    return model.eval()


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    a, b = a.detach(), b.detach()
    return a.shape == b.shape and bool(torch.allclose(a, b, rtol=tolerance, atol=tolerance * float(b.abs().max() + 1)))


@_rule("gives scores [n, out_channels] for each head, and embed() gives [n, embedding_size]", "backbone")
def _backbone_shapes(subject: _Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    n = graph.num_nodes
    model.add_head(4)
    _require(model.head_widths == [3, 4], f"After add_head(4) head_widths are {model.head_widths}, not [3, 4].")
    for head, width in enumerate(model.head_widths):
        shape = tuple(model(graph.x, graph.edge_index, head).shape)
        _require(shape == (n, width), f"forward(x, adj, {head}) has shape {shape}, not {(n, width)}.")
    _require(
        torch.equal(model(graph.x, graph.edge_index), model(graph.x, graph.edge_index, 0)), "Head 0 is no default."
    )
    shape = tuple(model.embed(graph.x, graph.edge_index).shape)
    _require(
        shape == (n, model.embedding_size), f"embed() has shape {shape}; embedding_size is {model.embedding_size}."
    )
    _require(_backbone(subject, out_channels=None).head_widths == [], "Without out_channels it starts with a head.")
    _require(model.lr > 0 and model.weight_decay >= 0, f"lr is {model.lr}, weight_decay {model.weight_decay}.")


@_rule("gives finite scores on isolated nodes, self-loops, repeated edges and no edges", "backbone")
def _backbone_edges(subject: _Subject) -> None:
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
        _require(bool(torch.isfinite(model(graph.x, edges)).all()), f"With {case} a score is not finite.")


@_rule("is drawn by torch's seed alone, and its state_dict restores it", "backbone")
def _backbone_state(subject: _Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    twin = _backbone(subject)
    _require(_same(dict(model.state_dict()), dict(twin.state_dict())), "The same seed gave other parameters.")
    other = _backbone(subject, seed=1)
    other.load_state_dict(_through_a_file(dict(model.state_dict())))
    a, b = (each(graph.x, graph.edge_index) for each in (model, other))
    _require(torch.equal(a, b), "After load_state_dict(state_dict()) the scores are others.")


@_rule("is deterministic in evaluation, and a forward pass changes nothing in it", "backbone")
def _backbone_pure(subject: _Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    with _unchanged("In evaluation the state of a global random generator", _random_state):
        first = model(graph.x, graph.edge_index)
    _require(torch.equal(first, model(graph.x, graph.edge_index)), "Two passes gave different scores.")
    with (
        _unchanged("In training, parameters or buffers", lambda: dict(model.state_dict())),
        _unchanged("The attributes", lambda: graph.x),
    ):
        model.train()(graph.x, graph.edge_index)


@_rule("sends a gradient to every parameter", "backbone")
def _backbone_gradients(subject: _Subject) -> None:
    model, graph = _backbone(subject), example_graph()
    scores = model(graph.x, graph.edge_index)
    (scores * torch.randn_like(scores)).sum().backward()
    for name, value in model.named_parameters():
        _require(value.grad is not None and bool(value.grad.abs().sum() > 0), f"{name} gets none.")
        _require(bool(torch.isfinite(value.grad).all()), f"{name}'s is not finite.")  # type: ignore[arg-type]


@_rule("does not depend on what nodes are numbered", "backbone")
def _backbone_relabelling(subject: _Subject) -> None:
    model, graph = _backbone(subject).double(), example_graph()
    x, place = graph.x.double(), torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(3))
    for function in (model, model.embed):
        plain, moved = function(x, graph.edge_index), function(x[place.argsort()], place[graph.edge_index])
        _require(_close(moved[place], plain, 1e-6), "With nodes renumbered a node's scores or embedding are others.")


@_rule("a node's scores depend only on its own component of the graph", "backbone")
def _backbone_locality(subject: _Subject) -> None:
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
        _require(_close(scores[0], scores[1], 1e-5), f"In {mode} they change with the attributes of another component.")


@_rule("is the same function on receptive fields as on the whole graph", "backbone")
def _backbone_fields(subject: _Subject) -> None:
    for sparse in (False, True):
        model, graph = _backbone(subject), example_graph(sparse=sparse)
        model.add_head(3)
        nodes = torch.arange(0, graph.num_nodes, 7)
        with torch.no_grad():
            whole = model.embed(graph.dense_x(), graph.edge_index)[nodes]
            _require(_close(embed(model, graph, nodes), whole, 1e-4), "embed() differs (see runs_on_fields).")
            for head in (0, 1):
                heads, zeros = torch.full((nodes.numel(), 1), head), torch.zeros_like(nodes)
                objective = make_objective([model], [Examples(graph, nodes, heads, zeros, zeros.float())])
                scores = objective.logits(objective.parameters())
                whole = model.eval()(graph.dense_x(), graph.edge_index, head)[nodes]
                _require(_close(scores, whole, 1e-4), f"Scores of head {head} differ (see runs_on_fields).")


@_rule(
    "learns a stream with every head: all parameters train, and the same seed gives the same bits",
    "backbone",
)
def _backbone_learns(subject: _Subject) -> None:
    # five epochs are far from a minimum, where influence needs more damping than its default
    selectors: list[tuple[str, dict[str, Any]]] = [("mf*", {}), ("cm*", {}), ("im", {"damping": 1.0})]
    for head, (selector, options) in zip(HEADS, selectors, strict=True):
        states = []
        for _ in range(2):
            model = _backbone(subject, out_channels=None)
            learner = Learner(model, "replay", head=head, epochs=EPOCHS, selector=selector, selector_options=options)
            for task in example_stream():
                learner.observe(task)
                score = learner.evaluate(task)
                _require(0.0 <= score <= 1.0, f"With head {head!r} {task.name} scores {score}.")
            assert learner.model is not None
            states.append(dict(learner.model.state_dict()))
        for name, before in model.named_parameters():
            _require(not _same(before.detach(), states[0][name]), f"{name} was not trained (see runs_on_fields).")
        _require(_same(*states), f"With head {head!r} the same seed gave other parameters.")


# --- methods ---------------------------------------------------------------------------------------------


def _method(subject: _Subject) -> Method:
    method = subject.make()
    _require(isinstance(method, Method), f"{type(method).__name__} does not derive from ergnn.methods.Method.")
    return method


def _learner(method: Method, head: str = "per-task", seed: int = 0) -> Learner:
    return Learner("gcn", method, head=head, epochs=EPOCHS, seed=seed, backbone_options={"hidden": 8})


def _learnt(subject: _Subject, stream: TaskStream, head: str = "per-task", seed: int = 0) -> Learner:
    learner = _learner(_method(subject), head, seed)
    for task in stream:
        learner.observe(task)
    return learner


def _bits(learner: Learner) -> dict[str, Any]:
    """All that learning has made, less the times."""
    state = learner.state_dict()
    return {key: state[key] for key in ("model", "method", "classes")}


@_rule("its constructor draws no random numbers; leaky and from_scratch are bools, buffer is a buffer", "method")
def _method_constructor(subject: _Subject) -> None:
    with _unchanged("Constructing it drew random numbers: the state of a global generator", _random_state):
        method = _method(subject)
    for name in ("leaky", "from_scratch"):
        _require(isinstance(getattr(method, name), bool), f"{name} is {getattr(method, name)!r}.")
    buffer = method.buffer
    _require(buffer is None or isinstance(buffer, ExperienceBuffer), f"buffer is {type(buffer).__name__}.")


@_rule("learns from weighted training nodes: the task's own first, none unseen, no weight below 0", "method")
def _method_examples(subject: _Subject) -> None:
    method, stream = _method(subject), example_stream()
    learner, given = _learner(method), method.examples
    seen = torch.empty(0, dtype=torch.long)

    def watched(learner: Learner, task: Task, number: int) -> Examples:
        examples = given(learner, task, number)
        _check_examples(examples, task, torch.cat([seen, task.train]))
        return examples

    with mock.patch.object(method, "examples", watched):
        for task in stream:
            learner.observe(task)
            seen = torch.cat([seen, task.train])


def _check_examples(examples: Examples, task: Task, allowed: Tensor) -> None:
    own = examples.nodes[: task.train.numel()]
    _require(torch.equal(own, task.train), f"{task.name}: the first examples are not the task's training nodes.")
    live = examples.nodes[examples.nodes < task.graph.num_nodes]
    stray = live[~torch.isin(live, allowed)].tolist()
    _require(not stray, f"{task.name}: node {stray[:1]} is not a training node of this or an earlier task.")
    weights = examples.weights
    _require(weights.shape == examples.nodes.shape, f"{task.name}: weights have shape {tuple(weights.shape)}.")
    fit = bool(torch.isfinite(weights).all()) and float(weights.min()) >= 0 and float(weights.sum()) > 0
    _require(fit, f"{task.name}: weights must be finite, 0 or more, and not all 0; they are {weights.tolist()[:5]}….")


@_rule("learns three tasks with every kind of head, on dense and on sparse attributes", "method")
def _method_heads(subject: _Subject) -> None:
    for sparse in (False, True):
        stream = example_stream(sparse=sparse)
        for head in HEADS:
            learner = _learnt(subject, stream, head)
            for task in stream:
                score = learner.evaluate(task)
                _require(0.0 <= score <= 1.0, f"With head {head!r} {task.name} scores {score}.")
            json.dumps(learner.history)


@_rule("gives the same bits for the same seed, and leaves global random generators alone", "method")
def _method_deterministic(subject: _Subject) -> None:
    stream = example_stream()
    torch.manual_seed(1)
    with _unchanged("The state of a global random generator", _random_state):
        first = _bits(_learnt(subject, stream))
    torch.manual_seed(2)
    _require(_same(first, _bits(_learnt(subject, stream))), "A second run with the same seed ended otherwise.")


@_rule("shares nothing between learners, and does not change the tasks", "method")
def _method_apart(subject: _Subject) -> None:
    stream = example_stream()
    alone = _bits(_learnt(subject, stream))
    one, two = _learner(_method(subject)), _learner(_method(subject), seed=1)
    graph = stream[0].graph
    with _unchanged(
        "The graph or a task",
        lambda: [graph.x, graph.edge_index, graph.y, [[task.train, task.val, task.test] for task in stream]],
    ):
        for task in stream:
            two.observe(task)
            one.observe(task)
    _require(_same(alone, _bits(one)), "A learner ended otherwise when another one learnt beside it.")


@_rule(
    "its state_dict is a snapshot of tensors, numbers and strings from which learning goes on to the same bits",
    "method",
)
def _method_resumes(subject: _Subject) -> None:
    for sparse in (False, True):
        stream = example_stream(sparse=sparse)
        unbroken = _learner(_method(subject))
        for task in stream[:2]:
            unbroken.observe(task)
        kept = unbroken.method.state_dict()
        state = _through_a_file(unbroken.state_dict())
        unbroken.observe(stream[2])
        _require(_same(kept, state["method"]), "What state_dict() gave changed while learning went on.")
        resumed = _learner(_method(subject))
        resumed.load_state_dict(state)
        _require(_same(resumed.method.state_dict(), state["method"]), "load_state_dict() did not restore the state.")
        resumed.observe(stream[2])
        _require(_same(_bits(unbroken), _bits(resumed)), "A resumed run ended otherwise than an unbroken one.")


@_rule("does not look at test labels unless it is leaky", "method")
def _method_leakage(subject: _Subject) -> None:
    if _method(subject).leaky:
        return
    stream = example_stream()
    a, b = (_bits(_learnt(subject, each)) for each in (stream, _scrambled(stream)))
    _require(_same(a, b), "With other test labels it ended otherwise.")


# --- data sets -------------------------------------------------------------------------------------------


def _dataset(subject: _Subject) -> Dataset:
    dataset = subject.make()
    _require(isinstance(dataset, Dataset), f"{type(dataset).__name__} does not derive from Dataset.")
    return dataset


def _load(dataset: Dataset, split: str) -> Graph:
    """The graph, if its files are here."""
    with _offline() as attempts:
        try:
            return dataset.load(split)
        except DataUnavailable as error:
            raise Skipped(f"{dataset.name}, {split} split: {error}") from error
        finally:
            _require(not attempts, f"It tried to reach {attempts[0] if attempts else ''} with {OFFLINE_VARIABLE}=1.")


def _check_nodes(split: Split, graph: Graph) -> None:
    splits.check_split(split, graph.num_nodes)
    for part in ("train", "val", "test"):
        nodes = getattr(split, part)
        _require(bool((graph.y[nodes] != UNLABELLED).all()), f"A {part} node has no label.")
        _require(part == "val" or nodes.numel() > 0, f"There are no {part} nodes.")


@_rule("states its facts: names, counts, tasks and metric, without loading anything", "dataset")
def _dataset_facts(subject: _Subject) -> None:
    dataset = _dataset(subject)
    _require(
        subject.name in (None, dataset.name), f"It is registered as {subject.name!r}; its name is {dataset.name!r}."
    )
    _require(bool(dataset.title.strip()), "title is empty.")
    for fact in ("nodes", "features", "classes"):
        value = getattr(dataset, fact)
        _require(isinstance(value, int) and value > 0, f"{fact} is {value!r}.")
    _require(isinstance(dataset.edges, int) and dataset.edges >= 0, f"edges is {dataset.edges!r}.")
    names = dataset.class_names
    _require(names is None or len(names) == dataset.classes, f"{len(names or ())} names for {dataset.classes} classes.")
    per_task = dataset.classes_per_task
    _require(1 <= per_task <= dataset.classes, f"classes_per_task is {per_task}; there are {dataset.classes} classes.")
    _require(dataset.metric in METRICS, f"metric is {dataset.metric!r}; choose one of: {', '.join(METRICS)}.")
    with _offline() as attempts:
        _require(bool(dataset.location().strip()), "location() says nothing.")
    _require(not attempts, "location() tried to reach a host.")


@_rule("loads the graph that its facts describe, and splits it by seed into disjoint, labelled parts", "dataset")
def _dataset_graph(subject: _Subject) -> None:
    dataset = _dataset(subject)
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
        _require(count == getattr(dataset, fact), f"{fact} is {getattr(dataset, fact)}; the graph has {count}.")
    missing = set(range(dataset.classes)) - set(graph.y.unique().tolist())
    _require(not missing, f"No node is of class {min(missing, default=0)}.")
    _require(graph.name == dataset.name, f"The graph is called {graph.name!r}.")
    _check_seeded_split(dataset, graph)


def _check_seeded_split(dataset: Dataset, graph: Graph) -> None:
    with _unchanged("The state of a global random generator", _random_state):
        split = dataset.seeded_split(graph, 0)
    _check_nodes(split, graph)
    again, other = dataset.seeded_split(graph, 0), dataset.seeded_split(graph, 1)
    _require(_same(split.train, again.train) and _same(split.test, again.test), "Seed 0 gave two splits.")
    _require(not _same(split.train, other.train), "Seeds 0 and 1 gave the same training nodes.")
    TaskStream.from_classes(graph, classes_per_task=dataset.classes_per_task, split=split, metric=dataset.metric)


@_rule(
    "its public split is there and disjoint if it has one, and refused with PublicSplitUnavailable if not", "dataset"
)
def _dataset_public(subject: _Subject) -> None:
    dataset = _dataset(subject)
    if dataset.public_split:
        graph = _load(dataset, "public")
        _require(graph.public_split is not None, "public_split is True, but load('public') gave a graph without one.")
        assert graph.public_split is not None
        _check_nodes(graph.public_split, graph)
        return
    try:
        with _offline():
            dataset.load("public")
    except PublicSplitUnavailable:
        return
    raise _Broken("public_split is False, but load('public') did not refuse.")
