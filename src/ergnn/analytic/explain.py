"""Why a ridge head gives its scores: exact terms per labeled node, heads without one of them, and variances.

With the kernel matrix K of the labeled rows, class weights w and one-hot labels Y, the scores of a node v are
``k_vᵀ M Y`` for ``M = (K + λ diag(1/w))⁻¹``. All results follow from M, in float64:

- ``a(v) = M k_v`` are the terms of the labeled nodes: each adds to the score of its own class, and to no other;
- without node i, the scores of v are ``k_vᵀ M Y − a_i(v) (M Y)_i / M_ii``, and those of i ``y_i − (M Y)_i / M_ii``;
- the predictive variance is ``φᵀ (Σ w φφᵀ + λI)⁻¹ φ = (k(v, v) − k_vᵀ M k_v) / λ``.

*Without node i* means that its label is removed and the head is solved again from the others, with the same rows,
kernel and λ. Weights ``w ∝ n_c^-½`` are those of the remaining labels. So there is one M per class, with the weights
for one node less in this class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.analytic.features import CONSTANT, Features, length
from ergnn.analytic.head import LabeledRows
from ergnn.analytic.kernels import Kernel, squares
from ergnn.analytic.ridge import ROW_BLOCK
from ergnn.config.errors import InputError, check_choice

BY = ("variance", "margin", "random")
"""Rules by which nodes to label are chosen."""

REFERENCES = 2000
"""At most this many candidates, evenly spaced, stand for all when variances are summed."""


class LabelEffects:
    """What each label does to the scores of a ridge head.

    Args:
        rows: φ, ``[n, width]``.
        labels: ``[n]``.
        lam: λ.
        kernel: the kernel.
        nodes: ids of the rows; by default their positions.

    Attributes:
        classes: the classes, ascending, in the order of the columns of scores.
        column: the column of each row's label.
    """

    def __init__(
        self, rows: Tensor, labels: Tensor, lam: float, kernel: Kernel | None = None, nodes: Tensor | None = None
    ) -> None:
        self.nodes = torch.arange(labels.numel(), device=labels.device) if nodes is None else nodes
        self.rows, self.labels, self.lam, self.kernel = rows.double(), labels, lam, kernel or Kernel()
        self.classes, self.column, self.sizes = torch.unique(labels, return_inverse=True, return_counts=True)
        self.targets = torch.nn.functional.one_hot(self.column, self.classes.numel()).double()
        self.primal = self.kernel.name == "linear" and rows.size(0) > rows.size(1)
        if self.primal:  # Σ φφᵀ / √n_c, to be scaled, and Σ φ of each class
            self._rows_of_classes = self.targets.T @ self.rows
            self._sums = self._gram(self.sizes.double().rsqrt()[self.column])
        else:
            self._sums = self.kernel(self.rows, self.rows)
        self._inverse = _Inverse(self, self.sizes.double())

    def terms(self, asked: Tensor) -> Tensor:
        """Return ``a_i(v)``, the term of labeled node i in the score of v for the label of i, ``[asked, n]``."""
        return self._inverse.terms(asked.double())

    def scores(self, asked: Tensor) -> Tensor:
        """Return the scores ``[asked, classes]``: sums of :meth:`terms` over the nodes of each class."""
        return self.terms(asked) @ self.targets

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

        With a single class, it is −1 without its only node.
        """
        out = torch.full((asked.size(0), self.labels.numel()), -1, device=asked.device)
        for column, members, inverse in self._without():
            changes = inverse.changes(members)
            for row, terms in enumerate(inverse.terms(asked.double())):
                without = terms @ self.targets - terms[members, None] * changes
                if members.numel() == 1:
                    without[:, column] = -torch.inf
                out[row, members] = without.argmax(1)
        return out

    def most_similar(self, node: int, count: int) -> list[int]:
        """Return the labeled nodes with the largest kernel with one of them, itself left out."""
        similarity = self.kernel(self.rows[node : node + 1], self.rows)[0]
        similarity[node] = -torch.inf
        return torch.argsort(-similarity, stable=True)[: min(count, len(similarity) - 1)].tolist()

    def variances(self, asked: Tensor) -> Tensor:
        """Return the predictive variance of each row."""
        return torch.cat([self._inverse.variances(part.double()) for part in asked.split(ROW_BLOCK)])

    def covariances(self, asked: Tensor, others: Tensor) -> Tensor:
        """Return ``φ_uᵀ (Σ w φφᵀ + λI)⁻¹ φ_v`` of each asked row u and each other row v."""
        return torch.cat([self._inverse.covariances(p.double(), others.double()) for p in asked.split(ROW_BLOCK)])

    def _gram(self, w: Tensor) -> Tensor:
        """Return ``Σ w φφᵀ`` over the rows with a weight."""
        out = self.rows.new_zeros(self.rows.size(1), self.rows.size(1))
        for part in w.nonzero().flatten().split(ROW_BLOCK):
            p = self.rows[part] * w[part, None].sqrt()
            out.addmm_(p.T, p)
        return out

    def _without(self) -> Iterator[tuple[int, Tensor, _Inverse]]:
        """Yield the column of each class, its members, and M for the weights with one node less in this class.

        What is left when a member is then removed does not depend on its own weight.
        """
        for column in range(self.classes.numel()):
            sizes = self.sizes.double()
            sizes[column] -= 1
            if float(sizes.sum()):
                yield column, (self.column == column).nonzero().flatten(), _Inverse(self, sizes, column)


