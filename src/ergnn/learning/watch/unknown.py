"""Unknown classes: detection of nodes that belong to none of the classes seen so far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

import torch
from torch import Tensor

from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency
from ergnn.analytic.head import SKETCH_SIZE
from ergnn.config.errors import InputError
from ergnn.data.graph import Graph

RATE = 0.05
"""Share of nodes of known classes that are reported as unknown."""
NUM_HOPS = 2


def unknown_rows(graph: Graph, nodes: Tensor) -> Tensor:
    """``[X, SX, S²X]`` of some nodes with rows of unit length, the input of :class:`UnknownScore`."""
    sketch = SKETCH_SIZE if graph.num_features > SKETCH_SIZE else None
    inputs = Inputs(graph, sketch, torch.float32)
    features = Features(
        FEATURE_MAPS.create("hops", num_hops=NUM_HOPS), NormalizedAdjacency(graph, graph.edge_weight), inputs
    )
    return features.rows(nodes)[:, :-1]


@dataclass(frozen=True, eq=False)
class UnknownScore:
    """How far a node is from every known class: ``s(z) = −max_c ⟨z − m, μ_c − m⟩ / ‖μ_c − m‖``.

    z is the node's row of propagated features, μ_c the mean over the training nodes of class c, and m the mean over
    nodes of the whole graph, labeled or not. A node whose features and neighborhood are typical of the graph as a whole
    but of no class has a score of about 0; the score is negative along a class. This differs from a nearest class mean
    by the center m, which includes nodes of unknown classes.

    Args:
        center: m, ``[width]``.
        directions: ``(μ_c − m) / ‖μ_c − m‖``, ``[classes, width]``.
        threshold: nodes with higher scores are reported as unknown.
        rate: share of nodes of known classes above the threshold.
    """

    center: Tensor
    directions: Tensor
    threshold: float = inf
    rate: float = RATE

    @classmethod
    def fit(cls, rows: Tensor, labels: Tensor, background: Tensor) -> UnknownScore:
        """Fit to rows of training nodes with their labels, and to rows of any nodes of the graph."""
        if not rows.size(0) or rows.size(0) != labels.numel() or not background.size(0):
            raise InputError(
                f"{rows.size(0)} rows, {labels.numel()} labels and {background.size(0)} background rows; as many rows "
                "as labels are needed, and at least one of each"
            )
        center = background.mean(0)
        means = torch.stack([rows[labels == c].mean(0) for c in labels.unique()]) - center
        return cls(center, means / means.norm(dim=1, keepdim=True).clamp(min=1e-12))

    def score(self, rows: Tensor) -> Tensor:
        """The score s of each row."""
        return -((rows - self.center) @ self.directions.T).amax(1)

    def with_threshold(self, val: Tensor, rate: float = RATE) -> UnknownScore:
        """Set the threshold to the ``⌈(n+1)(1−rate)⌉``-th smallest score of n validation rows of known classes.

        A further node of a known class that is exchangeable with them is reported as unknown with probability at most
        ``rate`` (split conformal prediction; Vovk et al., 2005). With too few rows for that, nothing is unknown.
        """
        if not 0 < rate < 1:
            raise InputError(f"rate is {rate}; it must be above 0 and below 1")
        scores, place = self.score(val).sort().values, ceil((val.size(0) + 1) * (1 - rate)) - 1
        return replace(self, threshold=float(scores[place]) if place < val.size(0) else inf, rate=rate)

    def count(self, rows: Tensor) -> dict[str, Any]:
        """Count the unknown nodes, and return the threshold (None if there is none) and the rate as well."""
        above = int((self.score(rows) > self.threshold).sum())
        threshold = self.threshold if self.threshold < inf else None
        return {"rate": self.rate, "threshold": threshold, "nodes": rows.size(0), "above": above}
