"""Weighted kernel ridge regression on one-hot labels, with exact leave-one-out errors, in float64.

Features, kernel and λ are those with the smallest leave-one-out error of at most :data:`LOO_ROWS` rows alone
(:func:`choose`). The head of all rows is then one Cholesky factorization (:func:`solve`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isnan, log2
from typing import Any

import torch
from torch import Tensor

from ergnn.analytic.kernels import LINEAR, Kernel, all_products, products, squares
from ergnn.data.hashing import hashes, stream_key

LAMBDAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
DEFAULT_LAMBDA = 0.3
"""λ if leave-one-out is not possible: if no class has two rows, or if rows are not stored."""

CLASS_WEIGHTS = {"none": 0.0, "sqrt": 0.5, "balanced": 1.0}
"""Exponents p of class weights ``w ∝ n_c^-p`` by option."""

DEFAULT_TEMPERATURE = 10.0
"""τ in the same case."""

TEMPERATURES = (0.1, 1000.0)
"""Bounds of τ."""

LEAF_ROWS = {"cpu": 1 << 7, "cuda": 1 << 11}
"""Matrices of at most this many rows are inverted by LAPACK; on a GPU, larger ones are factorized in blocks."""

ROW_BLOCK = 1 << 13
"""Rows to sum at a time."""

LOO_ROWS = 1 << 11
"""Maximum number of rows for leave-one-out errors. All rows are fitted."""

GRID_ROWS = 500
"""Of at most this many rows, the errors of all λ are computed; of more, downhill from a middle one."""

MUCH_WORSE = 1.1
"""A kernel is not tried on all rows if its error on a quarter of them is so many times that of the best one."""

CLOSE = 1.05
"""λ is searched for kernels whose error at the first λ is at most so many times the smallest so far."""

FLAT = 1e-3
"""The search for λ stops where the next one makes the error smaller by less than this share."""

NEARLY = 1.002
"""An error of at most so many times the smallest counts as equal to it when the search chooses where to start."""

EXACT_ROWS = 9_000
"""A Gaussian kernel of more rows is replaced by that of their Nyström features."""

DUAL = 1.25
"""The linear kernel of at most this many times as many rows as columns is solved in dual form."""

LANDMARKS = 1 << 11
"""Number of rows that Nyström features compare with."""

GAIN = 0.02
"""A Gaussian kernel, and standardized columns, are taken if the leave-one-out error is smaller by this share."""

MAX_DOUBLINGS = 3
"""Errors are extrapolated to at most 2³ times as many rows as those that decide."""


@dataclass(frozen=True, eq=False)
class RidgeSolution:
    """A solved head.

    Args:
        weight: W, ``[width, classes]`` or ``[anchors, classes]``, float64.
        classes: class of each column, ascending.
        lam: λ.
        temperature: τ; ``softmax(τ f)`` of the scores f are the probabilities.
        loo: leave-one-out scores of the rows, ``[rows, classes]``, or of :data:`LOO_ROWS` of them.
        loo_error: their weighted mean squared error over classes of two or more rows; None if there are none.
        kernel: the kernel k; scores are ``k(φ, anchors) W``.
        anchors: rows of φ: all, or the landmarks of Nyström features; None for the linear kernel, with scores ``φ W``.
        power: p of the class weights ``w ∝ n_c^-p``.
    """

    weight: Tensor
    classes: Tensor
    lam: float
    temperature: float
    loo: Tensor
    loo_error: float | None
    kernel: Kernel = LINEAR
    anchors: Tensor | None = None
    power: float = 0.5

    @classmethod
    def restored(
        cls,
        weight: Tensor,
        classes: Tensor,
        lam: float,
        temperature: float,
        loo_error: float | None,
        s: float = 0.0,
        power: float = 0.5,
        **_: object,
    ) -> RidgeSolution:
        """Return a solution from W, the classes and :meth:`numbers`; its anchors, which are not stored, are missing."""
        solution = cls(weight, classes, float(lam), float(temperature), weight[:0], loo_error, Kernel(s))
        return replace(solution, power=float(power))

    def numbers(self) -> dict[str, Any]:
        """Return what is stored besides W and the classes."""
        values = {"lam": self.lam, "temperature": self.temperature, "loo_error": self.loo_error}
        return {**values, "s": self.kernel.s, "power": self.power}

    def is_nystrom(self, count: int) -> bool:
        """Return whether the head of ``count`` labels is that of Nyström features."""
        return self.anchors is not None and self.anchors.size(0) < count

    def lift(self, rows: Tensor, count: int) -> Tensor:
        """Return rows as the solver of ``count`` labels sees them: φ, or Nyström features of φ."""
        if self.anchors is None or not self.is_nystrom(count):
            return rows
        return Nystrom(self.kernel, self.anchors)(rows)

    def scores(self, rows: Tensor) -> Tensor:
        """Return the scores of rows of φ, ``[rows, classes]``."""
        if self.anchors is None:
            return rows.double() @ self.weight
        parts = [self.kernel(part, self.anchors) @ self.weight for part in rows.split(LOO_ROWS)]
        return torch.cat(parts)


@dataclass(frozen=True)
class Trial:
    """What a kernel and its best λ give on some rows alone.

    Args:
        kernel: the kernel.
        lam: λ.
        error: weighted mean squared leave-one-out error over classes of two or more rows; infinite if it is unknown.
        accuracy: share of rows that get their class when they are left out.
        power: p of the class weights ``w ∝ n_c^-p``.
    """

    kernel: Kernel
    lam: float
    error: float
    accuracy: float = 0.0
    power: float = 0.5


class Targets:
    """Classes, class weights ``w ∝ n_c^-p`` of mean 1, and weighted one-hot labels ``T = √w y`` of rows."""

    def __init__(self, labels: Tensor, power: float = 0.5) -> None:
        self.classes, self.column, self.size = torch.unique(labels, return_inverse=True, return_counts=True)
        self.power, sizes = power, self.size.double()
        self.scale = labels.numel() / float((sizes ** (1 - power)).sum())  # w = scale · n_c^-p
        self.factors = sizes**-power
        self.w = (self.scale * self.factors)[self.column]
        self.root = self.w.sqrt()[:, None]

    @cached_property
    def t(self) -> Tensor:
        return self.one_hot(slice(None)) * self.root

    def one_hot(self, chosen: Tensor | slice) -> Tensor:
        """Return y of some rows."""
        return torch.nn.functional.one_hot(self.column[chosen], self.classes.numel()).double()

    def error(self, loo: Tensor, chosen: Tensor | slice = slice(None)) -> Tensor:
        """Return the weighted squared error of leave-one-out scores of some rows; NaN without classes of two rows."""
        share = torch.where((self.size > 1)[self.column[chosen]], self.w[chosen], 0.0)
        return (loo - self.one_hot(chosen)).square_().sum(-1) @ share / share.sum()

    def accuracy(self, loo: Tensor) -> Tensor:
        """Return the share of rows whose largest leave-one-out score is that of their class."""
        return (loo.argmax(-1) == self.column).double().mean(-1)

    def temperature(self, loo: Tensor, chosen: Tensor) -> float:
        """Return τ that minimizes the negative log-likelihood of leave-one-out scores of some rows."""
        column = self.column[chosen]
        told = (self.size > 1)[column]
        return best_temperature(loo[told], column[told], self.w[chosen][told])


class Moments:
    """``Σ n_c^-p φφᵀ`` and ``Σ_c φ`` of labeled rows, cached between solves.

    If the size of a class changes, so does the factor of its rows, and all rows are summed again. If existing classes
    keep their sizes, as when each task has new classes, only new rows are summed. The result then depends on the order
    of updates up to rounding.
    """

    def __init__(self) -> None:
        self._ids = self._classes = torch.empty(0, dtype=torch.long)
        self.gram = self.sums = torch.empty(0, dtype=torch.float64)

    def update(self, ids: Tensor, rows: Tensor, targets: Targets, lift: Nystrom | None = None) -> None:
        """Update the sums to the given rows, or features of them; rows with known ids must not have changed."""
        known, width = torch.isin(ids, self._ids.to(ids)), rows.size(1) if lift is None else lift.anchors.size(0)
        sums = torch.zeros(targets.classes.numel(), width, dtype=torch.float64, device=rows.device)
        new_classes = targets.classes[targets.column[~known]]
        grows = int(known.sum()) == self._ids.numel() and not bool(torch.isin(new_classes, self._classes.to(ids)).any())
        if grows and self._ids.numel():
            sums[torch.searchsorted(targets.classes, self._classes)] = self.sums
        else:
            known, self.gram = torch.zeros_like(known), sums.new_zeros(width, width)
        root = targets.factors[targets.column].sqrt()
        for index in (~known).nonzero().flatten().split(ROW_BLOCK):
            block = rows[index] if lift is None else lift(rows[index])
            p = block * root[index, None].to(block.dtype)
            columns = p.T
            self.gram += products(columns, columns)  # one triangle
            sums.index_add_(0, targets.column[index], block.double())
        self._ids, self._classes, self.sums = ids, targets.classes, sums


def loo_rows(ids: Tensor, most: int | None = None) -> Tensor:
    """Return the indices of rows that are left out: at most :data:`LOO_ROWS`, those with the smallest hashes of ids.

    So they depend on which rows there are, and not on their order.
    """
    most = LOO_ROWS if most is None else most
    if ids.numel() <= most:
        return torch.arange(ids.numel(), device=ids.device)
    return torch.argsort(hashes(stream_key(LOO_ROWS), ids), stable=True)[:most].sort().values


def choose(
    grams: Sequence[Tensor],
    labels: Tensor,
    kernels: Sequence[Kernel] = (LINEAR,),
    lambdas: Sequence[float] = LAMBDAS,
    plain: int | None = None,
    ids: Tensor | None = None,
    count: int = 0,
    power: float = 0.5,
) -> tuple[int, Trial]:
    """Return the index of the features to take, and their kernel and λ, by leave-one-out errors.

    The features are those with the smallest error under the linear kernel, if it is a candidate. A Gaussian kernel is
    then taken if its error is smaller by a share of at least :data:`GAIN`. A smaller error can hide more wrong classes:
    other features are not taken with a lower accuracy than that of the linear kernel on the preferred ones.

    If the rows are some of many, features are compared by the error that is expected of all: the error e,
    times ``e / e'`` for each time that the number of rows doubles, where e' is that of half of the rows.

    Args:
        grams: inner products of the same rows under each feature map.
        labels: their labels.
        kernels: candidates; Gaussian ones are ascending in s.
        lambdas: candidates for λ.
        plain: number of features that are preferred: others must gain by :data:`GAIN`, too.
        ids: ids of the rows; those with the smallest hashes are the half.
        count: number of all rows.
        power: p of the class weights ``w ∝ n_c^-p``.
    """
    targets = Targets(labels, power)
    linear = [kernel for kernel in kernels if not kernel.s]
    first = linear or kernels
    if not bool((targets.size > 1).any()) or len(grams) == len(kernels) == len(lambdas) == 1:
        lam = DEFAULT_LAMBDA if len(lambdas) > 1 else float(lambdas[0])
        return 0, Trial(first[(len(first) - 1) // 2], lam, inf, power=power)
    few = None if ids is None or labels.numel() <= GRID_ROWS else loo_rows(ids, labels.numel() // 4)
    trials = [search(gram, targets, first, lambdas, few) for gram in grams]
    half, more = labels.new_empty(0), 1.0
    if ids is not None and count > labels.numel():
        half, more = loo_rows(ids, labels.numel() // 2), count / labels.numel()

    plain = len(grams) if plain is None else plain
    errors = [expected_error(trial, gram, labels, half, more) for trial, gram in zip(trials, grams, strict=True)]
    base = least(errors[:plain])
    best = least([error * (1 if i < plain else 1 / (1 - GAIN)) for i, error in enumerate(errors)])
    gaussian = [kernel for kernel in kernels if kernel not in first]
    for i in (best, base):
        trial = trials[i]
        if gaussian:
            other = search(grams[i], targets, gaussian, lambdas, few, trial.error)
            trial = other if other.error < trial.error * (1 - GAIN) else trial
        if i == base or trial.accuracy >= trials[base].accuracy:
            break
    return i, trial


def expected_error(trial: Trial, gram: Tensor, labels: Tensor, half: Tensor, more: float) -> float:
    """Return the error of ``more`` times as many rows: each doubling changes it as much as from half of the rows."""
    if not half.numel() or int(labels[half].bincount().max()) < 2:
        return trial.error
    less = Targets(labels[half], trial.power)
    before = search(gram[half][:, half], less, [trial.kernel], [trial.lam]).error
    return trial.error * min(trial.error / before, 1.0) ** min(log2(more), MAX_DOUBLINGS)


def search(
    gram: Tensor,
    targets: Targets,
    kernels: Sequence[Kernel],
    lambdas: Sequence[float],
    few: Tensor | None = None,
    lowest: float = inf,
) -> Trial:
    """Return the kernel and λ with the smallest weighted squared error when each row is left out in turn.

    With ``K + λI = LLᵀ`` of the weighted kernel matrix and dual weights α, the score of row i without it is
    ``y_i − α_i / ((K + λI)⁻¹_ii √w_i)``.

    A search among ``few`` of the rows says where to start; kernels that are much worse there are not tried. λ is not
    searched for kernels that are not :data:`CLOSE` to the ``lowest`` error so far.
    """
    starts, before = [middle(len(lambdas))] * len(kernels), [0.0] * len(kernels)
    place = middle(len(kernels))
    if few is not None:
        less, some = Targets(targets.column[few], targets.power), gram[few][:, few]
        tried = [loo_errors(some, less, *pair, lambdas)[0] for pair in zip(kernels, starts, strict=True)]
        before = [min(errors) for errors in tried]
        place = least(before)
        # more rows may need a larger λ: the largest with nearly the smallest error
        starts = [max(j for j, e in enumerate(errors) if not e > NEARLY * min(errors)) for errors in tried]
    trials = dict[int, Trial]()

    def best_of(i: int) -> float:
        if before[i] > MUCH_WORSE * before[place]:
            return inf
        bound = CLOSE * min([lowest, *(trial.error for trial in trials.values())])
        errors, accuracies = loo_errors(gram, targets, kernels[i], starts[i], lambdas, bound)
        best = least(errors)
        trials[i] = Trial(kernels[i], float(lambdas[best]), errors[best], accuracies[best], targets.power)
        return trials[i].error

    return trials[least(descend(best_of, len(kernels), place))]


def loo_errors(
    gram: Tensor, targets: Targets, kernel: Kernel, start: int, lambdas: Sequence[float], bound: float = inf
) -> tuple[list[float], list[float]]:
    """Return the leave-one-out errors and accuracies of λ: of all for few rows, else of those downhill from ``start``.

    The error of a λ that was not tried is infinite; if that of ``start`` is above the bound, no other is tried.
    """
    square, accuracies = gram.diagonal().clone(), [0.0] * len(lambdas)
    k = kernel.of_products(gram.clone(), square, square).mul_(targets.root).mul_(targets.root.T)

    def measure(k: Tensor, lam: Tensor | float) -> tuple[Tensor, Tensor]:
        inverse = inverse_factor(k, lam)
        alpha = inverse.mT @ (inverse @ targets.t)
        loo = (targets.t - alpha / inverse.square_().sum(-2).unsqueeze(-1)) / targets.root
        return targets.error(loo), targets.accuracy(loo)

    def error(j: int) -> float:
        found, accuracy = measure(k.clone(), lambdas[j])
        accuracies[j] = float(accuracy)
        return float(found)

    if gram.size(0) > GRID_ROWS:
        return descend(error, len(lambdas), start, bound), accuracies
    if not k.is_cuda:
        return [error(j) for j in range(len(lambdas))], accuracies
    errors, shares = measure(k.repeat(len(lambdas), 1, 1), k.new_tensor(lambdas)[:, None])
    return errors.tolist(), shares.tolist()


def middle(count: int) -> int:
    """Return the candidate to start from."""
    return (count - 1) // 2 + (count > 4)


def descend(error: Callable[[int], float], count: int, place: int, bound: float = inf) -> list[float]:
    """Return the errors of candidates downhill from ``place``, if its own is within the bound; others are infinite."""
    errors = [inf] * count

    def at(i: int) -> float:
        if 0 <= i < count and errors[i] == inf:
            errors[i] = error(i)
        return errors[i] if 0 <= i < count else inf

    for step in (1, -1) if not at(place) > bound else ():
        while at(place + step) < errors[place] * (1 - FLAT):
            place += step
    return errors


def least(errors: Sequence[float]) -> int:
    """Return the position of the smallest error; among errors equal up to rounding, the first."""
    best = 0
    for i, error in enumerate(errors):
        if error < errors[best] * (1 - 1e-9):
            best = i
    return best


def factor(matrix: Tensor, lam: float = 0.0) -> Tensor:
    """Return L with ``LLᵀ = matrix + λI``, in place of the matrix; in products on a GPU, where they are much faster."""
    matrix.diagonal().add_(lam)
    if not matrix.is_cuda or matrix.size(0) <= LEAF_ROWS["cuda"]:
        return torch.linalg.cholesky(matrix, out=matrix)
    half = matrix.size(0) // 2
    below = matrix[half:, :half]
    below.copy_(torch.linalg.solve_triangular(factor(matrix[:half, :half]), below.T, upper=False).T)
    factor(matrix[half:, half:].addmm_(below, below.T, alpha=-1))
    matrix[:half, half:] = 0.0
    return matrix


def inverse_factor(matrix: Tensor, lam: Tensor | float = 0.0) -> Tensor:
    """Return ``L⁻¹`` with ``LLᵀ = matrix + λI``, in place of a matrix or several; in products, which are fast."""
    matrix.diagonal(dim1=-2, dim2=-1).add_(lam)
    half = matrix.size(-1) // 2
    if matrix.dim() > 2 or matrix.size(0) <= LEAF_ROWS[matrix.device.type]:
        one = torch.eye(matrix.size(-1), dtype=matrix.dtype, device=matrix.device)
        return matrix.copy_(torch.linalg.solve_triangular(torch.linalg.cholesky(matrix), one, upper=False))
    first, below, second = matrix[:half, :half], matrix[half:, :half], matrix[half:, half:]
    inverse_factor(first)
    low = below @ first.T
    inverse_factor(second.addmm_(low, low.T, alpha=-1))
    matrix[:half, half:] = 0.0
    below.copy_(second @ (low @ first)).neg_()
    return matrix


def needs_gram(trial: Trial, count: int, width: int) -> bool:
    """Return whether :func:`solve` uses the inner products of all rows; most of them are known from the last time."""
    return count <= EXACT_ROWS if trial.kernel.s else count <= DUAL * width


def solve(
    rows: Tensor,
    labels: Tensor,
    trial: Trial,
    chosen: Tensor,
    *,
    ids: Tensor | None = None,
    gram: Callable[[Tensor], Tensor] | None = None,
    moments: Moments | None = None,
) -> RidgeSolution:
    """Solve for the head of all rows: in primal form for many more rows than columns, else in dual form.

    The primal form is ``W = (PᵀP + λI)⁻¹ PᵀT`` with ``P = √w φ`` and ``T = √w y``, the dual ``(√w K √w + λI) α = T``.
    Nyström features ``Ψ = k(φ, anchors) L⁻ᵀ``, with ``LLᵀ`` the kernel of the anchors, are solved in primal form.

    Args:
        rows: φ, ``[n, width]``.
        labels: ``[n]``.
        trial: kernel, λ and class weights.
        chosen: rows whose leave-one-out scores are computed.
        ids: ids of the rows, for moments and landmarks; by default their positions.
        gram: returns the inner products of the rows; by default :func:`all_products`.
        moments: cached sums over rows.
    """
    kernel, lam, targets = trial.kernel, trial.lam, Targets(labels, trial.power)
    count, anchors, lift = labels.numel(), None, None
    ids = torch.arange(count, device=labels.device) if ids is None else ids
    if not needs_gram(trial, *rows.shape):
        if kernel.s:
            anchors = rows[loo_rows(ids, LANDMARKS)]
            lift, moments = Nystrom(kernel, anchors), None
        moments = Moments() if moments is None else moments
        moments.update(ids, rows, targets, lift)
        some = rows[chosen] if lift is None else lift(rows[chosen])
        found = solve_sums(some, targets, chosen, moments.gram, moments.sums, lam)
        return (
            found if lift is None else replace(found, weight=lift.weight(found.weight), kernel=kernel, anchors=anchors)
        )
    k, order = (gram or all_products)(rows), torch.arange(count, device=labels.device)
    if chosen.numel() < count:  # the chosen rows last: a corner of L then has their entries of the inverse
        order = torch.cat([order[~torch.isin(order, chosen)], chosen])
        k = k[order[:, None], order].double()
    else:
        k = k.to(torch.float64, copy=True)
    if kernel.s:
        square = squares(rows)[order]
        k = kernel.of_products(k, square, square)
    root = targets.root[order]
    k.mul_(root).mul_(root.T)
    lower = factor(k, lam)
    alpha = torch.empty_like(targets.t)
    half = torch.linalg.solve_triangular(lower, targets.t[order], upper=False)
    alpha[order] = torch.linalg.solve_triangular(lower.mT, half, upper=True)  # cholesky_solve would copy L
    corner = lower[count - chosen.numel() :, count - chosen.numel() :]
    inverse = torch.linalg.solve_triangular(corner, torch.eye(len(corner)).to(corner), upper=False).square_().sum(0)
    loo = (targets.t[chosen] - alpha[chosen] / inverse[:, None]) / targets.root[chosen]
    weight = alpha.mul_(targets.root)
    if kernel.s:
        return _solution(targets, chosen, loo, weight, lam, kernel, rows)
    out = torch.zeros(rows.size(1), weight.size(1), dtype=torch.float64, device=weight.device)
    for some, weights in zip(rows.split(ROW_BLOCK), weight.split(ROW_BLOCK), strict=True):
        out.addmm_(some.double().T, weights)
    return _solution(targets, chosen, loo, out, lam)


def solve_sums(rows: Tensor, targets: Targets, chosen: Tensor, gram: Tensor, sums: Tensor, lam: float) -> RidgeSolution:
    """Solve for the linear head from sums over rows.

    Args:
        rows: φ of the chosen rows only.
        targets: of all rows.
        chosen: rows whose leave-one-out scores are computed.
        gram: ``Σ n_c^-p φφᵀ`` over all rows.
        sums: ``Σ φ`` over the rows of each class, ``[classes, width]``, classes ascending.
        lam: λ.
    """
    root = targets.root[chosen]
    p = rows.double() * root
    lower = factor(gram * targets.scale, lam)
    weight = torch.cholesky_solve((sums * (targets.scale * targets.factors)[:, None]).T, lower)
    leverage = torch.linalg.solve_triangular(lower, p.T, upper=False).square_().sum(0)
    t = targets.t[chosen]
    loo = (t - (t - p @ weight) / (1 - leverage)[:, None]) / root
    return _solution(targets, chosen, loo, weight, lam)


def _solution(
    targets: Targets,
    chosen: Tensor,
    loo: Tensor,
    weight: Tensor,
    lam: float,
    kernel: Kernel = LINEAR,
    anchors: Tensor | None = None,
) -> RidgeSolution:
    error, temperature = float(targets.error(loo, chosen)), targets.temperature(loo, chosen)
    found = None if isnan(error) else error
    return RidgeSolution(weight, targets.classes, lam, temperature, loo, found, kernel, anchors, targets.power)


class Nystrom:
    """Features ``Ψ = k(φ, anchors) L⁻ᵀ`` with ``LLᵀ = k(anchors, anchors)``; their inner product approximates k."""

    def __init__(self, kernel: Kernel, anchors: Tensor) -> None:
        self.kernel, self.anchors = kernel, anchors
        self._lower = factor(kernel(anchors, anchors), torch.finfo(anchors.dtype).eps ** 0.5)

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self._lower, self.kernel(self.anchors, rows), upper=False).T

    def weight(self, weight: Tensor) -> Tensor:
        """Return ``L⁻ᵀ W``: scores are ``Ψ W = k(φ, anchors) L⁻ᵀ W``."""
        return torch.linalg.solve_triangular(self._lower.T, weight, upper=True)


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
