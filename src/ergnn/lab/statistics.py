"""Paired significance tests over seeds and class orders, ranks over data sets, and Pareto fronts.

Two rows are compared on the same data set, protocol, seeds and class orders, so that effects of the split and the order
on both rows cancel out. Each pair of rows gives a Wilcoxon signed-rank test; the tests of one table are a family, whose
p-values are adjusted by Holm's method, which bounds the probability of any false positive by α. Ranks follow Demšar,
Statistical comparisons of classifiers over multiple data sets, JMLR 7, 2006.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ergnn.lab.result import Member
from ergnn.learning import metrics
from ergnn.learning.metrics import Summary, summarize

ALPHA = 0.05
MEASURES = {
    "pm": metrics.performance_mean,
    "fm": metrics.forgetting_mean,
    "aa": metrics.average_accuracy,
    "af": metrics.average_forgetting,
    "bwt": metrics.backward_transfer,
}


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
    rounded = np.asarray(differences, dtype=np.float64).round(12)  # differences due to rounding are ties
    rounded = rounded[rounded != 0]
    doubled = np.rint(2 * stats.rankdata(np.abs(rounded))).astype(int)
    chances = np.ones(1)
    for rank in doubled:
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    seen = int(doubled[rounded > 0].sum())
    tail = min(chances[: seen + 1].sum(), chances[seen:].sum())
    return float(min(1.0, 2 * tail))


def holm(p_values: Sequence[float]) -> list[float]:
    """Apply Holm's step-down adjustment: ``p̃_(i) = max_{j≤i} min(1, (m − j + 1) p_(j))``, in the given order.

    >>> [round(p, 2) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    raw = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    adjusted = np.empty_like(raw)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(raw.size, 0, -1) * raw[order]))
    return adjusted.tolist()


@dataclass(frozen=True)
class PairedTest:
    """One row against the baseline on one data set: the mean of the paired differences, row minus baseline.

    ``group`` has the common settings of both rows, e.g. the data set; ``p_holm`` is p adjusted for the family.
    """

    group: str
    row: str
    baseline: str
    difference: Summary
    p: float
    p_holm: float

    @property
    def sign(self) -> int:
        """1 if the row is significantly above the baseline, -1 if it is significantly below, otherwise 0."""
        return int(np.sign(self.difference.mean)) if self.p_holm < ALPHA else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-compatible values."""
        return {**vars(self), "difference": vars(self.difference), "significant": self.p_holm < ALPHA}


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


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of k methods over N data sets, the best first; rank 1 is the highest score.

    Attributes:
        names, ranks: methods and their mean ranks.
        datasets: N.
        chi2: Friedman's ``χ² = 12N/(k(k+1)) [Σ_j R_j² − k(k+1)²/4]``.
        p: p-value of ``F = (N−1)χ² / (N(k−1) − χ²)`` (Iman and Davenport), whose distribution has k−1 and (k−1)(N−1)
            degrees of freedom; None for fewer than two data sets.
        difference: Nemenyi's critical difference ``q_α √(k(k+1)/6N)``; mean ranks that differ by less are not
            significantly different; ``q_α`` is the quantile of the studentized range, divided by √2.
    """

    names: Sequence[str]
    ranks: Sequence[float]
    datasets: int
    chi2: float
    p: float | None
    difference: float


def rank(scores: Mapping[str, Sequence[float]]) -> Ranking:
    """Rank two or more methods by their scores, one per data set; ties share their mean rank.

    >>> ranking = rank({"a": [0.9, 0.8, 0.7], "b": [0.5, 0.8, 0.6]})
    >>> ranking.names, [round(r, 2) for r in ranking.ranks]
    (['a', 'b'], [1.17, 1.83])
    """
    values = np.array([scores[name] for name in scores], dtype=np.float64)
    k, n = values.shape
    means = stats.rankdata(-values.round(12), axis=0).mean(axis=1)
    order = np.argsort(means, kind="stable")
    chi2 = float(12 * n / (k * (k + 1)) * (np.square(means).sum() - k * (k + 1) ** 2 / 4))
    left = n * (k - 1) - chi2
    p = None
    if n > 1:  # all data sets agree if nothing is left
        p = float(stats.f.sf((n - 1) * chi2 / left, k - 1, (k - 1) * (n - 1))) if left > 1e-9 else 0.0
    quantile = float(stats.studentized_range.ppf(1 - ALPHA, k, np.inf)) / np.sqrt(2)
    difference = float(quantile * np.sqrt(k * (k + 1) / (6 * n)))
    return Ranking([list(scores)[i] for i in order], [float(means[i]) for i in order], n, chi2, p, difference)


def pareto_front(costs: ArrayLike) -> list[bool]:
    """Return which rows of ``[n, costs]`` no other row beats: at most the same in every cost and less in one.

    >>> pareto_front([[1, 3], [2, 2], [2, 4], [3, 1]])
    [True, True, False, True]
    """
    rows = np.asarray(costs, dtype=np.float64)
    return [not bool(((rows <= row).all(axis=1) & (rows < row).any(axis=1)).any()) for row in rows]
