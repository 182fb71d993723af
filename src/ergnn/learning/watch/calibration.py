"""Calibration of predicted probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ergnn.analytic.ridge import best_temperature
from ergnn.config.errors import InputError

Array = NDArray[Any]

BINS = 15
"""Bins of confidence, of equal width (Guo et al., 2017)."""
SMALLEST = 1e-12
"""Probabilities are clipped to at least this before their logarithm is taken."""


def fit_temperature(probabilities: Array, labels: Array) -> float:
    """The τ that minimizes the negative log-likelihood of ``softmax(τ log p)``; below 1, the model was overconfident.

    Args:
        probabilities: ``[n, classes]`` of nodes that were not used for training.
        labels: the column of each node's class.
    """
    _check(probabilities, labels)
    log = torch.from_numpy(np.log(np.maximum(probabilities, SMALLEST)))
    return best_temperature(log, torch.from_numpy(labels), torch.ones(len(labels), dtype=log.dtype))


def apply_temperature(probabilities: Array, temperature: float) -> Array:
    """``softmax(τ log p)``."""
    clipped = np.maximum(probabilities, SMALLEST)
    power = (clipped / clipped.max(1, keepdims=True)) ** temperature  # the largest is 1: no row becomes all zero
    return power / power.sum(1, keepdims=True)


def expected_calibration_error(probabilities: Array, labels: Array, bins: int = BINS) -> tuple[float, list[list[Any]]]:
    """``ECE = Σ_b n_b/n |accuracy_b − confidence_b|`` and its bins.

    The confidence of a node is its largest probability; bin b holds those in ``(b/B, (b+1)/B]``.

    Returns:
        The error, and ``[low, high, nodes, confidence, accuracy]`` of each bin that has nodes.
    """
    _check(probabilities, labels)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    rows, error = [], 0.0
    for b in np.unique(place):
        mine = place == b
        mean, share = float(confidence[mine].mean()), float(right[mine].mean())
        rows.append([b / bins, (b + 1) / bins, int(mine.sum()), mean, share])
        error += mine.mean() * abs(share - mean)
    return float(error), rows


def calibration(val: tuple[Array, Array], test: tuple[Array, Array]) -> dict[str, Any]:
    """Temperature on validation nodes, and calibration error on test nodes without and with it.

    Args:
        val: probabilities and columns of the true classes.
        test: the same for other nodes.
    """
    temperature = fit_temperature(*val)
    error, bins = expected_calibration_error(*test)
    calibrated = expected_calibration_error(apply_temperature(test[0], temperature), test[1])[0]
    return {
        "temperature": temperature,
        "ece": error,
        "ece_calibrated": calibrated,
        "bins": bins,
        "val": len(val[1]),
        "test": len(test[1]),
    }


def _check(probabilities: Array, labels: Array) -> None:
    if probabilities.ndim != 2 or len(probabilities) != len(labels) or not len(labels):
        raise InputError(
            f"probabilities have shape {probabilities.shape} for {len(labels)} labels; one row per label is needed, "
            "and at least one"
        )
