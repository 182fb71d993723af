"""Mean of feature (MF, MF*): the nodes closest to the mean of their class."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import Distance, SelectionContext, Selector, Space, SpaceName

CHUNK = 8192
"""Nodes per chunk of vectors."""


class MeanOfFeature(Selector):
    """Nodes closest to the prototype ``c_l = 1/|S_l| Σ_{i∈S_l} x_i`` of their class (or of ``h_i``).

    Args:
        space: ``feature`` or ``embedding``.
        distance: ``euclidean`` or ``cosine``.
        normalize: divide each vector by its length before the mean is computed.
    """

    def __init__(self, space: SpaceName = "feature", distance: Distance = "euclidean", normalize: bool = False) -> None:
        self.space = Space(space, distance, normalize)

    @property
    def reads_embeddings(self) -> bool:
        return self.space.space == "embedding"

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


@SELECTORS.register("mf", help="closest to the class mean of features (mean of feature)")
class FeatureMean(MeanOfFeature):
    """MF: closest to the class mean of features.

    Feature vectors are first scaled to length 1: among raw bags of words, the shortest are closest to the mean.
    """

    def __init__(self, distance: Distance = "euclidean", normalize: bool = True) -> None:
        super().__init__("feature", distance, normalize)


@SELECTORS.register("mf*", aliases=("mf-star",), help="closest to the class mean of embeddings")
class EmbeddingMean(MeanOfFeature):
    """MF*: closest to the class mean of embeddings."""

    def __init__(self, distance: Distance = "euclidean", normalize: bool = False) -> None:
        super().__init__("embedding", distance, normalize)
