"""Ranks of methods over several data sets, and Pareto fronts.

Follows Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7, 2006.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ergnn.config.errors import InputError
from ergnn.lab.statistics import ALPHA


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
            significantly different.
        cliques: positions of the first and last method of each largest group without a significant difference.
    """

    names: Sequence[str]
    ranks: Sequence[float]
    datasets: int
    chi2: float
    p: float | None
    difference: float
    cliques: Sequence[tuple[int, int]]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-compatible values."""
        return {**vars(self), "cliques": [list(clique) for clique in self.cliques]}


def rank(scores: Mapping[str, Sequence[float]], alpha: float = ALPHA) -> Ranking:
    """Rank methods by their scores, one per data set; ties share their mean rank.

    >>> ranking = rank({"a": [0.9, 0.8, 0.7], "b": [0.5, 0.8, 0.6]})
    >>> ranking.names, [round(r, 2) for r in ranking.ranks]
    (['a', 'b'], [1.17, 1.83])
    """
    values = np.array([scores[name] for name in scores], dtype=np.float64)
    if values.ndim != 2 or len(values) < 2 or not values.shape[1] or not np.isfinite(values).all():
        raise InputError("a ranking needs a finite score of two or more methods on every data set")
    k, n = values.shape
    means = stats.rankdata(-values.round(12), axis=0).mean(axis=1)
    order = np.argsort(means, kind="stable")
    chi2 = float(12 * n / (k * (k + 1)) * (np.square(means).sum() - k * (k + 1) ** 2 / 4))
    left = n * (k - 1) - chi2
    p = None
    if n > 1:  # all data sets agree if nothing is left
        p = float(stats.f.sf((n - 1) * chi2 / left, k - 1, (k - 1) * (n - 1))) if left > 1e-9 else 0.0
    difference = critical_difference(k, n, alpha)
    ranks = [float(means[i]) for i in order]
    return Ranking([list(scores)[i] for i in order], ranks, n, chi2, p, difference, cliques(ranks, difference))


def critical_difference(methods: int, datasets: int, alpha: float = ALPHA) -> float:
    """Return ``q_α √(k(k+1)/6N)`` with ``q_α`` the quantile of the studentized range, divided by √2.

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    quantile = float(stats.studentized_range.ppf(1 - alpha, methods, np.inf)) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * datasets)))


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Return the first and last position of each largest group of sorted ranks that differ by less than a difference.

    >>> cliques([1.0, 1.5, 2.2, 4.0], 1.0)
    [(0, 1), (1, 2)]
    """
    groups: list[tuple[int, int]] = []
    for first, low in enumerate(ranks):
        last = max(i for i, value in enumerate(ranks) if value - low < difference)
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def pareto_front(costs: ArrayLike) -> list[bool]:
    """Return which rows of ``[n, costs]`` no other row beats: at most the same in every cost and less in one.

    >>> pareto_front([[1, 3], [2, 2], [2, 4], [3, 1]])
    [True, True, False, True]
    """
    rows = np.asarray(costs, dtype=np.float64)
    return [not bool(((rows <= row).all(axis=1) & (rows < row).any(axis=1)).any()) for row in rows]