class _Inverse:
    """``M = (K + λ diag(1/w))⁻¹`` for the weights of classes of some sizes.

    With more rows than columns, ``M = (diag(w) − diag(w) Φ G⁻¹ Φᵀ diag(w)) / λ`` for ``G = Φᵀ diag(w) Φ + λI``.

    Args:
        of: the rows.
        sizes: of the classes.
        smaller: a class whose size differs from its number of rows.
    """

    def __init__(self, of: LabelEffects, sizes: Tensor, smaller: int | None = None) -> None:
        self.of = of
        scale = sizes.sum() / sizes.sqrt().sum()
        self.w_of_classes = scale * sizes.clamp(min=1).rsqrt()
        self.w = self.w_of_classes[of.column]
        if of.primal:
            matrix = scale * of._sums
            if smaller is not None:
                before = float(scale * of.sizes[smaller].double().rsqrt())
                share = torch.where(of.column == smaller, self.w - before, 0.0)
                matrix += of._gram(share)
            matrix.diagonal().add_(of.lam)
        else:
            matrix = of._sums.clone()
            matrix.diagonal().add_(of.lam / self.w)
        self.factor = torch.linalg.cholesky(matrix, out=matrix)

    def terms(self, asked: Tensor) -> Tensor:
        """Return ``M k_v`` of each asked row, ``[asked, n]``."""
        if self.of.primal:
            return torch.cholesky_solve(asked.T, self.factor).T @ self.of.rows.T * self.w
        return torch.cholesky_solve(self.of.kernel(self.of.rows, asked), self.factor).T

    def changes(self, members: Tensor) -> Tensor:
        """Return ``(M Y)_i / M_ii`` of some labeled nodes i."""
        of = self.of
        if of.primal:
            weight = torch.cholesky_solve(of._rows_of_classes.T * self.w_of_classes, self.factor)
            out = of.targets[members] - of.rows[members] @ weight
            parts = [self._reduced(of.rows[part].T) for part in members.split(ROW_BLOCK)]
            return out / (1 - self.w[members] * torch.cat(parts))[:, None]
        out = torch.cholesky_solve(of.targets, self.factor)[members]
        for part, rows in zip(members.split(ROW_BLOCK), out.split(ROW_BLOCK), strict=True):
            one = torch.zeros(len(self.w), part.numel(), dtype=out.dtype, device=out.device)
            one[part, torch.arange(part.numel(), device=out.device)] = 1.0
            rows /= self._reduced(one)[:, None]
        return out

    def covariances(self, asked: Tensor, others: Tensor) -> Tensor:
        of = self.of
        if of.primal:
            return asked @ torch.cholesky_solve(others.T, self.factor)
        return (of.kernel(asked, others) - of.kernel(asked, of.rows) @ self.terms(others).T) / of.lam

    def variances(self, asked: Tensor) -> Tensor:
        of = self.of
        if of.primal:
            return self._reduced(asked.T)
        own = squares(asked) if of.kernel.name == "linear" else torch.ones_like(asked[:, 0])
        return (own - self._reduced(of.kernel(of.rows, asked))) / of.lam

    def _reduced(self, columns: Tensor) -> Tensor:
        """Return ``‖L⁻¹ c‖²`` of each column c, for the Cholesky factor L."""
        return torch.linalg.solve_triangular(self.factor, columns, upper=False).square_().sum(0)


