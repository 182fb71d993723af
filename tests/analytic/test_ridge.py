"""Solutions and leave-one-out scores against refits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analytic.dense import dense_ridge, one_hot, weights_of
from ergnn.analytic import RidgeSolution, ridge
from ergnn.analytic.kernels import GAUSSIAN, KERNELS, LINEAR, Kernel, products
from ergnn.analytic.ridge import (
    CLASS_WEIGHTS,
    LAMBDAS,
    Moments,
    Targets,
    Trial,
    best_temperature,
    choose,
    loo_rows,
    solve,
    solve_sums,
)
from ergnn.config.errors import InputError


def fit_ridge(
    rows: torch.Tensor, labels: torch.Tensor, lambdas: Sequence[float] = LAMBDAS, chosen: Any = None, **options: Any
) -> RidgeSolution:
    """Return the head that some rows choose, by default those of :func:`loo_rows`, and all solve."""
    chosen = loo_rows(torch.arange(labels.numel())) if chosen is None else chosen
    some = rows[chosen]
    return solve(rows, labels, choose([products(some, some)], labels[chosen], lambdas=lambdas, **options)[1], chosen)


def data(n: int, width: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator) * 3
    labels[: 2 * classes] = torch.arange(2 * classes) % classes * 3
    rows = torch.randn(n, width, generator=generator, dtype=torch.float64) + labels[:, None]
    return rows, labels


@given(
    n=st.integers(10, 30),
    width=st.integers(1, 40),
    classes=st.integers(2, 5),
    seed=st.integers(0, 999),
    kernel=st.sampled_from([LINEAR, *GAUSSIAN]),
    power=st.sampled_from(list(CLASS_WEIGHTS.values())),
)
@settings(max_examples=60, deadline=None)
def test_solution_and_leave_one_out_equal_refits(
    n: int, width: int, classes: int, seed: int, kernel: Kernel, power: float
) -> None:
    rows, labels = data(n, width, classes, seed)
    found = fit_ridge(rows, labels, kernels=(kernel,), power=power)
    y, w, k = one_hot(labels.numpy()), weights_of(labels.numpy(), power), kernel(rows, rows).numpy()
    assert w.sum() == pytest.approx(n)
    np.testing.assert_allclose(Targets(labels, power).w, w)
    assert found.classes.tolist() == np.unique(labels.numpy()).tolist()

    def scores_without(i: int | None, lam: float) -> np.ndarray:
        rest = np.arange(n) != i
        root = np.sqrt(w[rest])[:, None]
        alpha = np.linalg.solve(k[rest][:, rest] * root * root.T + lam * np.eye(rest.sum()), root * y[rest])
        return k[:, rest] @ (root * alpha)

    np.testing.assert_allclose(found.scores(rows).numpy(), scores_without(None, found.lam), atol=1e-7)
    if not kernel.s:
        np.testing.assert_allclose(found.weight, dense_ridge(rows.numpy(), y, w, found.lam), atol=1e-7)
    scores = {lam: np.stack([scores_without(i, lam)[i] for i in range(n)]) for lam in LAMBDAS}
    np.testing.assert_allclose(found.loo, scores[found.lam], atol=1e-6)
    told = np.isin(labels.numpy(), [c for c in np.unique(labels.numpy()) if (labels.numpy() == c).sum() > 1])
    errors = [(w * ((scores[lam] - y) ** 2).sum(1))[told].sum() / w[told].sum() for lam in LAMBDAS]
    assert found.loo_error == pytest.approx(min(errors), rel=1e-6)
    assert errors[LAMBDAS.index(found.lam)] == pytest.approx(min(errors), rel=1e-6)


@given(
    n=st.integers(10, 25),
    width=st.integers(2, 30),
    seed=st.integers(0, 999),
    power=st.sampled_from(list(CLASS_WEIGHTS.values())),
)
@settings(max_examples=40, deadline=None)
def test_primal_equals_dual(n: int, width: int, seed: int, power: float) -> None:
    rows, labels = data(n, width, 3, seed)
    chosen = torch.arange(0, n, 2)
    moments = Moments()
    moments.update(torch.arange(n), rows, Targets(labels, power))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ridge, "needs_gram", lambda *_: True)
        for lam in LAMBDAS[2:]:
            primal = solve_sums(rows[chosen], Targets(labels, power), chosen, moments.gram, moments.sums, lam)
            dual = solve(rows, labels, Trial(LINEAR, lam, 0.0, power=power), chosen)
            torch.testing.assert_close(primal.weight, dual.weight, rtol=0, atol=1e-8)
            torch.testing.assert_close(primal.loo, dual.loo, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kernel", [LINEAR, Kernel(1.0)])
def test_the_error_is_found_downhill(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = data(60, 20, 3, 1)
    rows /= rows.norm(dim=1, keepdim=True)
    whole = fit_ridge(rows, labels, kernels=(kernel,))
    monkeypatch.setattr(ridge, "GRID_ROWS", 0)
    assert fit_ridge(rows, labels, kernels=(kernel,)).lam == whole.lam


@pytest.mark.parametrize("seed", range(3))
def test_a_search_that_starts_from_a_quarter_of_the_rows_finds_the_best(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, labels = data(120, 20, 3, seed)
    rows = torch.nn.functional.normalize(rows + 4 * torch.randn(120, 20, generator=torch.Generator().manual_seed(seed)))
    ids = torch.arange(120)
    whole = choose([rows @ rows.T], labels, KERNELS["auto"], ids=ids)[1]
    tried: list[int] = []
    inverse = ridge.inverse_factor

    def counted(matrix: torch.Tensor, lam: float = 0.0) -> torch.Tensor:
        tried.append(matrix.size(0))
        return inverse(matrix, lam)

    monkeypatch.setattr(ridge, "GRID_ROWS", 30)
    monkeypatch.setattr(ridge, "inverse_factor", counted)
    found = choose([rows @ rows.T], labels, KERNELS["auto"], ids=ids)[1]
    assert (found.kernel, found.lam) == (whole.kernel, whole.lam)
    assert 3 <= tried.count(120) < 25  # of 45 pairs of a kernel and λ
    order = torch.randperm(120, generator=torch.Generator().manual_seed(seed))
    again = choose([rows[order] @ rows[order].T], labels[order], KERNELS["auto"], ids=ids[order])[1]
    assert (again.kernel, again.lam) == (found.kernel, found.lam)
    assert again.error == pytest.approx(found.error, rel=1e-9)


def test_the_inverse_of_a_factor_by_products_equals_that_by_substitution() -> None:
    rows = torch.randn(601, 700, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    k = rows @ rows.T / 700
    expected = torch.linalg.inv(torch.linalg.cholesky(k + 0.1 * torch.eye(601, dtype=torch.float64)))
    torch.testing.assert_close(ridge.inverse_factor(k.clone(), 0.1), expected, rtol=0, atol=1e-10)
    lam = k.new_tensor([[0.1], [0.2]])  # of several matrices at a time, as on a GPU
    torch.testing.assert_close(ridge.inverse_factor(k.repeat(2, 1, 1), lam)[0], expected, rtol=0, atol=1e-10)


def test_small_gains_go_to_the_linear_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    angle = torch.rand(200, generator=generator, dtype=torch.float64) * 6.28
    circle = torch.stack([angle.cos(), angle.sin()], 1) * (1 + torch.arange(200)[:, None] % 2)
    labels = torch.arange(200) % 2  # two circles: no line separates them
    found = fit_ridge(circle, labels, kernels=KERNELS["auto"])
    assert found.kernel.s > 0
    assert bool((found.scores(circle).argmax(1) == labels).all())
    monkeypatch.setattr(ridge, "GAIN", 1.0)
    assert fit_ridge(circle, labels, kernels=KERNELS["auto"]).kernel == LINEAR


def test_features_are_chosen_by_the_linear_kernel() -> None:
    rows, labels = data(50, 5, 3, 0)
    noise = torch.randn(50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    for kernels in KERNELS.values():
        assert [choose([x @ x.T for x in each], labels, kernels)[0] for each in ([noise, rows], [rows, noise])] == [
            1,
            0,
        ]


def test_features_that_gain_more_from_labels_are_chosen_for_many() -> None:
    generator = torch.Generator().manual_seed(0)
    labels, ids = torch.arange(1_600) % 2, torch.arange(1_600)
    sign = 2.0 * labels[:, None].double() - 1
    few = sign + 1.5 * torch.randn(1_600, 1, generator=generator, dtype=torch.float64)
    many = 0.12 * sign + torch.randn(1_600, 150, generator=generator, dtype=torch.float64)
    some = loo_rows(ids, 200)
    pair = [few[some] @ few[some].T, many[some] @ many[some].T]
    assert choose(pair, labels[some], ids=some, count=200)[0] == 0
    assert choose(pair, labels[some], ids=some, count=1_600)[0] == 1
    assert choose(pair[::-1], labels[some], ids=some, count=1_600)[0] == 0
    truth = [fit_ridge(rows, labels).loo_error or 0.0 for rows in (few, many)]
    assert truth[1] < truth[0]


def test_nystrom_features_with_all_landmarks_equal_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = data(60, 6, 3, 3)
    rows /= rows.norm(dim=1, keepdim=True)
    chosen, trial = torch.arange(0, 60, 3), Trial(Kernel(1.4), 0.1, 0.0)
    exact = solve(rows, labels, trial, chosen)
    monkeypatch.setattr(ridge, "EXACT_ROWS", 50)
    found = solve(rows, labels, trial, chosen)
    torch.testing.assert_close(found.scores(rows), exact.scores(rows), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.loo, exact.loo, rtol=0, atol=1e-5)
    monkeypatch.setattr(ridge, "LANDMARKS", 25)
    ids = torch.arange(60) * 7
    some = solve(rows, labels, trial, chosen, ids=ids)
    assert some.weight.shape == (25, 3)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    mixed = solve(rows[order], labels[order], trial, chosen, ids=ids[order])
    torch.testing.assert_close(mixed.scores(rows), some.scores(rows), rtol=0, atol=1e-8)
    lifted = some.lift(rows, 60)  # the dual form, see LabelEffects
    root = Targets(labels).w.sqrt()[:, None]
    system = lifted @ lifted.T * root * root.T + trial.lam * torch.eye(60)
    dual = lifted @ lifted.T @ (root * torch.linalg.solve(system, root * (labels[:, None] == some.classes)))
    torch.testing.assert_close(dual, some.scores(rows), rtol=0, atol=1e-7)


def test_rows_that_decide_do_not_depend_on_the_order_and_change_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "LOO_ROWS", 20)
    ids = torch.arange(0, 300, 3)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    first = set(ids[loo_rows(ids)].tolist())
    assert len(first) == 20
    assert set(ids[order][loo_rows(ids[order])].tolist()) == first
    more = torch.cat([ids, torch.tensor([1000, 1001])])
    assert len(first & set(more[loo_rows(more)].tolist())) >= 18


def test_too_little_memory_is_told_before_it_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = data(50, 60, 3, 5)
    monkeypatch.setattr("ergnn.analytic.kernels.free_bytes", lambda device: 10_000)
    with pytest.raises(InputError, match=r"kernel of 50 labeled nodes takes .* use kernel='linear'"):
        fit_ridge(rows, labels, kernels=(Kernel(1.0),))


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


def test_large_systems_take_the_lambda_of_the_chosen_rows() -> None:
    rows, labels = data(60, 12, 3, 5)
    chosen = torch.arange(0, 60, 4)
    for wide in (rows, torch.cat([rows] * 8, 1)):  # primal, dual
        assert fit_ridge(wide[chosen], labels[chosen]).lam == fit_ridge(wide, labels, chosen=chosen).lam
    assert fit_ridge(rows, labels, chosen=chosen, lambdas=[3.0]).lam == 3.0


def test_moments_that_grow_class_by_class_equal_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ergnn.analytic.ridge.ROW_BLOCK", 7)
    monkeypatch.setattr("ergnn.analytic.ridge.LOO_ROWS", 10)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(90, 6, dtype=torch.float64, generator=generator)
    labels, ids = torch.arange(90) // 30, torch.arange(90) * 2
    moments, summed, trial, chosen = Moments(), [], Trial(LINEAR, 0.1, 0.0), torch.arange(10)
    for seen in (30, 60, 90, 90):
        part = slice(0, seen)
        before = moments.gram.clone()
        grown = solve(rows[part], labels[part], trial, chosen, ids=ids[part], moments=moments)
        torch.testing.assert_close(
            grown.weight, solve(rows[part], labels[part], trial, chosen).weight, rtol=0, atol=1e-12
        )
        summed.append(before.shape == moments.gram.shape and bool((moments.gram - before).diagonal().min() >= 0))
    assert summed[1:] == [True, True, True]  # rows were added to what was there
    again = torch.cat([labels[:-1], labels.new_tensor([0])])  # a class of another size: all is summed again
    moved = solve(rows, again, trial, chosen, ids=torch.cat([ids[:-1], ids.new_tensor([999])]), moments=moments)
    torch.testing.assert_close(moved.weight, solve(rows, again, trial, chosen).weight, rtol=0, atol=1e-12)
