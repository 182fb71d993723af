"""Predictions of given nodes, and of nodes that were held out of past updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ergnn.data.formats.limits import truncate
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.partial import Array, PartialGraph, find_all
from ergnn.errors import InputError
from ergnn.evaluation import HeldOut
from ergnn.incremental.network import CHUNK, NetworkLearner
from ergnn.incremental.snapshot import Snapshot


def predictions(
    snapshot: Snapshot,
    ids: Sequence[str] | None,
    nodes: NodeTable | None = None,
    edges: EdgeTable | None = None,
    classes: Sequence[str] | None = None,
    chunk: int = CHUNK,
) -> Iterator[tuple[list[str], list[str], Array]]:
    """Predict probabilities in chunks; see :meth:`ergnn.folder.LearnerFolder.predict`."""
    if not snapshot.learner.num_tasks:
        raise InputError(f"{snapshot.root}: nothing has been learned yet; observe labeled nodes first")
    graph: PartialGraph = snapshot.graph
    if nodes is not None:
        graph = snapshot.extended(nodes, edges)
        ids = list(nodes.ids) if ids is None else ids
    wanted = [str(text) for text in ids or ()]
    numbers = find_all(graph, wanted)
    known = {snapshot.classes[c]: c for c in snapshot.learner.classes()}
    names = list(dict.fromkeys(known if classes is None else classes))
    for name in names:
        if name not in known:
            raise InputError(f"class {truncate(name)} has not been learned; these have: {', '.join(known)[:300]}")
    columns = [known[name] for name in names]
    step = len(wanted) if snapshot.learner.all_at_once else chunk
    for start in range(0, len(wanted), max(step, 1)):
        out = snapshot.probabilities(graph, numbers[start : start + step], chunk)[:, columns]
        total = out.sum(1, keepdims=True)
        out = np.divide(out, total, out=np.full_like(out, 1 / len(columns)), where=total > 0)
        for first in range(0, len(out), chunk):
            yield wanted[start + first : start + first + chunk], names, out[first : first + chunk]


def predict_held_out(snapshot: Snapshot, samples: int | None = None, *, task_known: bool = False) -> HeldOut:
    """Predict the held-out nodes of every update.

    Args:
        snapshot: the snapshot.
        samples: maximum number of nodes; see :meth:`Snapshot.held_out`.
        task_known: whether only the classes of a node's own update compete.
    """
    learned = snapshot.learner.num_tasks > 0
    nodes, truth, updates = snapshot.held_out(samples) if learned else np.empty((3, 0), np.int64)
    found = (
        snapshot.probabilities(snapshot.graph, nodes) if len(nodes) else np.zeros((0, max(len(snapshot.classes), 1)))
    )
    if task_known:
        competing = np.zeros((len(snapshot.records), found.shape[1]))
        for record in snapshot.records:
            competing[record["update"], [snapshot.classes.index(name) for name in record["classes"]]] = 1
        found *= competing[updates]
    return HeldOut(snapshot.records, snapshot.classes, updates, truth, found.argmax(1))


def learn_offline(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a learner trained on the labels of all updates at once.

    It has the same backbone and training settings and starts from new parameters: the result of a method that keeps all
    labels. A closed form gives the same by construction, so its snapshot is returned unchanged.
    """
    if snapshot.settings.closed_form:
        return snapshot
    config = replace(snapshot.settings.learner, method="finetune", method_options={})
    learner = NetworkLearner(replace(snapshot.settings, learner=config))
    learner.learn(snapshot, range(len(snapshot.records)))
    return replace(snapshot, learner=learner)
