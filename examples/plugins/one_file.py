"""A plug-in in one file: a selector, a backbone, a method and a data set. Use it with ``--import one_file.py``."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GraphConv

from ergnn.data import DATASETS, Graph, PublicSplitUnavailable, Task
from ergnn.data.datasets import Dataset
from ergnn.methods import METHODS, LearnerView, Method
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.examples import Examples
from ergnn.replay import SELECTORS, SelectionContext, Selector


@SELECTORS.register("hub", help="nodes with the most neighbors")
class Hub(Selector):
    def score(self, context: SelectionContext) -> Tensor:
        degree = torch.bincount(context.graph.edge_index[1], minlength=context.graph.num_nodes)
        return degree[context.nodes]


@BACKBONES.register("graphconv", help="two layers with separate weights for a node and its neighbors")
class GraphConvNet(Backbone):
    lr = 0.01

    def __init__(
        self, in_channels: int, out_channels: int | None = None, hidden: int = 16, dropout: float = 0.5
    ) -> None:
        super().__init__(out_channels, [GraphConv(in_channels, hidden)], F.relu, dropout, embedding_size=hidden)

    def make_head(self, out_channels: int) -> nn.Module:
        return GraphConv(self.embedding_size, out_channels)


@METHODS.register("keep-all", help="continue training on all training nodes so far")
class KeepAll(Method):
    """Trains on all training nodes of all tasks.

    Args:
        old_weight: weight of a node of an earlier task, relative to 1 for the current task.
    """

    def __init__(self, old_weight: float = 1.0) -> None:
        self.old_weight = old_weight
        self.seen: list[Tensor] = []

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        own = learner.examples(task.graph, task.train, task.id)
        old = [learner.examples(task.graph, nodes, number) for number, nodes in enumerate(self.seen)]
        joined = Examples.join([own, *old])
        weights = torch.full((len(joined),), self.old_weight, device=joined.nodes.device)
        weights[: len(own)] = 1.0
        return joined.weighted(weights / weights.sum())

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        self.seen.append(task.train)
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"seen": list(self.seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = list(state["seen"])


@DATASETS.register("rings")
class Rings(Dataset):
    """Four rings of 60 nodes; features are the ring of a node plus noise."""

    name, title = "rings", "Rings"
    nodes, features, classes, edges = 240, 4, 4, 240
    bag_of_words = False

    def load(self, split: str, root: Path | None = None) -> Graph:
        if split == "public":
            raise PublicSplitUnavailable("rings: no split was published")
        node = torch.arange(self.nodes)
        ring = node // 60
        following = ring * 60 + (node + 1) % 60
        noise = torch.randn(self.nodes, self.features, generator=torch.Generator().manual_seed(0))
        edges = torch.stack([torch.cat([node, following]), torch.cat([following, node])])
        return Graph(torch.eye(4)[ring] + 0.5 * noise, edges, ring, name=self.name)

    def location(self, root: Path | None = None) -> str:
        return "made on the spot"
