"""How well past updates are still known, on nodes that were held out of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ergnn.evaluation import HeldOut
from ergnn.folder.database import reading_values
from ergnn.folder.graph import Array
from ergnn.folder.snapshot import Snapshot, make_learner

CLOSED_FORM = "analytic"
"""The method whose result does not depend on the order of updates."""


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
