"""Streams in which classes come again: tasks are domains, periods of time, or steps with drifting class shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_within
from ergnn.data.graph import SPLITS, UNLABELED, Graph, Split
from ergnn.data.splits import Sizes
from ergnn.data.stream import TaskStream, assigned_tasks, class_groups, ordered

SIZES = Sizes(0.6, 0.2, 0.2)
SPREAD = 0.5
"""σ of :func:`class_shares`: standard deviation, in tasks, of the time at which a class arrives."""
ANYTIME = 0.1
"""ε of :func:`class_shares`: share of the nodes of a class that arrive at any time."""


def assigned_stream(
    graph: Graph,
    task_of_node: Tensor,
    sizes: Sizes = SIZES,
    seed: int = 0,
    edges: str = "all",
    metric: str = "accuracy",
) -> TaskStream:
    """Create a task for each number in ``task_of_node``; nodes with −1 are context, without a label.

    The graph's public split is used if there is one; otherwise the nodes of every class and task are split by
    ``sizes`` and ``seed``. The classes of a task are those with training nodes in it; nodes of its other classes are
    context.
    """
    groups, drawn = list[tuple[int, ...]](), list[Split]()
    for i in range(int(task_of_node.max()) + 1):
        y = torch.where(task_of_node == i, graph.y, UNLABELED)
        if graph.public_split is None:
            classes, counts = y[y != UNLABELED].unique(return_counts=True)
            enough = classes[torch.tensor([sizes.fit(count) for count in counts.tolist()], dtype=torch.bool)]
            drawn.append(sizes.draw(torch.where(torch.isin(y, enough), y, UNLABELED), seed))
        else:
            enough = y[graph.public_split.train].unique()
            enough = enough[enough != UNLABELED]
        groups.append(tuple(enough.tolist()))
        if not groups[-1]:
            nodes, labeled = (int(mask.sum()) for mask in (task_of_node == i, y != UNLABELED))
            raise InputError(
                f"{graph.name}: task {i + 1} has {nodes:,} nodes, {labeled:,} with a label; no class has enough of "
                "them for training, validation and test"
            )
    split = graph.public_split or Split(*(torch.cat([getattr(part, name) for part in drawn]) for name in SPLITS))
    return TaskStream(assigned_tasks(graph, task_of_node, groups, split, edges), name=graph.name, metric=metric)


def periods(time: np.ndarray, num_tasks: int | None = None, boundaries: Sequence[float] | None = None) -> np.ndarray:
    """Return the period of each time, −1 for NaN: ``num_tasks`` of similar size, or those that ``boundaries`` start."""
    known = ~np.isnan(time.astype(np.float64))
    if boundaries is not None:
        starts = np.array(boundaries, dtype=np.float64)
        if not len(starts) or (np.diff(starts) <= 0).any():
            raise InputError(f"boundaries are {list(boundaries)}; one or more that rise are needed")
    else:
        assert num_tasks is not None
        times = np.sort(time[known])
        check_within("nodes with a time", 1, len(times), num_tasks=num_tasks)
        starts = times[[len(times) * i // num_tasks for i in range(1, num_tasks)]]
        if len(np.unique([times[0], *starts])) < num_tasks:
            raise InputError(
                f"num_tasks is {num_tasks}; too many nodes have the same time for tasks of as many nodes each, give "
                "boundaries or fewer tasks"
            )
    return np.where(known, np.searchsorted(starts, time, side="right"), -1)


def class_shares(num_classes: int, num_tasks: int) -> Tensor:
    """Return the share of the nodes of each class that arrive in each task, ``[classes in their order, tasks]``.

    With M tasks, class r of C (from 0) is most frequent around ``μ_r = (r + ½) M / C − ½``, and task t has the share

        w_rt = (1 − ε) exp(−(t − μ_r)² / 2σ²) / Σ_s exp(−(s − μ_r)² / 2σ²) + ε / M ,

    so that shares drift from task to task and any class may come again later.
    """
    center = (torch.arange(num_classes, dtype=torch.float64) + 0.5) * num_tasks / num_classes - 0.5
    distance = torch.arange(num_tasks, dtype=torch.float64) - center.unsqueeze(1)
    return (1 - ANYTIME) * torch.softmax(-(distance**2) / (2 * SPREAD**2), dim=1) + ANYTIME / num_tasks


def blurred_stream(
    graph: Graph,
    *,
    split: Split,
    classes_per_task: int = 2,
    num_tasks: int | None = None,
    class_order: str | Sequence[int] = "natural",
    order_seed: int = 0,
    seed: int = 0,
    **more: Any,
) -> TaskStream:
    """Create a stream whose class shares drift: the tasks are steps of arrival, not groups of classes.

    The task of every labeled node is drawn by :func:`class_shares`, training nodes first. The other nodes are drawn
    among the tasks in which their class has training nodes. Every node is in one task. ``split`` are the nodes of all
    tasks, and ``seed`` that of the draw; other arguments are those of :meth:`TaskStream.from_classes`, and there are as
    many tasks as groups of classes.
    """
    classes = len(graph.class_names) if graph.class_names else graph.num_classes
    tasks = len(class_groups(graph.name, list(range(classes)), classes_per_task, num_tasks))
    order, generator = ordered(graph.name, classes, class_order, order_seed), torch.Generator().manual_seed(seed)
    shares = torch.zeros(classes, tasks, dtype=torch.float64)
    shares[order] = class_shares(classes, tasks)
    home = torch.full_like(graph.y, -1)
    home[split.train] = torch.multinomial(shares[graph.y[split.train]], 1, generator=generator).flatten()
    present = torch.zeros_like(shares)
    present[graph.y[split.train], home[split.train]] = 1.0
    rest = ((graph.y != UNLABELED) & (home < 0)).nonzero().flatten()
    rest = rest[present.any(1)[graph.y[rest]]]
    home[rest] = torch.multinomial((shares * present)[graph.y[rest]], 1, generator=generator).flatten()
    return assigned_stream(replace(graph, public_split=split), home, **more)
