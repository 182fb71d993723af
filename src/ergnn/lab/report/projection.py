"""Maps of a class in two dimensions, to show which nodes were chosen.

A node is represented by its row of S²X, S = D̃^−½ (A + I) D̃^−½, divided by its norm: the input of a two-layer network
without its weights. A map shows the first two principal components of the rows of a class.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.propagation import propagate

MAX_EDGES = 2_000_000
"""Larger graphs have no maps, since S²X would take too long."""
MAX_NODES = 250
"""Largest number of training nodes, and of other nodes, drawn per class."""


@dataclass(frozen=True)
class ClassMap:
    """One class: node ids, their coordinates, and which of them are training nodes.

    ``explained`` is the fraction of the variance explained by the two dimensions.
    """

    task: int
    label: int
    nodes: NDArray[np.int64]
    points: NDArray[np.float64]
    is_training: NDArray[np.bool_]
    explained: float

    def at(self, node: int) -> NDArray[np.float64] | None:
        """Return the coordinates of a node, or None if it is not in this class."""
        places = np.flatnonzero(self.nodes == node)
        return self.points[places[0]] if places.size else None


def principal_components(rows: NDArray[np.float64], number: int = 2) -> tuple[NDArray[np.float64], float]:
    """Return the coordinates of the rows along their first principal components, and the explained variance ratio.

    For centered rows R = U Σ Vᵀ the coordinates are U Σ. The sign of a component makes its largest coordinate
    positive; missing components are zero.
    """
    u, sigma, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    points = (u * sigma)[:, :number]
    points = np.pad(points, ((0, 0), (0, number - points.shape[1])))
    heights = points[np.abs(points).argmax(axis=0), range(number)]
    total = float((sigma**2).sum())
    explained = float((sigma[:number] ** 2).sum() / total) if total > 0 else 0.0
    return points * np.where(heights < 0, -1.0, 1.0), explained


def smoothed_features(graph: Graph, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the rows of S²X for some nodes, divided by their norm."""
    rows = propagate(graph, 2, nodes=torch.from_numpy(nodes).to(graph.device), dtype=torch.float64).cpu().numpy()
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def class_maps(task: Task, keep: Collection[int] = (), seed: int = 0) -> list[ClassMap]:
    """Create a map of each class of a task: its training nodes first, then its other nodes.

    If there are more than ``MAX_NODES`` nodes, a random sample is drawn, plus all nodes in ``keep``.
    """
    rng = np.random.default_rng(seed)
    labels = task.graph.y.cpu().numpy()
    training = task.train.cpu().numpy()
    maps = []
    for label in task.classes:
        all_candidates = training[labels[training] == label]
        candidates = _some(all_candidates, keep, rng)
        others = _some(np.setdiff1d(np.flatnonzero(labels == label), all_candidates), keep, rng)
        nodes = np.concatenate([candidates, others])
        points, explained = principal_components(smoothed_features(task.graph, nodes))
        maps.append(ClassMap(task.id, label, nodes, points, np.arange(len(nodes)) < len(candidates), explained))
    return maps


def _some(nodes: NDArray[np.int64], keep: Collection[int], rng: np.random.Generator) -> NDArray[np.int64]:
    if len(nodes) <= MAX_NODES:
        return nodes
    wanted = np.isin(nodes, list(keep))
    return np.union1d(nodes[wanted], rng.choice(nodes, MAX_NODES, replace=False))
