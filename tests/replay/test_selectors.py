"""Every selector against its definition, implemented as loops."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ergnn.config.errors import InputError, LeakageError
from ergnn.data import Graph, Task, TaskStream
from ergnn.learning.learner import Learner
from ergnn.learning.observing import begin
from ergnn.replay.selectors import SELECTORS, Selection, SelectionContext, Selector, best_per_class
from graphs import random_graph

NAMES = ("random", "mf", "mf*", "cm", "cm*", "im")


def make_context(
    graph: Graph | None = None,
    *,
    seed: int = 0,
    per_class: int = 1,
    backbone: str = "sgc",
    head: str = "per-task",
    tasks: int = 1,
    weight_decay: float = 5e-4,
    **options: object,
) -> SelectionContext:
    """What a selector sees after a few epochs on the last of some tasks."""
    graph = random_graph(n=40, f=5, classes=4, p_edge=0.15, seed=3) if graph is None else graph
    stream = TaskStream.from_classes(graph)
    learner = Learner(
        backbone,
        "replay",
        head=head,
        epochs=3,
        seed=seed,
        weight_decay=weight_decay,
        selector="random",
        backbone_options=options,  # type: ignore[arg-type]
    )
    for task in stream[: tasks - 1]:
        learner.observe(task)
    task, examples = begin(learner, stream[tasks - 1])
    return learner.selection_context(task, examples, per_class, False)


def vectors(context: SelectionContext, space: str) -> list[list[float]]:
    if space == "feature":
        return context.graph.dense_x()[context.nodes].double().tolist()
    with torch.no_grad():
        h = context.model.eval().embed(context.graph.dense_x(), context.graph.edge_index)
    return h[context.nodes].double().tolist()


def normalized(rows: list[list[float]]) -> list[list[float]]:
    return [[a / max(math.hypot(*row), 1e-12) for a in row] for row in rows]


def euclidean(a: list[float], b: list[float]) -> float:
    return math.dist(a, b)


def cosine(a: list[float], b: list[float]) -> float:
    lengths = max(math.hypot(*a), 1e-12) * max(math.hypot(*b), 1e-12)
    return 1.0 - sum(p * q for p, q in zip(a, b, strict=True)) / lengths


DISTANCES: dict[str, Callable[[list[float], list[float]], float]] = {"euclidean": euclidean, "cosine": cosine}


def mean_of_feature(context: SelectionContext, rows: list[list[float]], distance: str) -> list[float]:
    labels, out = context.labels.tolist(), []
    for i, row in enumerate(rows):
        members = [other for other, label in zip(rows, labels, strict=True) if label == labels[i]]
        mean = [sum(column) / len(members) for column in zip(*members, strict=True)]
        out.append(DISTANCES[distance](row, mean))
    return out


def coverage(
    context: SelectionContext, rows: list[list[float]], distance: str, quantile: float, d: float | None
) -> tuple[list[int], float]:
    labels, between = context.labels.tolist(), []
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            if labels[i] != labels[j]:
                between.append(DISTANCES[distance](rows[i], rows[j]))
    if d is None:
        d = sorted(between)[min(int(quantile * len(between)), len(between) - 1)]
    counts = []
    for i, row in enumerate(rows):
        near = [DISTANCES[distance](row, other) < d - 1e-9 for other in rows]
        counts.append(sum(hit and labels[i] != label for hit, label in zip(near, labels, strict=True)))
    return counts, d


small_graphs = st.builds(
    random_graph,
    n=st.integers(24, 40),
    f=st.integers(2, 5),
    classes=st.just(4),
    seed=st.integers(0, 10_000),
    p_edge=st.sampled_from([0.0, 0.1, 0.3]),
    sparse=st.booleans(),
)
spaces = st.sampled_from(["feature", "embedding"])
backbones = st.sampled_from(["gat", "gcn", "sgc"])
name_of = {("mf", "feature"): "mf", ("mf", "embedding"): "mf*", ("cm", "feature"): "cm", ("cm", "embedding"): "cm*"}


@given(small_graphs, spaces, backbones, st.sampled_from(sorted(DISTANCES)), st.booleans())
@settings(max_examples=25, deadline=None)
def test_mean_of_feature_equals_explicit_distances(graph, space, backbone, distance, normalize):
    context = make_context(graph, backbone=backbone, per_class=2)
    selector = SELECTORS.create(name_of["mf", space], distance=distance, normalize=normalize)
    rows = vectors(context, space)
    expected = mean_of_feature(context, normalized(rows) if normalize else rows, distance)
    assert (-selector.score(context)).tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    chosen = selector.select(context)
    where = {int(node): i for i, node in enumerate(context.nodes)}
    for c in context.task.classes:
        nearest = sorted(d for d, label in zip(expected, context.labels.tolist(), strict=True) if label == c)[:2]
        picked = [expected[where[int(node)]] for node in chosen.nodes if int(context.graph.y[node]) == c]
        assert picked == pytest.approx(nearest, rel=1e-4, abs=1e-5), "the most typical nodes, nearest first"


@given(
    small_graphs,
    spaces,
    backbones,
    st.sampled_from(sorted(DISTANCES)),
    st.booleans(),
    st.sampled_from([0.1, 0.25, 0.5, 0.9]),
)
@settings(max_examples=25, deadline=None)
def test_coverage_equals_an_explicit_double_loop(graph, space, backbone, distance, normalize, quantile):
    context = make_context(graph, backbone=backbone)
    name = name_of["cm", space]
    rows = vectors(context, space)
    rows = normalized(rows) if normalize else rows
    # d from one distance to the next larger one gives the same counts; the middle is safe from rounding
    _, d = coverage(context, rows, distance, quantile, None)
    selector = SELECTORS.create(name, distance=distance, normalize=normalize, quantile=quantile)
    assert selector.select(context).info["d"] == pytest.approx(d, rel=1e-4, abs=1e-5)
    given_d = 1.0001 * d + 1e-4
    selector = SELECTORS.create(name, distance=distance, normalize=normalize, d=given_d)
    expected, _ = coverage(context, rows, distance, quantile, given_d)
    assert (-selector.score(context)).tolist() == expected
    chosen = selector.select(context)
    where = {int(node): i for i, node in enumerate(context.nodes)}
    for c in context.task.classes:
        fewest = min(n for n, label in zip(expected, context.labels.tolist(), strict=True) if label == c)
        (picked,) = [node for node in chosen.nodes.tolist() if int(context.graph.y[node]) == c]
        assert expected[where[picked]] == fewest


def line(places: list[float], labels: list[int]) -> SelectionContext:
    """Nodes on a line, all of them for training, and one validation and one test node a class far away."""
    n, classes = len(places), sorted(set(labels))
    y = torch.tensor(labels + classes + classes)
    x = torch.tensor(places + [1e3] * (2 * len(classes))).unsqueeze(1)
    graph = Graph(x, torch.empty(2, 0, dtype=torch.long), y)
    task = Task(0, graph, torch.arange(n), torch.arange(n, n + len(classes)), torch.arange(n + 2, len(y)), (0, 1))
    context = make_context()
    return replace(context, task=replace(task, classes=tuple(classes)))


def test_coverage_counts_strictly_within_d_and_only_other_classes():
    context = line([0.0, 1.0, 2.0, 3.0], [0, 0, 1, 1])
    assert SELECTORS.create("cm", normalize=False, d=2.0).score(context).tolist() == [0, -1, -1, 0]
    assert SELECTORS.create("cm", normalize=False, d=2.001).score(context).tolist() == [-1, -2, -2, -1]


def test_the_quantile_is_taken_over_distances_between_classes_each_pair_once():
    context = line([0.0, 1.0, 3.0, 7.0], [0, 0, 1, 1])  # between classes: 3, 7, 2, 6 → 2, 3, 6, 7
    for quantile, d in ((0.1, 2.0), (0.25, 3.0), (0.5, 6.0), (0.99, 7.0)):
        assert SELECTORS.create("cm", normalize=False, quantile=quantile).select(context).info["d"] == d
    assert SELECTORS.create("cm", normalize=False, quantile=0.5).score(context).tolist() == [-1, -1, -2, 0]


def tied(context: SelectionContext, order: list[int], seed: int) -> Selection:
    """A choice among nodes 0-3 (class 0) and 4-7 (class 1), where 1, 2, 3 and 5, 6 tie for the best."""
    score = torch.tensor([0.0, 1.0, 1.0, 1.0, -2.0, 7.0, 7.0, 3.0])
    return best_per_class(
        score[order], replace(context, task=replace(context.task, train=torch.tensor(order)), seed=seed)
    )


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0]], ids=["ascending", "descending"])
def test_ties_are_broken_by_seed_and_not_by_the_order_of_the_nodes(order: list[int]):
    counts, context = torch.zeros(8), line([0.0] * 8, [0] * 4 + [1] * 4)
    for seed in range(300):
        counts[tied(context, order, seed).nodes] += 1
    assert counts[[0, 4, 7]].tolist() == [0, 0, 0]
    assert counts[[1, 2, 3]].tolist() == pytest.approx([100] * 3, abs=40)
    assert counts[[5, 6]].tolist() == pytest.approx([150] * 2, abs=45)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=20), st.integers(0, 100))
def test_the_tie_rate_equals_a_double_loop(values: list[int], seed: int):
    labels = [i % 2 for i in range(len(values))]
    context = replace(line([0.0] * len(values), labels), seed=seed)
    expected = sum(
        any(i != j and a == b and labels[i] == labels[j] for j, b in enumerate(values)) for i, a in enumerate(values)
    )
    assert best_per_class(torch.tensor(values), context).info["tie_rate"] == expected / len(values)


def influence_by_brute_force(context: SelectionContext, target: str, damping: float = 0.01) -> Tensor:
    """``I(v)`` from per-node gradients of PyG's own forward and a dense solve, in float64."""
    model, graph = context.model.double().eval(), context.graph
    params, x = list(model.parameters()), graph.dense_x().double()

    def flat(scalar: Tensor) -> Tensor:
        found = torch.autograd.grad(scalar, params, retain_graph=True, allow_unused=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in found])

    def logit(node: int, head: int) -> Tensor:
        return model(x, graph.edge_index, head)[node]

    part, h = context.trained_on, torch.zeros(1, dtype=torch.float64)
    gradients = []
    for node, head, right, weight in zip(part.nodes, part.heads[:, 0], part.targets, part.weights, strict=True):
        row = logit(int(node), int(head))
        jacobian, p = torch.stack([flat(one) for one in row]), torch.softmax(row.detach(), 0)
        h = h + weight.double() * jacobian.T @ (p.diag() - torch.outer(p, p)) @ jacobian
        gradients.append(flat(F.cross_entropy(row, right)))
    h = h + (damping * float(context.trained_on.weights.sum()) + context.l2) * torch.eye(h.size(0), dtype=torch.float64)
    nodes = getattr(context.task, target)
    head = 0 if context.heads.kind == "shared" else context.task.id
    aim = torch.stack([logit(int(node), head) for node in nodes])
    goal = flat(F.cross_entropy(aim, context.task.targets(nodes), reduction="sum"))
    g = torch.stack(gradients)[: context.nodes.numel()]
    return -g @ torch.linalg.solve(h, goal)


