"""Streams of tasks, split from one graph.

A task holds indices into a graph. Node ids are the same in every task, and features and labels are shared tensors; a
*view* only selects the edges that are visible while a task is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any, overload

import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_choice, check_within, truncate
from ergnn.config.learner_config import EDGES, LEFTOVERS
from ergnn.data import splits
from ergnn.data.graph import SPLITS, UNLABELED, Graph, Split

METRICS = ("accuracy", "micro-f1")
CLASS_ORDERS = ("natural", "shuffled")


@dataclass(frozen=True, eq=False)
class Task:
    """One task of a stream.

    Args:
        id: position in the stream, from 0.
        graph: the graph visible while the task is learned; node ids are those of every other task (but see own_graph).
        train: training nodes; like ``val`` and ``test``, ids of nodes of this task's classes.
        val: validation nodes; may be empty.
        test: test nodes.
        classes: the task's global class ids, in the task's order.
        own_graph: whether node ids and features belong to this task alone, as when tasks differ in their domain. The
            task is then always scored in its own graph, and replay must store copies of its nodes.
    """

    id: int
    graph: Graph
    train: Tensor
    val: Tensor
    test: Tensor
    classes: tuple[int, ...]
    own_graph: bool = False

    @property
    def name(self) -> str:
        """Name for messages and tables, e.g. ``task 2 (classes 2, 3)``, counted from 1."""
        return f"task {self.id + 1} (classes {', '.join(_class_label(self.graph, c) for c in self.classes)})"

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @cached_property
    def train_counts(self) -> dict[int, int]:
        """Number of training nodes of each class; read once, as many learners may learn the same task."""
        labels = self.graph.y[self.train]
        return {c: int((labels == c).sum()) for c in self.classes}

    def generator(self, seed: int, salt: int) -> torch.Generator:
        """Return a random generator for one purpose, which ``salt`` identifies, in this task."""
        return task_generator(seed, self.id, salt)

    def targets(self, nodes: Tensor) -> Tensor:
        """Return the nodes' labels as positions in ``classes``, the targets of a head for this task."""
        labels = self.graph.y[nodes]
        hit = labels.unsqueeze(1) == torch.tensor(self.classes, device=labels.device)
        known = hit.any(dim=1)
        if not bool(known.all()):
            node = int(nodes[~known][0])
            raise InputError(f"{self.name}: node {node} has label {int(self.graph.y[node])}, not one of the task's")
        return hit.int().argmax(dim=1)

    def to(self, device: torch.device | str, graph: Graph | None = None) -> Task:
        """Move the task to a device; ``graph`` is its graph there, if it was moved already."""
        nodes = {part: getattr(self, part).to(device) for part in SPLITS}
        return replace(self, graph=self.graph.to(device) if graph is None else graph, **nodes)


def task_generator(seed: int, task: int, salt: int) -> torch.Generator:
    """Return a random generator for one purpose, which ``salt`` identifies, in the task with this number."""
    return torch.Generator().manual_seed((seed * 1_000_003 + task * 7919 + salt) % 2**63)


class LazyTasks(Sequence[Task]):
    """Tasks of the same classes that are built on access; only the last two stay in memory."""

    def __init__(self, num_tasks: int, make: Callable[[int], Task]) -> None:
        self.num_tasks, self.make = num_tasks, lru_cache(maxsize=2)(make)

    def __getitem__(self, index: Any) -> Any:
        tasks = range(self.num_tasks)[index]
        if isinstance(tasks, range):
            return LazyTasks(len(tasks), lambda i: self.make(tasks[i]))
        return self.make(tasks)

    def __len__(self) -> int:
        return self.num_tasks


