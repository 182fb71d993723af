"""Watching a model: drift, calibration, and unknown classes."""

from math import inf

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist
from scipy.stats import binomtest

from ergnn.config.errors import InputError
from ergnn.data import Graph
from ergnn.learning.watch import (
    UnknownScore,
    _distances,
    apply_temperature,
    calibration,
    drift_test,
    expected_calibration_error,
    fit_temperature,
    node_aspects,
    stack_aspects,
    unknown_rows,
)


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
    assert drift_test({"a": np.ones((20, 2))}, {"a": np.ones((30, 2))}).p == {"a": 1.0}, "equal rows"


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


def drawn(count: int, sharpness: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are ``sharpness`` times too confident in the logits, and labels of the true ones."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(count, 4))
    true, claimed = (np.exp(s * logits) / np.exp(s * logits).sum(1, keepdims=True) for s in (1.0, sharpness))
    labels = (true.cumsum(1) < rng.random((count, 1))).sum(1)
    return claimed, labels


def test_the_temperature_minimizes_the_negative_log_likelihood() -> None:
    p, y = drawn(500, 3.0)

    def loss(log_tau: float) -> float:
        return float(-np.log(apply_temperature(p, np.exp(log_tau))[np.arange(500), y]).mean())

    best = minimize_scalar(loss, bounds=(-3, 3), method="bounded")
    assert np.log(fit_temperature(p, y)) == pytest.approx(best.x, abs=1e-3)
    sharp = apply_temperature(np.array([[0.4, 0.35, 0.25], [0.2, 0.2, 0.6]]), 1000.0)
    np.testing.assert_allclose(sharp, [[1, 0, 0], [0, 0, 1]], atol=1e-12)


def test_a_model_that_is_too_confident_is_calibrated() -> None:
    found = calibration(drawn(2000, 3.0), drawn(2000, 3.0, seed=1))
    assert found["temperature"] == pytest.approx(1 / 3, rel=0.1)
    assert found["ece"] > 0.1
    assert found["ece_calibrated"] < 0.05
    assert (found["val"], found["test"]) == (2000, 2000)
    assert sum(row[2] for row in found["bins"]) == 2000


def test_without_a_finite_optimum_there_is_no_temperature() -> None:
    p, y = drawn(200, 3.0)
    for rows, labels in ((12, y), (200, p.argmax(1))):
        found = calibration((p[:rows], labels[:rows]), (p, y))
        assert (found["temperature"], found["ece_calibrated"], found["val"]) == (None, None, rows)


def test_the_calibration_error_by_hand() -> None:
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.45, 0.55]])
    error, bins = expected_calibration_error(p, np.array([0, 1, 1, 1]), bins=2)
    assert bins == [[0.5, 1.0, 4, pytest.approx(0.7375), 0.75]]
    assert error == pytest.approx(0.0125)
    error, bins = expected_calibration_error(p, np.array([0, 1, 1, 1]), bins=10)
    assert [row[2] for row in bins] == [1, 1, 1, 1]  # 0.55, 0.7, 0.8, 0.9: a bin includes its upper end
    assert error == pytest.approx((0.45 + 0.3 + 0.8 + 0.1) / 4)


def clusters(seed: int, count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows around three centers."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(3).repeat_interleave(count)
    return 3 * torch.eye(3)[labels] + torch.randn(3 * count, 3, generator=rng), labels


def test_the_score_is_that_of_its_formula() -> None:
    rows, labels = clusters(0)
    fitted = UnknownScore.fit(rows, labels + 5, rows[::2])
    m = rows[::2].numpy().mean(0)
    for row, score in zip(rows[:7].numpy(), fitted.score(rows[:7]), strict=True):
        means = [rows[labels == c].numpy().mean(0) - m for c in range(3)]
        assert float(score) == pytest.approx(-max((row - m) @ mu / np.linalg.norm(mu) for mu in means), abs=1e-5)


def test_nodes_of_a_class_without_labels_score_higher() -> None:
    (rows, labels), (test, truth) = clusters(0), clusters(1)
    known = labels < 2
    fitted = UnknownScore.fit(rows[known][::2], labels[known][::2], rows).with_threshold(rows[known][1::2])
    unknown = fitted.score(test) > fitted.threshold
    assert unknown[truth == 2].double().mean() > 0.8
    assert fitted.count(test) == {
        "rate": 0.05,
        "threshold": fitted.threshold,
        "nodes": 180,
        "above": int(unknown.sum()),
    }


def test_known_nodes_are_called_unknown_at_the_stated_rate() -> None:
    """Split conformal: over draws of validation and test nodes, exactly ⌊(n+1) rate⌋ / (n+1) on average."""
    rng = torch.Generator().manual_seed(0)
    fitted = UnknownScore(torch.zeros(1), torch.ones(1, 1))
    above = 0
    for _ in range(2000):
        rows = torch.randn(40, 1, generator=rng)
        above += int(
            fitted.with_threshold(rows[:39], 0.1).score(rows[39:]) > fitted.with_threshold(rows[:39], 0.1).threshold
        )
    assert binomtest(above, 2000, 0.1).pvalue > 0.001


def test_too_few_validation_nodes_call_nothing_unknown() -> None:
    fitted = UnknownScore(torch.zeros(1), torch.ones(1, 1)).with_threshold(torch.randn(18, 1), 0.05)
    assert fitted.threshold == inf
    assert fitted.count(torch.tensor([[-1e9]]))["above"] == 0
    assert fitted.count(torch.tensor([[-1e9]]))["threshold"] is None


@pytest.mark.parametrize("width", [5, 3000])
def test_rows_have_unit_length_and_see_two_hops(width: int) -> None:
    x = torch.rand(6, width, generator=torch.Generator().manual_seed(0))
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    both = torch.cat([edges, edges.flip(0)], 1)
    graph = Graph(x, both, torch.zeros(6, dtype=torch.long))
    rows = unknown_rows(graph, torch.arange(6))
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(6))
    moved = x.clone()
    moved[4] += 1.0
    other = unknown_rows(Graph(moved, both, graph.y), torch.arange(6))
    assert [(a != b).any().item() for a, b in zip(rows, other, strict=True)] == [False, False, True, True, True, False]


def test_what_does_not_fit_is_refused() -> None:
    a, one = {"a": np.zeros((3, 2))}, UnknownScore(torch.zeros(1), torch.ones(1, 1))
    for message, call in (
        ("alpha is 1; it must lie between 0 and 1", lambda: drift_test(a, a, alpha=1)),
        (r"aspects are \['a'\] and \['b'\]", lambda: drift_test(a, {"b": np.zeros((3, 2))})),
        ("at least one on each side", lambda: drift_test(a, {"a": np.zeros((0, 2))})),
        ("one row per label is needed", lambda: fit_temperature(np.ones((2, 2)), np.zeros(3))),
        ("one row per label is needed", lambda: fit_temperature(np.ones((0, 2)), np.zeros(0))),
        (
            "2 rows, 3 labels and 2 background rows",
            lambda: UnknownScore.fit(torch.ones(2, 2), torch.zeros(3), torch.ones(2, 2)),
        ),
        ("rate is 0; it must lie between 0 and 1", lambda: one.with_threshold(torch.ones(3, 1), 0)),
    ):
        with pytest.raises(InputError, match=message):
            call()
