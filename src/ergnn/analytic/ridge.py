"""Weighted ridge regression on one-hot labels, with exact leave-one-out errors, in float64."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.config.errors import InputError

LAMBDAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
DEFAULT_LAMBDA = 0.3
"""λ if leave-one-out is not possible: if no class has two rows, or if rows are not stored."""

DEFAULT_TEMPERATURE = 10.0
"""τ in the same case."""

TEMPERATURES = (0.1, 1000.0)
"""Bounds of τ."""

ROW_BLOCK = 1 << 13
"""Rows to sum at a time."""

GRID_WIDTH = 1 << 11
"""Primal systems with more columns are not solved for every λ."""

LOO_ROWS = 1 << 11
"""Maximum number of rows for leave-one-out errors. All rows are fitted."""


@dataclass(frozen=True, eq=False)
class RidgeSolution:
    """A solved head.

    Args:
        weight: W, ``[width, classes]``, float64.
        classes: class of each column, ascending.
        lam: λ.
        temperature: τ; ``softmax(τ φW)`` are the probabilities.
        loo: leave-one-out scores of the rows, ``[rows, classes]``, or of :data:`LOO_ROWS` of them.
        loo_error: their weighted mean squared error over classes of two or more rows; None if there are none.
    """

    weight: Tensor
    classes: Tensor
    lam: float
    temperature: float
    loo: Tensor
    loo_error: float | None


def class_weights(labels: Tensor) -> Tensor:
    """Compute ``w ∝ n_c^-½`` for each row, where n_c is the size of its class, scaled to a mean of 1."""
    _, column, size = torch.unique(labels, return_inverse=True, return_counts=True)
    weights = size.double().rsqrt()[column]
    return weights / weights.mean()


class Moments:
    """``Σ n_c^-½ φφᵀ`` and ``Σ_c φ`` of labeled rows, cached between solves.

    If the size of a class changes, so does the factor of its rows, and all rows are summed again. If existing classes
    keep their sizes, as when each task has new classes, only new rows are summed. The result then depends on the order
    of updates up to rounding.
    """

    def __init__(self) -> None:
        self._ids: Tensor | None = None
        self.classes = self.sizes = self.gram = self.sums = torch.empty(0, dtype=torch.float64)

    def update(self, ids: Tensor, rows: Tensor, labels: Tensor) -> None:
        """Update the sums to the given rows; rows with known ids must not have changed."""
        classes, column, count = torch.unique(labels, return_inverse=True, return_counts=True)
        sizes = count.double()
        new = torch.ones_like(ids, dtype=torch.bool)
        if self._ids is not None and bool(torch.isin(self._ids, ids).all()):
            place = torch.searchsorted(classes, self.classes)
            if torch.equal(sizes[place], self.sizes):
                new = ~torch.isin(ids, self._ids)
        if bool(new.all()):
            width = rows.size(1)
            self.gram = torch.zeros(width, width, dtype=torch.float64, device=rows.device)
            self.sums = self.gram.new_zeros(classes.numel(), width)
        else:
            sums = self.gram.new_zeros(classes.numel(), rows.size(1))
            sums[place] = self.sums
            self.sums = sums
        root = sizes.rsqrt()[column].sqrt()
        for index in new.nonzero().flatten().split(ROW_BLOCK):
            p = rows[index] * root[index, None].to(rows.dtype)
            self.gram += p.T @ p
            self.sums.index_add_(0, column[index], rows[index].double())
        self._ids, self.classes, self.sizes = ids, classes, sizes


def fit_ridge(
    rows: Tensor,
    labels: Tensor,
    lambdas: Sequence[float] = LAMBDAS,
    *,
    chosen: Tensor | None = None,
    ids: Tensor | None = None,
    moments: Moments | None = None,
) -> RidgeSolution:
    """Solve ``W = (Σ w φφᵀ + λI)⁻¹ Σ w φyᵀ`` for one-hot y and the weights of :func:`class_weights`.

    With ``P = √w φ`` and ``T = √w y``, the smaller of ``PPᵀ`` (dual) and ``PᵀP`` (primal) is solved. The score of row i
    under a head fitted without it, with the same weights w, is ``y_i − (t_i − f_i) / ((1 − h_i) √w_i)`` with the fit
    ``f = H t`` and the leverage ``h = diag H``, ``H = P (PᵀP + λI)⁻¹ Pᵀ``. λ minimizes the weighted squared error of
    these scores; in primal systems wider than :data:`GRID_WIDTH`, it is the local minimum nearest to
    :data:`DEFAULT_LAMBDA` (:func:`descend`). Then τ minimizes their weighted negative log-likelihood (convex in τ).
    Classes with a single row are excluded from both.

    Args:
        rows: φ, ``[n, width]``, any float type.
        labels: ``[n]``.
        lambdas: candidates for λ, each above 0, ascending.
        chosen: rows whose leave-one-out errors are computed; by default those of :func:`loo_rows`.
        ids: ids of the rows, for ``moments``.
        moments: cached sums over rows.
    """
    if not rows.size(0) or rows.size(0) != labels.numel():
        raise InputError(f"{rows.size(0)} rows and {labels.numel()} labels; the numbers must be equal and at least 1")
    if not lambdas or min(lambdas) <= 0:
        raise InputError(f"lambda is {list(lambdas)}; each must be above 0")
    classes, column = torch.unique(labels, return_inverse=True)
    w = class_weights(labels)
    y = torch.nn.functional.one_hot(column, classes.numel()).double()
    count = labels.numel()
    chosen = (loo_rows(count) if chosen is None else chosen).to(labels.device)
    system: _System
    if rows.size(0) <= rows.size(1):
        system = _Dual(rows, y, w, chosen)
    else:
        if (
            moments is None or count <= LOO_ROWS
        ):  # sum few rows in a fixed order, so that resumed runs are bitwise equal
            moments = Moments()
        moments.update(torch.arange(count, device=labels.device) if ids is None else ids, rows, labels)
        system = _Primal(rows, y, w, chosen, moments)
    return _best_solution(system, labels, w, chosen, lambdas)


def fit_sums(
    rows: Tensor, labels: Tensor, chosen: Tensor, gram: Tensor, sums: Tensor, lambdas: Sequence[float] = LAMBDAS
) -> RidgeSolution:
    """Solve for the head of :func:`fit_ridge` from sums over rows, for more rows than columns.

    Args:
        rows: φ of the chosen rows only.
        labels: of all rows, ``[n]``.
        chosen: rows whose leave-one-out errors are computed.
        gram: ``Σ n_c^-½ φφᵀ`` over all rows.
        sums: ``Σ φ`` over the rows of each class, ``[classes, width]``, classes ascending.
        lambdas: candidates for λ.
    """
    moments = Moments()
    moments.classes, column, size = torch.unique(labels, return_inverse=True, return_counts=True)
    moments.sizes, moments.sums, moments.gram = size.double(), sums, gram
    w = class_weights(labels)
    y = torch.nn.functional.one_hot(column[chosen], size.numel()).double()
    system = _Primal(rows, y, w[chosen], torch.arange(chosen.numel(), device=labels.device), moments)
    return _best_solution(system, labels, w, chosen, lambdas)


def loo_rows(count: int) -> Tensor:
    """Return the rows whose leave-one-out errors are computed by default: at most :data:`LOO_ROWS`, evenly spaced."""
    if count <= LOO_ROWS:
        return torch.arange(count)
    return torch.linspace(0, count - 1, LOO_ROWS, dtype=torch.float64).long()


def _best_solution(
    system: _System, labels: Tensor, w: Tensor, chosen: Tensor, lambdas: Sequence[float]
) -> RidgeSolution:
    """Choose λ and then τ by the leave-one-out scores of a system."""
    classes, column, size = torch.unique(labels, return_inverse=True, return_counts=True)
    column, w = column[chosen], w[chosen]
    informative = (size > 1)[column]
    lam, error = float(DEFAULT_LAMBDA if len(lambdas) > 1 else lambdas[0]), None
    if bool(informative.any()):
        share = torch.where(informative, w, 0.0)
        share, own = share / share.sum(), torch.nn.functional.one_hot(column, classes.numel())

        def loo_error(i: int) -> float:
            return float((system.left_out(lambdas[i]) - own).square_().sum(1) @ share)

        if isinstance(system, _Primal) and system.gram.size(0) > GRID_WIDTH:
            best, error = descend(
                loo_error, len(lambdas), min(range(len(lambdas)), key=lambda i: abs(lambdas[i] - lam))
            )
        else:
            errors = [loo_error(i) for i in range(len(lambdas))]
            best = least(errors)
            error = errors[best]
        lam = float(lambdas[best])
    loo = system.left_out(lam)
    temperature = best_temperature(loo[informative], column[informative], w[informative])
    return RidgeSolution(system.weight(lam), classes, lam, temperature, loo, error)


def descend(error: Callable[[int], float], count: int, start: int) -> tuple[int, float]:
    """Find the local minimum of the error in ``range(count)`` reached from ``start``; return its position and error.

    Errors that differ by rounding only count as equal.
    """
    best, value = start, error(start)
    for step in (1, -1):
        while 0 <= best + step < count:
            other = error(best + step)
            if other >= value * (1 - 1e-9):
                break
            best, value = best + step, other
        if best != start:
            break
    return best, value


def least(errors: Sequence[float]) -> int:
    """Return the position of the smallest error; among errors equal up to rounding, the first."""
    best = 0
    for i, error in enumerate(errors):
        if error < errors[best] * (1 - 1e-9):
            best = i
    return best


class _System(ABC):
    """A linear system with rows ``P = √w φ`` and targets ``T = √w y``; ``chosen`` rows are left out in turn."""

    def __init__(self, rows: Tensor, y: Tensor, w: Tensor, chosen: Tensor) -> None:
        self.root = w[chosen].sqrt()[:, None]
        self.p, self.t = rows[chosen].double() * self.root, y[chosen] * self.root

    @abstractmethod
    def weight(self, lam: float) -> Tensor:
        """Return W for λ."""

    @abstractmethod
    def left_out(self, lam: float) -> Tensor:
        """Return the leave-one-out scores of the chosen rows for λ, ``[chosen, classes]``."""


class _Dual(_System):
    """``PPᵀ = U diag(s) Uᵀ``, for fewer rows than columns."""

    def __init__(self, rows: Tensor, y: Tensor, w: Tensor, chosen: Tensor) -> None:
        super().__init__(rows, y, w, chosen)
        root = w.sqrt()[:, None]
        self.all = rows.double() * root
        s, self.u = torch.linalg.eigh(self.all @ self.all.T)
        self.s, self.ut, self.chosen = s.clamp_(min=0), self.u.T @ (y * root), self.u[chosen]

    def weight(self, lam: float) -> Tensor:
        return self.all.T @ (self.u @ (self.ut / (self.s + lam)[:, None]))

    def left_out(self, lam: float) -> Tensor:
        """Use ``t_i − f_i = λ α_i`` and ``1 − h_i = λ (PPᵀ + λI)⁻¹_ii``, where λ cancels."""
        v = (self.s + lam).reciprocal()
        alpha, inverse = self.chosen @ (v[:, None] * self.ut), self.chosen.square() @ v
        return (self.t - alpha / inverse[:, None]) / self.root


class _Primal(_System):
    """``PᵀP + λI = LLᵀ``, for more rows than columns; ``h_i = ‖L⁻¹ p_i‖²``.

    Of up to :data:`GRID_WIDTH` columns, leave-one-out scores use ``PᵀP = U diag(s) Uᵀ`` instead, which serves all λ:
    ``h = (P U)² (s + λ)⁻¹``. (On a GPU, where eigenvalues take longer than all factorizations, they do not.)
    """

    def __init__(self, rows: Tensor, y: Tensor, w: Tensor, chosen: Tensor, moments: Moments) -> None:
        super().__init__(rows, y, w, chosen)
        scale = moments.sizes.sum() / moments.sizes.sqrt().sum()  # w = scale · n_c^-½
        self.gram = moments.gram * scale
        self.cross = (moments.sums * (scale * moments.sizes.rsqrt())[:, None]).T
        self._lam, self._factor = 0.0, self.gram
        self._spectral = rows.device.type == "cpu" and rows.size(1) <= GRID_WIDTH
        if self._spectral:
            s, u = torch.linalg.eigh(self.gram)
            self._s, self._v, self._ut = s.clamp_(min=0), self.p @ u, u.T @ self.cross
            self._squared = self._v.square()

    def weight(self, lam: float) -> Tensor:
        return torch.cholesky_solve(self.cross, self._decomposed(lam))

    def left_out(self, lam: float) -> Tensor:
        if self._spectral:
            inverse = (self._s + lam).reciprocal()
            leverage, fit = self._squared @ inverse, self._v @ (inverse[:, None] * self._ut)
        else:
            leverage = torch.linalg.solve_triangular(self._decomposed(lam), self.p.T, upper=False).square_().sum(0)
            fit = self.p @ self.weight(lam)
        return (self.t - (self.t - fit) / (1 - leverage)[:, None]) / self.root

    def _decomposed(self, lam: float) -> Tensor:
        if lam != self._lam:
            shifted = self.gram.clone()
            shifted.diagonal().add_(lam)
            self._lam, self._factor = lam, torch.linalg.cholesky(shifted)
        return self._factor


def best_temperature(scores: Tensor, column: Tensor, weights: Tensor) -> float:
    """Minimize ``−Σ w log softmax(τ f)_y`` over τ, by bisection of its derivative ``Σ w (Σ_c p_c f_c − f_y)``."""
    if not scores.size(0) or scores.size(1) < 2:
        return DEFAULT_TEMPERATURE
    own = scores.gather(1, column[:, None]).flatten()
    low, high = scores.new_tensor(TEMPERATURES)
    for _ in range(40):
        middle = (low * high).sqrt()
        expected = (torch.softmax(middle * scores, 1) * scores).sum(1)
        rising = (weights * (expected - own)).sum() > 1e-12 * weights.sum()  # beyond rounding
        low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
    return float((low * high).sqrt())
