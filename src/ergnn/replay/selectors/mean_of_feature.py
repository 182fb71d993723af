"""Mean of feature (MF, MF*): the nodes closest to the mean of their class."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import Distance, SelectionContext, Selector, Space

CHUNK = 8192
"""Nodes per chunk of vectors."""


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
            parts = members.split(CHUNK)
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
