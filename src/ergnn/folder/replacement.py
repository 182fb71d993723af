"""Who is remembered in place of nodes that were forgotten: the selector's next best."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ergnn.data.stream import Task
from ergnn.errors import ErgnnError
from ergnn.folder.database import FolderError
from ergnn.folder.graph import Array
from ergnn.folder.local import read_subgraph
from ergnn.folder.network_learner import NetworkLearner
from ergnn.folder.snapshot import Snapshot


def replace_remembered(snapshot: Snapshot, learner: NetworkLearner, nodes: Array) -> list[list[Any]]:
    """Take nodes out of the buffer; the next best of their class and update come in (``[id, class, update]``)."""
    buffer = learner.buffer
    gone = torch.from_numpy(nodes).to(buffer.nodes.device)
    missing = {part.task: part.labels[torch.isin(part.nodes, gone)].tolist() for part in buffer.experiences}
    learner.learner.forget_nodes(gone)
    came: list[list[Any]] = []
    for task, labels in missing.items():
        update = next((r["update"] for r in snapshot.records if r["task"] == task), None)
        if labels and update is None:
            raise FolderError(f"no update taught task {task}: the database is damaged")
        if labels and hasattr(learner.learner.method, "selector"):
            assert update is not None
            chosen, classes = _next_best(snapshot, learner, task, update, labels)
            names = snapshot.graph.names(chosen)
            came += [[name, snapshot.classes[c], update + 1] for name, c in zip(names, classes, strict=True)]
    return came


def _next_best(
    snapshot: Snapshot, network: NetworkLearner, task: int, update: int, labels: list[int]
) -> tuple[Array, Array]:
    """Run the selector on what is left of an update, and remember the best nodes that are not remembered yet."""
    buffer = network.buffer
    kept = [label for part in buffer.experiences if part.task == task for label in part.labels.tolist()]
    per_class = max(kept.count(c) + labels.count(c) for c in labels)
    ranked, classes, scores = _ranking(snapshot, network, task, update, per_class)
    fresh = ~np.isin(ranked, buffer.nodes.cpu().numpy())
    chosen = [i for c in sorted(set(labels)) for i in np.flatnonzero(fresh & (classes == c))[: labels.count(c)]]
    if chosen:
        device = network.learner.device
        new = [torch.from_numpy(values[chosen]).to(device) for values in (ranked, classes, scores)]
        buffer.insert(task, new[0], new[1], new[2])
    return ranked[chosen], classes[chosen]


def _ranking(
    snapshot: Snapshot, network: NetworkLearner, task: int, update: int, per_class: int
) -> tuple[Array, Array, Array]:
    """The best ``per_class`` nodes per class of an update with classes and scores; of smaller classes, all nodes."""
    learner = network.learner
    (train, labels), (val, val_labels) = snapshot.members(update, "train"), snapshot.members(update, "val")
    classes, counts = np.unique(labels, return_counts=True)
    ample = np.isin(labels, classes[counts >= per_class])
    rest = train[~ample], labels[~ample], np.zeros(int((~ample).sum()), np.float32)
    if not ample.any():
        return rest
    known = np.concatenate([train, val]), np.concatenate([labels, val_labels])
    local = read_subgraph(snapshot.graph, known[0], network.reach, snapshot.settings.limits, known)
    graph = local.graph.to(learner.device)
    wanted = classes[counts >= per_class]
    places = local.places(train[ample]).to(learner.device)
    others = local.places(val[np.isin(val_labels, wanted)]).to(learner.device)
    again = Task(task, graph, places, others, places[:0], tuple(int(c) for c in wanted))
    examples = learner.examples(graph, places, task)
    context = learner.selection_context(again, examples, per_class, learner.leaky)
    try:
        selection = learner.method.selector.select(context)  # type: ignore[attr-defined]
    except ErgnnError:  # e.g. coverage, where only one class is left
        return rest
    nodes = local.numbers(selection.nodes)
    found = labels[np.searchsorted(train, nodes)]
    best = (nodes, found, selection.scores.cpu().numpy().astype(np.float32))
    nodes, found, scores = (np.concatenate(pair) for pair in zip(best, rest, strict=True))
    return nodes, found, scores
