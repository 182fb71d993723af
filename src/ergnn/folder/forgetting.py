"""Forgetting nodes: out of the graph and the buffer, with an honest account of what still depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ergnn.errors import InputError
from ergnn.folder.graph import SPLITS, Array, StoredGraph, json_list
from ergnn.folder.prediction import find_all
from ergnn.folder.scoring import score_updates
from ergnn.folder.snapshot import Record, Snapshot, make_learner, write_records, write_snapshot
from ergnn.folder.updates import write_adjacency
from ergnn.folder.versions import current_version, drop_after


def forget_nodes(base: Snapshot, ids: Sequence[str], retrain: bool = False) -> dict[str, Any]:
    """Add a version without some nodes; returns what was removed, replaced, and what still depends on them.

    Call it in a transaction.
    """
    nodes = np.unique(find_all(base.graph, ids))
    if not len(nodes):
        raise InputError("no node was named; there is nothing to forget")
    connection, number = base.connection, current_version(base.connection)[1] + 1
    drop_after(connection, base.version.number)
    label, split, update = base.graph.labels(nodes)
    trained = (label >= 0) & (split == SPLITS.index("train"))
    edges = _remove(base, nodes, number)
    left = base.version.nodes - len(nodes)
    graph = StoredGraph.of(connection, replace(base.version, number=number, nodes=left))
    records = [_without(record, split[update == record["update"]]) for record in base.records]
    remembered = int(np.isin(base.learner.buffer.nodes.cpu().numpy(), nodes).sum())
    retrain = retrain and not base.learner.exact  # whose state is that of learning again
    after = replace(
        base, graph=graph, records=records, learner=make_learner(base.settings) if retrain else base.learner
    )
    if retrain:
        records[:] = [{**record, **after.learn(record["update"])} for record in records]
        replaced: list[list[Any]] = []
    else:
        replaced = after.learner.forget(after, nodes)
    scores = score_updates(after, base.settings.eval_samples)
    if records:
        records[-1] = {**records[-1], "scores": scores, "remembered": len(after.learner.buffer)}
    write_snapshot(
        after,
        number,
        nodes=left,
        edges=base.version.edges - edges,
        labeled=base.version.labeled - int((label >= 0).sum()),
        state={"digest": ""},
    )
    changed = [new for new, old in zip(records, base.records, strict=True) if new != old]
    write_records(connection, changed, number)
    return {
        "version": number,
        "nodes": len(nodes),
        "edges": edges,
        "trained_in": sorted({int(u) + 1 for u in update[trained]}),
        "held_out": int(((label >= 0) & ~trained).sum()),
        "remembered": remembered,
        "replaced": replaced,
        "retrained": retrain,
        "exact": base.learner.exact,
        "parameters_depend": bool(trained.any()) and not (retrain or base.learner.exact),
        "scores": scores,
    }


def _remove(base: Snapshot, nodes: Array, version: int) -> int:
    """Take nodes and their edges out of the graph from a version on; returns how many edges there were."""
    graph, connection = base.graph, base.connection
    for table in ("nodes", "labels", "adjacency"):
        connection.execute(
            f"UPDATE {table} SET removed = ? WHERE removed IS NULL AND node IN (SELECT value FROM json_each(?))",
            (version, json_list(nodes)),
        )
    incoming = graph.neighbors(nodes)[1]
    if base.settings.directed:  # lists say who leads to a node, not where it leads
        indptr, indices = graph.read_graph()
        targets = np.searchsorted(indptr, np.flatnonzero(np.isin(indices, nodes)), side="right") - 1
    else:
        targets = incoming
    targets = np.setdiff1d(targets, nodes)
    row, source = graph.neighbors(targets)
    stays = ~np.isin(source, nodes)
    write_adjacency(connection, targets, np.stack([source, targets[row]])[:, stays], version)
    return len(incoming) + int((~stays).sum())


def _without(record: Record, splits: Array) -> Record:
    """A record without nodes of some splits."""
    lost = {split: int((splits == i).sum()) for i, split in enumerate(SPLITS)}
    return {**record, "members": {split: count - lost[split] for split, count in record["members"].items()}}
