"""Convert tables of nodes and edges to a :class:`~ergnn.data.Graph` or a stream of tasks, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse
import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_choice, check_within, listed, truncate
from ergnn.data import splits
from ergnn.data.graph import UNLABELED, Graph, Split, csr_tensor
from ergnn.data.scenarios import assigned_stream, periods
from ergnn.data.stream import TaskStream
from ergnn.data.structure import structural_features
from ergnn.data.tables.columns import label_hint
from ergnn.data.tables.encoder import Encoder
from ergnn.data.tables.kinds import decide_kinds, encode_values
from ergnn.data.tables.node_tables import SPLITS, EdgeTable, EncodedText, NodeTable
from ergnn.data.tables.values import to_times


class NamedGraph(NamedTuple):
    """A graph with the ids of its nodes and the names of its classes."""

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
    """Convert tables to a graph; nodes keep their order, and sparse features stay sparse.

    Duplicate edges count once, with their largest weight, and self-loops are dropped, since layers add their own.

    Args:
        nodes: the nodes.
        edges: edges between ids in ``nodes``.
        classes: class names in order; default: those in the table, sorted as numbers if all are integers.
        undirected: add the reverse of every edge, as in the named data sets.
        name: name of the graph in messages and results.
    """
    names = class_order(nodes.labels) if classes is None else tuple(classes)
    hint = "" if names else label_hint(nodes.columns or nodes.feature_names or ())
    if hint:
        raise InputError(f"{name}: no node has a label{hint}, or leave it out with --ignore-column")
    if len(set(names)) < len(names):
        raise InputError(f"{name}: class {truncate(max(names, key=names.count))} is named twice")
    number: dict[str | None, int] = {None: UNLABELED, **{label: i for i, label in enumerate(names)}}
    for row, label in enumerate(nodes.labels):
        if label not in number:
            raise InputError(
                f"node {truncate(nodes.ids[row])} has label {truncate(label)}; classes are {listed(names)}"
            )
    y = torch.tensor([number[label] for label in nodes.labels], dtype=torch.long)
    (edge_index, weight), split = _edge_index(nodes, edges, undirected, name), None
    if nodes.split is not None:  # a node without a label is in no part
        labeled = (y != UNLABELED).numpy()
        split = Split(*(torch.from_numpy(np.flatnonzero((nodes.split == part) & labeled)) for part in SPLITS))
    features = features_tensor(nodes)
    if not features.size(1):
        features = csr_tensor(structural_features(nodes.ids, edge_index.numpy()))
    graph = Graph(features, edge_index, y, name, public_split=split, class_names=names or None, edge_weight=weight)
    return NamedGraph(graph.validate(), nodes.ids, names)


def from_graph(graph: Graph) -> tuple[NodeTable, EdgeTable]:
    """Convert a graph to tables: nodes are numbered from 0, labels are names or numbers of classes, and the public
    split is the column ``split``."""
    ids = [str(i) for i in range(graph.num_nodes)]
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
    source, target = (EncodedText(ids, end) for end in graph.edge_index.numpy())
    weight = None if graph.edge_weight is None else graph.edge_weight.numpy()
    return NodeTable(ids, labels, split=split, features=features), EdgeTable(source, target, weight)


def class_order(labels: Iterable[str | None]) -> tuple[str, ...]:
    """Sort the labels that occur: as numbers if all are integers, otherwise as text."""
    distinct = {label for label in labels if label is not None}
    if all(label.isascii() and label.isdigit() and len(label) < 19 for label in distinct):
        return tuple(sorted(distinct, key=lambda label: (int(label), label)))
    return tuple(sorted(distinct))


def features_tensor(nodes: NodeTable) -> Tensor:
    """Convert features to a tensor, in CSR form if they are sparse; columns of any kind are encoded."""
    features: Any = nodes.features
    if nodes.columns:
        kinds = decide_kinds(nodes.columns, {}, "nodes")
        if not nodes.num_features or any(kind.kind not in ("word", "ignore") for kind in kinds):
            codes = encode_values(kinds, nodes.columns, "nodes")
            features = Encoder.fit(kinds, codes.numbers, codes.values).features(codes)
    if scipy.sparse.issparse(features):
        return csr_tensor(features)
    return torch.from_numpy(np.array(features, dtype=np.float32, order="C"))


def _edge_index(nodes: NodeTable, edges: EdgeTable | None, undirected: bool, name: str) -> tuple[Tensor, Tensor | None]:
    from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

    if edges is None or not len(edges):
        return torch.empty(2, 0, dtype=torch.long), None
    index_of = {node: i for i, node in enumerate(nodes.ids)}
    ends = [np.array([index_of.get(node, -1) for node in end.values], np.int64)[end.codes] for end in edges.ends]
    for what, index, column in zip(("source", "target"), ends, edges.ends, strict=True):
        for row in np.flatnonzero(index < 0):
            raise InputError(
                f"{name}: edge {row + 1} names {what} {truncate(column.values[column.codes[row]])}, which is no node; "
                f"there are {len(index_of):,}, the first is {truncate(nodes.ids[0])}"
            )
    weight = None if edges.weight is None else torch.from_numpy(edges.weight)
    edge_index, weight = remove_self_loops(torch.from_numpy(np.stack(ends)), weight)
    merge = to_undirected if undirected else coalesce
    return merge(edge_index, weight, num_nodes=len(index_of), reduce="max")


def cut(
    nodes: NodeTable,
    edges: EdgeTable | None,
    *,
    by: str = "class",
    num_tasks: int | None = None,
    classes_per_task: int = 2,
    boundaries: Sequence[float | str] | None = None,
    order: Sequence[str] | None = None,
    fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    inter_task_edges: str = "seen",
    **of_graph: Any,
) -> TaskStream:
    """Split a graph into tasks.

    The column ``split`` is used if there is one; otherwise the labeled nodes of every class (by time and domain: of
    every class of a task) are split at random. By time and domain, the classes of a task are those with training nodes
    in it, in the order of :func:`to_graph`. Nodes without a time or domain, and those of other classes, are context:
    present from the start, without a label.

    Args:
        nodes: the nodes, with the column ``time`` or ``domain`` if ``by`` names it.
        edges: the edges.
        by: ``class``, ``time`` or ``domain``.
        num_tasks: by class and domain, the number of tasks (default: all); by time, the number of parts of equal size
            (nodes with equal times stay together).
        classes_per_task: classes per task, by class.
        boundaries: by time, instead of ``num_tasks``: start of each task but the first, as numbers or dates.
        order: order of classes or domains; default: that of :func:`to_graph`, and for domains that of the table.
        fractions: fractions of training, validation and test nodes, without a column ``split``.
        seed: seed of the random split.
        inter_task_edges: edges that are visible during a task, as in :meth:`TaskStream.from_classes`: ``seen``
            (among nodes of this and earlier tasks), ``all`` or ``own``.
        of_graph: ``classes``, ``undirected`` and ``name`` of :func:`to_graph`.
    """
    check_choice("way to cut", by, ("class", "time", "domain"))
    if boundaries is not None and by != "time":
        raise InputError(f"boundaries go with by='time'; by is {by!r}")
    if by != "class" and getattr(nodes, by) is None:
        raise InputError(f"by is {by!r}, but the nodes have no column {by!r}")
    sizes = splits.Sizes(*map(float, fractions))
    graph, _, class_names = to_graph(nodes, edges, **of_graph)
    if by == "class":
        return TaskStream.from_classes(
            graph,
            classes_per_task=classes_per_task,
            num_tasks=num_tasks,
            class_order="natural" if order is None else _positions(order, class_names, "class"),
            split=graph.public_split or sizes.draw(graph.y, seed),
            edges=inter_task_edges,
        )
    by_time = by == "time"
    tasks = _periods(nodes.time, num_tasks, boundaries) if by_time else _domains(nodes.domain, num_tasks, order)
    return assigned_stream(graph, torch.from_numpy(tasks), sizes, seed, inter_task_edges)


def _periods(time: np.ndarray, num_tasks: int | None, boundaries: Sequence[float | str] | None) -> np.ndarray:
    if (num_tasks is None) == (boundaries is None):
        raise InputError("by is 'time'; give num_tasks or boundaries, and not both")
    starts = None
    if boundaries is not None:
        starts = [float(to_times(pa.array([str(start)]), "boundaries")[0]) for start in boundaries]
    return periods(time, num_tasks, starts)


def _domains(domains: np.ndarray, num_tasks: int | None, order: Sequence[str] | None) -> np.ndarray:
    names = tuple(dict.fromkeys(domain for domain in domains if domain is not None))
    names = names if order is None else tuple(names[i] for i in _positions(order, names, "domain"))
    check_within("domains", 1, len(names), num_tasks=len(names) if num_tasks is None else num_tasks)
    task_of = {domain: i for i, domain in enumerate(names[:num_tasks])}
    return np.array([task_of.get(domain, -1) for domain in domains], dtype=np.int64)


def _positions(order: Sequence[str], names: tuple[str, ...], what: str) -> list[int]:
    if sorted(order) != sorted(names):
        raise InputError(
            f"order is {truncate(list(order))}; it must name every {what} once: {truncate(sorted(names), 200)}"
        )
    return [names.index(name) for name in order]
