"""Predictions: of nodes that are asked for, and of nodes that were held out of past updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ergnn.data.formats.limits import truncate
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.errors import InputError
from ergnn.evaluation import HeldOut
from ergnn.folder.database import reading_values
from ergnn.folder.graph import Array, ExtendedGraph
from ergnn.folder.snapshot import Snapshot, make_learner
from ergnn.folder.updates import prepare_update

CLOSED_FORM = "analytic"
"""The method whose result does not depend on the order of updates."""


def predictions(
    snapshot: Snapshot,
    ids: Sequence[str] | None,
    nodes: NodeTable | None,
    edges: EdgeTable | None,
    classes: Sequence[str] | None,
    chunk: int,
) -> Iterator[tuple[list[str], list[str], Array]]:
    """See :meth:`LearnerFolder.predict`."""
    if not snapshot.learner.num_tasks:
        raise InputError(f"{snapshot.root}: nothing has been learned yet; observe labeled nodes first")
    if nodes is not None:
        snapshot = extended(snapshot, nodes, edges)
        ids = list(nodes.ids) if ids is None else ids
    wanted = [str(text) for text in ids or ()]
    numbers = snapshot.graph.find_all(wanted)
    columns = _columns(snapshot, classes)
    names = [snapshot.classes[c] for c in columns]
    step = len(wanted) if snapshot.learner.all_at_once else chunk
    for start in range(0, len(wanted), max(step, 1)):
        part = numbers[start : start + step]
        out = np.zeros((len(part), len(columns)))
        for places, found in snapshot.learner.probabilities(snapshot.graph, part, len(snapshot.classes), chunk):
            out[places] = found[:, columns]
        total = out.sum(1, keepdims=True)
        out = np.divide(out, total, out=np.full_like(out, 1 / len(columns)), where=total > 0)
        for first in range(0, len(part), chunk):
            yield wanted[start + first : start + first + chunk], names, out[first : first + chunk]


def _columns(snapshot: Snapshot, classes: Sequence[str] | None) -> list[int]:
    known = {snapshot.classes[c]: c for c in snapshot.learner.classes()}
    for name in classes or ():
        if name not in known:
            raise InputError(f"class {truncate(name)} has not been learned; these have: {', '.join(known)[:300]}")
    return [known[name] for name in dict.fromkeys(known if classes is None else classes)]


def extended(snapshot: Snapshot, nodes: NodeTable, edges: EdgeTable | None) -> Snapshot:
    """The snapshot with nodes and edges that are there for one prediction only; their labels are not looked at."""
    lost = np.flatnonzero(snapshot.graph.find(list(nodes.ids)) < 0)
    if len(lost) and not nodes.num_features and not nodes.is_sparse:
        raise InputError(
            f"node {truncate(nodes.ids[lost[0]])} is not in the graph and has no features here ({len(lost)} such id(s))"
        )
    if not len(lost) and edges is None:
        return snapshot
    bare = NodeTable(nodes.ids, features=nodes.features, feature_names=nodes.feature_names)
    update = prepare_update(snapshot, bare, edges)
    return replace(snapshot, graph=ExtendedGraph(snapshot.graph, update.ids, update.features, update.edges))


def predict_held_out(snapshot: Snapshot, samples: int | None = None, *, task_known: bool = False) -> HeldOut:
    """Predict the held-out nodes of every update.

    Args:
        samples: the most nodes to predict; see :meth:`Snapshot.held_out`.
        task_known: whether only the classes of a node's own update compete.
    """
    nodes, truth, updates = snapshot.held_out(samples) if snapshot.learner.num_tasks else np.empty((3, 0), np.int64)
    predicted = np.zeros(len(nodes), np.int64)
    competing = _competing(snapshot) if task_known else np.ones((len(snapshot.records), len(snapshot.classes)), bool)
    if len(nodes):
        for places, found in snapshot.learner.probabilities(snapshot.graph, nodes, len(snapshot.classes)):
            predicted[places] = (found * competing[updates[places]]).argmax(1)
    return HeldOut(snapshot.records, snapshot.classes, updates, truth, predicted)


def learn_offline(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a learner that was trained on the labels of all updates at once.

    It has the folder's backbone and training settings and starts from new parameters: what a method that keeps all
    labels would give. A closed form gives that by construction, so its snapshot is returned as it is.
    """
    settings = snapshot.settings
    if settings.config.method == CLOSED_FORM:
        return snapshot
    settings = replace(settings, learner=replace(settings.learner, method="finetune", method_options={}))
    offline = replace(snapshot, learner=make_learner(settings))
    offline.learn(range(len(snapshot.records)))
    return offline


def _competing(snapshot: Snapshot) -> Array:
    """``[updates, classes]``: whether an update taught a class."""
    out = np.zeros((len(snapshot.records), len(snapshot.classes)), bool)
    with reading_values("the updates"):
        for record in snapshot.records:
            out[record["update"], [snapshot.classes.index(name) for name in record["classes"]]] = True
    return out
