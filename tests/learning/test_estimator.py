"""The estimator: equal to a learner, accepts graphs in every form, and rejects invalid input."""

import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch_geometric.data import Data

from ergnn.config.errors import InputError
from ergnn.data import Graph, TaskStream
from ergnn.engine.adjacency import Adjacency
from ergnn.learning.estimator import EXPECTED_FAILED_CHECKS, ContinualNodeClassifier
from ergnn.learning.learner import Learner
from graphs import random_graph, sparse_x

PAGE = Path(__file__).parents[2] / "docs" / "estimator.md"
NAMES = np.array(["fig", "plum", "apple", "pear", "cherry", "quince"])
"""Labels whose order is that of the class numbers in each task of two, and not over all."""


NETWORKS = [
    ContinualNodeClassifier(method="replay", epochs=30),
    ContinualNodeClassifier("mlp", "replay", selector="random", epochs=30),
]


@parametrize_with_checks([ContinualNodeClassifier(), NETWORKS[1]])
def test_scikit_learn_estimator_checks(estimator: Any, check: Any) -> None:
    if (
        estimator.method != "analytic" and check.func.__name__ in EXPECTED_FAILED_CHECKS
    ):  # whether it passes depends on the processor
        pytest.skip(EXPECTED_FAILED_CHECKS[check.func.__name__])
    check(estimator)


@pytest.mark.parametrize("estimator", NETWORKS, ids=["gat", "mlp"])
def test_a_single_row_is_predicted_as_in_a_batch_up_to_rounding(estimator: Any) -> None:
    x = 3 * np.random.default_rng(0).normal(size=(20, 3))
    fitted = clone(estimator).fit(x, (x[:, 0] > 0).astype(int))
    alone = np.vstack([fitted.predict_proba(row[None]) for row in x])
    np.testing.assert_allclose(fitted.predict_proba(x), alone, atol=1e-5)


def test_a_pyg_graph_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    build = Adjacency.__init__
    monkeypatch.setattr(Adjacency, "__init__", lambda self, *args: built.append(1) or build(self, *args))
    graph = random_graph(n=30, classes=2)
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
    fitted = small().fit(data)
    first = fitted.predict_proba(data)
    count = len(built)
    assert count
    np.testing.assert_array_equal(fitted.predict_proba(data), first)
    assert len(built) == count
    data.edge_index[0] = 0
    assert np.abs(fitted.predict_proba(data) - first).max() > 1e-3
    assert len(built) > count


def test_the_page_lists_the_expected_failed_checks() -> None:
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    rows = dict(re.findall(r"^\| `(check_\w+)` \| (.+) \|$", text, re.MULTILINE))
    assert rows == EXPECTED_FAILED_CHECKS


@pytest.fixture(scope="module")
def stream() -> TaskStream:
    graph = random_graph(n=90, f=6, classes=6, p_edge=0.05, seed=1)
    return TaskStream.from_classes(graph, classes_per_task=2, edges="seen")


def small(**options: Any) -> ContinualNodeClassifier:
    return ContinualNodeClassifier("gcn", **{"method": "replay", "epochs": 20, "lr": 0.05, **options})


def test_it_is_bitwise_equal_to_a_learner(stream: TaskStream) -> None:
    mine = small(per_class=2, random_state=3)
    training = {"epochs": 20, "lr": 0.05, "weight_decay": 3e-5, "seed": 3}
    peer = Learner("gcn", head="growing", per_class=2, replay_batch=None, **training)
    for task in stream:
        mine.partial_fit(task.graph, nodes=task.train, y=NAMES[task.graph.y[task.train]])
        peer.observe(task)
    graph, nodes = stream[2].graph, stream[2].test
    assert mine.classes_.tolist() == sorted(NAMES)
    order = [NAMES.tolist().index(name) for name in mine.classes_]
    peers = torch.zeros(nodes.numel(), 6)
    peers[:, peer.classes()] = peer.predict_proba(nodes)
    assert np.array_equal(mine.predict_proba(graph, nodes), peers.double().numpy()[:, order])
    assert np.array_equal(mine.predict(graph, nodes), NAMES[peer.predict(nodes)])
    assert torch.equal(mine.learner_.method.buffer.nodes, peer.method.buffer.nodes)
    assert mine.score(graph, nodes=nodes, y=NAMES[graph.y[nodes]]) == peer.evaluate(stream[2])


