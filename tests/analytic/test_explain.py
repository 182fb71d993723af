from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ergnn import Learner
from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency, explain
from ergnn.analytic.explain import KEPT_BYTES, LabelEffects, doubts, split_by_feature, spread_out
from ergnn.analytic.kernels import Kernel
from ergnn.analytic.ridge import CLASS_WEIGHTS, Targets
from ergnn.config.errors import InputError
from ergnn.data import Graph
from ergnn.data.stream import Task
from tests.graphs import graphs, random_graph

LINEAR = Kernel()
KERNELS = st.sampled_from([Kernel(), Kernel(0.7), Kernel(2.0)])


def draw_rows(n: int, width: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, labels (any numbers, some classes with one row) and rows to ask for."""
    generator = torch.Generator().manual_seed(seed)
    labels = 3 * torch.randint(classes, (n,), generator=generator) + 1
    rows, asked = (torch.randn(size, width, generator=generator) / width**0.5 for size in (n, 5))
    return rows, labels, asked


def effects_of(
    rows: Tensor, labels: Tensor, lam: float, kernel: Kernel = LINEAR, tau: float = 1.0, power: float = 0.5
) -> LabelEffects:
    return LabelEffects(torch.arange(labels.numel()), labels, rows, kernel, lam, tau, power)


def solved(
    rows: Tensor, labels: Tensor, asked: Tensor, lam: float, kernel: Kernel, power: float
) -> tuple[Tensor, Tensor]:
    """Scores by the definition, and their classes."""
    classes, w = labels.unique(), Targets(labels, power).w
    y, rows = (labels[:, None] == classes).double(), rows.double()
    system = kernel(rows, rows) + lam * torch.diag(1 / w)
    return kernel(asked.double(), rows) @ torch.linalg.solve(system, y), classes


@given(
    n=st.integers(2, 24),
    width=st.integers(1, 30),
    classes=st.integers(1, 5),
    seed=st.integers(0, 999),
    kernel=KERNELS,
    kept=st.sampled_from([0, KEPT_BYTES]),
    power=st.sampled_from(list(CLASS_WEIGHTS.values())),
)
def test_terms_and_heads_without_a_node_equal_solving_again(
    n: int, width: int, classes: int, seed: int, kernel: Kernel, kept: int, power: float
) -> None:
    rows, labels, asked = draw_rows(n, width, classes, seed)
    lam = [0.001, 0.1, 3.0][seed % 3]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain, "KEPT_BYTES", kept)
        effects = effects_of(rows, labels, lam, kernel, power=power)
    whole, _ = solved(rows, labels, asked, lam, kernel, power)
    torch.testing.assert_close(effects.scores(asked), whole, rtol=0, atol=1e-9)
    terms, left_out, predicted = effects.terms(asked), effects.left_out(), effects.predictions_without(asked)
    for c, name in enumerate(effects.classes):
        torch.testing.assert_close(terms[:, labels == name].sum(1), effects.scores(asked)[:, c])
    for i in range(n):
        others = torch.arange(n) != i
        scores, known = solved(rows[others], labels[others], torch.cat([rows[i : i + 1], asked]), lam, kernel, power)
        columns = torch.searchsorted(effects.classes, known)
        torch.testing.assert_close(left_out[i, columns], scores[0], rtol=0, atol=1e-7)  # λ = 0.001: condition 1e5
        assert columns.numel() == effects.classes.numel() or left_out[i].isinf().sum() == 1
        clear = scores[1:].topk(min(2, columns.numel()), 1).values
        clear = (clear[:, 0] - clear[:, -1] > 1e-9) | (columns.numel() == 1)
        assert torch.equal(predicted[clear, i], columns[scores[1:].argmax(1)][clear])


@given(n=st.integers(1, 24), width=st.integers(1, 30), seed=st.integers(0, 999), kernel=KERNELS)
def test_variances_equal_those_of_the_posterior(n: int, width: int, seed: int, kernel: Kernel) -> None:
    rows, labels, asked = draw_rows(n, width, 3, seed)
    effects = effects_of(rows, labels, 0.05, kernel)
    w, rows, asked = Targets(labels).w, rows.double(), asked.double()
    if kernel.s:
        among = torch.cat([rows, asked])
        root = torch.linalg.cholesky(kernel(among, among) + 1e-13 * torch.eye(len(among)))  # φ of this kernel
        rows, phi = root[:n], root[n:]
    else:
        phi = asked
    posterior = (
        phi
        @ torch.linalg.inv((w[:, None] * rows).T @ rows + 0.05 * torch.eye(rows.size(1), dtype=torch.float64))
        @ phi.T
    )
    torch.testing.assert_close(effects.covariances(asked, asked), posterior, rtol=0, atol=1e-6)
    torch.testing.assert_close(effects.variances(asked), posterior.diagonal(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("n", "width"), [(12, 40), (60, 6)])
def test_rows_are_chosen_as_by_brute_force(n: int, width: int) -> None:
    rows, labels, _ = draw_rows(n, width, 3, n)
    candidates = draw_rows(30, width, 3, 7)[0].double()
    candidates[20:] = candidates[:10]  # duplicates: their labels add little
    effects = effects_of(rows, labels, 0.1)
    chosen = spread_out(effects, candidates, 6)
    w, rows = Targets(labels).w, rows.double()
    gram = (w[:, None] * rows).T @ rows + 0.1 * torch.eye(width, dtype=torch.float64)

    def total(gram: Tensor) -> float:
        return float((candidates @ torch.linalg.inv(gram) * candidates).sum())

    for step, pick in enumerate(chosen):
        totals = {i: total(gram + row[:, None] * row) for i, row in enumerate(candidates) if i not in chosen[:step]}
        assert totals[pick] == pytest.approx(min(totals.values()), rel=1e-9)
        gram = gram + candidates[pick][:, None] * candidates[pick]
    assert len(set(chosen)) == 6


@given(graph=graphs(), name=st.sampled_from(["hops", "ppr"]), sketch=st.sampled_from([None, 2]))
def test_features_and_distances_add_up_to_the_score(graph: Graph, name: str, sketch: int | None) -> None:
    if sketch is not None and graph.num_features <= sketch:
        sketch = None
    feature_map = FEATURE_MAPS.create(name)
    features = Features(feature_map, NormalizedAdjacency(graph), Inputs(graph, sketch))
    weight = torch.randn(features.width, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for node in (0, graph.num_nodes - 1):
        split, constant = split_by_feature(features, node, weight)
        assert split.shape == (feature_map.num_hops + 1, graph.num_features, 3)
        score = (features.rows(torch.tensor([node])) @ weight)[0]
        torch.testing.assert_close(split.sum((0, 1)) + constant, score, rtol=0, atol=1e-9)


def test_own_features_and_those_of_neighbors_are_told_apart() -> None:
    graph = random_graph(n=20, f=20, p_edge=0.1, seed=3)
    object.__setattr__(graph, "x", torch.eye(20))  # feature j is that of node j
    features = Features(FEATURE_MAPS.create("hops"), NormalizedAdjacency(graph), Inputs(graph))
    split, _ = split_by_feature(features, 4, torch.ones(features.width, 1, dtype=torch.float64))
    neighbors = graph.edge_index[0, graph.edge_index[1] == 4].unique()
    assert split[0, :, 0].nonzero().flatten().tolist() == [4]
    assert torch.equal(split[1, :, 0].nonzero().flatten(), neighbors)


def test_labels_that_do_not_fit_come_first() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(120) % 3
    rows = torch.nn.functional.one_hot(truth, 3) + 0.3 * torch.randn(120, 3, generator=generator)
    labels = truth.clone()
    labels[:6] = (truth[:6] + 1) % 3
    labels[100] = 9  # the only one of its class cannot be compared
    found = doubts(effects_of(rows, labels, 0.1, tau=10.0))
    order = found.order().tolist()
    assert set(order[:6]) == set(range(6))
    assert sorted(order) == [i for i in range(120) if i != 100]
    assert torch.equal(found.column[:6], truth[:6])


def test_similar_labels_are_those_with_the_largest_kernel() -> None:
    rows = (4 * draw_rows(60, 3, 2, 0)[0]).round()[torch.arange(120) % 60].double()  # products are exact, with ties
    effects = effects_of(rows, torch.arange(120) % 2, 0.1)
    for count in (3, 200):
        for node, similar in zip((3, 70), effects.most_similar(torch.tensor([3, 70]), count).tolist(), strict=True):
            order = torch.argsort(-(rows @ rows[node]), stable=True)
            assert similar == order[order != node][:count].tolist()


@given(graph=graphs(), kernel=st.sampled_from(["linear", "rbf"]), seed=st.integers(0, 99))
def test_a_learner_explains_its_own_prediction(graph: Graph, kernel: str, seed: int) -> None:
    """After a correction and a deletion, terms add up to the scores, and a deleted label changes what was said."""
    graph = replace(graph, y=graph.y.clamp(min=0))
    learner = Learner("sgc", "analytic", head="growing", feature_map="hops", lam=0.1, kernel=kernel, scale="rows")
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    train, rest = order[: graph.num_nodes // 2].sort().values, order[graph.num_nodes // 2 :]
    learner.observe(Task(0, graph, train, rest[:0], rest, tuple(range(graph.num_classes))))
    head = learner.method
    head.kernels = (head.solution.kernel,)  # not chosen again
    head.learn(graph, train[:1], (graph.y[train[:1]] + 1) % graph.num_classes)
    learner.forget_nodes(train[1:2])
    node = int(rest[0])
    found = learner.explain(node)
    assert train[1] not in found.nodes
    assert found.terms.sum() == pytest.approx(float(found.scores.sum()), abs=1e-9)
    scores = head.head_scores(graph, torch.tensor([node]), found.classes)[0] / head.solution.temperature
    torch.testing.assert_close(found.scores, scores.double(), rtol=0, atol=1e-9)
    for i in found.deciding[:1]:
        learner.forget_nodes(found.nodes[i : i + 1])
        again = learner.explain(node)
        if again.margin > 1e-9:  # features of one column give ties
            assert int(again.classes[again.best]) == int(found.classes[found.without[i]])
    doubted = learner.audit()
    assert torch.equal(doubted.nodes, learner.explain(node).nodes)
    assert not torch.isin(learner.suggest(3, among=torch.cat([rest, train])), doubted.nodes).any()


def test_learners_without_a_closed_form_say_so() -> None:
    graph = random_graph()
    nodes = torch.arange(20)
    for method, options, message in (
        ("finetune", {"epochs": 1}, "trains a network, and only the closed form can be explained"),
        ("analytic", {"memory": "statistics"}, "use memory='nodes'"),
    ):
        learner = Learner("gcn", method, head="growing", **options)
        learner.observe(Task(0, graph, nodes, nodes[:0], nodes, (0, 1, 2, 3)))
        with pytest.raises(InputError, match=message):
            learner.explain(0)
    learner = Learner("sgc", "analytic", head="growing").observe(Task(0, graph, nodes, nodes[:0], nodes, (0, 1, 2, 3)))
    with pytest.raises(InputError, match="nodes contains 40; nodes are 0 to 39"):
        learner.explain(40)
    with pytest.raises(InputError, match="nothing is left to label"):
        learner.suggest(2, among=nodes)
