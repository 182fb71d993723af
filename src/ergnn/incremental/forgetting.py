"""Forgetting nodes: removal from a learner, and a report of what still depends on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ergnn.data.formats.tables import SPLITS
from ergnn.data.partial import Array, LabeledGraph
from ergnn.incremental.prediction import predict_held_out
from ergnn.incremental.snapshot import IncrementalLearner, Snapshot

T = TypeVar("T", bound=Snapshot)


def forget(
    base: T, nodes: Array, graph: LabeledGraph, new: IncrementalLearner | None = None
) -> tuple[T, dict[str, Any]]:
    """Forget nodes; returns the snapshot without them, and a report of what was replaced and still depends on them.

    Args:
        base: the snapshot with the nodes.
        nodes: the nodes.
        graph: the graph without them.
        new: a new learner that learns all updates again; by default the learner of ``base`` forgets the nodes.
    """
    label, split, update = base.graph.labels(nodes)
    trained = (label >= 0) & (split == SPLITS.index("train"))
    remembered = int(np.isin(base.learner.buffer.nodes.cpu().numpy(), nodes).sum())
    records, replaced, learner = [], list[list[Any]](), new or base.learner
    for number, record in enumerate(base.records):
        lost = split[update == number]
        members = {name: record["members"][name] - int((lost == i).sum()) for i, name in enumerate(SPLITS)}
        records.append({**record, "members": members})
    after = replace(base, graph=graph, records=records, learner=learner)
    if new is None:
        replaced = learner.forget(after, nodes)
    else:
        records[:] = [{**record, **new.learn(after, [number])} for number, record in enumerate(records)]
    scores = predict_held_out(after, base.settings.eval_samples).scores()
    if records:
        records[-1] = {**records[-1], "scores": scores, "remembered": len(learner.buffer)}
    return after, {
        "nodes": len(nodes),
        "trained_in": sorted({int(u) + 1 for u in update[trained]}),
        "held_out": int(((label >= 0) & ~trained).sum()),
        "remembered": remembered,
        "replaced": replaced,
        "retrained": new is not None,
        "exact": learner.exact,
        "parameters_depend": bool(trained.any()) and new is None and not learner.exact,
        "scores": scores,
    }
