"""Synthetic graphs of a given shape."""

from __future__ import annotations

import torch

from ergnn.data.graph import Graph
from ergnn.data.splits import per_class
from ergnn.data.stream import TaskStream


def bag_of_words_graph(
    nodes: int, edges: int, features: int, classes: int, words: int = 20, homophily: float = 0.7, seed: int = 0
) -> Graph:
    """Generate an undirected graph with class-dependent sparse features.

    Args:
        edges: number of undirected edges to draw; duplicates and self-loops are dropped.
        words: nonzeros per node; half of them from the words of its class.
        homophily: fraction of edges drawn within a class.
    """
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % classes
    source = torch.randint(nodes, (edges,), generator=g)
    anywhere = torch.randint(nodes, (edges,), generator=g)
    inside = (anywhere // classes) * classes + y[source]
    inside = torch.where(inside < nodes, inside, source)
    target = torch.where(torch.rand(edges, generator=g) < homophily, inside, anywhere)
    kept = source != target
    both = torch.stack([source[kept], target[kept]])
    low, high = both.min(0).values, both.max(0).values
    key = torch.unique(low * nodes + high)
    low, high = key // nodes, key % nodes
    edge_index = torch.stack([torch.cat([low, high]), torch.cat([high, low])])

    topic = max(features // classes, 1)
    general = torch.randint(features, (nodes, words - words // 2), generator=g)
    own = (y.unsqueeze(1) * topic + torch.randint(topic, (nodes, words // 2), generator=g)) % features
    key = torch.unique(torch.arange(nodes).repeat_interleave(words) * features + torch.cat([general, own], 1).flatten())
    row, col = key // features, key % features
    rowptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(row, minlength=nodes).cumsum(0)])
    x = torch.sparse_csr_tensor(rowptr, col, torch.ones(col.numel()), (nodes, features), check_invariants=False)
    return Graph(x, edge_index, y, name=f"synthetic-{nodes}").row_normalized()


def synthetic_stream(graph: Graph, classes_per_task: int = 2, train: int = 20, test: int = 50) -> TaskStream:
    split = per_class(graph.y, train=train, val=10, test=test)
    return TaskStream.from_classes(graph, classes_per_task=classes_per_task, split=split)


def corafull_like(seed: int = 0) -> Graph:
    """Generate a graph of CoraFull's shape: 19,793 nodes, 126,842 directed edges, 8,710 sparse features, 70 classes."""
    return bag_of_words_graph(19_793, 63_600, 8_710, 70, words=58, seed=seed)
