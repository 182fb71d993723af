"""Training nodes and their labels, or statistics of φ per class instead of nodes.

Rows of φ of the nodes are a cache, so every change of the data is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ergnn.analytic.features import Features
from ergnn.analytic.kernels import Kernel, all_products, products
from ergnn.analytic.ridge import DEFAULT_TEMPERATURE, LOO_ROWS, Moments, RidgeSolution, choose, loo_rows, solve
from ergnn.config.errors import InputError
from ergnn.data.csr import pair_hash, row_chunks, targets
from ergnn.data.graph import Graph
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.distributed import current_ranks, sum_over_ranks
from ergnn.engine.propagation import NormalizedAdjacency

GRAM_BYTES = 1 << 29
"""Inner products of the labeled rows are cached if they take at most this many bytes."""

ADDED_ROWS = 1 << 10
"""Rows to add to statistics at a time."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Number and mean of the rows of a class, and their scatter ``Σ (φ − μ)(φ − μ)ᵀ ≈ BᵀB + diag d``.

    The rows of B are the leading principal directions, times their singular values; they are approximate if rows are
    added in several steps. d is the part of the scatter's diagonal that BᵀB does not contain, so the diagonal is exact.

    Args:
        size: number of rows.
        mean: μ, ``[width]``.
        directions: B, ``[k, width]``.
        rest: d, ``[width]``.
    """

    size: int
    mean: Tensor
    directions: Tensor
    rest: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of the label, the number of rows, and the parts that are stored."""
        return 16 + self.mean.nbytes + self.directions.nbytes + self.rest.nbytes

    def add(self, rows: Tensor, per_class: int) -> Statistics:
        """Add rows; at most ``per_class`` rows are stored: the mean, d, and the directions, in this order."""
        mean, size = rows.mean(0), self.size + rows.size(0)
        shift = mean - self.mean.to(mean) if self.size else torch.zeros_like(mean)
        between = (self.size * rows.size(0) / size) ** 0.5 * shift
        scatter = torch.cat([self.directions.to(rows), rows - mean, between[None]])
        directions = leading(scatter, max(0, per_class - 2)).float()
        diagonal = scatter.square().sum(0)
        diagonal[: self.rest.numel()] += self.rest.to(rows)
        rest = (diagonal - directions.double().square().sum(0)).clamp_(min=0).float()
        mean = mean - self.size / size * shift
        return Statistics(size, mean.float(), directions, rest if per_class > 1 else rest.new_empty(0))


def leading(rows: Tensor, count: int) -> Tensor:
    """Return at most ``count`` rows B such that ``BᵀB`` is the best approximation of ``rowsᵀ rows``: ``s_i v_iᵀ``."""
    wide = rows.size(0) <= rows.size(1)
    values, vectors = torch.linalg.eigh(rows @ rows.T if wide else rows.T @ rows)
    vectors = vectors[:, values > 1e-12 * values[-1]].flip(1)[:, :count]
    return vectors.T @ rows if wide else values.flip(0)[: vectors.size(1), None].sqrt() * vectors.T