def test_graphs_are_accepted_in_every_form(stream: TaskStream) -> None:
    task = stream[0]
    graph, nodes = task.graph, task.train.numpy()
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
    pair = (graph.x.numpy(), graph.edge_index.numpy())
    mask = np.isin(np.arange(graph.num_nodes), nodes)
    labels = graph.y.numpy()
    expected = small().fit(graph, nodes).predict_proba(graph)
    for X, arguments in (
        (graph, {"y": mask}),
        (sparse_x(graph), {"y": nodes.tolist()}),
        (data, {"y": torch.from_numpy(nodes)}),
        (data, {"nodes": nodes, "y": labels[nodes]}),
        (pair, {"nodes": nodes, "y": labels[nodes]}),
        ((graph.x, graph.edge_index), {"nodes": mask, "y": labels[mask]}),
    ):
        made = small().fit(X, **arguments)
        # the order of nodes, which a mask changes, decides nothing but roundings
        assert np.allclose(made.predict_proba(X), expected, atol=1e-4)
        assert np.array_equal(made.predict(X, nodes), made.predict(X)[nodes])
    unlabeled = Data(x=graph.x, edge_index=graph.edge_index)
    assert np.array_equal(small().fit(unlabeled, nodes=nodes, y=labels[nodes]).predict_proba(graph), expected)


def test_edge_weights_are_used_or_refused(stream: TaskStream) -> None:
    graph, nodes = stream[0].graph, stream[0].train.numpy()
    weight = torch.linspace(0, 2, graph.num_edges)
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, edge_weight=weight)
    triple = (graph.x.numpy(), graph.edge_index.numpy(), weight.numpy())
    expected = ContinualNodeClassifier().fit(graph, nodes).predict_proba(graph)
    weighted = replace(graph, edge_weight=weight)
    found = ContinualNodeClassifier().fit(weighted, nodes).predict_proba(weighted)
    assert not np.allclose(found, expected)
    assert np.array_equal(ContinualNodeClassifier().fit(data, nodes).predict_proba(data), found)
    labels = graph.y.numpy()[nodes]
    assert np.allclose(ContinualNodeClassifier().fit(triple, nodes=nodes, y=labels).predict_proba(triple), found)
    with pytest.raises(InputError, match="edge weights, which method Replay does not use"):
        small().fit(data, nodes)


def test_a_matrix_is_a_graph_without_edges() -> None:
    graph = random_graph(n=40, f=6, classes=3, seed=2)
    X, y = graph.x.numpy(), graph.y.numpy()
    plain = small().fit(X, y)
    pair = small(method_options={"replay": "isolated"}).fit((X, np.empty((2, 0), dtype=int)), y)
    assert np.array_equal(plain.predict_proba(X), pair.predict_proba((X, np.empty((2, 0), dtype=int))))
    sparse = small().fit(sp.csr_array(X), y)
    assert np.allclose(sparse.predict_proba(sp.csr_matrix(X)), plain.predict_proba(X), atol=1e-4)
    assert plain.score(X, y) == np.mean(plain.predict(X) == y)
    weights = np.arange(40)
    assert plain.score(X, y, sample_weight=weights) == pytest.approx(np.average(plain.predict(X) == y, weights=weights))