class TaskStream(Sequence[Task]):
    """A checked sequence of tasks.

    Args:
        tasks: the tasks; ``tasks[i].id`` must be ``i``. Of :class:`LazyTasks`, only the first is checked.
        name: name of the stream in results.
        metric: score of a task, ``accuracy`` or ``micro-f1``.
        notes: notes to print with results, e.g. how nodes were split.
    """

    def __init__(
        self, tasks: Sequence[Task], *, name: str = "stream", metric: str = "accuracy", notes: Sequence[str] = ()
    ) -> None:
        check_choice("metric", metric, METRICS)
        if not tasks:
            raise InputError(f"{name}: a stream needs at least one task")
        for position, task in enumerate(tasks[:1] if isinstance(tasks, LazyTasks) else tasks):
            _check_task(task, position, name)
        self.name, self.metric, self.notes = name, metric, tuple(notes)
        self._tasks: Sequence[Task] = tasks if isinstance(tasks, LazyTasks) else tuple(tasks)

    @classmethod
    def from_classes(
        cls,
        graph: Graph,
        *,
        classes_per_task: int = 2,
        num_tasks: int | None = None,
        class_order: str | Sequence[int] = "natural",
        order_seed: int = 0,
        split: str | Split = "auto",
        split_seed: int = 0,
        edges: str = "all",
        leftover: str = "context",
        metric: str = "accuracy",
    ) -> TaskStream:
        """Split a graph into tasks of ``classes_per_task`` classes each.

        Args:
            graph: the whole graph; all its values are checked first.
            classes_per_task: number of classes per task.
            num_tasks: number of tasks; by default as many as the classes fill.
            class_order: ``natural`` (0, 1, 2, …), ``shuffled`` by ``order_seed``, or a list with every class id once.
            order_seed: seed of the shuffled order.
            split: ``auto`` (public if there is one, otherwise seeded), ``public`` (the split of the graph), ``seeded``
                (drawn to fit the graph, see :func:`ergnn.data.splits.scaled`), or a :class:`Split`, e.g. from
                :mod:`ergnn.data.splits`. The stream's ``notes`` describe a seeded split.
            split_seed: seed of the seeded split.
            edges: ``all`` edges at every task; ``seen``: edges among classes of this and earlier
                tasks (and unlabeled nodes); ``own``: edges within the classes of one task.
            leftover: classes that do not fill a task stay as unlabeled ``context``, or ``last`` adds them to the last
                task.
            metric: score of a task.
        """
        if not isinstance(graph, Graph):
            raise InputError(f"a {type(graph).__name__}; a Graph is required, such as Graph.from_pyg(data)")
        graph.validate()
        check_choice("leftover", leftover, LEFTOVERS)
        num_classes = len(graph.class_names) if graph.class_names else graph.num_classes
        order = ordered(graph.name, num_classes, class_order, order_seed)
        groups = class_groups(graph.name, order, classes_per_task, num_tasks, leftover)
        used, notes = _resolve_split(graph, split, split_seed)
        task_of_class = torch.full((num_classes + 1,), -1)  # the last entry is label -1: no task
        for i, group in enumerate(groups):
            task_of_class[list(group)] = i
        task_of_node = task_of_class.to(graph.y.device)[graph.y]
        tasks = assigned_tasks(graph, task_of_node, groups, used, edges)
        return cls(tasks, name=graph.name, metric=metric, notes=notes)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        return self._tasks[index]

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        shown = 1 if isinstance(self._tasks, LazyTasks) else 3
        order = " → ".join(str(self[i].classes) for i in range(min(shown, len(self)))) + " → …" * (len(self) > shown)
        tasks = f"{len(self)} task{'s' * (len(self) > 1)}"
        return f"TaskStream({self.name!r}, {tasks} of classes {order}, metric={self.metric!r})"

    @property
    def num_features(self) -> int:
        return self[0].graph.num_features

    @property
    def classes(self) -> tuple[int, ...]:
        """Global class ids in the order of the stream."""
        if isinstance(self._tasks, LazyTasks):
            return self._tasks[0].classes * len(self)
        return tuple(c for task in self for c in task.classes)

    def first(self, count: int) -> TaskStream:
        """Return the stream of the first tasks; all tasks if there are fewer."""
        shorter = copy(self)
        shorter._tasks = self._tasks[:count]
        return shorter

    def map(self, change: Callable[[Task], Task]) -> TaskStream:
        """Return the stream with every task changed."""
        changed, tasks = copy(self), self._tasks
        lazy = isinstance(tasks, LazyTasks)
        changed._tasks = LazyTasks(len(tasks), lambda i: change(tasks[i])) if lazy else tuple(map(change, tasks))
        return changed

    def to(self, device: torch.device | str) -> TaskStream:
        """Move the stream to a device; graphs and tensors shared by tasks stay shared."""
        return move_streams([self], device)[0]


def move_streams(streams: Sequence[TaskStream], device: torch.device | str) -> list[TaskStream]:
    """Move streams to a device; graphs and tensors that they share stay shared."""
    move = cache(lambda tensor: tensor.to(device))
    move_graph = cache(lambda graph: graph.apply(move))

    def move_task(task: Task) -> Task:  # a graph of its own is shared with no task, and may be built on every access
        return task.to(device, None if task.own_graph else move_graph(task.graph))

    return [stream.map(move_task) for stream in streams]


def share_graphs(stream: TaskStream, other: TaskStream) -> TaskStream:
    """Return the stream with the graph of each task replaced by an equal one of the other stream, if there is one.

    What is computed once per graph is then computed once for both.
    """

    def same(a: Graph, b: Graph) -> bool:
        same_parts = a.x is b.x and a.edge_weight is b.edge_weight and a.public_split is b.public_split
        same_edges = a.csr is b.csr and (a.csr is not None or torch.equal(a.edge_index, b.edge_index))
        return same_parts and same_edges and torch.equal(a.y, b.y)

    pairs = {id(a.graph): b.graph for a, b in zip(stream, other, strict=False) if same(a.graph, b.graph)}
    return stream.map(lambda task: replace(task, graph=pairs.get(id(task.graph), task.graph)))


