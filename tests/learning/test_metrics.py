"""Each metric against an explicit loop, closed forms and bounds, and its errors."""

import doctest
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ergnn.config.errors import InputError
from ergnn.learning import metrics
from ergnn.learning.metrics import (
    AccuracyMatrix,
    accuracy,
    average_accuracy,
    average_forgetting,
    backward_transfer,
    forgetting_mean,
    mean_matrix,
    performance_after_each_task,
    performance_mean,
    summarize,
)

SCORES = st.floats(0, 1, allow_subnormal=False)
CORA = AccuracyMatrix([[0.98, None, None], [0.70, 0.92, None], [0.60, 0.66, 0.95]])


@st.composite
def matrices(draw: st.DrawFn, min_tasks: int = 1, max_tasks: int = 6) -> AccuracyMatrix:
    """Measured up to the diagonal; each entry above it is measured or not."""
    size = draw(st.integers(min_tasks, max_tasks))
    rows = [[draw(SCORES if j <= i else st.one_of(st.none(), SCORES)) for j in range(size)] for i in range(size)]
    return AccuracyMatrix(rows)


def test_the_examples_in_the_docstrings_hold() -> None:
    outcome = doctest.testmod(metrics)
    assert outcome.attempted >= 10
    assert outcome.failed == 0


# scores of one task


@pytest.mark.parametrize(
    ("predicted", "target", "message"),
    [
        (torch.rand(4, 3), torch.zeros(4).long(), r"predicted must be class indices.*shape \[4, 3\].*argmax"),
        (torch.zeros(4).long(), torch.zeros(4), "target must be class indices.*float32"),
        (torch.zeros(3).long(), torch.zeros(4).long(), "3 predictions for 4 targets"),
        (torch.zeros(0).long(), torch.zeros(0).long(), "no nodes to score"),
    ],
)
def test_labels_that_cannot_be_scored_are_named(predicted, target, message) -> None:
    with pytest.raises(InputError, match=message):
        accuracy(predicted, target)


# the matrix


def test_matrix_accepts_tensors_arrays_and_lists() -> None:
    rows = [[0.5, math.nan], [0.25, 1.0]]
    matrix = AccuracyMatrix(rows)
    assert matrix == AccuracyMatrix(np.array(rows)) == AccuracyMatrix(torch.tensor(rows, requires_grad=True))
    assert matrix == AccuracyMatrix([[0.5, None], [0.25, 1.0]]) == AccuracyMatrix([[0.5], (0.25, 1.0)])
    assert matrix != AccuracyMatrix([[0.5, None], [0.25, 0.75]])
    assert matrix != AccuracyMatrix(rows, "micro-f1")
    assert matrix != rows
    assert (matrix.num_tasks, matrix.metric) == (2, "accuracy")


def test_matrix_cannot_be_changed_from_outside() -> None:
    source = np.array([[0.5]])
    matrix = AccuracyMatrix(source)
    source[0, 0] = 0.1
    assert matrix.values[0, 0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        matrix.values[0, 0] = 0.1


def test_matrix_shows_itself_and_is_indexed(tmp_path: Path) -> None:
    assert repr(CORA) == "AccuracyMatrix(3 tasks: PM 95.00 %, FM 32.00 %, AA 73.67 %)"
    assert CORA[1, 0] == 0.70
    assert np.asarray(CORA)[-1].tolist() == CORA[-1].tolist() == [0.60, 0.66, 0.95]
    shown = ElementTree.fromstring(CORA._repr_html_())
    assert (shown.tag, shown.text) == ("pre", str(CORA))
    drawing = CORA.plot()
    drawing.save(tmp_path / "matrix.svg")
    picture = (tmp_path / "matrix.svg").read_text(encoding="utf-8")
    assert picture == drawing._repr_svg_()
    cells = [cell.get("data-tip") for cell in ElementTree.fromstring(picture).iter() if "data-tip" in cell.attrib]
    assert len(cells) == 6
    assert cells[4] == "task 2 after task 3: 66.00"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[0.5, 0.5]], r"\[M, M\].*shape \[1, 2\]"),
        ([0.5], r"shape \[1\]"),
        (np.zeros((0, 0)), r"shape \[0, 0\]"),
        ([[[0.5]]], r"shape \[1, 1, 1\]"),
        ([[0.5, 0.5, 0.5], [0.5, 0.5]], "array of numbers"),
        ([[0.5], [0.5]], r"\[1, 1\] is not measured"),
        ([["high"]], "array of numbers"),
        ([[0.5, None], [94.0, 0.5]], r"\[1, 0\] is 94.0.*fractions in \[0, 1\]"),
        ([[0.5, -0.1], [0.5, 0.5]], r"\[0, 1\] is -0.1"),
        ([[math.inf]], r"\[0, 0\] is inf"),
        ([[0.5, 0.5], [None, 0.5]], r"\[1, 0\] is not measured"),
        ([[0.5, 0.5], [0.5, None]], r"\[1, 1\] is not measured"),
    ],
)
def test_bad_matrices_are_rejected(values, message) -> None:
    with pytest.raises(InputError, match=message):
        AccuracyMatrix(values)


