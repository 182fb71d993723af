"""Weighted ridge regression on one-hot labels, with exact leave-one-out errors, in float64."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.errors import InputError

LAMBDAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
DEFAULT_LAMBDA = 0.3
"""λ where leave-one-out cannot tell: no class has two rows."""

DEFAULT_TEMPERATURE = 10.0
"""τ in the same case."""

TEMPERATURES = (0.1, 1000.0)
"""Bounds of τ."""

ROW_BLOCK = 1 << 14
"""Rows that are converted to float64 at a time."""


@dataclass(frozen=True, eq=False)
class RidgeSolution:
    """A solved head.

    Args:
        weight: W, ``[width, classes]``, float64.
        classes: the class of each column, ascending.
        lam: λ.
        temperature: τ; ``softmax(τ φW)`` are the probabilities.
        loo: left-out scores of the rows, ``[rows, classes]``.
        loo_error: their weighted mean squared error, over classes of two or more rows; None if there is none.
    """

    weight: Tensor
    classes: Tensor
    lam: float
    temperature: float
    loo: Tensor
    loo_error: float | None


def class_weights(labels: Tensor, counts: Tensor) -> Tensor:
    """``w ∝ count · n_c^-½``, scaled so that ``Σ w = Σ count``; n_c is the sum of the counts in a class."""
    classes, column = torch.unique(labels, return_inverse=True)
    size = counts.new_zeros(classes.numel()).index_add_(0, column, counts)
    weights = counts * size.rsqrt()[column]
    return weights * (counts.sum() / weights.sum())


def fit_ridge(
    rows: Tensor,
    labels: Tensor,
    counts: Tensor | None = None,
    lambdas: Sequence[float] = LAMBDAS,
) -> RidgeSolution:
    """``W = (Σ w φφᵀ + λI)⁻¹ Σ w φyᵀ`` for one-hot y and the weights of :func:`class_weights`.

    With ``P = √w φ`` and ``T = √w y`` the smaller of ``PPᵀ`` (dual) and ``PᵀP`` (primal) is decomposed once. For each
    λ, the score of row i under the head that is fitted without it, with the same weights w, is
    ``y_i − (t_i − f_i) / ((1 − h_i) √w_i)`` with the fit ``f = H t`` and the leverage ``h = diag H``,
    ``H = P (PᵀP + λI)⁻¹ Pᵀ``. The λ with the least weighted squared error is chosen, and then τ, which minimizes the
    weighted negative log-likelihood of the left-out scores (convex in τ). Rows of a class with a single row count for
    neither: without that row, nothing is known of the class.

    Args:
        rows: φ, ``[n, width]``, any float type.
        labels: ``[n]``.
        counts: how many examples each row stands for, above 0; by default one.
        lambdas: the penalties that compete, each above 0.
    """
    if not rows.size(0) or rows.size(0) != labels.numel():
        raise InputError(f"{rows.size(0)} rows and {labels.numel()} labels; as many of both are needed, and at least 1")
    if not lambdas or min(lambdas) <= 0:
        raise InputError(f"lambda is {list(lambdas)}; each must be above 0")
    counts = torch.ones_like(labels, dtype=torch.float64) if counts is None else counts.double()
    classes, column, size = torch.unique(labels, return_inverse=True, return_counts=True)
    w = class_weights(labels, counts)
    y = torch.nn.functional.one_hot(column, classes.numel()).double()
    kind: type[_Dual | _Primal] = _Dual if rows.size(0) <= rows.size(1) else _Primal
    system = kind(rows, y * w.sqrt()[:, None], w.sqrt())
    told = (size > 1)[column]
    lam, error = float(DEFAULT_LAMBDA if len(lambdas) > 1 else lambdas[0]), None
    if bool(told.any()):
        share = torch.where(told, w, 0.0) / w[told].sum()
        errors = torch.zeros(len(lambdas), dtype=torch.float64, device=w.device)
        for loo, own, part in zip(system.left_out(lambdas), y.split(ROW_BLOCK), share.split(ROW_BLOCK), strict=True):
            errors += (loo - own).square_().sum(2) @ part
        best = least(errors.tolist())
        lam, error = float(lambdas[best]), float(errors[best])
    loo = torch.cat([block[0] for block in system.left_out([lam])])
    temperature = best_temperature(loo[told], column[told], w[told])
    return RidgeSolution(system.weight(lam), classes, lam, temperature, loo, error)


def least(errors: Sequence[float]) -> int:
    """Where the least error is; of errors that differ by rounding only, the first."""
    best = 0
    for i, error in enumerate(errors):
        if error < errors[best] * (1 - 1e-9):
            best = i
    return best


class _System(ABC):
    """Rows ``P = √w φ`` and targets ``T = √w y``, decomposed so that any λ is cheap."""

    @abstractmethod
    def weight(self, lam: float) -> Tensor:
        """W for λ."""

    @abstractmethod
    def left_out(self, lambdas: Sequence[float]) -> Iterator[Tensor]:
        """Left-out scores ``[lambdas, rows, classes]``, ``ROW_BLOCK`` rows at a time."""


class _Dual(_System):
    """``PPᵀ = U diag(s) Uᵀ``, for fewer rows than columns."""

    def __init__(self, rows: Tensor, targets: Tensor, root: Tensor) -> None:
        self.p, self.targets, self.root = rows.double() * root[:, None], targets, root
        s, self.u = torch.linalg.eigh(self.p @ self.p.T)
        self.s = s.clamp_(min=0)
        self.ut = self.u.T @ targets

    def weight(self, lam: float) -> Tensor:
        return self.p.T @ (self.u @ (self.ut / (self.s + lam)[:, None]))

    def left_out(self, lambdas: Sequence[float]) -> Iterator[Tensor]:
        """``t_i − f_i = λ α_i`` and ``1 − h_i = λ (PPᵀ + λI)⁻¹_ii``, so that λ cancels."""
        for u, t, root in zip(*(part.split(ROW_BLOCK) for part in (self.u, self.targets, self.root)), strict=True):
            inverse = [(self.s + lam).reciprocal() for lam in lambdas]
            squared = u.square()
            yield torch.stack(
                [(t - (u @ (v[:, None] * self.ut)) / (squared @ v)[:, None]) / root[:, None] for v in inverse]
            )


class _Primal(_System):
    """``PᵀP = V diag(s) Vᵀ``, for more rows than columns; rows are converted in blocks."""

    def __init__(self, rows: Tensor, targets: Tensor, root: Tensor) -> None:
        self.parts = [part.split(ROW_BLOCK) for part in (rows, targets, root)]
        gram = torch.zeros(rows.size(1), rows.size(1), dtype=torch.float64, device=rows.device)
        cross = torch.zeros(rows.size(1), targets.size(1), dtype=torch.float64, device=rows.device)
        for p, t, _ in self._blocks():
            gram.addmm_(p.T, p)
            cross.addmm_(p.T, t)
        s, self.v = torch.linalg.eigh(gram)
        self.s = s.clamp_(min=0)
        self.vc = self.v.T @ cross

    def weight(self, lam: float) -> Tensor:
        return self.v @ (self.vc / (self.s + lam)[:, None])

    def left_out(self, lambdas: Sequence[float]) -> Iterator[Tensor]:
        inverse = [(self.s + lam).reciprocal() for lam in lambdas]
        for p, t, root in self._blocks():
            a = p @ self.v
            squared = a.square()
            residual = [(t - a @ (v[:, None] * self.vc)) / (1 - squared @ v)[:, None] for v in inverse]
            yield torch.stack([(t - each) / root[:, None] for each in residual])

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for rows, t, root in zip(*self.parts, strict=True):
            yield rows.double() * root[:, None], t, root


def best_temperature(scores: Tensor, column: Tensor, weights: Tensor) -> float:
    """The τ that minimizes ``−Σ w log softmax(τ f)_y``, by bisection of its derivative ``Σ w (Σ_c p_c f_c − f_y)``."""
    if not scores.size(0) or scores.size(1) < 2:
        return DEFAULT_TEMPERATURE
    own = scores.gather(1, column[:, None]).flatten()

    def slope(tau: float) -> float:
        expected = (torch.softmax(tau * scores, 1) * scores).sum(1)
        return float((weights * (expected - own)).sum())

    low, high = TEMPERATURES
    if slope(low) >= 0:
        return low
    if slope(high) <= 0:
        return high
    for _ in range(40):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low * high) ** 0.5
