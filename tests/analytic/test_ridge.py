"""Solutions and leave-one-out scores against refits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analytic.dense import dense_ridge, one_hot, weights_of
from ergnn.analytic import fit_ridge, ridge
from ergnn.analytic.ridge import LAMBDAS, Moments, best_temperature, class_weights, fit_sums
from ergnn.config.errors import InputError


def data(n: int, width: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator) * 3
    labels[: 2 * classes] = torch.arange(2 * classes) % classes * 3
    rows = torch.randn(n, width, generator=generator, dtype=torch.float64) + labels[:, None]
    return rows, labels


@given(n=st.integers(10, 30), width=st.integers(1, 40), classes=st.integers(2, 5), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_solution_and_leave_one_out_equal_refits(n: int, width: int, classes: int, seed: int) -> None:
    rows, labels = data(n, width, classes, seed)
    found = fit_ridge(rows, labels)
    phi, y = rows.numpy(), one_hot(labels.numpy())
    w = weights_of(labels.numpy())
    assert w.sum() == pytest.approx(n)
    np.testing.assert_allclose(class_weights(labels), w)
    assert found.classes.tolist() == np.unique(labels.numpy()).tolist()
    np.testing.assert_allclose(found.weight, dense_ridge(phi, y, w, found.lam), atol=1e-7)

    def left_out(lam: float) -> np.ndarray:
        scores = []
        for i in range(n):
            rest = np.arange(n) != i
            scores.append(phi[i] @ dense_ridge(phi[rest], y[rest], w[rest], lam))
        return np.stack(scores)

    scores = {lam: left_out(lam) for lam in LAMBDAS}
    np.testing.assert_allclose(found.loo, scores[found.lam], atol=1e-6)
    told = np.isin(labels.numpy(), [c for c in np.unique(labels.numpy()) if (labels.numpy() == c).sum() > 1])
    errors = [(w * ((scores[lam] - y) ** 2).sum(1))[told].sum() / w[told].sum() for lam in LAMBDAS]
    assert found.loo_error == pytest.approx(min(errors), rel=1e-6)
    assert errors[LAMBDAS.index(found.lam)] == pytest.approx(min(errors), rel=1e-6)


@given(n=st.integers(10, 25), width=st.integers(2, 30), seed=st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_primal_equals_dual(n: int, width: int, seed: int) -> None:
    rows, labels = data(n, width, 3, seed)
    ids = torch.arange(n)
    w, y = class_weights(labels), torch.nn.functional.one_hot(labels // 3, 3).double()
    moments = Moments()
    moments.update(ids, rows, labels)
    sums = moments.sizes, moments.gram, moments.sums
    primal, dual = ridge._Primal(rows, y, w, *sums), ridge._Dual(rows, y, w, ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ridge, "GRID_WIDTH", 0)
        factored = ridge._Primal(rows, y, w, *sums)  # by Cholesky factorizations, as on a GPU
    for lam in LAMBDAS[2:]:
        torch.testing.assert_close(primal.left_out(lam), factored.left_out(lam), rtol=0, atol=1e-6)
        torch.testing.assert_close(primal.weight(lam), dual.weight(lam), rtol=0, atol=1e-8)
        torch.testing.assert_close(primal.left_out(lam), dual.left_out(lam), rtol=0, atol=1e-6)


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in ((30, 5), (20, 40)):
        rows, labels = data(*shape, 4, 0)
        whole = fit_ridge(rows, labels)
        with monkeypatch.context() as patch:
            patch.setattr(ridge, "ROW_BLOCK", 7)
            parts = fit_ridge(rows, labels)
        torch.testing.assert_close(parts.weight, whole.weight, rtol=0, atol=1e-10)
        torch.testing.assert_close(parts.loo, whole.loo, rtol=0, atol=1e-10)
        assert parts.loo_error == pytest.approx(whole.loo_error)


def test_the_temperature_minimizes_the_negative_log_likelihood() -> None:
    generator = torch.Generator().manual_seed(0)
    column = torch.randint(4, (300,), generator=generator)
    scores = torch.nn.functional.one_hot(column, 4) * 0.3 + 0.2 * torch.randn(300, 4, generator=generator)
    weights = torch.rand(300, generator=generator)

    def nll(tau: float) -> float:
        return -float((weights * torch.log_softmax(tau * scores, 1)[torch.arange(300), column]).sum())

    tau = best_temperature(scores, column, weights)
    assert all(nll(tau) <= nll(tau * factor) for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0))
    perfect = torch.eye(4)[column]
    assert best_temperature(perfect.double(), column, weights) == pytest.approx(ridge.TEMPERATURES[1])
    assert best_temperature(-perfect, column, weights) == pytest.approx(ridge.TEMPERATURES[0])


def test_one_row_per_class_falls_back_to_the_defaults() -> None:
    rows, labels = torch.eye(3, 5), torch.tensor([4, 0, 2])
    found = fit_ridge(rows, labels)
    assert (found.lam, found.temperature, found.loo_error) == (0.3, 10.0, None)
    assert torch.equal((rows.double() @ found.weight).argmax(1), torch.tensor([2, 0, 1]))
    assert fit_ridge(rows, labels, [2.0]).lam == 2.0
    more = fit_ridge(torch.cat([rows, rows[:1]]), torch.tensor([4, 0, 2, 4]))
    assert more.loo_error is not None


def test_a_single_class_is_always_predicted() -> None:
    found = fit_ridge(torch.rand(5, 3), torch.full((5,), 7))
    assert found.weight.shape == (3, 1)
    assert found.classes.tolist() == [7]
    assert found.temperature == 10.0


def test_bad_input_is_rejected() -> None:
    with pytest.raises(InputError, match="0 rows and 0 labels"):
        fit_ridge(torch.empty(0, 3), torch.empty(0, dtype=torch.long))
    with pytest.raises(InputError, match="2 rows and 1 labels"):
        fit_ridge(torch.ones(2, 3), torch.zeros(1, dtype=torch.long))
    with pytest.raises(InputError, match="must be above 0"):
        fit_ridge(torch.ones(2, 3), torch.zeros(2, dtype=torch.long), [0.0])


def test_large_systems_take_the_lambda_of_the_chosen_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = data(60, 12, 3, 5)
    chosen = torch.arange(0, 60, 4)
    monkeypatch.setattr(ridge, "GRID_WIDTH", 4)
    small = fit_ridge(rows[chosen], labels[chosen])
    for wide in (rows, torch.cat([rows] * 8, 1)):  # primal, dual
        assert fit_ridge(wide[chosen], labels[chosen]).lam == fit_ridge(wide, labels, chosen=chosen).lam
    assert fit_ridge(rows, labels, chosen=chosen).lam == small.lam
    assert fit_ridge(rows, labels, chosen=chosen, lambdas=[3.0]).lam == 3.0


def test_many_rows_are_solved_by_factorization_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = data(50, 90, 3, 5)
    expected = fit_ridge(rows, labels, lambdas=[0.1])
    monkeypatch.setattr(ridge, "LOO_ROWS", 20)
    monkeypatch.setattr(ridge, "ROW_BLOCK", 16)
    found = fit_ridge(rows, labels, lambdas=[0.1])
    torch.testing.assert_close(found.weight, expected.weight, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.loo, expected.loo[ridge.loo_rows(50)], rtol=0, atol=1e-10)


def test_moments_that_grow_class_by_class_equal_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ergnn.analytic.ridge.ROW_BLOCK", 7)
    monkeypatch.setattr("ergnn.analytic.ridge.LOO_ROWS", 10)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(90, 6, dtype=torch.float64, generator=generator)
    labels, ids = torch.arange(90) // 30, torch.arange(90) * 2
    moments, summed = Moments(), []
    for seen in (30, 60, 90, 90):
        part = slice(0, seen)
        before = moments.gram.clone()
        grown = fit_ridge(rows[part], labels[part], ids=ids[part], moments=moments)
        torch.testing.assert_close(grown.weight, fit_ridge(rows[part], labels[part]).weight, rtol=0, atol=1e-12)
        summed.append(before.shape == moments.gram.shape and bool((moments.gram - before).diagonal().min() >= 0))
    assert summed[1:] == [True, True, True]  # rows were added to what was there
    again = torch.cat([labels[:-1], labels.new_tensor([0])])  # a class of another size: all is summed again
    moved = fit_ridge(rows, again, ids=torch.cat([ids[:-1], ids.new_tensor([999])]), moments=moments)
    torch.testing.assert_close(moved.weight, fit_ridge(rows, again).weight, rtol=0, atol=1e-12)


def test_sums_give_the_head_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "LOO_ROWS", 20)
    rows, labels = data(70, 8, 3, 5)
    per_class = [rows[labels == c] for c in labels.unique()]
    gram = sum((part.T @ part / len(part) ** 0.5 for part in per_class), torch.zeros(8, 8).double())
    sums = torch.stack([part.sum(0) for part in per_class])
    chosen = torch.arange(0, 70, 3)
    found = fit_sums(rows[chosen], labels, chosen, gram, sums)
    expected = fit_ridge(rows, labels, chosen=chosen)
    assert (found.lam, found.classes.tolist()) == (expected.lam, expected.classes.tolist())
    for name in ("weight", "loo"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=0, atol=1e-9)
    assert found.temperature == pytest.approx(expected.temperature, rel=1e-9)
