"""SSM: remembered nodes with sparsified neighborhoods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.adjacency import adjacency_of
from ergnn.methods import METHODS
from ergnn.methods.balance import balance_classes
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.memory import STORES_VALUES, SelectorMethod
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import Selector


def sparsify(graph: Graph, nodes: Tensor, hops: int, neighbors: int, generator: torch.Generator) -> Graph:
    """Return the same graph with only the edges between sampled nodes.

    Per hop, each node of the previous hop samples at most ``neighbors`` of its neighbors without replacement, with
    probabilities in proportion to their degrees: those with the smallest keys ``E / degree`` for exponential E
    (Efraimidis and Spirakis, 2006).
    """
    adj = adjacency_of(graph)
    inside = torch.zeros(graph.num_nodes, dtype=torch.bool, device=nodes.device)
    inside[nodes] = True
    for _ in range(hops):
        row, source = adj.incoming(nodes)
        chance = torch.rand(row.numel(), generator=generator, dtype=torch.float64).to(row.device)
        keys = -torch.log1p(-chance) / adj.degrees(source).clamp(min=1)
        order = torch.argsort(keys, stable=True)
        order = order[torch.argsort(row[order], stable=True)]
        first = torch.searchsorted(row, row)  # position of the first edge into the same node
        rank = torch.arange(row.numel(), device=row.device) - first
        nodes = source[order[rank < neighbors]].unique()
        nodes = nodes[~inside[nodes]]
        inside[nodes] = True
    source, target = graph.edge_index
    return replace(graph, edge_index=graph.edge_index[:, inside[source] & inside[target]], public_split=None)


@METHODS.register("ssm", help="replay nodes with sparsified neighborhoods (sparsified subgraph memory)")
class SSM(SelectorMethod):
    """Sparsified subgraph memory (Zhang et al., 2022).

    A remembered node is stored with a sparsified computation graph: per hop, at most ``neighbors`` neighbors of each
    node, sampled in proportion to their degrees, and the edges between all sampled nodes. The loss is
    ``Σ_c mean_{v∈c} CE(z_v, y_v) / C`` over the C classes of the task and the memory.

    Args:
        neighbors: maximum number of neighbors sampled per node and hop.
    """

    comparison = Comparison(search={"neighbors": (3, 5, 10)})
    folder = STORES_VALUES

    @inherit_options(SelectorMethod, "replay")
    def __init__(self, *, selector: str | Selector = "random", neighbors: int = 5, **memory: Any) -> None:
        check_at_least(0, neighbors=neighbors)
        super().__init__(selector=selector, replay="ego", **memory)
        self.neighbors = neighbors

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        return balance_classes(Examples.join(self.parts(learner, task)))

    def graph_to_store(self, learner: LearnerView, task: Task, nodes: Tensor) -> Graph:
        generator = task.generator(learner.seed, 71)
        return sparsify(task.graph, nodes, self.buffer.hops, self.neighbors, generator)
