"""The spaces of MF and CM, and distances in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import check_choice
from ergnn.replay.selectors.base import SelectionContext

SpaceName = Literal["feature", "embedding"]
Distance = Literal["euclidean", "cosine"]


class Space:
    """The space in which nodes are compared.

    Args:
        space: ``feature`` (x_i) or ``embedding`` (h_i, the input of the output layer).
        distance: ``euclidean``, or ``cosine`` (1 − cos).
        normalize: divide each vector by its length first.
    """

    def __init__(self, space: SpaceName, distance: Distance, normalize: bool) -> None:
        check_choice("space", space, SpaceName)
        check_choice("distance", distance, Distance)
        self.space, self.distance, self.normalize = space, distance, normalize

    def vectors(self, context: SelectionContext, nodes: Tensor) -> Tensor:
        rows = context.graph.rows(nodes) if self.space == "feature" else context.embed(nodes)
        rows = rows.double()
        return F.normalize(rows, dim=1) if self.normalize else rows

    def distances(self, a: Tensor, b: Tensor) -> Tensor:
        """Return all distances between the rows of ``a`` and of ``b``."""
        if self.distance == "cosine":
            return 1.0 - F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")

    def chunks(self, a: Tensor, b: Tensor, entries: int = 1 << 22) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``distances(a, b)`` in chunks of rows: positions in ``a``, and their rows."""
        step = max(1, entries // max(b.size(0), 1))
        for index in torch.arange(a.size(0), device=a.device).split(step):
            yield index, self.distances(a[index], b)
