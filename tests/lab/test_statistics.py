"""Signed-rank tests against enumeration and SciPy, Holm's correction against a worked example."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ergnn.config.errors import InputError
from ergnn.lab.statistics import holm, paired_tests, wilcoxon

P_VALUES = st.lists(st.floats(0, 1), max_size=8)


def enumerated(differences: list[float]) -> float:
    """Every assignment of signs, counted one by one."""
    kept = np.array([d for d in differences if d != 0])
    if not kept.size:
        return 1.0
    ranks = stats.rankdata(np.abs(kept))
    seen = ranks[kept > 0].sum()
    sums = np.array([ranks[np.array(signs)].sum() for signs in product([False, True], repeat=len(kept))])
    return min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_wilcoxon_is_exact_with_ties_and_zeros(differences: list[int]) -> None:
    scaled = [d / 7 for d in differences]
    assert wilcoxon(scaled) == pytest.approx(enumerated(scaled))
    assert wilcoxon([-d for d in scaled]) == pytest.approx(wilcoxon(scaled))


@pytest.mark.parametrize("n", [4, 10, 25, 60])
def test_wilcoxon_equals_scipy_where_nothing_ties(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.3, 1.0, n)
    assert wilcoxon(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)


def test_differences_of_rounding_are_ties() -> None:
    assert wilcoxon([0.1 + 0.2 - 0.3, 0.0]) == 1.0
    assert wilcoxon([0.3 - 0.2, -(0.4 - 0.3), 0.1]) == pytest.approx(enumerated([1, -1, 1]))


def test_wilcoxon_rejects_nan() -> None:
    with pytest.raises(InputError, match="finite"):
        wilcoxon([0.1, float("nan")])


def test_holm_by_hand() -> None:
    # sorted 0.01 ×4 = 0.04, 0.013 ×3 = 0.039 → 0.04, 0.02 ×2 = 0.04, 0.6 ×1
    assert holm([0.02, 0.6, 0.01, 0.013]) == pytest.approx([0.04, 0.6, 0.04, 0.04])
    assert holm([]) == []
    with pytest.raises(InputError, match="between 0 and 1"):
        holm([1.2])


@given(P_VALUES)
def test_holm_is_between_the_p_value_and_bonferroni_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1.0, len(p_values) * p) + 1e-12
    for i, j in product(range(len(p_values)), repeat=2):
        if p_values[i] <= p_values[j]:
            assert adjusted[i] <= adjusted[j]


def test_only_common_members_are_paired() -> None:
    base = {(seed, 0): 0.3 for seed in range(10)}
    rows = {
        ("cora", "random"): base,
        ("cora", "mf"): {(seed, 0): 0.3 - 0.01 * (seed + 1) for seed in range(2, 12)},
        ("cora", "im"): {(seed, 0): 0.3 + 0.01 * (seed + 1) for seed in range(10)},
        ("citeseer", "mf"): base,  # no baseline there: no test
    }
    mf, im = paired_tests(rows, "random")
    assert (mf.row, mf.difference.n, im.difference.n) == ("mf", 8, 10)
    assert mf.difference.mean == pytest.approx(-0.01 * np.mean(range(3, 11)))
    assert (mf.p, im.p) == (2 / 2**8, 2 / 2**10)
    assert (mf.p_holm, im.p_holm) == (2 / 2**8, 4 / 2**10)
    assert [mf.lower, mf.higher, im.lower, im.higher] == [True, False, False, True]
