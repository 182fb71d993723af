"""What a solve computes, and what it takes from the version before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ergnn.analytic import FeatureMap, RidgeSolution, fit_ridge
from ergnn.analytic.features import CONSTANT
from ergnn.analytic.ridge import fit_sums, loo_rows
from ergnn.data.partial import Array


class CachedRows(Protocol):
    """Rows of φ in the version before, and sums over them; see :class:`ergnn.folder.row_cache.RowCache`."""

    nodes: Array

    def unchanged(self, feature_map: FeatureMap) -> Array: ...
    def stored(self, feature_map: FeatureMap) -> Array: ...
    def load(self, feature_map: FeatureMap, nodes: Array, width: int, dtype: torch.dtype) -> Tensor: ...
    def put(self, feature_map: FeatureMap, new: Array, rows: Tensor) -> None: ...
    def worth_sums(self, feature_map: FeatureMap, width: int, count: int, num_classes: int) -> bool: ...
    def load_grams(self, feature_map: FeatureMap, width: int) -> tuple[Array, Tensor] | None: ...
    def put_grams(self, feature_map: FeatureMap, classes: Array, grams: Tensor) -> None: ...
    def new_labels(self) -> Array: ...


@dataclass(frozen=True, eq=False)
class Plan:
    """The rows of φ under one map that a solve needs, as masks over the nodes of a cache.

    Args:
        cache: rows and sums of the version before.
        feature_map: the map.
        width: columns of φ.
        dtype: of φ.
        label: class of each node, −1 for one that is only scored.
        compute: rows to compute.
        load: rows to read, which still hold.
        add: training rows to add to the sums.
        subtract: training rows whose earlier values are in the sums.
        summed: whether the head is solved from sums.
        known: classes and sums of the version before; None to sum all rows.
    """

    cache: CachedRows
    feature_map: FeatureMap
    width: int
    dtype: torch.dtype
    label: Array
    compute: Array
    load: Array
    add: Array
    subtract: Array
    summed: bool
    known: tuple[Array, Tensor] | None

    def solve(self, new: Tensor, lambdas: Sequence[float]) -> tuple[RidgeSolution, Tensor]:
        """Solve for the head, given the computed rows; also returns the rows of the nodes that are only scored."""
        self.cache.put(self.feature_map, self.compute, new)
        have, train = self.compute | self.load, self.label >= 0
        place = np.cumsum(have) - 1
        rows = torch.empty(int(have.sum()), self.width, dtype=self.dtype, device=new.device)
        for mask, part in ((self.load, self._read(self.load)), (self.compute, new)):
            rows[torch.from_numpy(place[mask]).to(new.device)] = part.to(new.device)

        def rows_of(nodes: Array) -> Tensor:
            return rows[torch.from_numpy(place[nodes]).to(new.device)]

        labels, scored = torch.from_numpy(self.label[train]).to(new.device), rows_of(np.flatnonzero(~train))
        if not self.summed:
            return fit_ridge(rows_of(np.flatnonzero(train)), labels, lambdas=lambdas), scored
        gram, sums = self._sums(rows_of, new.device)
        chosen = np.flatnonzero(train)[loo_rows(len(labels)).numpy()]
        return fit_sums(rows_of(chosen), labels, gram, sums, lambdas), scored

    def _sums(self, rows_of: Callable[[Array], Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
        """``Σ n_c^-½ φφᵀ`` over all training rows, and ``Σ φ`` over those of each class."""
        classes, sizes = np.unique(self.label[self.label >= 0], return_counts=True)
        upper = torch.triu_indices(self.width, self.width, device=device)
        grams = torch.zeros(len(classes), upper.size(1), dtype=torch.float64, device=device)
        if self.known is not None:
            grams[torch.from_numpy(np.searchsorted(classes, self.known[0])).to(device)] = self.known[1].to(device)
        before = self._read(self.subtract).to(device)
        for gram, c in zip(grams, classes, strict=True):
            added = rows_of(np.flatnonzero(self.add & (self.label == c))).double()
            removed = before[torch.from_numpy(self.label[self.subtract] == c).to(device)].double()
            gram += (added.T @ added).addmm_(removed.T, removed, alpha=-1)[upper[0], upper[1]]
        self.cache.put_grams(self.feature_map, classes, grams)
        whole = grams.new_zeros(self.width, self.width)
        whole[upper[0], upper[1]] = torch.from_numpy(sizes).to(device).double().rsqrt() @ grams
        last = torch.arange(self.width, 0, -1, device=device).cumsum(0) - 1  # where rows of the triangle end
        return whole + whole.triu(1).T, grams[:, last] / CONSTANT

    def _read(self, mask: Array) -> Tensor:
        return self.cache.load(self.feature_map, self.cache.nodes[mask], self.width, self.dtype)


def make_plan(cache: CachedRows, feature_map: FeatureMap, width: int, dtype: torch.dtype, label: Array) -> Plan:
    """Decide which rows to compute, and whether to solve from sums over them.

    Where sums of the version before are known, only training rows that are new or have changed are added to them (and
    the earlier ones subtracted), and only the rows of :func:`ergnn.analytic.ridge.loo_rows` are read.
    """
    train, unchanged = label >= 0, cache.unchanged(feature_map)
    stored = np.isin(cache.nodes, cache.stored(feature_map))
    holds, nothing = stored & unchanged, np.zeros(len(label), bool)
    classes = np.unique(label[train])
    summed = cache.worth_sums(feature_map, width, int(train.sum()), len(classes))
    known = cache.load_grams(feature_map, width) if summed else None
    if known is not None and np.isin(known[0], classes).all():
        new = train & np.isin(cache.nodes, cache.new_labels())
        changed = train & ~new & ~unchanged
        if not (changed & ~stored).any():
            needed = ~train
            needed[np.flatnonzero(train)[loo_rows(int(train.sum())).numpy()]] = True
            compute = new | changed | (needed & ~holds)
            return Plan(
                cache, feature_map, width, dtype, label, compute, needed & ~compute, new | changed, changed, True, known
            )
    return Plan(cache, feature_map, width, dtype, label, ~holds, holds, train, nothing, summed, None)
