"""Temperature and calibration error."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from ergnn.config.errors import InputError
from ergnn.learning.watch import apply_temperature, calibration, expected_calibration_error, fit_temperature


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


def test_a_model_that_is_too_confident_is_calibrated() -> None:
    found = calibration(drawn(2000, 3.0), drawn(2000, 3.0, seed=1))
    assert found["temperature"] == pytest.approx(1 / 3, rel=0.1)
    assert found["ece"] > 0.1
    assert found["ece_calibrated"] < 0.05
    assert (found["val"], found["test"]) == (2000, 2000)
    assert sum(row[2] for row in found["bins"]) == 2000


def test_a_large_temperature_leaves_numbers() -> None:
    sharp = apply_temperature(np.array([[0.4, 0.35, 0.25], [0.2, 0.2, 0.6]]), 1000.0)
    np.testing.assert_allclose(sharp, [[1, 0, 0], [0, 0, 1]], atol=1e-12)


def test_the_calibration_error_by_hand() -> None:
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.45, 0.55]])
    error, bins = expected_calibration_error(p, np.array([0, 1, 1, 1]), bins=2)
    assert bins == [[0.5, 1.0, 4, pytest.approx(0.7375), 0.75]]
    assert error == pytest.approx(0.0125)
    error, bins = expected_calibration_error(p, np.array([0, 1, 1, 1]), bins=10)
    assert [row[2] for row in bins] == [1, 1, 1, 1]  # 0.55, 0.7, 0.8, 0.9: a bin includes its upper end
    assert error == pytest.approx((0.45 + 0.3 + 0.8 + 0.1) / 4)


def test_rows_and_labels_must_match() -> None:
    for p, y in ((np.ones((2, 2)), np.zeros(3)), (np.ones((0, 2)), np.zeros(0))):
        with pytest.raises(InputError, match="one row per label is needed"):
            fit_temperature(p, y)