def assigned_tasks(
    graph: Graph, task_of_node: Tensor, groups: Sequence[tuple[int, ...]], split: Split, edges: str
) -> list[Task]:
    """Return the tasks whose nodes are assigned (-1: context) and whose classes are ``groups``.

    Labels of other nodes and classes are hidden, and such nodes of the split are left out. Edges are those of
    :meth:`TaskStream.from_classes`.
    """
    check_choice("edges", edges, EDGES)
    labeled = torch.zeros_like(graph.y, dtype=torch.bool)
    for i, group in enumerate(groups):
        labeled |= (task_of_node == i) & torch.isin(graph.y, torch.tensor(group, device=graph.y.device))
    task_of_label = torch.where(labeled, task_of_node, -1)
    bare = replace(graph, y=torch.where(labeled, graph.y, UNLABELED), public_split=None)
    views = _edge_views(bare, task_of_node, len(groups), edges)
    parts = [{part: ids[task_of_label[ids] == i] for part, ids in vars(split).items()} for i in range(len(groups))]
    return [Task(i, views[i], **parts[i], classes=group) for i, group in enumerate(groups)]


def _edge_views(graph: Graph, task_of_node: Tensor, num_tasks: int, edges: str) -> list[Graph]:
    """Return one graph per task; the same object if the edges are the same."""
    if edges == "all":
        return [graph] * num_tasks
    source, target = task_of_node[graph.edge_index]
    if edges == "own":
        # the subgraphs of the tasks are disjoint, so one view contains them all
        return [_with_edges(graph, (source == target) & (source >= 0))] * num_tasks
    newest = torch.maximum(source, target)  # context nodes are -1: visible from the start
    return [_with_edges(graph, newest <= i) for i in range(num_tasks)]


def _with_edges(graph: Graph, keep: Tensor) -> Graph:
    if bool(keep.all()):
        return graph
    weight = None if graph.edge_weight is None else graph.edge_weight[keep]
    return replace(graph, edge_index=graph.edge_index[:, keep], edge_weight=weight)


def ordered(name: str, count: int, order: str | Sequence[int], seed: int, what: str = "class") -> list[int]:
    """Return an order of classes (or domains): natural, shuffled by seed, or a given list of all of them."""
    if isinstance(order, str):
        check_choice("class_order", order, CLASS_ORDERS)
        if order == "natural":
            return list(range(count))
        return [int(c) for c in torch.randperm(count, generator=torch.Generator().manual_seed(seed))]
    given = [int(c) for c in order]
    if sorted(given) != list(range(count)):
        raise InputError(f"{name}: class_order is {truncate(given)}; it must have each {what}, 0 to {count - 1}, once")
    return given


def class_groups(
    name: str, order: list[int], classes_per_task: int, num_tasks: int | None, leftover: str = "context"
) -> list[tuple[int, ...]]:
    """Return the classes of each task."""
    check_within(f"{name} with {len(order)} classes", 1, len(order), classes_per_task=classes_per_task)
    most = len(order) // classes_per_task
    wanted = most if num_tasks is None else num_tasks
    check_within(f"{name} with {len(order)} classes, {classes_per_task} per task", 1, most, num_tasks=wanted)
    groups = [tuple(order[i * classes_per_task : (i + 1) * classes_per_task]) for i in range(wanted)]
    if leftover == "last" and wanted == most:
        groups[-1] += tuple(order[most * classes_per_task :])
    return groups


def _resolve_split(graph: Graph, split: str | Split, seed: int) -> tuple[Split, tuple[str, ...]]:
    """Return the nodes of each part, and notes on how they were drawn."""
    if isinstance(split, str):
        check_choice("split", split, ("auto", "public", "seeded"))
        if split == "seeded" or (split == "auto" and graph.public_split is None):
            drawn, words = splits.scaled(graph.y.cpu(), seed=seed)
            return drawn.to(graph.y.device), (f"split by seed {seed}: {words}",)
        if graph.public_split is None:
            raise InputError(f"{graph.name}: the graph has no public split; use split='seeded' or give a Split")
        split = graph.public_split
    splits.check_split(split, graph.num_nodes, graph.name)
    for part, nodes in vars(split).items():
        bare = nodes[graph.y[nodes] == UNLABELED]
        if bare.numel():
            raise InputError(f"{graph.name}: {part} contains node {int(bare[0])}, which has no label")
    return split, ()


def _check_task(task: Task, position: int, stream: str) -> None:
    where = f"{stream}: {task.name}"
    if task.id != position:
        raise InputError(f"{where} is at position {position}; ids must count from 0 in order")
    if not task.classes or len(set(task.classes)) < len(task.classes):
        raise InputError(f"{where} has classes {task.classes}; at least one class is required, each once")
    splits.check_split(Split(task.train, task.val, task.test), task.graph.num_nodes, where)
    for part, nodes in (("train", task.train), ("test", task.test)):
        if not nodes.numel():
            raise InputError(f"{where} has no {part} nodes")
    task.targets(torch.cat([task.train, task.val, task.test]))
    for c, count in task.train_counts.items():
        if not count:
            raise InputError(f"{where}: class {_class_label(task.graph, c)} has no train nodes")


def _class_label(graph: Graph, c: int) -> str:
    return f"{c} {graph.class_names[c]}" if graph.class_names and 0 <= c < len(graph.class_names) else str(c)