def test_classes_may_occur_again_together_with_new_ones() -> None:
    graph = random_graph(n=90, f=6, classes=3, p_edge=0.0, seed=4)
    y = graph.y.numpy()
    made = small()
    for wanted, part in (([0, 1], slice(0, 30)), ([1, 2], slice(30, 60)), ([0, 1, 2], slice(60, 90))):
        nodes = np.arange(90)[part]
        made.partial_fit(graph, nodes[np.isin(y[nodes], wanted)])
    assert made.classes_.tolist() == [0, 1, 2]
    assert made.predict_proba(graph).shape == (90, 3)
    assert np.allclose(made.predict_proba(graph).sum(1), 1)
    assert made.score(graph) > 0.6
    labels = np.concatenate([part.labels.numpy() for part in made.learner_.method.buffer.experiences])
    assert np.bincount(labels).tolist() == [2, 3, 2]  # one per class and call
    only = made.predict_proba(graph, task=1)
    assert (only[:, 0] == 0).all()
    assert np.allclose(only[:, 1:].sum(1), 1)


def test_separate_graphs_store_their_own_nodes() -> None:
    first, second = (random_graph(n=40, f=6, classes=2, seed=seed) for seed in (4, 5))
    made = small(per_class=3, method_options={"replay": "ego"})
    for graph in (first, second, first):
        made.partial_fit(graph)
    parts = made.learner_.method.buffer.experiences
    assert [len(part) for part in parts] == [6, 6, 6]
    for graph, part in zip((first, second, first), parts, strict=True):
        assert torch.equal(part.copy.x[:6], graph.x[part.nodes])


def test_a_graph_may_grow_but_not_shrink(stream: TaskStream) -> None:
    graph = stream[0].graph
    made = small(per_class=3).partial_fit(graph, stream[0].train)
    extra = torch.zeros(5, graph.num_features)
    larger = Graph(torch.cat([graph.x, extra]), graph.edge_index, torch.cat([graph.y, torch.full((5,), -1)]))
    nodes = stream[1].train
    labels = stream[1].graph.y[nodes]
    made.partial_fit(larger, nodes=nodes, y=labels)
    assert len(made.predict(larger)) == 95
    last = int(made.learner_.method.buffer.nodes.max())
    kept = (graph.edge_index < last).all(0)
    smaller = Graph(graph.x[:last], graph.edge_index[:, kept], graph.y[:last])
    with pytest.raises(InputError, match=f"node {last} was learned before, but the graph has {last} nodes"):
        made.partial_fit(smaller, [0])


def test_announced_classes_have_probability_0_until_learned() -> None:
    graph = random_graph(n=40, f=6, classes=3, seed=2)
    nodes = np.flatnonzero(graph.y.numpy() < 2)
    made = small().partial_fit(graph, nodes, classes=[0, 1, 2, 7])
    assert made.classes_.tolist() == [0, 1, 2, 7]
    probability = made.predict_proba(graph)
    assert (probability[:, 2:] == 0).all()
    assert (probability[:, :2] > 0).all()
    made.partial_fit(graph, np.flatnonzero(graph.y.numpy() == 2))
    assert (made.predict_proba(graph)[:, 2] > 0).all()
    with pytest.raises(InputError, match="label 2 is not one of classes: 0, 1"):
        small().partial_fit(graph, classes=[0, 1])


def test_a_pickled_classifier_continues(stream: TaskStream) -> None:
    made = small().partial_fit(stream[0].graph, stream[0].train)
    again = pickle.loads(pickle.dumps(made))
    for one in (made, again):
        one.partial_fit(stream[1].graph, stream[1].train)
    graph = stream[1].graph
    assert np.array_equal(made.predict_proba(graph), again.predict_proba(graph))


def test_it_works_in_pipelines_and_searches() -> None:
    graph = random_graph(n=60, f=6, classes=3, seed=2)
    X, y = 1000 * graph.x.numpy() + 5000, NAMES[graph.y.numpy()]
    pipeline = make_pipeline(StandardScaler(), small())
    search = GridSearchCV(pipeline, {"continualnodeclassifier__epochs": np.array([1, 30])}, cv=2).fit(X, y)
    assert search.best_params_ == {"continualnodeclassifier__epochs": 30}
    assert search.predict(X).shape == y.shape


