"""The solve and its leave-one-out scores against real refits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analytic.dense import dense_ridge, one_hot, weights_of
from ergnn.analytic import fit_ridge, ridge
from ergnn.analytic.ridge import LAMBDAS, best_temperature, class_weights
from ergnn.errors import InputError


def data(n: int, width: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator) * 3
    labels[: 2 * classes] = torch.arange(2 * classes) % classes * 3
    rows = torch.randn(n, width, generator=generator, dtype=torch.float64) + labels[:, None]
    counts = torch.randint(1, 5, (n,), generator=generator).double()
    return rows, labels, counts


@given(
    n=st.integers(10, 30),
    width=st.integers(1, 40),
    classes=st.integers(2, 5),
    seed=st.integers(0, 999),
    weighted=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_solution_and_leave_one_out_equal_refits(n: int, width: int, classes: int, seed: int, weighted: bool) -> None:
    rows, labels, counts = data(n, width, classes, seed)
    found = fit_ridge(rows, labels, counts if weighted else None)
    phi, y = rows.numpy(), one_hot(labels.numpy())
    w = weights_of(labels.numpy(), counts.numpy() if weighted else np.ones(n))
    assert w.sum() == pytest.approx(counts.sum() if weighted else n)
    np.testing.assert_allclose(class_weights(labels, counts if weighted else torch.ones(n).double()), w)
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
    rows, labels, _ = data(n, width, 3, seed)
    root = class_weights(labels, torch.ones(n).double()).sqrt()
    targets = torch.nn.functional.one_hot(labels // 3, 3).double() * root[:, None]
    primal, dual = ridge._Primal(rows, targets, root), ridge._Dual(rows, targets, root)
    for lam in (0.03, 0.3, 3.0):
        torch.testing.assert_close(primal.weight(lam), dual.weight(lam), rtol=0, atol=1e-8)
    for one, two in zip(primal.left_out(LAMBDAS[2:]), dual.left_out(LAMBDAS[2:]), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-6)


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in ((30, 5), (20, 40)):
        rows, labels, counts = data(*shape, 4, 0)
        whole = fit_ridge(rows, labels, counts)
        with monkeypatch.context() as patch:
            patch.setattr(ridge, "ROW_BLOCK", 7)
            parts = fit_ridge(rows, labels, counts)
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
    assert best_temperature(perfect, column, weights) == ridge.TEMPERATURES[1]
    assert best_temperature(-perfect, column, weights) == ridge.TEMPERATURES[0]


def test_one_row_per_class_falls_back_to_the_defaults() -> None:
    rows, labels = torch.eye(3, 5), torch.tensor([4, 0, 2])
    found = fit_ridge(rows, labels)
    assert (found.lam, found.temperature, found.loo_error) == (0.3, 10.0, None)
    assert torch.equal((rows.double() @ found.weight).argmax(1), torch.tensor([2, 0, 1]))
    assert fit_ridge(rows, labels, None, [2.0]).lam == 2.0
    more = fit_ridge(torch.cat([rows, rows[:1]]), torch.tensor([4, 0, 2, 4]))
    assert more.loo_error is not None


def test_a_single_class_is_always_predicted() -> None:
    found = fit_ridge(torch.rand(5, 3), torch.full((5,), 7))
    assert found.weight.shape == (3, 1)
    assert found.classes.tolist() == [7]
    assert found.temperature == 10.0


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="0 rows and 0 labels"):
        fit_ridge(torch.empty(0, 3), torch.empty(0, dtype=torch.long))
    with pytest.raises(InputError, match="2 rows and 1 labels"):
        fit_ridge(torch.ones(2, 3), torch.zeros(1, dtype=torch.long))
    with pytest.raises(InputError, match="must be above 0"):
        fit_ridge(torch.ones(2, 3), torch.zeros(2, dtype=torch.long), None, [0.0])
