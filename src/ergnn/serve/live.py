"""Drift and unknown classes in the nodes of requests."""

from __future__ import annotations

from typing import Any

import numpy as np

from ergnn.data.partial import find_all
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.folder.inspection import MIN_NODES, aspects, fit_unknown, rows_of, sample_nodes
from ergnn.folder.snapshot import Snapshot
from ergnn.learning.watch import SAMPLES, Drift, drift_test, stack_aspects


class LiveWatch:
    """Watches the nodes of requests: their drift from the graph, and how many belong to no known class.

    Nodes are collected in windows. Each full window is tested once, so 1 % is the share of false alarms per window.
    (Degrees and neighborhoods are those given in a request; requests must contain the edges that nodes of the graph
    would have.)

    Args:
        snapshot: a snapshot of the served version.
        window: nodes per test.
    """

    def __init__(self, snapshot: Snapshot, window: int = SAMPLES) -> None:
        self.window, self.seed = window, snapshot.settings.seed
        self._rng = np.random.default_rng(self.seed)
        nodes = sample_nodes(snapshot.graph, np.random.default_rng(self.seed), 0, snapshot.graph.next_node)
        self._predicts = snapshot.learner.num_tasks > 0
        self._reference = aspects(snapshot, snapshot.graph, nodes, self._predicts) if len(nodes) >= MIN_NODES else {}
        self._unknown = fit_unknown(snapshot)
        self._pending: list[dict[str, Any]] = []
        self.drift: Drift | None = None
        """The drift of the last full window."""
        self.windows = self.alarms = self.nodes = self.unknown = 0

    def add(self, snapshot: Snapshot, nodes: NodeTable, edges: EdgeTable | None = None) -> None:
        """Add the nodes of a request, as for :meth:`LearnerFolder.predict`."""
        graph = snapshot.extended(nodes, edges)
        requested = np.unique(find_all(graph, list(nodes.ids)))
        if self._reference:
            some = np.sort(self._rng.permutation(requested)[: self.window])
            self._pending.append(aspects(snapshot, graph, some, self._predicts))
            if sum(next(iter(rows.values())).shape[0] for rows in self._pending) >= self.window:
                self.drift = drift_test(self._reference, stack_aspects(self._pending), seed=self.seed + self.windows)
                self._pending = []
                self.windows += 1
                self.alarms += self.drift.alarm
        if self._unknown is not None:
            scores = self._unknown.score(rows_of(snapshot, graph, requested))
            self.unknown += int((scores > self._unknown.threshold).sum())
        self.nodes += len(requested)

    def summary(self) -> dict[str, int]:
        """Counts so far: nodes, those of no known class, full windows, and windows with drift."""
        return {name: getattr(self, name) for name in ("nodes", "unknown", "windows", "alarms")}
