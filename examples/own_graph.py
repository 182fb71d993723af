"""Use your own graph (a PyG Data) and your own model (any module).

python examples/own_graph.py [epochs]
"""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import stochastic_blockmodel_graph

import ergnn
from ergnn.data import splits

CLASSES, PER_CLASS, FEATURES = 6, 60, 16


def make_data() -> Data:
    """Create six communities with noisy features."""
    torch.manual_seed(0)
    y = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    links = 0.002 + 0.1 * torch.eye(CLASSES)
    edge_index = stochastic_blockmodel_graph([PER_CLASS] * CLASSES, links)
    x = torch.randn(CLASSES, FEATURES)[y] + 4 * torch.randn(y.numel(), FEATURES)
    return Data(x=x, edge_index=edge_index, y=y)


class MyGNN(nn.Module):
    """Any module with forward(x, edge_index). Its outputs are split evenly among the heads: 3 tasks × 2 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GCNConv(FEATURES, 32), GCNConv(32, CLASSES)

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return embeddings, which only selectors in embedding space (mf*, cm*) need."""
        return F.relu(self.first(x, edge_index))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.embed(x, edge_index), edge_index)


def main(epochs: int = 100) -> None:
    graph = ergnn.Graph.from_pyg(make_data(), name="communities")  # masks of the data would become its public split
    split = splits.per_class(graph.y, train=10, val=10, seed=0)
    stream = ergnn.TaskStream.from_classes(graph, classes_per_task=2, class_order="shuffled", split=split)
    print(stream)

    learner = ergnn.Learner(MyGNN(), selector="mf*", per_class=2, epochs=epochs, lr=0.01)
    for task in stream:
        learner.observe(task)
        print(f"after {task.name}:", [f"{learner.evaluate(seen):.1%}" for seen in stream[: task.id + 1]])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
