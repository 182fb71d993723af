"""Paired significance tests over seeds and class orders.

Two rows are compared on the same data set, protocol, seeds and class orders, so that effects of the split and the order
on both rows cancel out. Each pair of rows gives a Wilcoxon signed-rank test; the tests of one table are a family, whose
p-values are adjusted by Holm's method, which bounds the probability of any false positive by α.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from ergnn.config.errors import InputError, UnknownNameError
from ergnn.lab.result import Member
from ergnn.learning import metrics
from ergnn.learning.metrics import AccuracyMatrix, Summary, summarize

ALPHA = 0.05
MEASURES = {
    "pm": metrics.performance_mean,
    "fm": metrics.forgetting_mean,
    "aa": metrics.average_accuracy,
    "af": metrics.average_forgetting,
    "bwt": metrics.backward_transfer,
}


def measure(name: str, matrix: AccuracyMatrix) -> float:
    """Return PM, FM (over M−1), AA, AF or BWT of one run, by short name."""
    if name not in MEASURES:
        raise UnknownNameError("measure", name, MEASURES)
    return MEASURES[name](matrix)


def wilcoxon(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test, exact for any ties.

    Zeros are dropped, ties share their mean rank. Under the null hypothesis every sign is a fair coin, so that
    ``W = Σ ranks of positive differences`` has the generating function ``Π (1 + x^{r_i}) / 2^n``; doubled ranks are
    integers, so that its coefficients can be computed by adding one rank at a time.

    >>> wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0])
    0.0625
    >>> wilcoxon([0.0, 0.0])
    1.0
    """
    given = np.asarray(differences, dtype=np.float64)
    if given.ndim != 1 or not np.isfinite(given).all():
        raise InputError("a signed-rank test needs a list of finite differences")
    given = given.round(12)  # differences due to rounding are ties
    given = given[given != 0]
    if not given.size:
        return 1.0
    doubled = np.rint(2 * stats.rankdata(np.abs(given))).astype(int)
    chances = np.zeros(int(doubled.sum()) + 1)
    chances[0] = 1.0
    for rank in doubled:
        shifted = np.zeros_like(chances)
        shifted[rank:] = chances[: len(chances) - rank]
        chances = (chances + shifted) / 2
    seen = int(doubled[given > 0].sum())
    tail = min(chances[: seen + 1].sum(), chances[seen:].sum())
    return float(min(1.0, 2 * tail))


def holm(p_values: Sequence[float]) -> list[float]:
    """Apply Holm's step-down adjustment: ``p̃_(i) = max_{j≤i} min(1, (m − j + 1) p_(j))``, in the given order.

    >>> [round(p, 2) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    given = np.asarray(p_values, dtype=np.float64)
    if given.size and not ((given >= 0) & (given <= 1)).all():
        raise InputError(f"p-values lie between 0 and 1; got {given.tolist()}")
    adjusted, highest = np.empty_like(given), 0.0
    for smaller, i in enumerate(np.argsort(given, kind="stable")):
        highest = max(highest, min(1.0, (given.size - smaller) * given[i]))
        adjusted[i] = highest
    return [float(p) for p in adjusted]


@dataclass(frozen=True)
class PairedTest:
    """One row against the baseline on one data set.

    Attributes:
        group: common settings of both rows, e.g. the data set.
        difference: mean of the paired differences, row minus baseline, with its 95 % interval.
        p: p-value of the signed-rank test.
        p_holm: the p-value adjusted for the family.
    """

    group: str
    row: str
    baseline: str
    difference: Summary
    p: float
    p_holm: float

    @property
    def significant(self) -> bool:
        return self.p_holm < ALPHA

    @property
    def lower(self) -> bool:
        """Significantly below the baseline."""
        return self.significant and self.difference.mean < 0

    @property
    def higher(self) -> bool:
        """Significantly above the baseline."""
        return self.significant and self.difference.mean > 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-compatible values."""
        return {**vars(self), "difference": self.difference.to_dict(), "significant": self.significant}


def paired_tests(samples: Mapping[tuple[str, str], Mapping[Member, float]], baseline: str) -> list[PairedTest]:
    """Compare every row with a baseline row, on their common members; all tests are one family.

    Args:
        samples: (group, row) → values of its members.
        baseline: the row to compare the others with, within each group.
    """
    tests = []
    for (group, row), values in samples.items():
        reference = samples.get((group, baseline))
        if row == baseline or reference is None:
            continue
        shared = sorted(values.keys() & reference.keys())
        if shared:
            differences = [values[member] - reference[member] for member in shared]
            tests.append((group, row, summarize(differences), wilcoxon(differences)))
    corrected = holm([p for *_, p in tests])
    return [
        PairedTest(group, row, baseline, difference, p, adjusted)
        for (group, row, difference, p), adjusted in zip(tests, corrected, strict=True)
    ]