class ClassStatistics(dict[int, Statistics]):
    """:class:`Statistics` of each class."""

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.values())

    def add(self, rows: Tensor, labels: Tensor, per_class: int) -> None:
        """Add labeled rows, and store at most ``per_class`` rows for each class."""
        for c in labels.unique().tolist():
            for part in rows[labels == c].double().split(ADDED_ROWS):
                empty = Statistics(0, part[0] * 0, part[:0], part[0] * 0)
                self[c] = self.get(c, empty).add(part, per_class)

    def solve(self, lam: float, device: torch.device, power: float = 0.5) -> RidgeSolution:
        """Solve for the ridge head of all rows added so far, with this approximation of their scatter.

        With ``P = [√(w_c n_c) μ_c, √w_c B_c]`` over the classes and ``D = λI + Σ w_c diag d_c``, it is
        ``W = (PᵀP + D)⁻¹ Σ w_c n_c μ_c e_cᵀ``, where ``w_c ∝ n_c^-p`` as in :class:`Targets`. There are no rows to
        leave out, so τ is :data:`DEFAULT_TEMPERATURE`.
        """
        classes, stored = torch.tensor(sorted(self), device=device), [self[c] for c in sorted(self)]
        sizes = torch.tensor([each.size for each in stored], dtype=torch.float64, device=device)
        w = sizes.sum() / (sizes ** (1 - power)).sum() * sizes**-power
        parts, targets, d = [], [], torch.full_like(stored[0].mean, lam, dtype=torch.float64, device=device)
        for each, weight, own in zip(stored, w, (w * sizes).sqrt().diag(), strict=True):
            parts += [(weight * each.size).sqrt() * each.mean.to(d)[None], weight.sqrt() * each.directions.to(d)]
            targets += [own[None], own.new_zeros(each.directions.size(0), own.numel())]
            if each.rest.numel():
                d += weight * each.rest.to(d)
        root, t = d.sqrt(), torch.cat(targets)
        p = torch.cat(parts) / root
        dual = p.size(0) <= p.size(1)
        gram = p @ p.T if dual else p.T @ p
        gram.diagonal().add_(1)
        factor = torch.linalg.cholesky(gram)
        solved = p.T @ torch.cholesky_solve(t, factor) if dual else torch.cholesky_solve(p.T @ t, factor)
        return RidgeSolution(
            solved / root[:, None], classes, lam, DEFAULT_TEMPERATURE, solved.new_empty(0, w.numel()), None, power=power
        )

    def state_dict(self) -> dict[str, Any]:
        return {str(c): dict(vars(each)) for c, each in self.items()}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> ClassStatistics:
        return cls({int(c): Statistics(**each) for c, each in state.items()})


