"""Learning one update: the part of the graph that it touches, a task, a version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ergnn.callbacks import Callback, EpochCallback
from ergnn.data.stream import Task
from ergnn.errors import ErgnnError
from ergnn.folder.files import FolderError
from ergnn.folder.graph_store import GraphStore
from ergnn.folder.local import local_graph
from ergnn.folder.merging import merge_segments
from ergnn.folder.model import check_size, reach_of
from ergnn.folder.progress import Checkpoints, Staged
from ergnn.folder.records import write_record
from ergnn.folder.scoring import score_updates
from ergnn.folder.segment import FileSegment, write_segment
from ergnn.folder.snapshot import Snapshot
from ergnn.folder.state import pack_learner
from ergnn.folder.versions import Current, write_version
from ergnn.learner import Learner


def learn_update(
    snapshot: Snapshot, number: int, checkpoints: Checkpoints | None = None, on_epoch: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Learn the labelled nodes of an update that is in the snapshot's graph; says what was learnt.

    Only what lies within reach of the update's own nodes and of the remembered ones is read.
    """
    learner, store, settings = snapshot.learner, snapshot.store, snapshot.settings
    train, val = store.members(number, "train"), store.members(number, "val")
    if not len(train):
        return {"task": None, "classes": [], "drift": None, "touched": 0}
    buffer = learner.method.buffer
    assert buffer is not None
    labelled = np.unique(np.concatenate([train, val, buffer.nodes.numpy()]))
    check_size(settings, store.num_features)
    reach = reach_of(settings, learner)
    local = local_graph(store, labelled, reach, settings.limits, dense=snapshot.dense, labelled=labelled)
    graph = replace(local.graph, class_names=tuple(snapshot.classes))
    classes = tuple(int(c) for c in np.unique(store.labels(train)[0]))
    test = torch.empty(0, dtype=torch.long)
    task = Task(learner.num_tasks, graph, local.places(train), local.places(val), test, classes)
    before = _encoder(learner)
    resume = None if checkpoints is None else checkpoints.read(settings.limits.bytes)
    learner.remap_nodes(lambda nodes: local.places(nodes.numpy()))
    callbacks: list[Callback] = [] if on_epoch is None else [EpochCallback(lambda _: on_epoch())]
    try:
        learner.observe(task, callbacks=callbacks + ([] if checkpoints is None else [checkpoints]), resume=resume)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
        if resume is None or isinstance(error, ErgnnError):
            raise
        raise FolderError(
            f"{snapshot.version.root}: the checkpoint does not fit ({type(error).__name__}: {error}); drop the update "
            "(observe --discard) and observe it again"
        ) from None
    learner.remap_nodes(lambda nodes: torch.from_numpy(local.numbers(nodes)))
    buffer.trim(settings.budget_nodes, settings.budget_bytes)  # here, where nodes have the numbers of the whole graph
    names = [snapshot.classes[c] for c in classes]
    return {"task": task.id, "classes": names, "drift": _drift(before, learner), "touched": len(local.nodes)}


def _encoder(learner: Learner) -> dict[str, torch.Tensor]:
    state = {} if learner.model is None else learner.model.state_dict()
    return {name: value.clone() for name, value in state.items() if not name.startswith("heads.")}


def _drift(before: dict[str, torch.Tensor], learner: Learner) -> float | None:
    """``‖θ' − θ‖ / ‖θ‖`` of the layers before the heads: how far an update moved the model."""
    if not before:
        return None
    after = _encoder(learner)
    moved = sum(float((after[name] - value).double().square().sum()) for name, value in before.items())
    return float((moved / max(sum(float(v.double().square().sum()) for v in before.values()), 1e-300)) ** 0.5)


def commit_update(base: Snapshot, staged: Staged, segment: FileSegment, learnt: dict[str, Any]) -> dict[str, Any]:
    """Score, and write the next version: the graph with the update in it, the model, the buffer, and a record."""
    version, number = base.version, base.version.current.newest + 1
    root = version.root
    grown = replace(base, store=GraphStore([*version.segments, segment], staged.num_features))
    record = {
        "update": staged.update,
        "name": staged.name,
        **learnt,
        "counts": staged.counts,
        "scores": score_updates(grown, staged.update + 1, base.settings.checks),
        "remembered": len(base.learner.method.buffer or ()),
        "graph": {"nodes": grown.store.num_nodes, "edges": grown.store.count("edge")},
    }
    entries = append_segment(root, number, version.segment_entries, version.segments, segment, staged.segment["bytes"])
    state = {
        **version.state,
        "classes": staged.classes,
        "num_features": staged.num_features,
        "dense": staged.dense,
        "input": staged.digest,
    }
    records = [*version.record_entries, write_record(root, f"{number:06d}", record)]
    commit(base, number, state, entries, records)
    return record


def append_segment(
    root: Path,
    number: int,
    entries: list[dict[str, Any]],
    segments: list[FileSegment],
    segment: FileSegment,
    size: int,
) -> list[dict[str, Any]]:
    """Write a new segment, merged with those before it that are not twice as large.

    Sizes so at least double from the newest to the oldest: there are few segments, and a byte is rarely written again.
    """
    count = len(entries)
    while count and entries[count - 1]["bytes"] < 2 * size:
        count -= 1
        size += entries[count]["bytes"]
    first = int(GraphStore(segments[:count], 0).num_nodes)
    path = root / "segments" / f"{number:06d}.safetensors"
    return [*entries[:count], write_segment(path, merge_segments([*segments[count:], segment], first))]


def commit(
    base: Snapshot, number: int, state: dict[str, Any], segments: list[dict[str, Any]], records: list[dict[str, Any]]
) -> Current:
    """Make the learner as it is now the next version."""
    learner, weights, buffer = pack_learner(base.learner)
    current = base.version.current
    return write_version(
        base.version.root,
        number,
        base.settings,
        {**state, "learner": learner},
        weights,
        buffer,
        segments,
        records,
        current,
    )
