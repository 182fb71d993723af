"""Why a ridge head gives its scores: exact terms per labeled node, heads without one of them, and variances.

With the kernel matrix K of the labeled rows, class weights w and one-hot labels Y, the scores of a node v are
``f_v = k_vᵀ M Y`` for ``M = (K + λ diag(1/w))⁻¹``. All results follow from M, in float64:

- ``a(v) = M k_v`` are the terms of the labeled nodes: each adds to the score of its own class, and to no other;
- the predictive variance is ``φᵀ (Σ w φφᵀ + λI)⁻¹ φ = (k(v, v) − k_vᵀ M k_v) / λ``, and h_i is that of i times w_i;
- without node i, the scores of v are ``f_v − a_i(v) (y_i − f_i) / (1 − h_i)``, and those of i
  ``y_i − (y_i − f_i) / (1 − h_i)``.

*Without node i* means that its label is removed and the head is solved again from the others, with the same rows,
kernel and λ. Weights ``w ∝ n_c^-p`` are those of the remaining labels. So there is one M per class, with the weights
for one node less in this class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ergnn.analytic.features import CONSTANT, Features, length
from ergnn.analytic.kernels import LINEAR, Kernel, products, squares
from ergnn.analytic.ridge import ROW_BLOCK, RidgeSolution
from ergnn.config.errors import InputError, check_choice

BY = ("variance", "margin", "random")
"""Rules by which nodes to label are chosen."""

REFERENCES = 2000
"""At most this many candidates, evenly spaced, stand for all when variances are summed."""

SIMILAR_ROWS = 1 << 9
"""Rows to compare with all at a time."""

KEPT_BYTES = 1 << 29
"""Factorizations, one per class, are kept if they take at most this many bytes."""


@dataclass(eq=False)
class LabelEffects:
    """What each label does to the scores of a ridge head.

    Args:
        nodes: the labeled nodes.
        labels: their labels.
        rows: their rows of φ, ``[n, width]``.
        kernel: the kernel.
        lam: λ.
        temperature: τ; ``softmax(τ f)`` of scores f are probabilities.
        power: p of the class weights ``w ∝ n_c^-p``.

    Attributes:
        classes: the classes, ascending, in the order of the columns of scores.
        column: the column of each node's label.
        primal: whether results follow from ``G = Φᵀ diag(w) Φ + λI``, with more rows than columns; otherwise from K.
    """

    nodes: Tensor
    labels: Tensor
    rows: Tensor
    kernel: Kernel
    lam: float
    temperature: float
    power: float = 0.5

    @classmethod
    def of(cls, solution: RidgeSolution, nodes: Tensor, labels: Tensor, rows: Tensor) -> LabelEffects:
        """Return the effects of the labels of a head; rows are those that its solver sees, see ``lift``."""
        kernel = LINEAR if solution.is_nystrom(nodes.numel()) else solution.kernel
        return cls(nodes, labels, rows, kernel, solution.lam, solution.temperature, solution.power)

    def __post_init__(self) -> None:
        self.rows = self.rows.double()
        self.classes, self.column, self.sizes = torch.unique(self.labels, return_inverse=True, return_counts=True)
        self.targets = torch.nn.functional.one_hot(self.column, self.classes.numel()).double()
        self.class_sums = self.targets.T @ self.rows
        self.primal = not self.kernel.s and self.rows.size(0) > self.rows.size(1)
        self._keeps = 8 * self.classes.numel() * min(self.rows.shape) ** 2 <= KEPT_BYTES
        self._grams: dict[int, Tensor] = {}
        self._inverses: dict[int | None, _Inverse] = {}

    @cached_property
    def sums(self) -> Tensor:
        """``Σ n_c^-p φφᵀ``, or K."""
        if not self.primal:
            return self.kernel(self.rows, self.rows)
        out = self.rows.new_zeros(self.rows.size(1), self.rows.size(1))
        for column, size in enumerate(self.sizes.tolist()):
            gram = self.gram(column)
            out.add_(gram, alpha=size**-self.power)
            if self._keeps:
                self._grams[column] = gram
        return out

    def gram(self, column: int) -> Tensor:
        """Return ``Σ φφᵀ`` over the rows of a class; it is kept until it is asked for."""
        if (kept := self._grams.pop(column, None)) is not None:
            return kept
        out = self.rows.new_zeros(self.rows.size(1), self.rows.size(1))
        for some in (self.column == column).nonzero().flatten().split(ROW_BLOCK):
            columns = self.rows[some].T
            out += products(columns, columns)
        return out

    def near(self, asked: Tensor) -> Tensor:
        """Return what scores are linear in: φ, or kernels with the labeled rows."""
        return asked.double() if self.primal else self.kernel(asked.double(), self.rows)

    @property
    def near_labeled(self) -> Tensor:
        return self.rows if self.primal else self.sums

    def squares(self, asked: Tensor) -> Tensor:
        """Return ``k(v, v)`` of each row."""
        return torch.ones_like(asked[:, 0], dtype=torch.float64) if self.kernel.s else squares(asked)

    def terms(self, asked: Tensor) -> Tensor:
        """Return ``a_i(v)``, the term of labeled node i in the score of v for the label of i, ``[asked, n]``."""
        return self._inverse().terms(self.near(asked))

    def scores(self, asked: Tensor) -> Tensor:
        """Return the scores ``[asked, classes]``: sums of :meth:`terms` over the nodes of each class."""
        return self.near(asked) @ self._inverse().weight

    def left_out(self) -> Tensor:
        """Return the scores of each labeled node under the head without it, ``[n, classes]``.

        For the only node of a class, this class has none: −inf.
        """
        out = torch.empty_like(self.targets)
        for column, members, inverse in self._without():
            out[members] = self.targets[members] - inverse.changes(members)
            if members.numel() == 1:
                out[members, column] = -torch.inf
        return out

    def predictions_without(self, asked: Tensor) -> Tensor:
        """Return the column of the predicted class of each asked node without each labeled node, ``[asked, n]``.

        With a single class, it is −1 without its only node. Without node i, a class c overtakes the best one, b, if
        ``a_i(v) ((y − f)_ib − (y − f)_ic) ≥ (1 − h_i) (f_vb − f_vc)``. Since ``1 − h_i ≥ λ / (λ + w_i K_ii)``, this is
        impossible for most nodes; h_i is computed for the others.
        """
        out, near = torch.full((asked.size(0), self.labels.numel()), -1, device=asked.device), self.near(asked)
        for column, members, inverse in self._without():
            scores, terms, rest = near @ inverse.weight, inverse.terms(near, members), inverse.rest(members)
            if members.numel() == 1:
                scores[:, column] = -torch.inf
            best = scores.argmax(1)
            least = self.lam / (self.lam + inverse.w[members] * self.squares(self.rows[members]))
            able = torch.zeros_like(members, dtype=torch.bool)
            for f, b, a in zip(scores, best, terms, strict=True):
                overtakes = a[:, None] * (rest[:, b, None] - rest) >= least[:, None] * (f[b] - f)
                overtakes[:, b] = False
                able |= overtakes.any(1)
            changes = inverse.changes(members[able])
            out[:, members] = best[:, None]
            for row, (f, a) in enumerate(zip(scores, terms, strict=True)):
                out[row, members[able]] = (f - a[able, None] * changes).argmax(1)
        return out

    def most_similar(self, chosen: Tensor, count: int) -> Tensor:
        """Return the labeled nodes with the largest kernel with each of some of them, itself left out."""
        out = chosen.new_empty(chosen.numel(), min(count, self.labels.numel() - 1))
        for some, found in zip(chosen.split(SIMILAR_ROWS), out.split(SIMILAR_ROWS), strict=True):
            similarity = self.kernel(self.rows[some], self.rows).scatter_(1, some[:, None], -torch.inf)
            for i in range(out.size(1)):
                found[:, i] = similarity.argmax(1)  # of equal ones, the first
                similarity.scatter_(1, found[:, i : i + 1], -torch.inf)
        return out

    def variances(self, asked: Tensor) -> Tensor:
        """Return the predictive variance of each row."""
        return torch.cat([self._inverse().variances(self.near(p), p) for p in asked.split(ROW_BLOCK)])

    def covariances(self, asked: Tensor, others: Tensor, near: Tensor | None = None) -> Tensor:
        """Return ``φ_uᵀ (Σ w φφᵀ + λI)⁻¹ φ_v`` of each row u, whose :meth:`near` may be given, and other row v."""
        near = self.near(asked) if near is None else near
        product = near @ torch.cholesky_solve(self.near(others).T, self._inverse().factor)
        return product if self.primal else (self.kernel(asked.double(), others.double()) - product) / self.lam

    def _without(self) -> Iterator[tuple[int, Tensor, _Inverse]]:
        """Yield the column of each class, its members, and M for the weights with one node less in this class.

        What is left when a member is then removed does not depend on its own weight.
        """
        for column in range(self.classes.numel() if self.labels.numel() > 1 else 0):
            yield column, (self.column == column).nonzero().flatten(), self._inverse(column)

    def _inverse(self, smaller: int | None = None) -> _Inverse:
        """Return M for all labels, or for the weights with one node less in a class."""
        inverse = self._inverses.get(smaller) or _Inverse(self, smaller)
        if smaller is None or self._keeps:
            self._inverses[smaller] = inverse
        return inverse


class _Inverse:
    """``M = (K + λ diag(1/w))⁻¹``; of more rows than columns, ``(diag(w) − diag(w) Φ G⁻¹ Φᵀ diag(w)) / λ``.

    Args:
        of: the labels.
        smaller: a class that counts as one node less.

    Attributes:
        w: weights of the labeled nodes.
        factor: L with ``LLᵀ = G``, or ``LLᵀ = K + λ diag(1/w)``.
        weight: ``G⁻¹ Φᵀ diag(w) Y``, or ``M Y``.
    """

    def __init__(self, of: LabelEffects, smaller: int | None = None) -> None:
        self.of, sizes = of, of.sizes.double()
        if smaller is not None:
            sizes[smaller] -= 1
        factors = sizes.clamp(min=1) ** -of.power
        scale = sizes.sum() / (sizes * factors).sum()
        w_of_classes = scale * factors
        self.w = w_of_classes[of.column]
        if of.primal:
            matrix = scale * of.sums
            if smaller is not None:  # its rows are in the sums with the weight of its full size
                counted = scale * of.sizes[smaller].double() ** -of.power
                matrix.add_(of.gram(smaller), alpha=float(w_of_classes[smaller] - counted))
            matrix.diagonal().add_(of.lam)
        else:
            matrix = of.sums.clone()
            matrix.diagonal().add_(of.lam / self.w)
        self.factor = torch.linalg.cholesky(matrix, out=matrix)
        self.weight = torch.cholesky_solve(of.class_sums.T * w_of_classes if of.primal else of.targets, self.factor)

    def terms(self, near: Tensor, members: Tensor | slice = slice(None)) -> Tensor:
        """Return ``M k_v`` of each asked row, ``[asked, members]``."""
        solved = torch.cholesky_solve(near.T, self.factor).T
        return solved @ self.of.rows[members].T * self.w[members] if self.of.primal else solved[:, members]

    def rest(self, members: Tensor) -> Tensor:
        """Return ``y_i − f_i`` of some labeled nodes i."""
        return self.of.targets[members] - self.of.near_labeled[members] @ self.weight

    def changes(self, members: Tensor) -> Tensor:
        """Return ``(y_i − f_i) / (1 − h_i)`` of some labeled nodes i."""
        parts = members.split(ROW_BLOCK)
        variances = torch.cat([self.variances(self.of.near_labeled[p], self.of.rows[p]) for p in parts])
        return self.rest(members) / (1 - self.w[members] * variances)[:, None]

    def variances(self, near: Tensor, asked: Tensor) -> Tensor:
        reduced = torch.linalg.solve_triangular(self.factor, near.T, upper=False).square_().sum(0)
        return reduced if self.of.primal else (self.of.squares(asked) - reduced) / self.of.lam


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a node gets its class.

    Args:
        classes: the classes, in the order of all columns.
        scores: of the node, per class.
        probabilities: ``softmax(τ scores)``.
        nodes, labels: the labeled nodes.
        terms: of each labeled node, in the score of its label.
        without: the predicted column without each labeled node.
    """

    classes: Tensor
    scores: Tensor
    probabilities: Tensor
    nodes: Tensor
    labels: Tensor
    terms: Tensor
    without: Tensor

    @property
    def best(self) -> int:
        """The column of the predicted class."""
        return int(self.scores.argmax())

    @property
    def second(self) -> int | None:
        """The column of the class with the second largest score; None with one class."""
        return int(self.scores.argsort(descending=True)[1]) if self.scores.numel() > 1 else None

    @property
    def margin(self) -> float:
        """The largest score minus the second largest; of one class, its score."""
        return float(self.scores.max() - (0 if self.second is None else self.scores[self.second]))

    @property
    def shares(self) -> Tensor:
        """The size of each term as a share of the sum of all sizes."""
        return self.terms.abs() / self.terms.abs().sum().clamp(min=torch.finfo(self.terms.dtype).tiny)

    @property
    def order(self) -> Tensor:
        """Labeled nodes by the size of their terms, the largest first."""
        return torch.argsort(-self.terms.abs(), stable=True)

    @property
    def deciding(self) -> list[int]:
        """Labeled nodes without any one of which the class would change, the one with the largest term first."""
        order = self.order
        return order[self.without[order] != self.best].tolist()


