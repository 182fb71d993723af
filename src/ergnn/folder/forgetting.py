"""Forgetting nodes: removal from the graph and the buffer, and a report of what still depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ergnn.data.formats.tables import SPLITS
from ergnn.data.partial import Array, find_all
from ergnn.errors import InputError
from ergnn.folder.graph import StoredGraph, remove_rows, write_adjacency
from ergnn.folder.snapshot import Snapshot, make_learner, write_snapshot
from ergnn.folder.versions import current_version, drop_after
from ergnn.incremental.prediction import predict_held_out


def forget_nodes(base: Snapshot, ids: Sequence[str], retrain: bool = False) -> dict[str, Any]:
    """Add a version without some nodes; returns what was removed and replaced, and what still depends on them.

    Call it in a transaction.
    """
    nodes = np.unique(find_all(base.graph, ids))
    if not len(nodes):
        raise InputError("no nodes are given; there is nothing to forget")
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
    records = []
    for record in base.records:
        lost = split[update == record["update"]]
        members = {name: record["members"][name] - int((lost == i).sum()) for i, name in enumerate(SPLITS)}
        records.append({**record, "members": members})
    remembered = int(np.isin(base.learner.buffer.nodes.cpu().numpy(), nodes).sum())
    after, replaced = replace(base, graph=graph, records=records), list[list[Any]]()
    retrain = retrain and not base.learner.exact  # an exact learner has the same state after learning again
    if retrain:
        after = replace(after, learner=make_learner(base.settings))
        records[:] = [{**record, **after.learner.learn(after, [record["update"]])} for record in records]
    else:
        replaced = after.learner.forget(after, nodes)
    scores = predict_held_out(after, base.settings.eval_samples).scores()
    if records:
        records[-1] = {**records[-1], "scores": scores, "remembered": len(after.learner.buffer)}
    changed = [new for new, old in zip(records, base.records, strict=True) if new != old]
    write_snapshot(after, number, changed, **sizes, state={"digest": ""})
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
    """Remove nodes and their edges from a version on; returns the number of edges."""
    graph, connection = base.graph, base.connection
    incoming = graph.neighbors(nodes)[1]
    targets = np.setdiff1d(incoming, nodes)
    if base.settings.directed:  # lists have the sources of a node, not its targets
        targets = np.setdiff1d(graph.nodes(), nodes)
    row, source = graph.neighbors(targets)
    gone = np.isin(source, nodes)
    changed = np.unique(targets[row[gone]])
    stays = ~gone & np.isin(targets[row], changed)
    for table in ("nodes", "labels", "adjacency"):
        remove_rows(connection, table, nodes, version)
    write_adjacency(connection, changed, np.stack([source, targets[row]])[:, stays], version)
    return len(incoming) + int(gone.sum())
