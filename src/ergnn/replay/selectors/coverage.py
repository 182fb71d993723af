"""Coverage maximisation (CM, CM*): the nodes with the fewest nodes of other classes nearby."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.errors import InputError
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import Selection, SelectionContext, Selector, best_per_class
from ergnn.replay.selectors.spaces import Space

SAMPLE = 2000
"""Nodes a side from which the quantile of distances is estimated where there are more."""


class Coverage(Selector):
    """Lowest ``|N(v_i)|``, ``N(v_i) = {v_j : dist(v_i, v_j) < d, y_i ≠ y_j}``, over the task's training nodes.

    A fixed d means something else on every graph (0.5 ties all nodes of a bag of words), so d is by default a
    quantile of the distances between nodes of different classes. Ties are frequent all the same: they are broken
    by seed, and their share is recorded.

    Args:
        space: ``attribute`` or ``embedding``.
        d: the distance; None takes the quantile.
        quantile: of the distances between training nodes of different classes.
        distance: ``euclidean`` or ``cosine``.
        normalize: divide each vector by its length first.
    """

    def __init__(
        self,
        space: str = "attribute",
        d: float | None = None,
        quantile: float = 0.5,
        distance: str = "euclidean",
        normalize: bool = False,
    ) -> None:
        if not 0.0 < quantile < 1.0:
            raise InputError(f"quantile is {quantile}; it must lie between 0 and 1")
        if d is not None and not d > 0:
            raise InputError(f"d is {d}; a distance must be above 0")
        self.space = Space(space, distance, normalize)
        self.d, self.quantile = d, quantile

    def score(self, context: SelectionContext) -> Tensor:
        return self._score(context)[0]

    def select(self, context: SelectionContext) -> Selection:
        scores, d = self._score(context)
        selection = best_per_class(scores, context)
        return Selection(selection.nodes, selection.scores, {**selection.info, "d": d})

    def _score(self, context: SelectionContext) -> tuple[Tensor, float]:
        vectors, labels = self.space.vectors(context, context.nodes), context.labels
        d = self.d if self.d is not None else self._quantile(vectors, labels, context)
        count = torch.zeros(vectors.size(0), dtype=torch.long, device=vectors.device)
        for index, distances in self.space.chunks(vectors, vectors):
            other = labels[index].unsqueeze(1) != labels.unsqueeze(0)
            count[index] = ((distances < d) & other).sum(1)
        return -count, d

    def _quantile(self, vectors: Tensor, labels: Tensor, context: SelectionContext) -> float:
        """The quantile of distances between classes (estimated from a seeded sample on large tasks)."""
        if vectors.size(0) > SAMPLE:
            sample = torch.randperm(vectors.size(0), generator=context.generator())[:SAMPLE].to(labels.device)
            vectors, labels = vectors[sample], labels[sample]
        other = torch.triu(labels.unsqueeze(1) != labels.unsqueeze(0))
        between = self.space.distances(vectors, vectors)[other]
        if not between.numel():
            raise InputError(f"{context.task.name} has one class; coverage needs another one to keep away from")
        place = min(int(self.quantile * between.numel()) + 1, between.numel())
        return float(between.kthvalue(place).values)


@SELECTORS.register("cm", help="fewest nodes of other classes nearby, in attribute space (coverage maximisation)")
class AttributeCoverage(Coverage):
    """CM: coverage of the attribute space."""

    def __init__(
        self,
        d: float | None = None,
        quantile: float = 0.5,
        distance: str = "euclidean",
        normalize: bool = False,
    ) -> None:
        super().__init__("attribute", d, quantile, distance, normalize)


@SELECTORS.register("cm*", aliases=("cm-star",), help="fewest nodes of other classes nearby, in embedding space")
class EmbeddingCoverage(Coverage):
    """CM*: coverage of the embedding space."""

    def __init__(
        self,
        d: float | None = None,
        quantile: float = 0.5,
        distance: str = "euclidean",
        normalize: bool = False,
    ) -> None:
        super().__init__("embedding", d, quantile, distance, normalize)
