"""Metrics of continual learning, as pure functions of the accuracy matrix.

``a[i, j]`` is the score on task j after learning task i (both count from 0 in code, from 1 in formulas), M
the number of tasks. Scores are fractions in [0, 1]; percentages are for display only.

    performance mean, PM       ``1/M Σ_j a_jj`` (the ER-GNN paper)
    forgetting mean, FM        ``Σ_{j<M} (a_jj − a_Mj)`` over M−1 or M (the ER-GNN paper does not specify)
    average accuracy, AA       ``1/M Σ_j a_Mj``
    average forgetting, AF     ``1/(M−1) Σ_{j<M} (max_{i<M} a_ij − a_Mj)`` (Chaudhry et al. 2018)
    backward transfer, BWT     ``1/(M−1) Σ_{j<M} (a_Mj − a_jj)`` (Lopez-Paz and Ranzato 2017)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ergnn.config.errors import InputError, check_choice
from ergnn.data.stream import METRICS
from ergnn.pages.figures import Drawing, heat_map
from ergnn.pages.table import Table, percent


def accuracy(predicted: Tensor, target: Tensor) -> float:
    """Return the fraction of nodes whose predicted class is correct.

    >>> from torch import tensor
    >>> accuracy(tensor([0, 1, 1, 2]), tensor([0, 1, 2, 2]))
    0.75
    """
    for name, labels in (("predicted", predicted), ("target", target)):
        if labels.ndim != 1 or labels.is_floating_point():
            raise InputError(
                f"{name} must be class indices, a 1-d integer tensor; got {labels.dtype} of shape "
                f"{list(labels.shape)} (take argmax(dim=1) of scores first)"
            )
    if predicted.shape != target.shape:
        raise InputError(f"{predicted.numel()} predictions for {target.numel()} targets; the numbers must be equal")
    if not target.numel():
        raise InputError("no nodes to score: predicted and target are empty")
    return int((predicted.cpu() == target.cpu()).sum()) / target.numel()


def roc_auc(positive: NDArray[np.bool_], scores: NDArray[Any]) -> float:
    """Return the area under the ROC curve: how often a positive node has a higher score than a negative one.

    >>> roc_auc(np.array([True, True, False, False]), np.array([0.9, 0.4, 0.4, 0.1]))
    0.875
    """
    _, value, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[value]  # equal scores share their mean rank
    number = int(positive.sum())
    return float((rank[positive].sum() - number * (number + 1) / 2) / (number * (len(positive) - number)))


class AccuracyMatrix:
    """Scores of one stream: ``values[i, j]`` on task j after learning task i, NaN where not measured.

    ``matrix[i, j]`` is a score and ``matrix[-1]`` a row; ``print(matrix)`` and notebooks show a table.

    Args:
        values: [M, M] tensor, array or nested list (``None`` reads as NaN). The diagonal and the lower
            triangle are required; the upper triangle (tasks not learned yet) is optional. A row of a nested list may
            end after its last measurement.
        metric: ``"accuracy"`` or ``"micro-f1"``. With one label per node, every error is one false positive and one
            false negative, so that both are the same.

    >>> matrix = AccuracyMatrix([[0.9], [0.6, 0.8]])
    >>> matrix.to_list(), float(matrix[1, 0])
    ([[0.9, None], [0.6, 0.8]], 0.6)
    >>> print(matrix)
     accuracy (%) │ task 1  task 2
    ──────────────┼───────────────
     after task 1 │  90.00
     after task 2 │  60.00   80.00
    PM 85.00 %, FM 30.00 %, AA 70.00 %
    """

    def __init__(self, values: ArrayLike | Tensor, metric: str = "accuracy") -> None:
        if isinstance(values, Tensor):
            values = values.detach().cpu().numpy()
        if isinstance(values, list | tuple) and all(isinstance(row, list | tuple) for row in values):
            values = [[*row, *[None] * (len(values) - len(row))] for row in values]
        try:
            array = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"an accuracy matrix is an [M, M] array of numbers: {error}") from None
        if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
            raise InputError(f"an accuracy matrix is [M, M] with M >= 1; got shape {list(array.shape)}")
        check_choice("metric", metric, METRICS)
        for i, j in np.argwhere((array < 0) | (array > 1))[:1]:
            raise InputError(f"accuracy matrix [{i}, {j}] is {array[i, j]}; scores are fractions in [0, 1]")
        for i, j in np.argwhere(np.tril(np.isnan(array)))[:1]:
            raise InputError(f"accuracy matrix [{i}, {j}] is not measured; the diagonal and the lower triangle must be")
        array.flags.writeable = False
        self.values: NDArray[np.float64] = array
        self.metric = metric

    @property
    def num_tasks(self) -> int:
        return len(self.values)

    def to_list(self) -> list[list[float | None]]:
        """Return nested lists for JSON, with ``None`` for entries that were not measured."""
        return [[None if np.isnan(score) else float(score) for score in row] for row in self.values]

    def table(self) -> Table:
        """Return one row after each task, with one column per task learned so far; of many tasks, some of each."""
        shown = shown_tasks(self.num_tasks)
        metric = {"accuracy": "accuracy", "micro-f1": "micro-F1"}[self.metric]
        header = [f"{metric} (%)", *("…" if j is None else f"task {j + 1}" for j in shown)]
        rows = []
        for i in shown:
            cells = ["" if i is None or j is None or j > i else percent(self.values[i, j]) for j in shown]
            rows.append(["…" if i is None else f"after task {i + 1}", *cells])
        return Table(header, rows)

    def plot(self) -> Drawing:
        """Draw the matrix: a notebook shows the drawing, and its ``save("matrix.svg")`` writes it."""
        return accuracy_map([self], f"{self.metric} in percent")

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AccuracyMatrix):
            return NotImplemented
        return self.metric == other.metric and np.array_equal(self.values, other.values, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]

    def _measures(self) -> str:
        measures = {"PM": performance_mean(self), "FM": forgetting_mean(self), "AA": average_accuracy(self)}
        return ", ".join(f"{name} {percent(value)} %" for name, value in measures.items())

    def __repr__(self) -> str:
        return f"AccuracyMatrix({self.num_tasks} task{'s' * (self.num_tasks > 1)}: {self._measures()})"

    def __str__(self) -> str:
        return f"{self.table().to_text()}\n{self._measures()}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return f"<pre>{escape(str(self))}</pre>"


def shown_tasks(number: int) -> list[int | None]:
    """Return the tasks that a table shows: all, or the first four and the last three with None between them."""
    return list(range(number)) if number <= 8 else [0, 1, 2, 3, None, number - 3, number - 2, number - 1]


def accuracy_map(
    matrices: Sequence[AccuracyMatrix],
    label: str,
    names: Sequence[str] | None = None,
    low: float = 0.0,
    side: int | None = None,
) -> Drawing:
    """Draw the mean of the accuracy matrices of some runs, with 95 % intervals on hover; ``names`` are of the tasks."""
    values, size = np.array([matrix.values for matrix in matrices]), matrices[0].num_tasks
    names = [f"task {i + 1}" for i in range(size)] if names is None else names
    tips = [
        [f"{names[j]} after {names[i]}: {summarize(values[:, i, j]).text()}" for j in range(i + 1)] for i in range(size)
    ]
    mean = np.where(np.tri(size, dtype=bool), values.mean(axis=0), np.nan)
    lines = [f"after {names[i]}: " + ", ".join(f"{100 * v:.1f}" for v in mean[i, : i + 1]) for i in range(size)]
    return heat_map(mean, low=low, label=f"{label}; {'; '.join(lines)}", tips=tips, side=side)


def mean_matrix(matrices: Sequence[AccuracyMatrix]) -> AccuracyMatrix:
    """Compute the entry-wise mean over runs; an entry is measured if every run measured it.

    >>> mean_matrix([AccuracyMatrix([[0.5]]), AccuracyMatrix([[1.0]])]).to_list()
    [[0.75]]
    """
    return AccuracyMatrix(np.mean([matrix.values for matrix in matrices], axis=0), matrices[0].metric)


def performance_mean(matrix: AccuracyMatrix) -> float:
    """Compute PM = ``1/M Σ_j a_jj``, the mean score on each task right after learning it.

    >>> performance_mean(AccuracyMatrix([[1.0, None], [0.5, 0.5]]))
    0.75
    """
    return float(np.diagonal(matrix.values).mean())


def forgetting_mean(matrix: AccuracyMatrix, denominator: Literal["M-1", "M"] = "M-1") -> float:
    """Compute FM = ``Σ_{j<M} (a_jj − a_Mj) / denominator``, positive if accuracy was lost.

    The term of the last task is always 0, and the paper does not say whether it counts. ``"M-1"`` excludes it,
    ``"M"`` includes it. A stream of one task has FM 0.

    >>> forgetting_mean(AccuracyMatrix([[1.0, None], [0.5, 0.5]]))
    0.5
    >>> forgetting_mean(AccuracyMatrix([[1.0, None], [0.5, 0.5]]), "M")
    0.25
    """
    check_choice("denominator", denominator, ("M-1", "M"))
    tasks = matrix.num_tasks if denominator == "M" else matrix.num_tasks - 1
    return float((np.diagonal(matrix.values) - matrix.values[-1])[:-1].sum() / max(tasks, 1))


def average_accuracy(matrix: AccuracyMatrix) -> float:
    """Compute AA = ``1/M Σ_j a_Mj``, the mean score over all tasks at the end of the stream.

    >>> average_accuracy(AccuracyMatrix([[1.0, None], [0.5, 0.75]]))
    0.625
    """
    return float(matrix.values[-1].mean())


def average_forgetting(matrix: AccuracyMatrix) -> float:
    """Compute AF = ``1/(M−1) Σ_{j<M} (max_{i<M} a_ij − a_Mj)`` (Chaudhry et al. 2018); 0 for one task.

    Unlike FM, it starts from the best score of each task. The maximum runs over the measured entries.

    >>> average_forgetting(AccuracyMatrix([[0.5, None, None], [1.0, 0.75, None], [0.5, 0.5, 1.0]]))
    0.375
    """
    if matrix.num_tasks == 1:
        return 0.0
    best = np.nanmax(matrix.values[:-1, :-1], axis=0)
    return float((best - matrix.values[-1, :-1]).mean())


def backward_transfer(matrix: AccuracyMatrix) -> float:
    """Compute BWT = ``1/(M−1) Σ_{j<M} (a_Mj − a_jj)`` (Lopez-Paz and Ranzato 2017), the negative of FM over M−1.

    >>> backward_transfer(AccuracyMatrix([[1.0, None], [0.5, 0.5]]))
    -0.5
    """
    return 0.0 - forgetting_mean(matrix, "M-1")


def performance_after_each_task(matrix: AccuracyMatrix) -> list[float]:
    """Compute ``1/i Σ_{j≤i} a_ij`` for i = 1 … M, the mean over the tasks seen so far (figure 2 of the paper).

    >>> performance_after_each_task(AccuracyMatrix([[1.0, None], [0.5, 0.75]]))
    [1.0, 0.625]
    """
    return [float(row[: i + 1].mean()) for i, row in enumerate(matrix.values)]


@dataclass(frozen=True)
class Summary:
    """Mean and spread of a metric over n runs; ``ci95`` is the half width of the interval, None for n = 1."""

    mean: float
    std: float
    ci95: float | None
    n: int

    def text(self, scale: float = 100) -> str:
        """Format the mean with its 95 % interval; that of two values would be twelve times their spread.

        >>> print(*(summarize(values).text() for values in ([0.5, 0.52, 0.54], [0.5, 0.52], [0.5])), sep=", ")
        52.00 ± 4.97, 51.00 (n = 2), 50.00
        """
        if self.n == 2:
            return f"{percent(self.mean, scale)} (n = 2)"
        half = "" if self.ci95 is None else f" ± {percent(self.ci95, scale)}"
        return percent(self.mean, scale) + half


def summarize(values: ArrayLike) -> Summary:
    """Compute mean, sample standard deviation (n − 1) and 95 % interval of the mean, ``t_{0.975, n−1} · s / √n``.

    For a single value, ``std`` is 0 and ``ci95`` is None (JSON null).

    >>> summary = summarize([0.90, 0.92, 0.94])
    >>> round(summary.mean, 4), round(summary.std, 4), round(summary.ci95, 4), summary.n
    (0.92, 0.02, 0.0497, 3)
    >>> summarize([0.5])
    Summary(mean=0.5, std=0.0, ci95=None, n=1)
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise InputError(f"a summary needs a list of at least one value; got shape {list(array.shape)}")
    if not np.isfinite(array).all():
        raise InputError(f"a summary needs finite values; value {int((~np.isfinite(array)).argmax())} is not")
    n = len(array)
    if n == 1:
        return Summary(float(array[0]), 0.0, None, 1)
    from scipy.stats import t  # lazy: the import takes half a second

    std = float(array.std(ddof=1))
    return Summary(float(array.mean()), std, float(t.ppf(0.975, n - 1)) * std / n**0.5, n)
