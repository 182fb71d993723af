"""Probabilities of nodes, known ones or such that are there for one prediction only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ergnn.data.formats.limits import truncate
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.errors import InputError
from ergnn.folder.graph import Array, ExtendedGraph, StoredGraph
from ergnn.folder.snapshot import Snapshot
from ergnn.folder.updates import prepare_update


def predictions(
    snapshot: Snapshot,
    ids: Sequence[str] | None,
    nodes: NodeTable | None,
    edges: EdgeTable | None,
    classes: Sequence[str] | None,
    chunk: int,
) -> Iterator[tuple[list[str], list[str], Array]]:
    """See :meth:`LearnerFolder.predict`."""
    if not snapshot.learner.num_tasks:
        raise InputError(f"{snapshot.root}: nothing has been learned yet; observe labeled nodes first")
    if nodes is not None:
        snapshot = extended(snapshot, nodes, edges)
        ids = list(nodes.ids) if ids is None else ids
    wanted = [str(text) for text in ids or ()]
    numbers = find_all(snapshot.graph, wanted)
    columns = _columns(snapshot, classes)
    names = [snapshot.classes[c] for c in columns]
    step = len(wanted) if snapshot.learner.all_at_once else chunk
    for start in range(0, len(wanted), max(step, 1)):
        part = numbers[start : start + step]
        out = np.zeros((len(part), len(columns)))
        for places, found in snapshot.learner.probabilities(snapshot.graph, part, len(snapshot.classes), chunk):
            out[places] = found[:, columns]
        total = out.sum(1, keepdims=True)
        out = np.divide(out, total, out=np.full_like(out, 1 / len(columns)), where=total > 0)
        for first in range(0, len(part), chunk):
            yield wanted[start + first : start + first + chunk], names, out[first : first + chunk]


def find_all(graph: StoredGraph, ids: Sequence[str]) -> Array:
    """The numbers of nodes, all of which must be in the graph."""
    numbers = graph.find(ids)
    lost = np.flatnonzero(numbers < 0)
    if lost.size:
        raise InputError(f"node {truncate(ids[lost[0]])} is not in the graph ({lost.size} such id(s))")
    return numbers


def _columns(snapshot: Snapshot, classes: Sequence[str] | None) -> list[int]:
    known = snapshot.learner.classes()
    if classes is None:
        return known
    names = [snapshot.classes[c] for c in known]
    for name in classes:
        if name not in names:
            raise InputError(f"class {truncate(name)} has not been learned; these have: {', '.join(names)[:300]}")
    return [known[names.index(name)] for name in dict.fromkeys(classes)]


def extended(snapshot: Snapshot, nodes: NodeTable, edges: EdgeTable | None) -> Snapshot:
    """The snapshot with nodes and edges that are there for one prediction only; their labels are not looked at."""
    lost = np.flatnonzero(snapshot.graph.find(list(nodes.ids)) < 0)
    if len(lost) and not nodes.num_features and not nodes.is_sparse:
        raise InputError(
            f"node {truncate(nodes.ids[lost[0]])} is not in the graph and has no features here ({len(lost)} such id(s))"
        )
    if not len(lost) and edges is None:
        return snapshot
    bare = NodeTable(nodes.ids, features=nodes.features, feature_names=nodes.feature_names)
    version = snapshot.version
    update = prepare_update(
        snapshot.graph, snapshot.settings, version.state, snapshot.classes, version.edges, bare, edges
    )
    return replace(snapshot, graph=ExtendedGraph(snapshot.graph, update.ids, update.features, update.edges))
