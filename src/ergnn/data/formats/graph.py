"""Tables of nodes and edges as one :class:`~ergnn.data.Graph`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from ergnn.data.formats.limits import truncate
from ergnn.data.formats.tables import SPLITS, EdgeTable, NodeTable, listed, numbered
from ergnn.data.graph import UNLABELED, Graph, Split
from ergnn.errors import InputError


class NamedGraph(NamedTuple):
    """A graph of numbered nodes and classes, and what the numbers stand for."""

    graph: Graph
    ids: np.ndarray
    class_names: tuple[str, ...]


def to_graph(
    nodes: NodeTable,
    edges: EdgeTable | None,
    *,
    classes: Sequence[str] | None = None,
    undirected: bool = True,
    name: str = "graph",
) -> NamedGraph:
    """Number nodes and classes; nodes keep their order, and sparse features stay sparse.

    Edges have no weights: the backbones treat all alike. An edge that occurs several times counts once, and edges from
    a node to itself are dropped, as layers add their own.

    Args:
        nodes: the nodes.
        edges: the edges; each must name nodes of ``nodes``.
        classes: class names in their order; by default those in the table, sorted as numbers where all are integers.
        undirected: add the reverse of every edge (as in the named data sets), or keep edges as they are.
        name: what the graph is called in messages and results.
    """
    names = class_order(nodes.labels) if classes is None else tuple(classes)
    if len(set(names)) < len(names):
        raise InputError(f"{name}: class {truncate(max(names, key=names.count))} is named twice")
    number: dict[str | None, int] = {None: UNLABELED, **{label: i for i, label in enumerate(names)}}
    for row, label in enumerate(nodes.labels):
        if label not in number:
            raise InputError(
                f"node {truncate(nodes.ids[row])} has label {truncate(label)}; classes are {listed(names)}"
            )
    y = torch.tensor([number[label] for label in nodes.labels], dtype=torch.long)
    edge_index, split = _edge_index(nodes, edges, undirected, name), None
    if nodes.split is not None:  # a node without a label is in no part
        labeled = (y != UNLABELED).numpy()
        split = Split(*(torch.from_numpy(np.flatnonzero((nodes.split == part) & labeled)) for part in SPLITS))
    graph = Graph(features_tensor(nodes), edge_index, y, name, public_split=split, class_names=names or None)
    return NamedGraph(graph.validate(), nodes.ids, names)


def from_graph(graph: Graph) -> tuple[NodeTable, EdgeTable]:
    """Tables of a graph: nodes are numbered from 0, labels are the classes' names or numbers, and the public split
    becomes the column ``split``."""
    graph.require_unweighted("a table of edges")
    ids = numbered(graph.num_nodes)
    names = graph.class_names or tuple(str(i) for i in range(graph.num_classes))
    split = None
    if graph.public_split is not None:
        split = np.full(graph.num_nodes, None, dtype=object)
        for part in SPLITS:
            split[getattr(graph.public_split, part).numpy()] = part
    if graph.is_sparse:
        parts = (graph.x.values(), graph.x.col_indices(), graph.x.crow_indices())
        features: Any = scipy.sparse.csr_matrix(tuple(part.numpy() for part in parts), shape=tuple(graph.x.shape))
    else:
        features = graph.x.numpy()
    labels = [None if label == UNLABELED else names[label] for label in graph.y.tolist()]
    source, target = ids[graph.edge_index.numpy()]
    return NodeTable(ids, labels, split=split, features=features), EdgeTable(source, target)


def class_order(labels: Iterable[str | None]) -> tuple[str, ...]:
    """The labels that occur, sorted: as numbers where all are integers, else as text."""
    found = {label for label in labels if label is not None}
    if all(label.isascii() and label.isdigit() and len(label) < 19 for label in found):
        return tuple(sorted(found, key=lambda label: (int(label), label)))
    return tuple(sorted(found))


def features_tensor(nodes: NodeTable) -> Tensor:
    """Features as a tensor, CSR where they are sparse."""
    features: Any = nodes.features
    if not nodes.is_sparse:
        return torch.from_numpy(np.array(features, dtype=np.float32, order="C"))
    return torch.sparse_csr_tensor(
        torch.from_numpy(features.indptr.astype(np.int64)),
        torch.from_numpy(features.indices.astype(np.int64)),
        torch.from_numpy(features.data.astype(np.float32)),
        features.shape,
        check_invariants=True,
    )


def _edge_index(nodes: NodeTable, edges: EdgeTable | None, undirected: bool, name: str) -> Tensor:
    if edges is None or not len(edges):
        return torch.empty(2, 0, dtype=torch.long)
    place = {node: i for i, node in enumerate(nodes.ids)}
    ends = []
    for what, column in (("source", edges.source), ("target", edges.target)):
        index = np.fromiter((place.get(node, -1) for node in column), dtype=np.int64, count=len(column))
        unknown = np.flatnonzero(index < 0)
        if unknown.size:
            row = int(unknown[0])
            raise InputError(
                f"{name}: edge {row + 1} names {what} {truncate(column[row])}, which is no node; "
                f"there are {len(place):,}, the first is {truncate(nodes.ids[0])}"
            )
        ends.append(index)
    source, target = (end[ends[0] != ends[1]] for end in ends)
    if undirected:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
    code = np.unique(source * len(place) + target)
    return torch.from_numpy(np.stack([code // len(place), code % len(place)]))