def test_scikit_learn_splits_the_nodes_of_a_graph(stream: TaskStream) -> None:
    graph, nodes = stream[2].graph, np.arange(90)
    y = NAMES[graph.y.numpy()]
    folds = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(ContinualNodeClassifier(graph=graph), nodes, y, cv=folds)
    for score, (train, test) in zip(scores, folds.split(nodes), strict=True):
        peer = ContinualNodeClassifier().fit(graph, nodes=train, y=y[train])
        assert score == peer.score(graph, nodes=test, y=y[test])
    train, test = train_test_split(nodes, random_state=0)
    pair = (graph.x, graph.edge_index)
    search = GridSearchCV(ContinualNodeClassifier(graph=pair), {"method_options": [{"lam": 0.01}, {"lam": 1.0}]}, cv=2)
    best = search.fit(train, y[train]).best_estimator_
    assert best.method_options == search.best_params_["method_options"]
    assert np.array_equal(search.predict(test), best.predict(test[:, None]))
    assert clone(ContinualNodeClassifier(graph=graph)).graph is graph
    mask = np.isin(nodes, train)
    of_the_graph = ContinualNodeClassifier(graph=graph).fit(mask)  # labels of the graph
    assert np.array_equal(
        of_the_graph.predict_proba(test),
        best.set_params(method_options=None).fit(train, graph.y.numpy()[train]).predict_proba(test),
    )
    with pytest.raises(InputError, match="graph is a parameter, so that X is the nodes"):
        of_the_graph.predict(test, nodes=test)
    with pytest.raises(InputError, match="nodes must be a vector of node ids"):
        of_the_graph.predict(graph.x.numpy())


def test_a_score_that_misleads_is_said() -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.repeat([0, 1, 2], [40, 12, 8])
    made = small().fit(x[[0, 41]], y[[0, 41]])
    with pytest.warns(UserWarning, match=r"score: .* \(balanced accuracy: \d+\.\d\d %\)") as lines:
        made.score(x, y)
    predicted = made.predict(x)
    recall = np.mean([np.mean(predicted[y == c] == c) for c in range(3)])
    assert f"(balanced accuracy: {100 * recall:.2f} %)" in str(lines[0].message)


def test_per_task_heads_need_the_task(stream: TaskStream) -> None:
    made = small(head="per-task")
    for task in stream[:2]:
        made.partial_fit(task.graph, task.train)
    graph = stream[1].graph
    assert set(made.predict(graph, task=0)) <= {0, 1}
    assert made.score(graph, stream[1].test, task=1) > 0.5
    with pytest.raises(InputError, match="needs the task of the nodes"):
        made.predict(graph)


def test_a_call_that_fails_changes_nothing(stream: TaskStream) -> None:
    graph, nodes = stream[1].graph, stream[1].train
    made = small(per_class=2).partial_fit(stream[0].graph, stream[0].train)
    before, remembered = made.predict_proba(graph), made.learner_.method.buffer.nodes
    made.learner_.training = replace(made.learner_.training, lr=1e38)
    with pytest.raises(ArithmeticError):
        made.partial_fit(graph, torch.cat([nodes, stream[0].train]))
    assert made.classes_.tolist() == [0, 1]
    assert np.array_equal(made.predict_proba(graph), before)
    assert torch.equal(made.learner_.method.buffer.nodes, remembered)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [0, 1, 1]}, "more than once; to pass labels, use fit"),
        ({"y": [0, 900]}, "nodes contains 900; nodes are 0 to 89"),
        ({"y": [0.5]}, "vector of node ids"),
        ({"y": []}, "nodes is empty"),
        ({"nodes": [0, 1], "y": ["a"]}, r"1 label\(s\) for 2 node\(s\)"),
        ({"y": [4]}, "node 4 has no label"),
        ({"nodes": [0], "y": [0.25]}, "Unknown label type"),
    ],
)
def test_invalid_arguments_are_rejected(stream: TaskStream, arguments: dict[str, Any], message: str) -> None:
    y = stream[0].graph.y.clone()
    y[4] = -1
    with pytest.raises(ValueError, match=message):
        small().fit(replace(stream[0].graph, y=y), **arguments)


