"""Watching a learner in a folder: drift of updates and requests, calibration, and nodes of unknown classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.evaluation import Record
from ergnn.folder.graph import SPLITS, Array, StoredGraph, read_subgraph
from ergnn.folder.prediction import extended
from ergnn.folder.snapshot import Snapshot
from ergnn.watch.calibration import calibration
from ergnn.watch.drift import ALPHA, SAMPLES, Drift, drift_test, node_aspects, stack_aspects
from ergnn.watch.unknown import NUM_HOPS, UnknownScore, unknown_rows

ROWS = 1000
"""Nodes per role (training, validation, any) that calibration and the score of unknown classes use at most."""
LEAST = 10
"""Nodes per side that a test of drift needs."""
TRAIN = SPLITS.index("train")


def watch_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Drift of the last update, calibration, and the share of its nodes that belong to no known class.

    Each is None where there are too few nodes.
    """
    drift = [recorded_drift(record) for record in snapshot.records]
    return {
        "drift": drift[-1].to_dict() if drift and drift[-1] else None,
        "calibration": _calibration(snapshot),
        "unknown": _unknown(snapshot),
    }


def recorded_drift(record: Record) -> Drift | None:
    """The drift of an update, as it was recorded."""
    found = record.get("input_drift")
    return None if found is None else Drift(**{**found, "p": {name: float(p) for name, p in found["p"].items()}})


def update_drift(snapshot: Snapshot, first_new: int) -> dict[str, Any] | None:
    """Compare the nodes of an update that was just learned with all earlier ones, in the graph as it is now.

    Held-out nodes are compared; of an update that has too few, nodes without a training label, and then predictions
    are left out. Degrees and neighborhoods are those in the same graph, and predictions those of the same model. So
    nodes that arrive in a random order are exchangeable, and the share of false alarms is that of
    :func:`ergnn.watch.drift_test`.

    Args:
        first_new: nodes from this number on are new.
    """
    rng = np.random.default_rng([snapshot.settings.seed, first_new])
    nodes = snapshot.held_out(snapshot.settings.eval_samples)[0]
    sides = [nodes[nodes < first_new], nodes[nodes >= first_new]]
    scored = min(map(len, sides)) >= LEAST and snapshot.learner.num_tasks > 0
    if scored:
        sides = [np.sort(rng.permutation(side)[:SAMPLES]) for side in sides]
    else:
        ends = (0, first_new, snapshot.graph.next_node)
        sides = [_sample(snapshot.graph, rng, start, stop) for start, stop in pairwise(ends)]
    if min(map(len, sides)) < LEAST:
        return None
    aspects = _aspects(snapshot, np.concatenate(sides), scored)
    halves = (slice(None, len(sides[0])), slice(len(sides[0]), None))
    reference, new = ({name: rows[half] for name, rows in aspects.items()} for half in halves)
    return drift_test(reference, new, seed=snapshot.settings.seed).to_dict()


def _sample(graph: StoredGraph, rng: np.random.Generator, start: int, stop: int, most: int = SAMPLES) -> Array:
    """Up to ``most`` nodes of a range of numbers that have no training label, drawn at random; ascending."""
    size = stop - start
    drawn = start + (rng.choice(size, 4 * most, replace=False) if size > 4 * most else rng.permutation(size))
    if graph.num_nodes < graph.next_node:  # nodes were forgotten
        drawn = drawn[np.isin(drawn, graph.nodes())]
    label, split, _ = graph.labels(drawn)
    return np.sort(drawn[(label < 0) | (split != TRAIN)][:most])


def _aspects(snapshot: Snapshot, nodes: Array, predictions: bool) -> dict[str, Any]:
    """What is compared of some nodes (ascending)."""
    local = read_subgraph(snapshot.graph, nodes, 1, snapshot.settings.limits)
    aspects = node_aspects(local.graph, local.places(nodes).numpy())
    if predictions:
        aspects["predictions"] = _probabilities(snapshot, nodes)[:, snapshot.learner.classes()]
    return aspects


def _probabilities(snapshot: Snapshot, nodes: Array) -> Array:
    out = np.zeros((len(nodes), len(snapshot.classes)))
    for places, found in snapshot.learner.probabilities(snapshot.graph, nodes, len(snapshot.classes)):
        out[places] = found
    return out


def _members(snapshot: Snapshot, split: str, most: int) -> tuple[Array, Array]:
    """Up to ``most`` nodes of a split of all updates whose class was learned, drawn by seed, and their classes."""
    nodes, classes, _ = snapshot.graph.split(split)
    mine = np.flatnonzero(np.isin(classes, snapshot.learner.classes()))
    chosen = np.random.default_rng(snapshot.settings.seed).permutation(mine)[:most]
    return nodes[chosen], classes[chosen]


