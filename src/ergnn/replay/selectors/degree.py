"""Degree: the nodes with the most neighbors."""

from __future__ import annotations

from torch import Tensor

from ergnn.engine.adjacency import adjacency_of
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext, Selector


@SELECTORS.register("degree", help="most edges in the task's graph")
class Degree(Selector):
    """Nodes with the largest in-degree, self-loops not counted."""

    def score(self, context: SelectionContext) -> Tensor:
        return adjacency_of(context.graph).without_loops().degrees(context.nodes)
