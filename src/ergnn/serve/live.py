"""Drift and unknown classes in the nodes of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ergnn.data.partial import PartialGraph, find_all
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.folder.inspection import MIN_NODES, aspects, fit_unknown, rows_of, sample_nodes
from ergnn.folder.snapshot import Snapshot
from ergnn.learning.watch.drift import ALPHA, SAMPLES, Drift, drift_test, stack_aspects


class LiveWatch:
    """Watches the nodes of requests: their drift from the graph, and how many belong to no known class.

    Nodes are collected in windows. Each full window is tested once, so ``alpha`` is the share of false alarms per
    window. (Degrees and neighborhoods are those given in a request; requests must contain the edges that nodes of the
    graph would have.)

    Args:
        snapshot: a snapshot of the served version.
        window: nodes per test.
        alpha: share of false alarms per window.
    """

    def __init__(self, snapshot: Snapshot, window: int = SAMPLES, alpha: float = ALPHA) -> None:
        self.window, self.alpha, self.seed = window, alpha, snapshot.settings.seed
        self._rng = np.random.default_rng(self.seed)
        nodes = sample_nodes(snapshot.graph, np.random.default_rng(self.seed), 0, snapshot.graph.next_node)
        self._predicts = snapshot.learner.num_tasks > 0
        self._reference = aspects(snapshot, snapshot.graph, nodes, self._predicts) if len(nodes) >= MIN_NODES else {}
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
        """Add the nodes of a request, as for :meth:`LearnerFolder.predict`; returns whether each is unknown."""
        graph: PartialGraph = snapshot.graph
        if nodes is not None:
            graph = snapshot.extended(nodes, edges)
            ids = list(nodes.ids) if ids is None else ids
        requested, index = np.unique(find_all(graph, list(ids or ())), return_inverse=True)
        if not len(requested):
            return []
        if self._reference:
            some = np.sort(self._rng.permutation(requested)[: self.window])
            self._pending.append(aspects(snapshot, graph, some, self._predicts))
            self._test()
        is_unknown = np.zeros(len(requested), bool)
        if self._unknown is not None:
            rows = rows_of(snapshot, graph, requested)
            is_unknown = (self._unknown.score(rows) > self._unknown.threshold).numpy()
        self.nodes += len(requested)
        self.unknown += int(is_unknown.sum())
        return is_unknown[index].tolist()

    def _test(self) -> None:
        """Test the collected nodes once they fill a window."""
        if sum(next(iter(rows.values())).shape[0] for rows in self._pending) < self.window:
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
