"""Forgetting nodes: out of the graph and the buffer, with an honest account of what still depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ergnn.data.formats.limits import shown
from ergnn.data.stream import Task
from ergnn.errors import ErgnnError, InputError
from ergnn.folder.files import FolderError
from ergnn.folder.graph_store import SPLITS, GraphStore
from ergnn.folder.learning import commit, learn_update
from ergnn.folder.local import local_graph
from ergnn.folder.merging import merge_segments
from ergnn.folder.model import make_learner, reach_of
from ergnn.folder.records import write_record
from ergnn.folder.scoring import score_updates
from ergnn.folder.segment import write_segment
from ergnn.folder.snapshot import Snapshot
from ergnn.folder.tensors import Array
from ergnn.folder.versions import open_segment


def forget_nodes(base: Snapshot, ids: Sequence[str], retrain: bool = False) -> dict[str, Any]:
    """Write a version without some nodes; returns what was removed, replaced, and what still depends on them."""
    nodes = base.store.find(list(ids))
    if (nodes < 0).any():
        lost = ids[int(np.flatnonzero(nodes < 0)[0])]
        raise InputError(f"node {shown(lost)} is not in the graph ({int((nodes < 0).sum())} such id(s))")
    nodes = np.unique(nodes)
    if not len(nodes):
        raise InputError("no node was named; there is nothing to forget")
    version, number = base.version, base.version.current.newest + 1
    label, split, update = base.store.labels(nodes)
    trained = (label >= 0) & (split == SPLITS.index("train"))
    edges = base.store.count("edge")
    path = version.root / "segments" / f"{number:06d}.safetensors"
    entry = write_segment(path, merge_segments(version.segments, 0, nodes))
    after = replace(base, store=GraphStore([open_segment(path, entry)], base.store.num_features))
    report: dict[str, Any] = {
        "nodes": len(nodes),
        "edges": edges - after.store.count("edge"),
        "trained_in": sorted({int(u) + 1 for u in update[trained]}),
        "retrained": retrain,
        "held_out": int(((label >= 0) & ~trained).sum()),
    }
    records = records_before = version.record_entries
    if retrain:
        after = replace(after, learner=make_learner(base.settings))
        records = []
        for past in range(len(records_before)):
            learnt = {**version.record(past), **learn_update(after, past)}
            records.append(write_record(version.root, f"{number:06d}-{past}", learnt))
        report["remembered"], report["replaced"] = len(_dropped(base, nodes)), []
    else:
        report["remembered"], report["replaced"] = _replace(after, nodes)
    report["parameters_depend"] = bool(trained.any()) and not retrain
    report["scores"] = score_updates(after, len(version.record_entries), base.settings.checks)
    state = {**version.state, "input": ""}
    current = commit(after, number, state, [entry], records)
    report["version"] = number
    report["older_versions"] = [n for n in sorted(current.manifests) if n != number]
    return report


def _dropped(snapshot: Snapshot, nodes: Array) -> list[int]:
    buffer = snapshot.learner.method.buffer
    assert buffer is not None
    return [int(n) for n in np.intersect1d(buffer.nodes.numpy(), nodes)]


def _replace(snapshot: Snapshot, nodes: Array) -> tuple[int, list[list[Any]]]:
    """Take nodes out of the buffer; the next best of their class and update come in (``[id, class, update]``)."""
    buffer = snapshot.learner.method.buffer
    assert buffer is not None
    removed = _dropped(snapshot, nodes)
    missing = {
        part.task: part.labels[torch.isin(part.nodes, torch.tensor(removed, dtype=torch.long))].tolist()
        for part in buffer.experiences
    }
    snapshot.learner.forget_nodes(torch.tensor(removed, dtype=torch.long))
    came = []
    for task, labels in missing.items():
        if labels:
            update = _update_of(snapshot, task)
            for node in _next_best(snapshot, task, update, labels):
                name = snapshot.store.names(np.array([node]))[0]
                label = snapshot.classes[int(snapshot.store.labels(np.array([node]))[0][0])]
                came.append([name, label, update + 1])
    return len(removed), came


def _update_of(snapshot: Snapshot, task: int) -> int:
    count = len(snapshot.version.record_entries)
    found = [update for update in range(count) if snapshot.version.record(update)["task"] == task]
    if not found:
        raise FolderError(f"{snapshot.version.root}: no update taught task {task}: a record is damaged")
    return found[0]


def _next_best(snapshot: Snapshot, task: int, update: int, labels: list[int]) -> list[int]:
    """Run the selector on what is left of an update, and remember the best nodes that are not remembered yet."""
    buffer = snapshot.learner.method.buffer
    assert buffer is not None
    kept = [label for part in buffer.experiences if part.task == task for label in part.labels.tolist()]
    ranked, scores = _ranking(snapshot, task, update, max(kept.count(c) + labels.count(c) for c in labels))
    remembered = set(buffer.nodes.tolist())
    chosen: list[int] = []
    for label in sorted(set(labels)):
        found = snapshot.store.labels(ranked)[0] == label
        fresh = [int(i) for i in np.flatnonzero(found) if int(ranked[i]) not in remembered]
        chosen += fresh[: labels.count(label)]
    if chosen:
        new = torch.from_numpy(ranked[chosen])
        labelled = torch.from_numpy(snapshot.store.labels(ranked[chosen])[0])
        buffer.insert(task, new, labelled, scores[torch.tensor(chosen)])
    return [int(ranked[i]) for i in chosen]


def _ranking(snapshot: Snapshot, task: int, update: int, per_class: int) -> tuple[Array, torch.Tensor]:
    """The best ``per_class`` nodes a class of an update, and their scores; of smaller classes, all they have."""
    learner, store = snapshot.learner, snapshot.store
    train, val = store.members(update, "train"), store.members(update, "val")
    labels = store.labels(train)[0]
    classes, counts = np.unique(labels, return_counts=True)
    ample = np.isin(labels, classes[counts >= per_class])
    ranked, scores = train[~ample], torch.zeros(int((~ample).sum()))
    if not ample.any():
        return ranked, scores
    own = np.unique(np.concatenate([train, val]))
    reach = reach_of(snapshot.settings, learner)
    local = local_graph(store, own, reach, snapshot.settings.limits, dense=snapshot.dense, labelled=own)
    places, none = local.places(train[ample]), torch.empty(0, dtype=torch.long)
    wanted = tuple(int(c) for c in classes[counts >= per_class])
    again = Task(task, local.graph, places, local.places(val[np.isin(store.labels(val)[0], wanted)]), none, wanted)
    examples = learner.examples(local.graph, places, task)
    context = learner.selection_context(again, examples, per_class, learner.leaky)
    try:
        selection = learner.method.selector.select(context)  # type: ignore[attr-defined]
    except ErgnnError:  # e.g. coverage, where only one class is left
        return ranked, scores
    return np.concatenate([local.numbers(selection.nodes), ranked]), torch.cat([selection.scores.cpu(), scores])
