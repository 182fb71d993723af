"""Replacement of remembered nodes that were forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ergnn.data.partial import Array, read_subgraph
from ergnn.data.stream import Task
from ergnn.errors import ErgnnError, FolderError
from ergnn.incremental.snapshot import Snapshot
from ergnn.learner import Learner
from ergnn.replay.buffer import ExperienceBuffer


def replace_remembered(snapshot: Snapshot, learner: Learner, reach: int, nodes: Array) -> list[list[Any]]:
    """Replace nodes in the buffer by the next best of their class and update; returns ``[id, class, update]`` of these.

    Args:
        snapshot: a snapshot without the nodes.
        learner: a learner with a ``live`` buffer.
        reach: radius of the graph that training and selection depend on.
        nodes: nodes to replace.
    """
    buffer, device = learner.method.buffer or ExperienceBuffer(), learner.device
    gone = torch.from_numpy(nodes).to(device)
    missing = {part.task: part.labels[torch.isin(part.nodes, gone)].tolist() for part in buffer.experiences}
    learner.forget_nodes(gone)
    update_of = {record["task"]: record["update"] for record in snapshot.records}
    came: list[list[Any]] = []
    for task, labels in missing.items():
        if labels and task not in update_of:
            raise FolderError(f"no update taught task {task}: the database is damaged")
        if labels and hasattr(learner.method, "selector"):
            update = update_of[task]
            kept = [label for part in buffer.experiences if part.task == task for label in part.labels.tolist()]
            per_class = max(kept.count(c) + labels.count(c) for c in labels)
            ranked, classes, scores = _ranking(snapshot, learner, reach, task, update, per_class)
            fresh = ~np.isin(ranked, buffer.nodes.cpu().numpy())
            best = [i for c in sorted(set(labels)) for i in np.flatnonzero(fresh & (classes == c))[: labels.count(c)]]
            if best:
                columns = (torch.from_numpy(values[best]).to(device) for values in (ranked, classes, scores))
                buffer.insert(task, *columns)
            names = snapshot.graph.names(ranked[best])
            came += [[name, snapshot.classes[c], update + 1] for name, c in zip(names, classes[best], strict=True)]
    return came


def _ranking(
    snapshot: Snapshot, learner: Learner, reach: int, task: int, update: int, per_class: int
) -> tuple[Array, Array, Array]:
    """The best ``per_class`` remaining nodes per class of an update, with their classes and scores."""
    (train, labels), (val, val_labels) = snapshot.members(update, "train"), snapshot.members(update, "val")
    unranked = train, labels, np.zeros(len(train), np.float32)
    if not len(train):
        return unranked
    known = np.concatenate([train, val]), np.concatenate([labels, val_labels])
    local = read_subgraph(snapshot.graph, known[0], reach, snapshot.settings.limits, known)
    graph, classes = local.graph.to(learner.device), np.unique(labels)
    places = local.places(train).to(learner.device)
    others = local.places(val[np.isin(val_labels, classes)]).to(learner.device)
    again = Task(task, graph, places, others, places[:0], tuple(classes.tolist()))
    context = learner.selection_context(again, learner.examples(graph, places, task), per_class, learner.leaky)
    try:
        selection = learner.method.selector.select(context)  # type: ignore[attr-defined]
    except ErgnnError:  # e.g. coverage, where only one class is left
        return unranked
    nodes = local.numbers(selection.nodes)
    return nodes, labels[np.searchsorted(train, nodes)], selection.scores.cpu().numpy().astype(np.float32)
