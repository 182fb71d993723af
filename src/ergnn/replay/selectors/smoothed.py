"""Propagated features S^K X, for selectors that need no model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.engine.propagation import propagate
from ergnn.replay.selectors.base import SelectionContext

HOPS = 2


def smoothed(graph: Graph, nodes: Tensor, hops: int = HOPS) -> Tensor:
    """Compute ``(S^K X)_u / ‖(S^K X)_u‖`` with ``S = D̃^-½ (A + I) D̃^-½``, for the given nodes, as float64.

    Rows of zeros stay zeros.
    """
    return F.normalize(propagate(graph, hops, nodes=nodes).double(), dim=1)


def labeled(context: SelectionContext) -> Tensor:
    """Return the labeled nodes of the task: train ∪ val (there may be no validation nodes)."""
    train = context.split("train")
    return torch.cat([train, context.split("val")]) if context.task.val.numel() else train