def explain(effects: LabelEffects, rows: Tensor) -> list[Explanation]:
    """Explain the scores of each row of φ."""
    terms, without = effects.terms(rows), effects.predictions_without(rows)
    scores = terms @ effects.targets
    probabilities = torch.softmax(effects.temperature * scores, 1)
    return [
        Explanation(effects.classes, score, probability, effects.nodes, effects.labels, term, predicted)
        for score, probability, term, predicted in zip(scores, probabilities, terms, without, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Doubts:
    """How well each label fits the head that is solved without it.

    Args:
        nodes, labels: the labeled nodes.
        probability: of the label; NaN where no other node has it.
        column: the column of the most probable class without the label.
        best: its probability.
    """

    nodes: Tensor
    labels: Tensor
    probability: Tensor
    column: Tensor
    best: Tensor

    def order(self) -> Tensor:
        """Return the nodes whose label is compared with others, the least probable label first."""
        order = torch.argsort(self.probability, stable=True)
        return order[~self.probability[order].isnan()]


def doubts(effects: LabelEffects) -> Doubts:
    """Compare each label with the probabilities of the head without it."""
    probabilities = torch.softmax(effects.temperature * effects.left_out(), 1)
    best, column = probabilities.max(1)
    own = probabilities.gather(1, effects.column[:, None]).flatten()
    own = torch.where(effects.sizes[effects.column] > 1, own, torch.nan)
    return Doubts(effects.nodes, effects.labels, own, column, best)


def plant_errors(effects: LabelEffects, share: float, seed: int = 0) -> tuple[LabelEffects, Tensor]:
    """Give a share of the labels another class at random, with the same λ; also return a mask of these."""
    count, classes = effects.column.numel(), effects.classes.numel()
    if classes < 2:
        raise InputError("all labels are of one class; errors cannot be planted")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(count, generator=generator)[: max(1, round(share * count))].to(effects.column.device)
    other = 1 + torch.randint(classes - 1, (chosen.numel(),), generator=generator).to(chosen.device)
    column, wrong = effects.column.clone(), torch.zeros_like(effects.column, dtype=torch.bool)
    column[chosen], wrong[chosen] = (column[chosen] + other) % classes, True
    return replace(effects, labels=effects.classes[column]), wrong


def average_precision(order: Tensor, wrong: Tensor) -> float:
    """Return the mean share of wrong labels among the first ones of an order, up to each wrong one."""
    hit = wrong[order].double()
    places = torch.arange(1, hit.numel() + 1, device=hit.device)
    return float((hit.cumsum(0) / places * hit).sum() / wrong.sum())


def choose(effects: LabelEffects, rows: Tensor, count: int, by: str = "variance") -> list[int]:
    """Choose the rows whose labels would help most.

    Args:
        effects: of the labels so far.
        rows: φ of the candidates.
        count: number of rows to choose.
        by: ``variance`` as in :func:`spread_out`, ``margin`` for the smallest difference of the two largest
            probabilities, ``random`` for a fixed random order.
    """
    check_choice("rule", by, BY)
    if by == "random":
        return torch.randperm(rows.size(0), generator=torch.Generator().manual_seed(0))[:count].tolist()
    if by == "variance":
        return spread_out(effects, rows, count)
    scores = torch.cat([effects.scores(part) for part in rows.split(ROW_BLOCK)])
    top = torch.softmax(effects.temperature * scores, 1).topk(min(2, scores.size(1)), 1).values
    return torch.argsort(2 * top[:, 0] - top.sum(1), stable=True)[:count].tolist()


def spread_out(effects: LabelEffects, rows: Tensor, count: int) -> list[int]:
    """Choose rows one by one whose labels reduce the variance of all the most.

    With a label of weight 1 for row v, the variance of u falls by ``cov(u, v)² / (1 + var(v))``, where ``cov`` and
    ``var`` include the rows that were chosen before. So a row that is similar to a chosen one gains little. After the
    choice of p, ``cov(u, v)`` is less by ``c_u c_v`` with ``c = cov(·, p) / √(1 + var(p))``.
    """
    total = rows.size(0)
    places = torch.linspace(0, total - 1, min(total, REFERENCES), dtype=torch.float64).long().to(rows.device)
    near, variance = effects.near(rows), effects.variances(rows)
    first = effects.covariances(rows, rows[places], near)  # cov = first − columns columns[places]ᵀ
    columns, chosen = first.new_zeros(total, 0), list[int]()
    gain = torch.cat([part.square().sum(1) for part in first.split(ROW_BLOCK)])  # Σ_u cov(u, v)²
    for _ in range(min(count, total)):
        score = gain / (1 + variance)
        score[chosen] = -1
        pick = int(score.argmax())
        column = effects.covariances(rows, rows[pick : pick + 1], near)[:, 0] - columns @ columns[pick]
        column /= (1 + column[pick]).sqrt()
        c = column[places]
        gain -= column * (2 * (first @ c - columns @ (columns[places].T @ c)) - column * (c @ c))
        variance -= column.square()
        columns = torch.cat([columns, column[:, None]], 1)
        chosen.append(pick)
    return chosen


def split_by_feature(features: Features, node: int, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Split ``φ_v W`` by the distance of the nodes that a feature comes from, and by the column of the feature.

    ``Σ_k Σ_u p_k(S)_vu x_uj W_kj / (√B ‖z_vk‖)`` over the nodes u at a distance; distances are those of the shortest
    paths along edges to v.

    Args:
        features: φ in a graph.
        node: v.
        weight: W, ``[width, columns of W]``.

    Returns:
        The sums ``[distances, features, columns of W]``, which add up to ``φ_v W`` with the term of the constant column
        ``[columns of W]``.
    """
    inputs, count = features.inputs, features.feature_map.num_blocks
    back, num_hops = features.operator.T, features.feature_map.num_hops
    one = torch.zeros(inputs.num_nodes, 1, dtype=inputs.dtype, device=weight.device)
    one[node] = 1.0
    distances, within = torch.full_like(one[:, 0], num_hops + 1, dtype=torch.long), one
    for hop in range(num_hops + 1):
        distances[(within[:, 0] > 0) & (distances > hop)] = hop
        within = (back.matmul(within) > 0).to(one)
    at = torch.nn.functional.one_hot(distances, num_hops + 2)[:, :-1].to(one)
    weight = weight.to(inputs.dtype)
    out = weight.new_zeros(num_hops + 1, inputs.by_column(one).size(0), weight.size(1))
    for k, block in enumerate(features.feature_map.blocks(back, one)):
        scale = length(inputs.t_matmul(block).norm(), features.added[k]) * count**0.5
        columns = weight[k * inputs.width : (k + 1) * inputs.width]
        columns = columns if inputs.sketch is None else inputs.sketch.matmul(columns)
        out += (inputs.by_column(block * at) / scale).T[:, :, None] * columns
    return out.double(), CONSTANT * weight[-1].double()
