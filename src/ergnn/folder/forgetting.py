"""Forgetting nodes: out of the graph and the buffer, with an honest account of what still depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ergnn.data.stream import Task
from ergnn.errors import ErgnnError, InputError
from ergnn.evaluation import Record
from ergnn.folder.database import FolderError
from ergnn.folder.graph import SPLITS, Array, StoredGraph, read_subgraph
from ergnn.folder.network_learner import NetworkLearner
from ergnn.folder.prediction import predict_held_out
from ergnn.folder.snapshot import Snapshot, make_learner, write_records, write_snapshot
from ergnn.folder.updates import remove_rows, write_adjacency
from ergnn.folder.versions import current_version, drop_after


def forget_nodes(base: Snapshot, ids: Sequence[str], retrain: bool = False) -> dict[str, Any]:
    """Add a version without some nodes; returns what was removed, replaced, and what still depends on them.

    Call it in a transaction.
    """
    nodes = np.unique(base.graph.find_all(ids))
    if not len(nodes):
        raise InputError("no node was named; there is nothing to forget")
    connection, number = base.connection, current_version(base.connection)[1] + 1
    drop_after(connection, base.version.number)
    label, split, update = base.graph.labels(nodes)
    trained = (label >= 0) & (split == SPLITS.index("train"))
    edges = _remove(base, nodes, number)
    sizes: dict[str, Any] = {
        "nodes": base.version.nodes - len(nodes),
        "edges": base.version.edges - edges,
        "labeled": base.version.labeled - int((label >= 0).sum()),
    }
    graph = StoredGraph(connection, replace(base.version, number=number, **sizes))
    records = [_without(record, split[update == record["update"]]) for record in base.records]
    remembered = int(np.isin(base.learner.buffer.nodes.cpu().numpy(), nodes).sum())
    after = replace(base, graph=graph, records=records)
    replaced: list[list[Any]] = []
    retrain = retrain and not base.learner.exact  # the state of an exact learner is that of learning again
    if retrain:
        after = replace(after, learner=make_learner(base.settings))
        records[:] = [{**record, **after.learn([record["update"]])} for record in records]
    else:
        replaced = after.learner.forget(after, nodes)
    scores = predict_held_out(after, base.settings.eval_samples).scores()
    if records:
        records[-1] = {**records[-1], "scores": scores, "remembered": len(after.learner.buffer)}
    write_snapshot(after, number, **sizes, state={"digest": ""})
    changed = [new for new, old in zip(records, base.records, strict=True) if new != old]
    write_records(connection, changed, number)
    return {
        "version": number,
        "nodes": len(nodes),
        "edges": edges,
        "trained_in": sorted({int(u) + 1 for u in update[trained]}),
        "held_out": int(((label >= 0) & ~trained).sum()),
        "remembered": remembered,
        "replaced": replaced,
        "retrained": retrain,
        "exact": base.learner.exact,
        "parameters_depend": bool(trained.any()) and not (retrain or base.learner.exact),
        "scores": scores,
    }


def _remove(base: Snapshot, nodes: Array, version: int) -> int:
    """Take nodes and their edges out of the graph from a version on; returns how many edges there were."""
    graph, connection = base.graph, base.connection
    incoming = graph.neighbors(nodes)[1]
    targets = np.setdiff1d(incoming, nodes)
    if base.settings.directed:  # lists say who leads to a node, not where it leads
        targets = np.setdiff1d(graph.nodes(), nodes)
    row, source = graph.neighbors(targets)
    gone = np.isin(source, nodes)
    changed = np.unique(targets[row[gone]])
    stays = ~gone & np.isin(targets[row], changed)
    for table in ("nodes", "labels", "adjacency"):
        remove_rows(connection, table, nodes, version)
    write_adjacency(connection, changed, np.stack([source, targets[row]])[:, stays], version)
    return len(incoming) + int(gone.sum())


def _without(record: Record, splits: Array) -> Record:
    """A record without nodes of some splits."""
    lost = {split: int((splits == i).sum()) for i, split in enumerate(SPLITS)}
    return {**record, "members": {split: count - lost[split] for split, count in record["members"].items()}}


def replace_remembered(snapshot: Snapshot, network: NetworkLearner, nodes: Array) -> list[list[Any]]:
    """Take nodes out of the buffer; the next best of their class and update come in (``[id, class, update]``)."""
    buffer, device = network.buffer, network.learner.device
    gone = torch.from_numpy(nodes).to(device)
    missing = {part.task: part.labels[torch.isin(part.nodes, gone)].tolist() for part in buffer.experiences}
    network.learner.forget_nodes(gone)
    update_of = {record["task"]: record["update"] for record in snapshot.records}
    came: list[list[Any]] = []
    for task, labels in missing.items():
        if labels and task not in update_of:
            raise FolderError(f"no update taught task {task}: the database is damaged")
        if labels and hasattr(network.learner.method, "selector"):
            update = update_of[task]
            kept = [label for part in buffer.experiences if part.task == task for label in part.labels.tolist()]
            per_class = max(kept.count(c) + labels.count(c) for c in labels)
            ranked, classes, scores = _ranking(snapshot, network, task, update, per_class)
            fresh = ~np.isin(ranked, buffer.nodes.cpu().numpy())
            best = [i for c in sorted(set(labels)) for i in np.flatnonzero(fresh & (classes == c))[: labels.count(c)]]
            if best:
                columns = (torch.from_numpy(values[best]).to(device) for values in (ranked, classes, scores))
                buffer.insert(task, *columns)
            names = snapshot.graph.names(ranked[best])
            came += [[name, snapshot.classes[c], update + 1] for name, c in zip(names, classes[best], strict=True)]
    return came


def _ranking(
    snapshot: Snapshot, network: NetworkLearner, task: int, update: int, per_class: int
) -> tuple[Array, Array, Array]:
    """The best ``per_class`` nodes per class that are left of an update, with their classes and scores."""
    learner = network.learner
    (train, labels), (val, val_labels) = snapshot.members(update, "train"), snapshot.members(update, "val")
    unranked = train, labels, np.zeros(len(train), np.float32)
    if not len(train):
        return unranked
    known = np.concatenate([train, val]), np.concatenate([labels, val_labels])
    local = read_subgraph(snapshot.graph, known[0], network.reach, snapshot.settings.limits, known)
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
