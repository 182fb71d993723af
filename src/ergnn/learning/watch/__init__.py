"""Watching a model in use: drift of its inputs, calibration of its probabilities, nodes of unknown classes."""

from ergnn.learning.watch.calibration import calibration, expected_calibration_error, fit_temperature
from ergnn.learning.watch.drift import Drift, drift_test, node_aspects, stack_aspects
from ergnn.learning.watch.unknown import UnknownScore, unknown_rows

__all__ = [
    "Drift",
    "UnknownScore",
    "calibration",
    "drift_test",
    "expected_calibration_error",
    "fit_temperature",
    "node_aspects",
    "stack_aspects",
    "unknown_rows",
]