def effects_of(known: LabeledRows) -> LabelEffects:
    """Return what the labels of a solved head do."""
    return LabelEffects(known.rows, known.labels, known.lam, known.kernel, known.nodes)


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


def explain(effects: LabelEffects, rows: Tensor, temperature: float) -> list[Explanation]:
    """Explain the scores of each row of φ."""
    terms, without = effects.terms(rows), effects.predictions_without(rows)
    scores = terms @ effects.targets
    probabilities = torch.softmax(temperature * scores, 1)
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


def doubts(effects: LabelEffects, temperature: float) -> Doubts:
    """Compare each label with the probabilities ``softmax(τ f)`` of the head without it."""
    scores = effects.left_out()
    probabilities = torch.softmax(temperature * scores, 1)
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
    planted = LabelEffects(effects.rows, effects.classes[column], effects.lam, effects.kernel, effects.nodes)
    return planted, wrong


def average_precision(order: Tensor, wrong: Tensor) -> float:
    """Return the mean share of wrong labels among the first ones of an order, up to each wrong one."""
    hit = wrong[order].double()
    places = torch.arange(1, hit.numel() + 1, device=hit.device)
    return float((hit.cumsum(0) / places * hit).sum() / wrong.sum())


def choose(
    effects: LabelEffects, rows: Tensor, count: int, by: str = "variance", temperature: float = 1.0
) -> list[int]:
    """Choose the rows whose labels would help most.

    Args:
        effects: of the labels so far.
        rows: φ of the candidates.
        count: number of rows to choose.
        by: ``variance`` as in :func:`spread_out`, ``margin`` for the smallest difference of the two largest
            probabilities, ``random`` for a fixed random order.
        temperature: τ.
    """
    check_choice("by", by, BY)
    if by == "random":
        return torch.randperm(rows.size(0), generator=torch.Generator().manual_seed(0))[:count].tolist()
    if by == "variance":
        return spread_out(effects, rows, count)[0]
    scores = torch.cat([effects.scores(part) for part in rows.split(ROW_BLOCK)])
    top = torch.softmax(temperature * scores, 1).topk(min(2, scores.size(1)), 1).values
    return torch.argsort(2 * top[:, 0] - top.sum(1), stable=True)[:count].tolist()


def spread_out(effects: LabelEffects, rows: Tensor, count: int) -> tuple[list[int], list[float]]:
    """Choose rows one by one whose labels reduce the variance of all the most.

    With a label of weight 1 for row v, the variance of u falls by ``cov(u, v)² / (1 + var(v))``, where ``cov`` and
    ``var`` include the rows that were chosen before. So a row that is similar to a chosen one gains little.

    Args:
        effects: of the labels so far.
        rows: φ of the candidates.
        count: number of rows to choose.

    Returns:
        The chosen rows, and the share of the summed variance that is left after each.
    """
    total, left = rows.size(0), []
    places = torch.linspace(0, total - 1, min(total, REFERENCES), dtype=torch.float64).long().to(rows.device)
    between, variance = effects.covariances(rows, rows[places]), effects.variances(rows)
    before = after = float(variance[places].sum())
    chosen: list[int] = []
    columns = between.new_zeros(total, 0)
    for _ in range(min(count, total)):
        gain = torch.cat([part.square().sum(1) for part in between.split(ROW_BLOCK)]) / (1 + variance)
        gain[chosen] = -1
        pick = int(gain.argmax())
        column = effects.covariances(rows, rows[pick : pick + 1])[:, 0] - columns @ columns[pick]
        column /= (1 + column[pick]).sqrt()
        after -= float(column[places].square().sum())
        between.addr_(column, column[places], alpha=-1)
        variance -= column.square()
        columns = torch.cat([columns, column[:, None]], 1)
        chosen.append(pick)
        left.append(after / before)
    return chosen, left


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
        scale = length(inputs.t_matmul(block).norm()) * count**0.5
        columns = weight[k * inputs.width : (k + 1) * inputs.width]
        columns = columns if inputs.sketch is None else inputs.sketch.matmul(columns)
        out += (inputs.by_column(block * at) / scale).T[:, :, None] * columns
    return out.double(), CONSTANT * weight[-1].double()
