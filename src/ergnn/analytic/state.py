"""Training nodes and their labels. Rows of φ are a cache, so every change of the data is exact."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ergnn.analytic.features import Features
from ergnn.analytic.maps import FeatureMap
from ergnn.analytic.ridge import LAMBDAS, LOO_ROWS, Moments, RidgeSolution, fit_ridge, least, loo_rows
from ergnn.analytic.statistics import ClassStatistics
from ergnn.config.errors import InputError
from ergnn.data.csr import pair_hash, row_chunks, targets
from ergnn.data.graph import Graph
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.distributed import current_ranks, sum_over_ranks
from ergnn.engine.propagation import NormalizedAdjacency


class AnalyticState:
    """The labeled nodes and their labels, in the order of node ids.

    The head depends only on these and on the graph, not on the order in which labels were added, corrected or removed.

    Attributes:
        nodes: ids, ascending.
        labels: their labels.
        kept: rows of φ and labels that are stored without their nodes, per feature map.
        statistics: statistics of rows of φ that are not stored.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.nodes = torch.empty(0, dtype=torch.long, device=device)
        self.labels = torch.empty(0, dtype=torch.long, device=device)
        self.kept: dict[str, tuple[Tensor, Tensor]] = {}
        self.statistics = ClassStatistics()
        self._rows: dict[str, tuple[Tensor, Tensor]] = {}
        self._moments: dict[str, Moments] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of ids, labels, stored rows and statistics."""
        kept = sum(value.numel() * value.element_size() for stored in self.kept.values() for value in stored)
        return (self.nodes.numel() + self.labels.numel()) * 8 + kept + self.statistics.nbytes

    @property
    def without_nodes(self) -> bool:
        """Whether there are labels that are stored without their nodes."""
        return bool(self.kept or self.statistics)

    def update(self, nodes: Tensor, labels: Tensor) -> None:
        """Add labels; a new label replaces an earlier one of the same node."""
        if nodes.shape != labels.shape or nodes.unique().numel() < nodes.numel():
            raise InputError(
                f"{nodes.numel()} node(s) and {labels.numel()} label(s); pass one label per node, each node once"
            )
        old = ~torch.isin(self.nodes.to(nodes.device), nodes)
        if not bool(old.all()):
            self._moments.clear()
        joined = torch.cat([self.nodes.to(nodes.device)[old], nodes])
        order = torch.argsort(joined)
        self.labels = torch.cat([self.labels.to(nodes.device)[old], labels])[order]
        self.nodes = joined[order]

    def keep(self, name: str, rows: Tensor, labels: Tensor) -> None:
        """Store rows of φ under a feature map, and their labels, without their nodes."""
        earlier = self.kept.get(name, (rows[:0], labels[:0]))
        self.kept[name] = torch.cat([earlier[0], rows]), torch.cat([earlier[1], labels])

    def remove(self, nodes: Tensor) -> None:
        """Remove labels, and everything computed for their nodes."""
        nodes = nodes.to(self.nodes.device)
        missing = nodes[~torch.isin(nodes, self.nodes)]
        if missing.numel():
            raise InputError(f"node {int(missing[0])} has no label to remove")
        keep = ~torch.isin(self.nodes, nodes)
        self.nodes, self.labels = self.nodes[keep], self.labels[keep]
        self.forget_rows(nodes)

    def forget_rows(self, nodes: Tensor | None = None) -> None:
        """Drop cached rows of φ, of some nodes or of all; they are recomputed when needed."""
        self._moments.clear()
        if nodes is None:
            self._rows.clear()
            return
        for name, (ids, rows) in self._rows.items():
            keep = ~torch.isin(ids, nodes)
            self._rows[name] = ids[keep], rows[keep]

    def move(self, before: Graph, after: Graph, maps: Sequence[FeatureMap]) -> None:
        """Drop the cached rows that may differ in the new graph."""
        changed = changed_nodes(before, after)
        for each in maps:
            if each.name in self._rows:
                ids, rows = self._rows[each.name]
                keep = ~reached(after, changed, each.num_hops)[ids]
                if not bool(keep.all()):
                    self._moments.pop(each.name, None)
                self._rows[each.name] = ids[keep], rows[keep]

    def rows(self, features: Features, nodes: Tensor) -> Tensor:
        """Return φ of labeled nodes (ascending); only rows that are not cached are computed."""
        name, width = features.feature_map.name, features.width
        ids, rows = self._rows.get(name, (nodes[:0], torch.empty(0, width, dtype=features.inputs.dtype)))
        new, ranks = ~torch.isin(nodes, ids), current_ranks()
        if ranks is not None:  # a rank that received its state has no cache; all compute the union of missing rows
            needed = new.int()
            sum_over_ranks(needed)
            new = needed > 0
        if bool(new.any()):
            computed = features.rows(nodes[new], ranks)
            stays = torch.isin(ids, self.nodes) & ~torch.isin(ids, nodes[new])
            joined = torch.cat([ids[stays], nodes[new]])
            order = torch.argsort(joined)
            whole = computed.new_empty(joined.numel(), width)
            index = torch.argsort(order)
            whole[index[: -int(new.sum())]], whole[index[-int(new.sum()) :]] = rows.to(whole.device)[stays], computed
            ids, rows = joined[order], whole
            self._rows[name] = ids, rows
        return rows if torch.equal(ids, nodes) else rows[torch.searchsorted(ids, nodes)]

    def solve(
        self, features: Sequence[Features], lambdas: Sequence[float] = LAMBDAS
    ) -> tuple[int, RidgeSolution] | None:
        """Solve for the head with the smallest leave-one-out error; return the index of its features and the head.

        Of many nodes, some decide which features and which λ are taken (:func:`~ergnn.analytic.ridge.loo_rows`), so
        that rows of all are needed under one feature map only. Returns None without labels.
        """
        best, count = 0, self.nodes.numel()
        if len(features) > 1 and count > LOO_ROWS and not self.kept:
            chosen = loo_rows(count).to(self.nodes.device)
            nodes, labels = self.nodes[chosen], self.labels[chosen]
            best, first = choose([fit_ridge(self.rows(each, nodes), labels, lambdas) for each in features])
            features, lambdas = features[best : best + 1], (first.lam,)
        solutions = []
        for each in features:
            stored = [(self.rows(each, self.nodes), self.labels)] if count else []
            kept = self.kept.get(each.feature_map.name)
            stored += [] if kept is None else [kept]
            if stored:
                rows, labels = map(torch.cat, zip(*stored, strict=True)) if len(stored) > 1 else stored[0]
                ids = self.nodes if kept is None else None
                moments = None if kept is not None else self._moments.setdefault(each.feature_map.name, Moments())
                solutions.append(fit_ridge(rows, labels, lambdas, ids=ids, moments=moments))
        if not solutions:
            return None
        index, solution = choose(solutions)
        return best + index, solution


def choose(solutions: Sequence[RidgeSolution]) -> tuple[int, RidgeSolution]:
    """Return the solution with the smallest leave-one-out error, or the first if there are no errors to compare."""
    errors = [each.loo_error for each in solutions]
    best = least([error for error in errors if error is not None]) if None not in errors else 0
    return best, solutions[best]


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
