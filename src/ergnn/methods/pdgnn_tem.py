"""PDGNN with a topology-aware embedding memory: propagated features are stored and replayed through an MLP."""

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
from ergnn.engine.cache import Cache
from ergnn.engine.propagation import propagate
from ergnn.methods import METHODS
from ergnn.methods.balance import balance_classes
from ergnn.methods.base import Comparison, LearnerView, Scorer
from ergnn.methods.memory import STORES_VALUES, MemoryMethod
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import Selection

_EMBEDDED: Cache[Graph] = Cache()


def embedded(graph: Graph, hops: int) -> Graph:
    """Return the nodes with features ``S^K X`` and no edges; computed once per graph."""

    def make() -> Graph:
        edges = torch.empty(2, 0, dtype=torch.long, device=graph.device)
        return replace(graph, x=propagate(graph, hops), edge_index=edges, public_split=None)

    return _EMBEDDED.get([graph], make, hops)


def coverage(graph: Graph, nodes: Tensor, hops: int) -> Tensor:
    """Return the number of nodes within ``hops`` of each node, itself included."""
    adj, n = adjacency_of(graph), graph.num_nodes
    pairs = torch.arange(nodes.numel(), device=nodes.device) * n + nodes
    for _ in range(hops):
        row, source = adj.incoming(pairs % n)
        pairs = torch.cat([pairs, (pairs // n)[row] * n + source]).unique()
    return torch.bincount(pairs // n, minlength=nodes.numel())


@METHODS.register("pdgnn-tem", help="store propagated features, replay them through an MLP (PDGNN with TEM)")
class PDGNN(MemoryMethod):
    """Parameter-decoupled GNN with a topology-aware embedding memory (Zhang et al., 2024).

    The topology-aware embedding of node v is its row of ``S^K X``; the network is an MLP on these (any backbone is one,
    as the nodes have no edges). e embeddings per class are stored, sampled without replacement in proportion to
    coverage, the number of nodes within K hops. A stored embedding contains the whole neighborhood in constant size.

    The loss is ``Σ_c mean_{v∈c} CE(z_v, y_v) / C`` over the C classes of the task and the memory.

    Args:
        hops: K, number of propagation steps.
    """

    backbone = "mlp"
    comparison = Comparison(search={"hops": (1, 2, 3)})
    folder = STORES_VALUES

    @inherit_options(MemoryMethod, "replay")
    def __init__(self, *, hops: int = 2, **memory: Any) -> None:
        check_at_least(0, hops=hops)
        super().__init__(replay="isolated", hops=1, **memory)
        self.hops = hops

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        seen = replace(task, graph=embedded(task.graph, self.hops))
        return balance_classes(Examples.join(self.parts(learner, seen)))

    def select(self, learner: LearnerView, task: Task, trained_on: Examples) -> Selection:
        context = learner.selection_context(task, trained_on, self.per_class, False)
        generator, labels = context.generator(), context.labels
        covered = coverage(task.graph, task.train, self.hops).double()
        chosen = []
        for c in task.classes:
            members = (labels == c).nonzero().flatten()
            count = min(self.per_class, members.numel())
            picked = torch.multinomial(covered[members].cpu(), count, generator=generator)
            chosen.append(members[picked.to(members.device)])
        index = torch.cat(chosen)
        return Selection(task.train[index], covered[index].float())

    def graph_to_store(self, learner: LearnerView, task: Task, nodes: Tensor) -> Graph:
        return embedded(task.graph, self.hops)

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        return super().scorer(learner, embedded(graph, self.hops), task)
