"""Probabilities of nodes, known ones or such that are there for one prediction only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ergnn.data.formats.limits import shown
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.errors import InputError
from ergnn.folder.graph_store import GraphStore
from ergnn.folder.segment import Segment
from ergnn.folder.snapshot import Snapshot
from ergnn.folder.tensors import Array
from ergnn.folder.update import make_update


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
        raise InputError(f"{snapshot.version.root}: nothing has been learnt yet; observe labelled nodes first")
    if nodes is not None:
        snapshot = _with(snapshot, nodes, edges)
        ids = list(nodes.ids) if ids is None else ids
    wanted = [str(text) for text in ids or ()]
    numbers = snapshot.store.find(wanted)
    if (numbers < 0).any():
        lost = wanted[int(np.flatnonzero(numbers < 0)[0])]
        raise InputError(f"node {shown(lost)} is not in the graph ({int((numbers < 0).sum())} such id(s))")
    known = [int(c) for c in np.sort(snapshot.learner.classes().cpu().numpy())]
    columns = _columns(snapshot, known, classes)
    names = [snapshot.classes[c] for c in columns]
    for start in range(0, len(wanted), chunk):
        part = numbers[start : start + chunk]
        out = np.zeros((len(part), len(columns)))
        for places, found in snapshot.probabilities(part, chunk):
            out[places] = found[:, columns]
        total = out.sum(1, keepdims=True)
        out = np.divide(out, total, out=np.full_like(out, 1 / len(columns)), where=total > 0)
        yield wanted[start : start + chunk], names, out


def _columns(snapshot: Snapshot, known: list[int], classes: Sequence[str] | None) -> list[int]:
    if classes is None:
        return known
    names = [snapshot.classes[c] for c in known]
    for name in classes:
        if name not in names:
            raise InputError(f"class {shown(name)} has not been learnt; these have: {', '.join(names)[:300]}")
    return [known[names.index(name)] for name in dict.fromkeys(classes)]


def _with(snapshot: Snapshot, nodes: NodeTable, edges: EdgeTable | None) -> Snapshot:
    """The snapshot with nodes and edges that are there for one prediction only; their labels are not looked at."""
    lost = np.flatnonzero(snapshot.store.find(list(nodes.ids)) < 0)
    if len(lost) and not nodes.num_features and not nodes.is_sparse:
        raise InputError(
            f"node {shown(nodes.ids[lost[0]])} is not in the graph, and has no attributes here ({len(lost)} such id(s))"
        )
    if not len(lost) and edges is None:
        return snapshot
    bare = NodeTable(nodes.ids, features=nodes.features)
    number = len(snapshot.version.record_entries)
    update = make_update(snapshot.store, snapshot.settings, snapshot.version.state, bare, edges, number)
    segments: list[Segment] = [*snapshot.store.segments, Segment(update.arrays)]
    return replace(snapshot, store=GraphStore(segments, snapshot.store.num_features))
