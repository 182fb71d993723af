"""How well past updates are still known, on nodes that were held out of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ergnn.folder.graph import Array
from ergnn.folder.snapshot import Snapshot

Score = list[int]
"""``[update, right, of]``: how many held-out nodes of an update were predicted right."""


def score_updates(snapshot: Snapshot, samples: int | None = None, *, task_known: bool = False) -> list[Score]:
    """Scores on the held-out nodes of every update.

    Args:
        samples: nodes to score in all; where there are more, each update gives its share, always the same ones.
        task_known: whether only the classes of a node's own update compete.
    """
    held_out = {number: snapshot.members(number, "test") for number in range(len(snapshot.records))}
    held_out = {number: found for number, found in held_out.items() if len(found[0])}
    if not held_out or not snapshot.learner.num_tasks:
        return []
    if samples is not None:
        share, seed = max(1, samples // len(held_out)), snapshot.settings.seed
        held_out = {number: _sample(found, share, seed, number) for number, found in held_out.items()}
    nodes, truth = (np.concatenate([found[i] for found in held_out.values()]) for i in range(2))
    owner = np.repeat(np.array(list(held_out)), [len(found[0]) for found in held_out.values()])
    right = np.zeros(len(nodes), bool)
    rivals = _rivals(snapshot)
    for places, found in snapshot.learner.probabilities(snapshot.graph, nodes, len(snapshot.classes)):
        competing = found * rivals[owner[places]] if task_known else found
        right[places] = competing.argmax(1) == truth[places]
    return [[n, int(right[owner == n].sum()), int((owner == n).sum())] for n in held_out]


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
