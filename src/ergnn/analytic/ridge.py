"""Weighted ridge regression on one-hot labels, with exact leave-one-out errors, in float64."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.analytic.kernels import LINEAR, Kernel
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
"""Systems with more rows and columns are not solved for every λ."""

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
        kernel: the kernel k; scores are ``k(φ, anchors) W``.
        anchors: rows of φ; None for the linear kernel, whose scores are ``φ W``.
    """

    weight: Tensor
    classes: Tensor
    lam: float
    temperature: float
    loo: Tensor
    loo_error: float | None
    kernel: Kernel = LINEAR
    anchors: Tensor | None = None


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
    these scores; in systems with more than :data:`GRID_WIDTH` rows and columns, that of a head of the chosen rows
    alone (:func:`choose_lambda`). Then τ minimizes their weighted negative log-likelihood (convex in τ). Classes with a
    single row are excluded from both.

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
    count = labels.numel()
    chosen = (loo_rows(count) if chosen is None else chosen).to(labels.device)
    if count > rows.size(1):
        if moments is None or count <= LOO_ROWS:  # sum few rows in a fixed order: resumed runs are bitwise equal
            moments = Moments()
        moments.update(torch.arange(count, device=labels.device) if ids is None else ids, rows, labels)
        return fit_sums(rows[chosen], labels, chosen, moments.gram, moments.sums, lambdas)
    if count > GRID_WIDTH and chosen.numel() < count:
        lambdas = (choose_lambda(rows[chosen], labels[chosen], lambdas),)
    w = class_weights(labels)
    return _best_solution(_Dual(rows, _one_hot(labels), w, chosen), labels, w, chosen, lambdas)


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
    if rows.size(1) > GRID_WIDTH and chosen.numel() < labels.numel():
        lambdas = (choose_lambda(rows, labels[chosen], lambdas),)
    w, sizes = class_weights(labels), torch.unique(labels, return_counts=True)[1].double()
    system = _Primal(rows, _one_hot(labels)[chosen], w[chosen], sizes, gram, sums)
    return _best_solution(system, labels, w, chosen, lambdas)


def _one_hot(labels: Tensor) -> Tensor:
    classes, column = torch.unique(labels, return_inverse=True)
    return torch.nn.functional.one_hot(column, classes.numel()).double()


def choose_lambda(rows: Tensor, labels: Tensor, lambdas: Sequence[float]) -> float:
    """Return the λ of the head of some rows alone, whose system is small enough to be solved for every λ."""
    return float(lambdas[0]) if len(lambdas) == 1 else fit_ridge(rows, labels, lambdas).lam


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

        errors = [float((system.left_out(float(candidate)) - own).square_().sum(1) @ share) for candidate in lambdas]
        best = least(errors)
        lam, error = float(lambdas[best]), errors[best]
    loo = system.left_out(lam)
    temperature = best_temperature(loo[informative], column[informative], w[informative])
    return RidgeSolution(system.weight(lam), classes, lam, temperature, loo, error)


def least(errors: Sequence[float]) -> int:
    """Return the position of the smallest error; among errors equal up to rounding, the first."""
    best = 0
    for i, error in enumerate(errors):
        if error < errors[best] * (1 - 1e-9):
            best = i
    return best


class _System(ABC):
    """A linear system with rows ``P = √w φ`` and targets ``T = √w y``; those given are left out in turn."""

    def __init__(self, y: Tensor, w: Tensor) -> None:
        self.root = w.sqrt()[:, None]
        self.t = y * self.root
        self._lam, self._factor = 0.0, self.t

    @abstractmethod
    def weight(self, lam: float) -> Tensor:
        """Return W for λ."""

    @abstractmethod
    def left_out(self, lam: float) -> Tensor:
        """Return the leave-one-out scores of the chosen rows for λ, ``[chosen, classes]``."""

    def _decomposed(self, matrix: Tensor, lam: float) -> Tensor:
        """Return L with ``LLᵀ = matrix + λI``; the last one is cached."""
        if lam != self._lam:
            shifted = matrix.clone()
            shifted.diagonal().add_(lam)
            self._lam, self._factor = lam, torch.linalg.cholesky(shifted, out=shifted)
        return self._factor


