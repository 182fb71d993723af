"""The served version: its graph, model and predictions, in memory and never changed."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ergnn.data.partial import Array, PartialGraph
from ergnn.folder import LearnerFolder, database
from ergnn.folder.graph import MemoryGraph
from ergnn.folder.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class ServedVersion(Snapshot):
    """A version of a folder with its graph in memory; threads may share it.

    Args:
        table: probabilities of all nodes, ``[next_node, classes]``.
        versions: rows of all versions that were stored when it was read, oldest first.
    """

    table: Array
    versions: tuple[dict[str, Any], ...]
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def number(self) -> int:
        return self.version.number

    def probabilities(self, graph: PartialGraph, nodes: Array) -> Array:
        """Look up the probabilities of nodes of its graph; compute those of an extended graph."""
        if graph is self.graph:
            return self.table[nodes]
        with self.lock:  # learners cache the graph that they read last
            return super().probabilities(graph, nodes)


def load_version(folder: LearnerFolder) -> ServedVersion:
    """Read the current version into memory, with the probabilities of all nodes."""
    with folder.snapshot() as stored:
        graph = MemoryGraph(stored.graph)
        nodes, table = graph.nodes(), np.zeros((graph.next_node, len(stored.classes)), np.float32)
        if stored.learner.num_tasks and len(nodes):
            table[nodes] = stored.probabilities(graph, nodes)
        rows = [vars(database.read_version(stored.connection, n)) for n in database.kept_versions(stored.connection)]
        shown = tuple(
            {name: value for name, value in row.items() if name not in ("state", "number", "next_node")}
            | {"version": row["number"], "current": row["number"] == stored.version.number}
            for row in rows
        )
        return ServedVersion(**{**vars(stored), "graph": graph}, table=table, versions=shown)


def current_number(folder: LearnerFolder) -> int:
    """The number of the current version."""
    with database.wrap_errors(folder.root), closing(database.connect(folder.root)) as connection:
        return database.current_version(connection)[0]