def test_more_invalid_arguments_are_rejected(stream: TaskStream) -> None:
    graph, X = stream[0].graph, stream[0].graph.x.numpy()
    made = small().fit(graph, stream[0].train)
    with pytest.raises(InputError, match="the graph has 5 features, but ContinualNodeClassifier is expecting 6"):
        made.predict(replace(graph, x=graph.x[:, :5]))
    with pytest.raises(InputError, match="labels are <U1 such as 'a', but earlier ones were int64 such as"):
        made.partial_fit(graph, nodes=[0], y=["a"])
    with pytest.raises(InputError, match="has its own graph"):
        made.partial_fit(X, np.zeros(90))
    with pytest.raises(InputError, match="a graph as a tuple is"):
        small().fit((X, X, X, X), np.zeros(90))
    with pytest.raises(InputError, match="node ids are integers"):
        small().fit((X, np.zeros((2, 3))), np.zeros(90))
    with pytest.raises(InputError, match="X has no labels"):
        small().fit((X, graph.edge_index), nodes=[0])


def test_a_graph_without_features_is_learned_from_its_edges() -> None:
    ring = torch.tensor([[*range(40), *range(2, 40), 0, 1], [*range(2, 40), 0, 1, *range(40)]])
    data = Data(edge_index=ring, num_nodes=40)  # two rings: even and odd nodes
    with pytest.warns(UserWarning, match="X: no features x; models read log degree"):
        learner = ContinualNodeClassifier().fit(data, nodes=range(0, 20), y=np.arange(20) % 2)
    assert (learner.predict(data, range(22, 36)) == np.arange(22, 36) % 2).mean() > 0.7


def test_the_default_equals_learning_all_nodes_at_once(stream: TaskStream) -> None:
    graph = stream[2].graph
    mine, every = ContinualNodeClassifier(), torch.cat([task.train for task in stream])
    for task in stream:
        mine.partial_fit(task.graph, task.train)
    at_once = ContinualNodeClassifier().fit(graph, every)
    expected = at_once.predict_proba(graph)
    np.testing.assert_allclose(mine.predict_proba(graph), expected, atol=1e-8)
    again = pickle.loads(pickle.dumps(mine))
    np.testing.assert_allclose(again.predict_proba(graph), expected, atol=1e-8)
    with pytest.raises(InputError, match="was learned before, but the graph has 5 nodes"):
        mine.partial_fit(Graph(graph.x[:5], graph.edge_index[:, :0], graph.y[:5]), nodes=[0])
    np.testing.assert_allclose(mine.predict_proba(graph), expected, atol=1e-8)


def test_the_closed_form_stores_rows_of_matrices() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)), rng.integers(0, 3, 40)
    scaled_by_row = {"method_options": {"scale": "rows"}}  # columns are standardized as in the first call
    mine = ContinualNodeClassifier(**scaled_by_row)
    for part in np.array_split(np.argsort(y, kind="stable"), 4):
        mine.partial_fit(x[part], y[part])
    expected = ContinualNodeClassifier(**scaled_by_row).fit(x, y).predict_proba(x)
    np.testing.assert_allclose(mine.predict_proba(x), expected, atol=1e-8)


def test_options_reach_the_method_or_are_rejected() -> None:
    graph = random_graph(n=40, f=6, classes=4, p_edge=0.1, seed=2)
    options = {"per_class": np.int64(2), "method_options": {"loss_scale": "mean"}}
    made = ContinualNodeClassifier("gcn", "replay", epochs=2, **options).fit(graph)
    assert made.learner_.config.method_options == {"per_class": 2, "loss_scale": "mean", "scarce": "keep"}
    with pytest.raises(InputError, match="method 'finetune' has no option 'per_class'"):
        ContinualNodeClassifier("gcn", "finetune", per_class=2).fit(graph)