def _calibration(snapshot: Snapshot) -> dict[str, Any] | None:
    """By validation nodes and the held-out nodes that an update scores, of classes that were learned."""
    test, truth, _ = snapshot.held_out(snapshot.settings.eval_samples)
    known = np.isin(truth, snapshot.learner.classes())
    test, truth = test[known], truth[known]
    val, classes = _members(snapshot, "val", ROWS)
    if not len(val) or not len(test):
        return None
    found = _probabilities(snapshot, np.concatenate([val, test]))  # at once: their neighborhoods overlap
    return calibration((found[: len(val)], classes), (found[len(val) :], truth))


def fit_unknown(snapshot: Snapshot) -> UnknownScore | None:
    """The score of unknown classes, with a threshold from validation nodes; None without labels."""
    (train, classes), (val, _) = (_members(snapshot, split, ROWS) for split in ("train", "val"))
    rng = np.random.default_rng(snapshot.settings.seed)
    background = _sample(snapshot.graph, rng, 0, snapshot.graph.next_node, ROWS)
    if not len(train) or not len(background):
        return None
    rows = iter(_rows(snapshot, [train, background, val]))
    fitted = UnknownScore.fit(next(rows), torch.from_numpy(classes), next(rows))
    return fitted.with_threshold(next(rows))


def _rows(snapshot: Snapshot, parts: Sequence[Array]) -> Iterable[torch.Tensor]:
    local = read_subgraph(snapshot.graph, np.concatenate(parts), NUM_HOPS, snapshot.settings.limits)
    return unknown_rows(local.graph, local.places(np.concatenate(parts))).split([len(part) for part in parts])


def _unknown(snapshot: Snapshot) -> dict[str, Any] | None:
    fitted = fit_unknown(snapshot)
    if fitted is None:
        return None
    new = snapshot.records[-1]["counts"]["nodes"]
    rng, stop = np.random.default_rng(snapshot.settings.seed), snapshot.graph.next_node
    nodes = _sample(snapshot.graph, rng, stop - new, stop)
    return fitted.count(next(iter(_rows(snapshot, [nodes])))) if len(nodes) else None


class LiveWatch:
    """Watches the nodes of requests: their drift from the graph, and how many are of no known class.

    Nodes are collected in windows. Each full window is tested once, so that the share of false alarms is that of a
    window. (Degrees and neighborhoods of a request are those it came with; requests must name the edges that nodes of
    the graph would have.)

    Args:
        snapshot: of the version that answers.
        window: nodes per test.
        alpha: the share of false alarms per window.
    """

    def __init__(self, snapshot: Snapshot, window: int = SAMPLES, alpha: float = ALPHA) -> None:
        self.window, self.alpha, self.seed = window, alpha, snapshot.settings.seed
        self._rng = np.random.default_rng(self.seed)
        nodes = _sample(snapshot.graph, np.random.default_rng(self.seed), 0, snapshot.graph.next_node)
        self._predicts = snapshot.learner.num_tasks > 0
        self._reference = _aspects(snapshot, nodes, self._predicts) if len(nodes) >= LEAST else {}
        self._unknown = fit_unknown(snapshot)
        self._pending: list[dict[str, Any]] = []
        self.drift: Drift | None = None
        self.windows = self.alarms = self.nodes = self.unknown = 0

    def add(
        self,
        snapshot: Snapshot,
        ids: Sequence[str] | None = None,
        *,
        nodes: NodeTable | None = None,
        edges: EdgeTable | None = None,
    ) -> list[bool]:
        """Add the nodes of a request, given as to :meth:`LearnerFolder.predict`; whether each is of no known class."""
        if nodes is not None:
            snapshot = extended(snapshot, nodes, edges)
            ids = list(nodes.ids) if ids is None else ids
        numbers, place = np.unique(snapshot.graph.find_all(list(ids or ())), return_inverse=True)
        if not len(numbers):
            return []
        if self._reference:
            some = np.sort(self._rng.permutation(numbers)[: self.window])
            self._pending.append(_aspects(snapshot, some, self._predicts))
            self._test()
        found = np.zeros(len(numbers), bool)
        if self._unknown is not None:
            rows = next(iter(_rows(snapshot, [numbers])))
            found = (self._unknown.score(rows) > self._unknown.threshold).numpy()
        self.nodes += len(numbers)
        self.unknown += int(found.sum())
        return found[place].tolist()

    def _test(self) -> None:
        """Test what was collected, once it fills a window."""
        if sum(next(iter(part.values())).shape[0] for part in self._pending) < self.window:
            return
        new = stack_aspects(self._pending)
        self.drift = drift_test(self._reference, new, alpha=self.alpha, seed=self.seed + self.windows)
        self._pending = []
        self.windows += 1
        self.alarms += self.drift.alarm

    def summary(self) -> dict[str, Any]:
        """Counts so far, and the drift of the last full window."""
        return {
            "nodes": self.nodes,
            "unknown": self.unknown,
            "windows": self.windows,
            "alarms": self.alarms,
            "drift": None if self.drift is None else self.drift.to_dict(),
        }
