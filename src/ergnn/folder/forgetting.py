"""Forgetting nodes: out of the graph and the buffer, with an honest account of what still depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ergnn.errors import InputError
from ergnn.folder.graph import SPLITS, Array, StoredGraph
from ergnn.folder.scoring import predict_held_out
from ergnn.folder.snapshot import Record, Snapshot, make_learner, write_records, write_snapshot
from ergnn.folder.updates import remove_rows, write_adjacency
from ergnn.folder.versions import current_version, drop_after


def forget_nodes(base: Snapshot, ids: Sequence[str], retrain: bool = False) -> dict[str, Any]:
    """Add a version without some nodes; returns what was removed, replaced, and what still depends on them.

    Call it in a transaction.
    """
    nodes = np.unique(base.graph.find_all(ids))
    if not len(nodes):
        raise InputError("no node was named; there is nothing to forget")
    connection, number = base.connection, current_version(base.connection)[1] + 1
    drop_after(connection, base.version.number)
    label, split, update = base.graph.labels(nodes)
    trained = (label >= 0) & (split == SPLITS.index("train"))
    edges = _remove(base, nodes, number)
    sizes: dict[str, Any] = {
        "nodes": base.version.nodes - len(nodes),
        "edges": base.version.edges - edges,
        "labeled": base.version.labeled - int((label >= 0).sum()),
    }
    graph = StoredGraph(connection, replace(base.version, number=number, **sizes))
    records = [_without(record, split[update == record["update"]]) for record in base.records]
    remembered = int(np.isin(base.learner.buffer.nodes.cpu().numpy(), nodes).sum())
    after = replace(base, graph=graph, records=records)
    replaced: list[list[Any]] = []
    retrain = retrain and not base.learner.exact  # the state of an exact learner is that of learning again
    if retrain:
        after = replace(after, learner=make_learner(base.settings))
        records[:] = [{**record, **after.learn([record["update"]])} for record in records]
    else:
        replaced = after.learner.forget(after, nodes)
    scores = predict_held_out(after, base.settings.eval_samples).scores()
    if records:
        records[-1] = {**records[-1], "scores": scores, "remembered": len(after.learner.buffer)}
    write_snapshot(after, number, **sizes, state={"digest": ""})
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
    incoming = graph.neighbors(nodes)[1]
    targets = np.setdiff1d(incoming, nodes)
    if base.settings.directed:  # lists say who leads to a node, not where it leads
        targets = np.setdiff1d(graph.nodes(), nodes)
    row, source = graph.neighbors(targets)
    gone = np.isin(source, nodes)
    changed = np.unique(targets[row[gone]])
    stays = ~gone & np.isin(targets[row], changed)
    for table in ("nodes", "labels", "adjacency"):
        remove_rows(connection, table, nodes, version)
    write_adjacency(connection, changed, np.stack([source, targets[row]])[:, stays], version)
    return len(incoming) + int(gone.sum())


def _without(record: Record, splits: Array) -> Record:
    """A record without nodes of some splits."""
    lost = {split: int((splits == i).sum()) for i, split in enumerate(SPLITS)}
    return {**record, "members": {split: count - lost[split] for split, count in record["members"].items()}}
