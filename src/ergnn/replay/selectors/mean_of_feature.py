"""Mean of feature (MF, MF*): the nodes nearest to the mean of their class."""

from __future__ import annotations

from torch import Tensor

from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext, Selector
from ergnn.replay.selectors.spaces import Space


class MeanOfFeature(Selector):
    """Nodes closest to the prototype ``c_l = 1/|S_l| Σ_{i∈S_l} x_i`` of their class (or of ``h_i``).

    Args:
        space: ``attribute`` or ``embedding``.
        distance: ``euclidean`` or ``cosine``.
        normalize: divide each vector by its length before the mean is taken.
    """

    def __init__(self, space: str = "attribute", distance: str = "euclidean", normalize: bool = False) -> None:
        self.space = Space(space, distance, normalize)

    def score(self, context: SelectionContext) -> Tensor:
        vectors, labels = self.space.vectors(context, context.nodes), context.labels
        scores = vectors.new_empty(vectors.size(0))
        for c in context.task.classes:
            members = (labels == c).nonzero().flatten()
            prototype = vectors[members].mean(0, keepdim=True)
            scores[members] = -self.space.distances(vectors[members], prototype).squeeze(1)
        return scores


@SELECTORS.register("mf", help="nearest to the class mean of attributes (mean of feature)")
class AttributeMean(MeanOfFeature):
    """MF: nearest to the class mean of attributes.

    Attribute vectors are brought to length 1 first: of raw bags of words, the nearest to the mean are the shortest.
    """

    def __init__(self, distance: str = "euclidean", normalize: bool = True) -> None:
        super().__init__("attribute", distance, normalize)


@SELECTORS.register("mf*", aliases=("mf-star",), help="nearest to the class mean of embeddings")
class EmbeddingMean(MeanOfFeature):
    """MF*: nearest to the class mean of embeddings."""

    def __init__(self, distance: str = "euclidean", normalize: bool = False) -> None:
        super().__init__("embedding", distance, normalize)