class _Dual(_System):
    """``PPᵀ + λI = LLᵀ``, for fewer rows than columns.

    Up to :data:`LOO_ROWS` rows use ``PPᵀ = U diag(s) Uᵀ`` instead, which serves all λ. (On a GPU, where eigenvalues
    take longer than all factorizations, they do not.)
    """

    def __init__(self, rows: Tensor, y: Tensor, w: Tensor, chosen: Tensor) -> None:
        super().__init__(y[chosen], w[chosen])
        self.rows, self.chosen, self.all_roots = rows, chosen, w.sqrt()[:, None]
        self.targets = y * self.all_roots
        self.gram = torch.empty(rows.size(0), rows.size(0), dtype=torch.float64, device=rows.device)
        blocks = range(0, rows.size(0), ROW_BLOCK)
        for first in blocks:
            left = rows[first : first + ROW_BLOCK].double()
            for second in blocks:
                right = rows[second : second + ROW_BLOCK].double()
                torch.mm(left, right.T, out=self.gram[first : first + ROW_BLOCK, second : second + ROW_BLOCK])
        self.gram.mul_(self.all_roots).mul_(self.all_roots.T)
        self._spectral = rows.device.type == "cpu" and rows.size(0) <= LOO_ROWS
        if self._spectral:
            s, self.u = torch.linalg.eigh(self.gram)
            self.s, self.ut = s.clamp_(min=0), self.u.T @ self.targets

    def weight(self, lam: float) -> Tensor:
        alpha = self.all_roots * self._alpha(lam)
        out = torch.zeros(self.rows.size(1), alpha.size(1), dtype=torch.float64, device=alpha.device)
        for rows, weights in zip(self.rows.split(ROW_BLOCK), alpha.split(ROW_BLOCK), strict=True):
            out.addmm_(rows.double().T, weights)
        return out

    def left_out(self, lam: float) -> Tensor:
        """Use ``t_i − f_i = λ α_i`` and ``1 − h_i = λ (PPᵀ + λI)⁻¹_ii``, where λ cancels."""
        if self._spectral:
            inverse = self.u[self.chosen].square() @ (self.s + lam).reciprocal()
        else:
            one = torch.zeros(self.gram.size(0), self.chosen.numel(), dtype=torch.float64, device=self.gram.device)
            one[self.chosen, torch.arange(self.chosen.numel(), device=one.device)] = 1.0
            factor = self._decomposed(self.gram, lam)
            inverse = torch.linalg.solve_triangular(factor, one, upper=False).square_().sum(0)
        return (self.t - self._alpha(lam)[self.chosen] / inverse[:, None]) / self.root

    def _alpha(self, lam: float) -> Tensor:
        if self._spectral:
            return self.u @ (self.ut / (self.s + lam)[:, None])
        return torch.cholesky_solve(self.targets, self._decomposed(self.gram, lam))


class _Primal(_System):
    """``PᵀP + λI = LLᵀ``, for more rows than columns; ``h_i = ‖L⁻¹ p_i‖²``.

    Of up to :data:`GRID_WIDTH` columns, leave-one-out scores use ``PᵀP = U diag(s) Uᵀ`` instead, which serves all λ:
    ``h = (P U)² (s + λ)⁻¹``. (On a GPU, where eigenvalues take longer than all factorizations, they do not.)
    """

    def __init__(self, rows: Tensor, y: Tensor, w: Tensor, sizes: Tensor, gram: Tensor, sums: Tensor) -> None:
        super().__init__(y, w)
        self.p = rows.double() * self.root
        scale = sizes.sum() / sizes.sqrt().sum()  # w = scale · n_c^-½
        self.gram, self.cross = gram * scale, (sums * (scale * sizes.rsqrt())[:, None]).T
        self._spectral = rows.device.type == "cpu" and rows.size(1) <= GRID_WIDTH
        if self._spectral:
            s, u = torch.linalg.eigh(self.gram)
            self._s, self._v, self._ut = s.clamp_(min=0), self.p @ u, u.T @ self.cross
            self._squared = self._v.square()

    def weight(self, lam: float) -> Tensor:
        return torch.cholesky_solve(self.cross, self._decomposed(self.gram, lam))

    def left_out(self, lam: float) -> Tensor:
        if self._spectral:
            inverse = (self._s + lam).reciprocal()
            leverage, fit = self._squared @ inverse, self._v @ (inverse[:, None] * self._ut)
        else:
            leverage = (
                torch.linalg.solve_triangular(self._decomposed(self.gram, lam), self.p.T, upper=False).square_().sum(0)
            )
            fit = self.p @ self.weight(lam)
        return (self.t - (self.t - fit) / (1 - leverage)[:, None]) / self.root


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
