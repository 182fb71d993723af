"""Statistics per class against sums over all rows, and heads solved from them against ridge regression."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from analytic.dense import dense_ridge, one_hot, weights_of
from ergnn.analytic import state
from ergnn.analytic.state import ClassStatistics, leading

CPU = torch.device("cpu")


def data(n: int, width: int, seed: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.arange(classes), torch.randint(classes, (n - classes,), generator=generator)]) * 5
    return torch.randn(n, width, generator=generator).double() + 0.1 * labels[:, None], labels


def added(rows: Tensor, labels: Tensor, per_class: int, parts: int = 1) -> ClassStatistics:
    found = ClassStatistics()
    for own, label in zip(rows.tensor_split(parts), labels.tensor_split(parts), strict=True):
        found.add(own, label, per_class)
    return found


@given(
    n=st.integers(5, 60),
    width=st.integers(1, 20),
    per_class=st.integers(1, 12),
    parts=st.integers(1, 4),
    seed=st.integers(0, 999),
)
@settings(max_examples=60, deadline=None)
def test_size_mean_and_diagonal_are_exact(n: int, width: int, per_class: int, parts: int, seed: int) -> None:
    rows, labels = data(n, width, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "ADDED_ROWS", 7)
        found = added(rows, labels, per_class, parts)
    for c, each in zip(labels.unique(), found.values(), strict=True):
        own = rows[labels == c]
        assert each.size == own.size(0)
        torch.testing.assert_close(each.mean.double(), own.mean(0), rtol=0, atol=1e-5)
        assert 1 + (each.rest.numel() > 0) + each.directions.size(0) <= per_class
        if per_class > 1:
            scatter = (own - own.mean(0)).T @ (own - own.mean(0))
            diagonal = each.rest + each.directions.square().sum(0)
            torch.testing.assert_close(diagonal.double(), scatter.diagonal(), rtol=1e-4, atol=1e-4)
            assert bool((each.rest >= 0).all())


@given(n=st.integers(4, 40), width=st.integers(1, 30), parts=st.integers(1, 3), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_the_head_equals_ridge_regression_if_all_directions_fit(n: int, width: int, parts: int, seed: int) -> None:
    rows, labels = data(n, width, seed)
    found = added(rows, labels, n + 3, parts).solve(0.3, CPU)
    y, w = one_hot(labels.numpy()), weights_of(labels.numpy())
    np.testing.assert_allclose(found.weight, dense_ridge(rows.numpy(), y, w, 0.3), atol=1e-4)
    assert found.classes.tolist() == labels.unique().tolist()
    assert (found.lam, found.temperature, found.loo_error) == (0.3, 10.0, None)


@pytest.mark.parametrize("width", [4, 40])
@pytest.mark.parametrize("per_class", [1, 2, 5])
def test_the_head_solves_the_approximate_system(width: int, per_class: int) -> None:
    rows, labels = data(30, width, 0)
    found = added(rows, labels, per_class, 2)
    sizes = np.bincount(labels.numpy() // 5)
    w = sizes**-0.5 * 30 / np.sqrt(sizes).sum()
    system, cross = 0.7 * np.eye(width), []
    for each, weight in zip(found.values(), w, strict=True):
        mean, b = each.mean.double().numpy(), each.directions.double().numpy()
        system += weight * (each.size * np.outer(mean, mean) + b.T @ b)
        if per_class > 1:
            system += weight * np.diag(each.rest.double().numpy())
        cross.append(weight * each.size * mean)
    expected = np.linalg.solve(system, np.stack(cross, 1))
    np.testing.assert_allclose(found.solve(0.7, CPU).weight, expected, atol=1e-10)


@pytest.mark.parametrize("shape", [(9, 20), (20, 9)])
def test_leading_directions_are_those_of_a_singular_value_decomposition(shape: tuple[int, int]) -> None:
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, s, v = np.linalg.svd(rows.numpy(), full_matrices=False)
    found = leading(rows, 4).numpy()
    np.testing.assert_allclose(np.abs(found), np.abs(s[:4, None] * v[:4]), atol=1e-10)
    assert leading(rows, 0).shape == (0, shape[1])
    assert leading(rows, 99).shape == (9, shape[1])
    assert leading(torch.zeros(3, 5).double(), 2).shape == (0, 5)


def test_a_loaded_state_solves_the_same_head() -> None:
    rows, labels = data(40, 10, 2)
    found = added(rows[:30], labels[:30], 4)
    loaded = ClassStatistics.restored(found.state_dict())
    for each in (found, loaded):
        each.add(rows[30:], labels[30:], 4)
    assert loaded.nbytes == found.nbytes == 3 * (4 * 10 * 4 + 16)
    assert torch.equal(loaded.solve(0.3, CPU).weight, found.solve(0.3, CPU).weight)
