"""How well past updates are still known, on nodes that were held out of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ergnn.folder.snapshot import Snapshot
from ergnn.folder.tensors import Array

Score = list[int]
"""``[update, right, of]``: how many held-out nodes of an update were predicted right."""


def score_updates(
    snapshot: Snapshot, updates: int, most: int | None = None, *, task_known: bool = False
) -> list[Score]:
    """Scores on the held-out nodes of the first ``updates`` updates.

    Args:
        most: nodes to score in all; where there are more, each update gives its share, always the same ones.
        task_known: whether only the classes of a node's own update compete.
    """
    everything = snapshot.store.members_of(range(updates), "test")
    held_out = {number: nodes for number, nodes in enumerate(everything) if len(nodes)}
    if not held_out or not snapshot.learner.num_tasks:
        return []
    if most is not None:
        share = max(1, most // len(held_out))
        held_out = {n: _sample(nodes, share, snapshot.settings.seed, n) for n, nodes in held_out.items()}
    nodes = np.concatenate(list(held_out.values()))
    owner = np.repeat(np.array(list(held_out)), [len(part) for part in held_out.values()])
    right = np.zeros(len(nodes), bool)
    truth = snapshot.store.labels(nodes)[0]
    for places, found in snapshot.probabilities(nodes):
        if task_known:
            found = found * _rivals(snapshot, list(held_out))[owner[places]]
        right[places] = found.argmax(1) == truth[places]
    return [[n, int(right[owner == n].sum()), int((owner == n).sum())] for n in held_out]


def _rivals(snapshot: Snapshot, updates: list[int]) -> Array:
    """``[updates, classes]``: whether an update taught a class."""
    out = np.zeros((max(updates) + 1, len(snapshot.classes)), bool)
    for update in updates:
        out[update, [snapshot.classes.index(name) for name in snapshot.version.record(update)["classes"]]] = True
    return out


def _sample(nodes: Array, most: int, seed: int, update: int) -> Array:
    """Up to ``most`` nodes in an order drawn by seed and update: a smaller sample is part of a larger one."""
    return nodes[np.random.default_rng([seed, update]).permutation(len(nodes))[:most]] if len(nodes) > most else nodes


def forgetting(records: list[dict[str, Any]]) -> list[float | None]:
    """After each update, the mean over earlier ones of (score when it was learnt − score now); None for the first."""
    learnt: dict[int, float] = {}
    out: list[float | None] = []
    for number, record in enumerate(records):
        now = {update: right / of for update, right, of in record["scores"]}
        lost = [learnt[update] - score for update, score in now.items() if update in learnt]
        out.append(sum(lost) / len(lost) if lost else None)
        if number in now:
            learnt[number] = now[number]
    return out
