"""Why a learner gives a class, which labels it doubts, and which nodes to label next; for the closed form only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ergnn.analytic import AnalyticHead
from ergnn.analytic import explain as effects
from ergnn.config.errors import InputError
from ergnn.data.graph import Graph

if TYPE_CHECKING:
    from ergnn.learning.learner import Learner


def head_of(learner: Learner, graph: Graph) -> tuple[AnalyticHead, effects.LabelEffects, float]:
    """Return the solved head of a learner, what its labels do in a graph, and its temperature."""
    head = learner.method
    if not isinstance(head, AnalyticHead) or learner.method.trains_network:
        raise InputError(
            f"method {type(head).__name__} trains a network, and only the closed form can be explained: use "
            "method='analytic' without a student"
        )
    known = effects.effects_of(head.labeled_rows(graph))
    assert head.solution is not None
    return head, known, head.solution.temperature


def explain(learner: Learner, graph: Graph, node: int) -> effects.Explanation:
    head, known, temperature = head_of(learner, graph)
    if not 0 <= node < graph.num_nodes:
        raise InputError(f"explain: node is {node}; it must be 0 to {graph.num_nodes - 1}")
    return effects.explain(known, head.rows(graph, torch.tensor([node], device=graph.device)), temperature)[0]


def audit(learner: Learner, graph: Graph) -> effects.Doubts:
    _, known, temperature = head_of(learner, graph)
    return effects.doubts(known, temperature)


def suggest(learner: Learner, graph: Graph, count: int, among: Tensor | None, by: str) -> Tensor:
    head, known, temperature = head_of(learner, graph)
    nodes = torch.arange(graph.num_nodes, device=graph.device) if among is None else among.to(graph.device).unique()
    nodes = nodes[~torch.isin(nodes, known.nodes)]
    if not nodes.numel():
        raise InputError("suggest: all of the nodes have a label; nothing is left to label")
    return nodes[effects.choose(known, head.rows(graph, nodes), count, by, temperature)]
