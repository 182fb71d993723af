"""Selectors by distances, in feature or embedding space: the nodes closest to the mean of their class (mean of feature,
MF and MF*), and those with the fewest nodes of other classes nearby (coverage maximization, CM and CM*).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_between
from ergnn.config.registry import inherit_options
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import Distance, Selection, SelectionContext, Selector, Space, best_per_class

CHUNK_NODES = 8192
"""Nodes per chunk of vectors for class means."""
SAMPLE = 2000
"""Maximum number of nodes per side for the estimate of the distance quantile."""
CUT_FROM = 1 << 20
"""Number of pairs from which counting stops early; below, all pairs are counted at once."""
PARTS = 32
"""Chunks of the other classes' nodes; candidates are pruned after each chunk."""


@SELECTORS.register("mf", help="closest to the class mean of features (mean of feature)")
class FeatureMean(Selector):
    """MF: closest to the mean of features of their class, the prototype ``c_l = 1/|S_l| Σ_{i∈S_l} x_i``.

    Feature vectors are first scaled to length 1: among raw bags of words, the shortest are closest to the mean.

    Args:
        distance: ``euclidean`` or ``cosine``.
        normalize: divide each vector by its length before the mean is computed.
    """

    space: Space

    def __init__(self, distance: Distance = "euclidean", normalize: bool = True) -> None:
        self.space = Space("feature", distance, normalize)

    def score(self, context: SelectionContext) -> Tensor:
        labels = context.labels
        scores = torch.empty(labels.numel(), dtype=torch.float64, device=labels.device)
        for c in context.task.classes:
            members = (labels == c).nonzero().flatten()
            parts = members.split(CHUNK_NODES)
            sums = [self.space.vectors(context, context.nodes[part]).sum(0) for part in parts]
            prototype = torch.stack(sums).sum(0, keepdim=True) / members.numel()
            for part in parts:
                vectors = self.space.vectors(context, context.nodes[part])
                scores[part] = -self.space.distances(vectors, prototype).squeeze(1)
        return scores


@SELECTORS.register("mf*", aliases=("mf-star",), help="closest to the class mean of embeddings")
class EmbeddingMean(FeatureMean):
    """MF*: closest to the class mean of embeddings."""

    def __init__(self, distance: Distance = "euclidean", normalize: bool = False) -> None:
        self.space = Space("embedding", distance, normalize)


@SELECTORS.register("cm", help="fewest nodes of other classes nearby, in feature space (coverage maximization)")
class FeatureCoverage(Selector):
    """CM: lowest ``|N(v_i)|``, ``N(v_i) = {v_j : dist(v_i, v_j) < d, y_i ≠ y_j}``, over the task's training nodes.

    The effect of a fixed d depends on the graph (with 0.5, all nodes with bag-of-words features tie), so d is by
    default a quantile of the distances between nodes of different classes. Ties are still frequent: they are broken by
    seed, and ``tie_rate`` is recorded. On large tasks, where counting stops early, the fraction of counted pairs is
    recorded instead, as ``counted``.

    Args:
        d: the distance; None for the quantile.
        quantile: quantile of the distances between training nodes of different classes.
        distance: ``euclidean`` or ``cosine``.
        normalize: divide each vector by its length first.
    """

    space: Space

    def __init__(
        self,
        d: float | None = None,
        quantile: float = 0.5,
        distance: Distance = "euclidean",
        normalize: bool = False,
    ) -> None:
        check_between(0, 1, quantile=quantile)
        check_between(0, float("inf"), d=d)
        self.space = Space("feature", distance, normalize)
        self.d, self.quantile = d, quantile

    def score(self, context: SelectionContext) -> Tensor:
        return self._score(context)[0]

    def select(self, context: SelectionContext) -> Selection:
        scores, info = self._score(context)
        selection = best_per_class(scores, context)
        known = {} if "counted" in info else selection.info  # ties among pruned candidates are unknown
        return Selection(selection.nodes, selection.scores, {**known, **info})

    def _score(self, context: SelectionContext) -> tuple[Tensor, dict[str, float]]:
        """Compute −|N(v)|; on large tasks, an upper bound for nodes that are not among the e best of their class."""
        vectors, labels = self.space.vectors(context, context.nodes), context.labels
        d = self.d if self.d is not None else self._quantile(vectors, labels, context)
        count = torch.zeros(vectors.size(0), dtype=torch.long, device=vectors.device)
        shuffle = torch.randperm(labels.numel(), generator=context.generator()).to(labels.device)
        pairs = counted = 0
        for c in torch.unique(labels):
            members = (labels == c).nonzero().flatten()
            a, b = vectors[members], vectors[shuffle[labels[shuffle] != c]]
            done = size = a.size(0) * b.size(0)
            if size <= CUT_FROM:
                count[members] = self._near(a, b, d)
            else:
                count[members], done = self._fewest_near(a, b, d, context.per_class)
            pairs, counted = pairs + size, counted + done
        return -count, {"d": d} if counted == pairs else {"d": d, "counted": counted / pairs}

    def _near(self, a: Tensor, b: Tensor, d: float) -> Tensor:
        """Return the number of rows of ``b`` closer than d to each row of ``a``."""
        return torch.cat([(distances < d).sum(1) for _, distances in self.space.chunks(a, b)])

    def _fewest_near(self, a: Tensor, b: Tensor, d: float, keep: int) -> tuple[Tensor, int]:
        """Apply :meth:`_near`, but drop rows that cannot be among the ``keep`` lowest; also return the pairs counted.

        A few rows that rank best after the first chunk of ``b`` are counted completely. The keep-th lowest count of
        these is a threshold: a row that exceeds it at any point stays above it. So rows at or below the final keep-th
        lowest count, ties included, are exact, and all others have a count above it.
        """
        first = max(b.size(0) // PARTS, 1)
        count = self._near(a, b[:first], d)
        done = a.size(0) * first
        lead = count.topk(min(4 * keep, a.size(0)), largest=False).indices
        count[lead] += self._near(a[lead], b[first:], d)
        done += lead.numel() * (b.size(0) - first)
        bar = count[lead].kthvalue(min(keep, lead.numel())).values
        rest = torch.ones_like(count, dtype=torch.bool).index_fill(0, lead, False).nonzero().flatten()
        for rows in b[first:].split(first):
            rest = rest[count[rest] <= bar]
            if not rest.numel():
                break
            count[rest] += self._near(a[rest], rows, d)
            done += rest.numel() * rows.size(0)
        return count, done

    def _quantile(self, vectors: Tensor, labels: Tensor, context: SelectionContext) -> float:
        """Return the quantile of the distances between classes (estimated from a seeded sample on large tasks)."""
        if vectors.size(0) > SAMPLE:
            sample = torch.randperm(vectors.size(0), generator=context.generator())[:SAMPLE].to(labels.device)
            vectors, labels = vectors[sample], labels[sample]
        other = torch.triu(labels.unsqueeze(1) != labels.unsqueeze(0))
        between = self.space.distances(vectors, vectors)[other]
        if not between.numel():
            raise InputError(f"{context.task.name} has one class; coverage needs at least two")
        rank = min(int(self.quantile * between.numel()) + 1, between.numel())
        return float(between.kthvalue(rank).values)


@SELECTORS.register("cm*", aliases=("cm-star",), help="fewest nodes of other classes nearby, in embedding space")
class EmbeddingCoverage(FeatureCoverage):
    """CM*: coverage of the embedding space."""

    @inherit_options(FeatureCoverage)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.space = replace(self.space, name="embedding")
