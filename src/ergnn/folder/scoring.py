"""How well past updates are still known, on nodes that were held out of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ergnn.folder.graph import Array
from ergnn.folder.snapshot import Record, Snapshot, make_learner

CLOSED_FORM = "analytic"
"""The method whose result does not depend on the order of updates."""

Score = list[int]
"""``[update, right, of]``: how many held-out nodes of an update were predicted right."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of held-out nodes: one entry of each array per node.

    Args:
        records: of all updates.
        classes: names of all classes.
        updates: number of the update that the node was held out of.
        truth: the node's class.
        predicted: the class that was predicted.
    """

    records: list[Record]
    classes: list[str]
    updates: Array
    truth: Array
    predicted: Array

    def scores(self) -> list[Score]:
        """The score of each update that has held-out nodes."""
        right = self.truth == self.predicted
        return [
            [int(n), int(right[self.updates == n].sum()), int((self.updates == n).sum())]
            for n in np.unique(self.updates)
        ]

    def confusion(self) -> Array:
        """``[true class, predicted class]``: how many nodes."""
        size = len(self.classes)
        return np.bincount(self.truth * size + self.predicted, minlength=size * size).reshape(size, size)

    def per_class(self) -> list[dict[str, Any]]:
        """Number of held-out nodes, recall, precision and F1 of each class that has any or was predicted.

        Recall is None for a class without held-out nodes, precision for one that was never predicted.
        """
        matrix = self.confusion()
        rows = []
        for c, name in enumerate(self.classes):
            right, nodes, chosen = int(matrix[c, c]), int(matrix[c].sum()), int(matrix[:, c].sum())
            if nodes or chosen:
                recall, precision = (right / of if of else None for of in (nodes, chosen))
                f1 = 2 * right / (nodes + chosen)
                rows.append({"class": name, "nodes": nodes, "recall": recall, "precision": precision, "f1": f1})
        return rows


def predict_held_out(snapshot: Snapshot, samples: int | None = None, *, task_known: bool = False) -> HeldOut:
    """Predict the held-out nodes of every update.

    Args:
        samples: nodes to predict in all; if there are more, each update gives its share, always the same ones.
        task_known: whether only the classes of a node's own update compete.
    """
    held_out = {number: snapshot.members(number, "test") for number in range(len(snapshot.records))}
    held_out = {number: found for number, found in held_out.items() if len(found[0])}
    if not held_out or not snapshot.learner.num_tasks:
        none = np.empty(0, np.int64)
        return HeldOut(snapshot.records, snapshot.classes, none, none, none)
    if samples is not None:
        share, seed = max(1, samples // len(held_out)), snapshot.settings.seed
        held_out = {number: _sample(found, share, seed, number) for number, found in held_out.items()}
    nodes, truth = (np.concatenate([found[i] for found in held_out.values()]) for i in range(2))
    owner = np.repeat(np.array(list(held_out)), [len(found[0]) for found in held_out.values()])
    predicted = np.zeros(len(nodes), np.int64)
    rivals = _rivals(snapshot)
    for places, found in snapshot.learner.probabilities(snapshot.graph, nodes, len(snapshot.classes)):
        competing = found * rivals[owner[places]] if task_known else found
        predicted[places] = competing.argmax(1)
    return HeldOut(snapshot.records, snapshot.classes, owner, truth, predicted)


def score_updates(snapshot: Snapshot, samples: int | None = None, *, task_known: bool = False) -> list[Score]:
    """Scores on the held-out nodes of every update; see :func:`predict_held_out`."""
    return predict_held_out(snapshot, samples, task_known=task_known).scores()


def learn_offline(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a learner that was trained on the labels of all updates at once.

    It has the folder's backbone and training settings and starts from new parameters: what a method that keeps all
    labels would give. A closed form gives that by construction, so its snapshot is returned as it is.
    """
    settings = snapshot.settings
    if settings.config.method == CLOSED_FORM:
        return snapshot
    settings = replace(settings, learner=replace(settings.learner, method="finetune", method_options={}))
    learner = make_learner(settings)
    learner.learn(snapshot.graph, 0, _all_members(snapshot, "train"), _all_members(snapshot, "val"), snapshot.classes)
    return replace(snapshot, learner=learner)


def _all_members(snapshot: Snapshot, split: str) -> tuple[Array, Array]:
    parts = [snapshot.members(number, split) for number in range(len(snapshot.records))]
    return np.concatenate([nodes for nodes, _ in parts]), np.concatenate([classes for _, classes in parts])


def _rivals(snapshot: Snapshot) -> Array:
    """``[updates, classes]``: whether an update taught a class."""
    out = np.zeros((len(snapshot.records), len(snapshot.classes)), bool)
    for record in snapshot.records:
        out[record["update"], [snapshot.classes.index(name) for name in record["classes"]]] = True
    return out


def _sample(found: tuple[Array, Array], most: int, seed: int, update: int) -> tuple[Array, Array]:
    """Up to ``most`` nodes in an order drawn by seed and update: a smaller sample is part of a larger one."""
    if len(found[0]) <= most:
        return found
    order = np.random.default_rng([seed, update]).permutation(len(found[0]))[:most]
    return found[0][order], found[1][order]


def forgetting(records: list[dict[str, Any]]) -> list[float | None]:
    """After each update, the mean over earlier ones of (score when it was learned − score now); None for the first."""
    learned: dict[int, float] = {}
    out: list[float | None] = []
    for number, record in enumerate(records):
        now = {update: right / of for update, right, of in record["scores"]}
        lost = [learned[update] - score for update, score in now.items() if update in learned]
        out.append(sum(lost) / len(lost) if lost else None)
        if number in now:
            learned[number] = now[number]
    return out