@pytest.mark.parametrize(
    ("backbone", "head", "target"),
    [
        *(("gat", "shared", "val"), ("gat", "per-task", "train"), ("gcn", "per-task", "val")),
        *(("gcn", "shared", "test"), ("sgc", "shared", "train"), ("sgc", "per-task", "test")),
    ],
)
def test_influence_scores_equal_brute_force_with_a_buffer(backbone: str, head: str, target: str):
    options = {"gat": {"hidden": 2, "heads": 2, "dropout": 0.0}, "gcn": {"hidden": 3, "dropout": 0.0}, "sgc": {}}
    context = make_context(backbone=backbone, head=head, tasks=2, **options[backbone])
    assert len(context.trained_on) == len(context.nodes) + 2, "two remembered nodes are part of the loss"
    context = replace(context, allow_test=target == "test")
    expected = influence_by_brute_force(context, target)
    plain = SELECTORS.create("im", target=target, tolerance=1e-10, max_iterations=500).score(context)
    assert float((-plain - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


def test_influences_three_signs_are_one_another_negated_or_absolute():
    context = make_context(backbone="gcn")
    helpful, harmful, magnitude = (
        SELECTORS.create("im", sign=s).score(context) for s in ("helpful", "harmful", "magnitude")
    )
    assert torch.equal(harmful, -helpful)
    assert torch.equal(magnitude, helpful.abs())
    assert (helpful < 0).any()
    assert (helpful > 0).any(), "this context has nodes of both kinds"


class Peeping(Selector):
    """Asks for test labels and does not say so."""

    def score(self, context: SelectionContext) -> Tensor:
        return torch.zeros(context.nodes.numel()) + context.examples("test").targets.sum()


def test_only_influence_on_test_nodes_is_leaky():
    assert {name: SELECTORS.create(name).leaky for name in NAMES} == dict.fromkeys(NAMES, False)
    leaky = [SELECTORS.create("im", target=target).leaky for target in ("val", "train", "test")]
    assert leaky == [False, False, True]


def test_undeclared_use_of_test_labels_raises_an_error():
    learner = Learner("sgc", "replay", epochs=1, selector=Peeping())
    with pytest.raises(LeakageError, match="leaky"):
        learner.observe(TaskStream.from_classes(random_graph())[0])


def test_coverage_needs_two_classes():
    graph = random_graph(n=40, f=5, classes=4)
    one = TaskStream.from_classes(graph, classes_per_task=1)[0]
    with pytest.raises(InputError, match="one class"):
        SELECTORS.create("cm").select(replace(make_context(graph), task=one))


def test_scores_of_the_wrong_shape_or_that_are_not_numbers_are_rejected():
    context = make_context()
    with pytest.raises(InputError, match=r"\(3,\) scores"):
        best_per_class(torch.zeros(3), context)
    for bad in (math.nan, math.inf):
        with pytest.raises(InputError, match="NaN or infinite"):
            best_per_class(torch.full(context.nodes.shape, bad), context)