class AnalyticState:
    """The labeled nodes and their labels, in the order of node ids.

    The head depends only on these and on the graph, not on the order in which labels were added, corrected or removed.

    Attributes:
        nodes: ids, ascending.
        labels: their labels.
        kept: rows of φ and labels that are stored instead of nodes, per feature map.
        statistics: statistics of rows of φ that are not stored.
    """

    def __init__(self) -> None:
        self.nodes, self.labels = torch.empty(2, 0, dtype=torch.long)
        self.kept: dict[str, tuple[Tensor, Tensor]] = {}
        self.statistics = ClassStatistics()
        self._rows: dict[str, tuple[Tensor, Tensor]] = {}
        self._grams: dict[str, tuple[Tensor, Tensor]] = {}
        self._moments: dict[str, Moments] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of ids, labels, stored rows and statistics."""
        kept = sum(value.nbytes for stored in self.kept.values() for value in stored)
        return self.nodes.nbytes + self.labels.nbytes + kept + self.statistics.nbytes

    @property
    def without_nodes(self) -> bool:
        """Whether there are labels that are stored without their nodes."""
        return bool(self.kept or self.statistics)

    def labeled(self) -> tuple[Tensor, Tensor]:
        """Return the ids of all rows, and their labels; rows without nodes are numbered."""
        if not self.kept:
            return self.nodes, self.labels
        labels = next(iter(self.kept.values()))[1]
        return torch.arange(labels.numel(), device=labels.device), labels

    def update(self, nodes: Tensor, labels: Tensor) -> None:
        """Add labels; a new label replaces an earlier one of the same node."""
        if nodes.shape != labels.shape or nodes.unique().numel() < nodes.numel():
            raise InputError(
                f"{nodes.numel()} node(s) and {labels.numel()} label(s); pass one label per node, each node once"
            )
        old = ~torch.isin(self.nodes.to(nodes.device), nodes)
        if not bool(old.all()):
            self._moments.clear()  # sums depend on labels
        joined = torch.cat([self.nodes.to(nodes.device)[old], nodes])
        order = torch.argsort(joined)
        self.labels = torch.cat([self.labels.to(nodes.device)[old], labels])[order]
        self.nodes = joined[order]

    def keep(self, name: str, rows: Tensor, labels: Tensor) -> None:
        """Store rows of φ under a feature map, and their labels, without their nodes."""
        earlier = self.kept.get(name, (rows[:0], labels[:0]))
        self.kept[name] = torch.cat([earlier[0], rows]), torch.cat([earlier[1], labels])

    def remove(self, nodes: Tensor) -> int:
        """Remove the labels of those nodes that have one, and everything computed for them; return their number."""
        nodes, before = nodes.to(self.nodes.device), self.nodes.numel()
        keep = ~torch.isin(self.nodes, nodes)
        self.nodes, self.labels = self.nodes[keep], self.labels[keep]
        self.forget_rows(nodes)
        return before - self.nodes.numel()

    def forget_rows(self, nodes: Tensor | None = None) -> None:
        """Drop cached rows of φ, of some nodes or of all; they are recomputed when needed."""
        for name, (ids, _) in list(self._rows.items()):
            self._drop(name, torch.ones_like(ids, dtype=torch.bool) if nodes is None else torch.isin(ids, nodes))

    def move(self, before: Graph, after: Graph, features: Sequence[Features]) -> None:
        """Drop the cached rows that may differ in the new graph, and those of maps that are not compared there."""
        changed, hops = changed_nodes(before, after), {each.name: each.feature_map.num_hops for each in features}
        for name, (ids, _) in list(self._rows.items()):
            differ = reached(after, changed, hops[name]) if name in hops else torch.ones_like(changed)
            self._drop(name, differ[ids])

    def _drop(self, name: str, differ: Tensor) -> None:
        """Drop some of the cached rows of a name, and what was computed from them."""
        if not bool(differ.any()):
            return
        (ids, rows), keep = self._rows.pop(name), ~differ
        self._moments.pop(name, None)
        if bool(differ.all()):
            self._grams.pop(name, None)
            return
        self._rows[name] = ids[keep], rows[keep]
        if name in self._grams:
            known, gram = self._grams[name]
            still = torch.isin(known, ids[keep])
            self._grams[name] = known[still], gram[still][:, still]

    def rows(self, features: Features, nodes: Tensor) -> Tensor:
        """Return φ of labeled nodes (ascending), or stored rows; only rows that are not cached are computed."""
        if self.kept:
            return self.kept[features.feature_map.name][0][nodes]
        name, width = features.name, features.width
        ids, rows = self._rows.get(name, (nodes[:0], torch.empty(0, width, dtype=features.inputs.dtype)))
        new, ranks = ~torch.isin(nodes, ids), current_ranks()
        if ranks is not None:  # a rank that received its state has no cache; all compute the union of missing rows
            needed = new.int()
            sum_over_ranks(needed)
            new = needed > 0
        if bool(new.any()):
            computed = features.rows(nodes[new], ranks)
            stays = torch.isin(ids, self.nodes) & ~torch.isin(ids, nodes[new])
            known = torch.cat([ids[stays], nodes[new]]).sort().values
            whole = computed
            if known.numel() > computed.size(0):
                whole = computed.new_empty(known.numel(), width)
                whole[torch.searchsorted(known, ids[stays])] = rows.to(whole.device)[stays]
                whole[torch.searchsorted(known, nodes[new])] = computed
            ids, rows = self._rows[name] = known, whole
        return rows if torch.equal(ids, nodes) else rows[torch.searchsorted(ids, nodes)]

    def gram(self, name: str, nodes: Tensor, rows: Tensor) -> Tensor:
        """Return the inner products of rows of labeled nodes, in their dtype; those of unchanged rows are cached.

        Do not modify the result.
        """
        count = nodes.numel()
        ids, known = self._grams.get(name, (nodes[:0], rows[:0, :0]))
        old = torch.isin(nodes, ids)
        if 2 * int(old.sum()) < count:  # one triangle of all products
            gram = all_products(rows)
        else:
            gram = known.new_empty(count, count)
            place, new = torch.searchsorted(ids, nodes[old]), (~old).nonzero().flatten()
            gram[old.nonzero(), old.nonzero().T] = known[place[:, None], place]
            gram[new] = products(rows[new], rows, rows.dtype)
            gram[:, new] = gram[new].T
        if rows.element_size() * count**2 > GRAM_BYTES:
            self._grams.pop(name, None)
        elif count >= ids.numel():
            self._grams[name] = nodes, gram
        return gram

    def solve(
        self,
        features: Sequence[Features],
        lambdas: Sequence[float],
        kernels: Sequence[Kernel],
        plain: int,
        power: float = 0.5,
    ) -> tuple[int, RidgeSolution] | None:
        """Solve for the head with the smallest leave-one-out error; return the index of its features and the head.

        Of many nodes, some decide which features, kernel and λ are taken (:func:`~ergnn.analytic.ridge.loo_rows`), so
        that rows of all are needed under one feature map only. Returns None without labels.
        """
        ids, labels = self.labeled()
        if not ids.numel():
            return None
        chosen = loo_rows(ids)
        decide = [
            self.rows(each, ids)[chosen] if each.reads_all(ids.numel()) else self.rows(each, ids[chosen])
            for each in features
        ]
        cached = ids.numel() > LOO_ROWS and not self.kept  # few rows are summed in one order: resumed runs are equal
        grams = [
            self.gram(each.name, ids[chosen], rows).double() if cached else products(rows, rows)
            for each, rows in zip(features, decide, strict=True)
        ]
        best, trial = choose(grams, labels[chosen], kernels, lambdas, plain, ids[chosen], ids.numel(), power)
        name, rows = features[best].name, self.rows(features[best], ids)
        gram: Callable[[Tensor], Tensor] | None = None
        moments = None
        if cached:
            gram, moments = partial(self.gram, name, ids), self._moments.setdefault(name, Moments())
        elif chosen.numel() == ids.numel():
            gram = lambda _: grams[best]  # noqa: E731
        return best, solve(rows, labels, trial, chosen, ids=ids, gram=gram, moments=moments)


def changed_nodes(before: Graph, after: Graph) -> Tensor:
    """Return a mask of the nodes of ``after`` whose features or in-neighbors differ from ``before``."""
    common = min(before.num_nodes, after.num_nodes)
    changed = torch.ones(after.num_nodes, dtype=torch.bool, device=after.device)
    if before.x is after.x:
        changed[:common] = False
    elif not (before.is_sparse or after.is_sparse) and before.num_features == after.num_features:
        changed[:common] = (before.x[:common] != after.x[:common]).any(1)
    if before.edge_index is not after.edge_index or before.edge_weight is not after.edge_weight:
        one, two = (_list_hashes(graph) for graph in (before, after))
        changed[:common] |= (one[:common] != two[:common]).any(1)
    return changed


def reached(graph: Graph, start: Tensor, num_hops: int) -> Tensor:
    """Return a mask of the nodes reachable from ``start`` along at most ``num_hops`` edges."""
    operator, mask = NormalizedAdjacency(graph), start
    for _ in range(num_hops):
        further = operator.matmul(mask.double().unsqueeze(1)).flatten() > 0
        if torch.equal(further, mask):
            break
        mask = further
    return mask


def _list_hashes(graph: Graph) -> Tensor:
    """Return the degree and an order-independent 64-bit hash of the in-neighbors (and weights) of each node."""
    adj = adjacency_of(graph)
    total = torch.zeros(graph.num_nodes, dtype=torch.long, device=graph.device)
    if graph.edge_weight is not None:
        source, target = graph.edge_index.long()
        weighed = pair_hash(pair_hash(source, target), graph.edge_weight.double().view(torch.long))
        return torch.stack([adj.degree, total.index_add_(0, target, weighed)], 1)
    for row, stop, first, last in row_chunks(adj.rowptr):
        target = targets(adj.rowptr[row : stop + 1]) + row
        total.index_add_(0, target, pair_hash(adj.col[first:last].long(), target))
    return torch.stack([adj.degree, total], 1)
