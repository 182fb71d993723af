"""Split tables into a stream of tasks by class, time or domain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ergnn.config.errors import InputError, check_choice, truncate
from ergnn.config.learner_config import EDGES
from ergnn.data import splits
from ergnn.data.scenarios.assignment import assigned_stream, periods
from ergnn.data.stream import TaskStream
from ergnn.data.tables.named_graph import to_graph
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.data.tables.values import seconds

WAYS = ("class", "time", "domain")


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
    undirected: bool = True,
    name: str = "graph",
    metric: str = "accuracy",
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
        undirected: add the reverse of every edge.
        name: name of the stream in results.
        metric: metric of the tasks.
    """
    check_choice("way to cut", by, WAYS)
    check_choice("inter_task_edges", inter_task_edges, EDGES)
    if boundaries is not None and by != "time":
        raise InputError(f"boundaries go with by='time'; by is {by!r}")
    graph, _, class_names = to_graph(nodes, edges, undirected=undirected, name=name)
    if by == "class":
        train, val, test = fractions
        return TaskStream.from_classes(
            graph,
            classes_per_task=classes_per_task,
            num_tasks=num_tasks,
            class_order="natural" if order is None else _positions(order, class_names, "class"),
            split=graph.public_split or splits.fractions(graph.y, train=train, val=val, test=test, seed=seed),
            edges=inter_task_edges,
            metric=metric,
        )
    task_of_node = _periods(nodes, num_tasks, boundaries) if by == "time" else _domains(nodes, num_tasks, order)
    sizes = splits.Sizes(*map(float, fractions))
    return assigned_stream(graph, torch.from_numpy(task_of_node), sizes, seed, inter_task_edges, metric)


def _periods(nodes: NodeTable, num_tasks: int | None, boundaries: Sequence[float | str] | None) -> np.ndarray:
    if nodes.time is None:
        raise InputError("by is 'time', but the nodes have no column 'time'")
    if (num_tasks is None) == (boundaries is None):
        raise InputError("by is 'time'; give num_tasks or boundaries, and not both")
    starts = None if boundaries is None else [_moment(value) for value in boundaries]
    return periods(nodes.time, num_tasks, starts)


def _moment(value: float | str) -> float:
    if not isinstance(value, str):
        return float(value)
    try:
        return seconds(value)
    except ValueError:
        raise InputError(f"boundary {truncate(value)} is not a date such as 2024-05-31") from None


def _domains(nodes: NodeTable, num_tasks: int | None, order: Sequence[str] | None) -> np.ndarray:
    if nodes.domain is None:
        raise InputError("by is 'domain', but the nodes have no column 'domain'")
    names = tuple(dict.fromkeys(domain for domain in nodes.domain if domain is not None))
    names = names if order is None else tuple(names[i] for i in _positions(order, names, "domain"))
    if num_tasks is not None and not 1 <= num_tasks <= len(names):
        raise InputError(f"num_tasks is {num_tasks}; {len(names)} domains make 1 to {len(names)}")
    task_of = {domain: i for i, domain in enumerate(names[:num_tasks])}
    return np.array([task_of.get(domain, -1) for domain in nodes.domain], dtype=np.int64)


def _positions(order: Sequence[str], names: tuple[str, ...], what: str) -> list[int]:
    if sorted(order) != sorted(names):
        raise InputError(
            f"order is {truncate(list(order))}; it must name every {what} once: {truncate(sorted(names), 200)}"
        )
    return [names.index(name) for name in order]
