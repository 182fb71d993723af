"""The test of drift: its level, its power, and its statistic."""

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.spatial.distance import cdist
from scipy.stats import binomtest

from ergnn.config.errors import InputError
from ergnn.data import Graph
from ergnn.learning.watch import _distances, drift_test, node_aspects, stack_aspects


def rows(rng: np.random.Generator, count: int, shift: float = 0.0) -> dict[str, np.ndarray]:
    """Three aspects that depend on each other."""
    x = rng.normal(size=(count, 4)) + shift
    return {"a": x, "b": x[:, :1] ** 2, "c": np.abs(x).sum(1, keepdims=True)}


def brute_force(one: np.ndarray, two: np.ndarray) -> float:
    """The energy distance of rows that are scaled already."""
    return float(2 * cdist(one, two).mean() - cdist(one, one).mean() - cdist(two, two).mean())


def test_alarms_come_at_the_stated_rate_without_drift() -> None:
    """Without drift the p-value of the whole test is uniform, whatever the dependence between aspects."""
    rng = np.random.default_rng(0)
    found = [
        drift_test(rows(rng, 25), rows(rng, 15), alpha=0.05, permutations=199, seed=seed).alarm for seed in range(600)
    ]
    assert binomtest(sum(found), len(found), 0.05).pvalue > 0.001


def test_drift_of_one_aspect_raises_an_alarm_that_names_it() -> None:
    rng = np.random.default_rng(1)
    reference, new = ({"same": rng.normal(size=(80, 3)), "moved": rng.normal(size=(80, 3))} for _ in range(2))
    new["moved"] = new["moved"] * 2.0
    found = drift_test(reference, new)
    assert found.alarm
    assert found.p["moved"] == 0.001
    assert found.p["same"] > 0.05
    assert (found.reference, found.new, found.alpha) == (80, 80, 0.01)


def test_p_values_are_those_of_a_loop_over_permutations() -> None:
    rng = np.random.default_rng(2)
    reference, new = rows(rng, 12), rows(rng, 9, shift=0.4)
    found = drift_test(reference, new, permutations=99, seed=5)
    draws, signs = np.random.default_rng(5), np.repeat([0, 1], [12, 9])
    orders = [np.arange(21), *(draws.permutation(21) for _ in range(99))]
    scores = []
    for name in reference:
        joined = np.concatenate([reference[name], new[name]])
        joined = (joined - joined.mean(0)) / joined.std(0)
        values = np.array([brute_force(joined[signs[o] == 0], joined[signs[o] == 1]) for o in orders])
        scores.append((values - values.mean()) / values.std())
    largest = np.max(scores, 0)
    for name, own in zip(reference, scores, strict=True):
        assert found.p[name] == pytest.approx((largest >= own[0] - 1e-6).mean(), abs=0.011)


def test_distances_of_sparse_rows_are_euclidean() -> None:
    x = scipy.sparse.random(30, 8, 0.3, "csr", random_state=0)
    np.testing.assert_allclose(_distances(x[:10], x[10:]), cdist(x.toarray(), x.toarray()), atol=1e-6)


def test_equal_rows_raise_no_alarm() -> None:
    found = drift_test({"a": np.ones((20, 2))}, {"a": np.ones((30, 2))})
    assert found.p == {"a": 1.0}


@pytest.mark.parametrize("sparse", [False, True])
def test_aspects_are_features_means_of_neighbors_and_degrees(sparse: bool) -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [4.0, 0.0], [0.0, 0.0]])
    edges = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])  # 2 has a loop, 3 no edge
    graph = Graph(x.to_sparse_csr() if sparse else x, edges, torch.zeros(4, dtype=torch.long))
    found = node_aspects(graph, np.array([1, 2, 3]))
    dense = {name: part.toarray() if scipy.sparse.issparse(part) else part for name, part in found.items()}
    np.testing.assert_allclose(dense["features"], x[1:])
    np.testing.assert_allclose(dense["neighborhoods"], [[2.5, 0], [2, 1], [0, 0]])
    np.testing.assert_allclose(dense["degrees"], np.log1p([[2], [2], [0]]))
    both = stack_aspects([found, node_aspects(graph, np.array([0]))])
    assert both["features"].shape == (4, 2)


def test_what_cannot_be_compared_is_refused() -> None:
    a = {"a": np.zeros((3, 2))}
    with pytest.raises(InputError, match="alpha is 1; it must be above 0 and below 1"):
        drift_test(a, a, alpha=1)
    with pytest.raises(InputError, match=r"aspects are \['a'\] and \['b'\]"):
        drift_test(a, {"b": np.zeros((3, 2))})
    with pytest.raises(InputError, match="at least one on each side"):
        drift_test(a, {"a": np.zeros((0, 2))})
