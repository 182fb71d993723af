"""The served version: its graph, model and predictions, in memory and never changed."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from ergnn.data.partial import Array, PartialGraph
from ergnn.folder import LearnerFolder, database
from ergnn.folder.graph import MemoryGraph
from ergnn.folder.snapshot import Snapshot


class TableLearner:
    """A learner that looks up the probabilities of nodes of its graph, and computes those of an extended graph."""

    def __init__(self, learner: Any, graph: MemoryGraph, num_classes: int) -> None:
        self._learner, self._graph, self._lock = learner, graph, threading.Lock()
        self._table = np.zeros((graph.next_node, num_classes), np.float32)
        nodes = graph.nodes()
        if learner.num_tasks and len(nodes):
            self._table[nodes] = learner.probabilities(graph, nodes, num_classes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def probabilities(self, graph: PartialGraph, nodes: Array, num_classes: int) -> Array:
        if graph is self._graph:
            return self._table[nodes]
        with self._lock:  # learners cache the graph that they read last
            return cast(Array, self._learner.probabilities(graph, nodes, num_classes))


@dataclass(frozen=True, eq=False)
class ServedVersion:
    """A version of a folder in memory; threads may share it.

    Args:
        snapshot: the version with its graph in memory.
        versions: rows of all versions that were stored when it was read, oldest first.
    """

    snapshot: Snapshot
    versions: tuple[dict[str, Any], ...]

    @property
    def number(self) -> int:
        return self.snapshot.version.number


def load_version(folder: LearnerFolder) -> ServedVersion:
    """Read the current version into memory, with the probabilities of all nodes."""
    with folder.snapshot() as stored:
        graph = MemoryGraph(stored.graph)
        learner = TableLearner(stored.learner, graph, len(stored.classes))
        rows = [vars(database.read_version(stored.connection, n)) for n in database.kept_versions(stored.connection)]
        shown = tuple(
            {name: value for name, value in row.items() if name not in ("state", "number", "next_node")}
            | {"version": row["number"], "current": row["number"] == stored.version.number}
            for row in rows
        )
        return ServedVersion(replace(stored, graph=graph, learner=cast(Any, learner)), shown)


def current_number(folder: LearnerFolder) -> int:
    """The number of the current version."""
    with database.wrap_errors(folder.root), closing(database.connect(folder.root)) as connection:
        return database.current_version(connection)[0]