@given(st.lists(matrices(3, 3), min_size=1, max_size=4))
def test_mean_matrix_is_the_mean_of_each_entry(runs: list[AccuracyMatrix]) -> None:
    mean = mean_matrix(runs)
    for i in range(3):
        for j in range(3):
            entries = [run.values[i, j] for run in runs]
            assert mean.values[i, j] == pytest.approx(sum(entries) / len(entries), nan_ok=True)


# measures of the matrix


@given(matrices(min_tasks=2))
def test_measures_agree_with_explicit_loops(matrix: AccuracyMatrix) -> None:
    a, m = matrix.values, matrix.num_tasks
    pm = fm = aa = af = 0.0
    for j in range(m):
        pm += a[j, j] / m
        aa += a[m - 1, j] / m
    for j in range(m - 1):
        fm += (a[j, j] - a[m - 1, j]) / (m - 1)
        best = 0.0
        for i in range(m - 1):
            if not math.isnan(a[i, j]):
                best = max(best, a[i, j])
        af += (best - a[m - 1, j]) / (m - 1)
    assert performance_mean(matrix) == pytest.approx(pm)
    assert forgetting_mean(matrix) == pytest.approx(fm)
    assert average_accuracy(matrix) == pytest.approx(aa)
    assert average_forgetting(matrix) == pytest.approx(af)
    for i, value in enumerate(performance_after_each_task(matrix)):
        assert value == pytest.approx(sum(a[i, j] for j in range(i + 1)) / (i + 1))


@given(SCORES)
def test_one_task_has_no_forgetting(score: float) -> None:
    matrix = AccuracyMatrix([[score]])
    zeros = [
        forgetting_mean(matrix, "M-1"),
        forgetting_mean(matrix, "M"),
        average_forgetting(matrix),
        backward_transfer(matrix),
    ]
    assert [str(zero) for zero in zeros] == ["0.0"] * 4
    assert performance_mean(matrix) == average_accuracy(matrix) == score


# spread over runs


@pytest.mark.parametrize(("n", "quantile"), [(2, 12.706), (3, 4.303), (5, 2.776), (10, 2.262), (30, 2.045)])
def test_interval_uses_the_printed_quantiles_of_student(n: int, quantile: float) -> None:
    """t_{0.975, n−1} as any printed table of Student's distribution has it."""
    summary = summarize(np.linspace(0, 1, n))
    assert summary.ci95 == pytest.approx(quantile * summary.std / math.sqrt(n), rel=3e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [([], r"shape \[0\]"), ([[0.5]], r"shape \[1, 1\]"), ([0.5, math.nan], "value 1 is not"), (0.5, r"shape \[\]")],
)
def test_summary_rejects_empty_and_nonfinite_values(values, message) -> None:
    with pytest.raises(InputError, match=message):
        summarize(values)
