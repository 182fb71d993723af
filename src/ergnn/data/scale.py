"""Numbers of any unit and tail as features of about the same size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

CLIP = 5.0
"""Standardized values beyond this are set to it, so that no value dominates a row."""
HEAVY_TAIL = 10.0
"""A kurtosis above this is a heavy tail: if the signed logarithm has a smaller one, it is taken."""
STEPS_PER_OCTAVE = 4
"""Scales are rounded to powers of 2^(1/4) and centers to an eighth of the scale: few updates change them."""
ROUNDING = 1e-12
"""Values that differ by less than this share of the largest are equal."""
TEXT_LENGTH = 2.0
"""Length of a row of hashed words: a text counts as much as four numbers."""


@dataclass(frozen=True)
class Scale:
    """``clip((f(x) − center) / scale)`` for f the identity or ``sign(x) log(1 + |x| / unit)``; missing values are 0.

    ``center`` and ``scale`` are the rounded mean and standard deviation of ``f(x)``; ``unit`` is 0 for the identity. If
    values are ``missing``, a column says where.
    """

    center: float
    scale: float
    unit: float = 0.0
    missing: bool = False

    @classmethod
    def fit(cls, values: np.ndarray) -> Scale:
        """Choose the parameters; they depend on the values only, not on their order."""
        present = np.sort(values[~np.isnan(values)])  # sums of sorted values do not depend on the order of rows
        missing = len(present) < len(values)
        if not len(present):
            return cls(0.0, 1.0, missing=missing)
        unit = 0.0
        if len(present) > 2 and (tail := _kurtosis(present)) > HEAVY_TAIL:
            middle = float(np.median(np.abs(present[present != 0]))) if present.any() else 0.0
            if middle > 0 and _kurtosis(np.sort(_signed_log(present, middle))) < tail:
                unit = 2.0 ** round(math.log2(middle))
        moved = np.sort(_signed_log(present, unit)) if unit else present
        deviation = float(moved.std())
        if not deviation > ROUNDING * float(np.abs(moved).max()):
            return cls(float(moved[len(moved) // 2]), 1.0, unit, missing)
        scale = 2.0 ** (round(STEPS_PER_OCTAVE * math.log2(deviation)) / STEPS_PER_OCTAVE)
        return cls(round(8 * float(moved.mean()) / scale) * scale / 8, scale, unit, missing)

    def apply(self, values: np.ndarray, clip: float = CLIP) -> np.ndarray:
        """Return the columns of some values, ``[n, 1]`` or ``[n, 2]``."""
        moved = _signed_log(values, self.unit) if self.unit else values
        standardized = np.clip((moved - self.center) / self.scale, -clip, clip)
        absent = np.isnan(values)
        out = np.where(absent, 0.0, standardized)[:, None]
        return np.concatenate([out, absent[:, None]], 1) if self.missing else out


def _signed_log(values: np.ndarray, unit: float) -> np.ndarray:
    return np.sign(values) * np.log1p(np.abs(values) / unit)


def _kurtosis(values: np.ndarray) -> float:
    deviation = float(values.std())
    if not deviation > ROUNDING * float(np.abs(values).max()):
        return 0.0
    square = ((values - values.mean()) / deviation) ** 2
    return float((square * square).mean())
