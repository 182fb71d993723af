"""Why a node gets its class, which labels look wrong, and which labels would help, in a version of a folder.

All follow from the closed form (:mod:`ergnn.analytic.explain`); a network has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.analytic.explain import (
    BY,
    Explanation,
    LabelEffects,
    average_precision,
    choose,
    doubts,
    effects_of,
    explain,
    plant_errors,
)
from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.data.partial import Array, find_all
from ergnn.data.tables.encoder import Encoder
from ergnn.engine.cache import Cache
from ergnn.folder.snapshot import Snapshot

MOST_TERMS = 10
"""Labeled nodes, and columns of features, that an explanation lists."""
MOST_DRAWN = 30
"""Nodes of a neighborhood."""
DRAWN_HOPS = 2
SIMILAR = 3
"""Similar labeled nodes that an audit names."""
MOST_CANDIDATES = 20_000
"""Nodes that are compared when nodes to label are chosen; of more, those evenly spaced."""

_EFFECTS: Cache[LabelEffects] = Cache(limit=1)
"""Of the graph that was asked for last."""


def explain_nodes(snapshot: Snapshot, ids: Sequence[str], most: int = MOST_TERMS) -> list[dict[str, Any]]:
    """Explain the classes of some nodes, as numbers and text.

    Args:
        snapshot: a version.
        ids: the nodes.
        most: labeled nodes and columns that are listed, those with the largest terms.
    """
    check_at_least(1, count=most)
    effects, nodes = _effects(snapshot), find_all(snapshot.graph, ids)
    wanted, place = np.unique(nodes, return_inverse=True)
    rows = snapshot.learner.rows(snapshot.graph, wanted)  # type: ignore[union-attr]
    explanations = explain(effects, rows, _temperature(snapshot))
    named = zip(ids, nodes, place, strict=True)
    return [_explanation(snapshot, name, node, explanations[row], most) for name, node, row in named]


def _explanation(snapshot: Snapshot, name: str, node: int, found: Explanation, most: int) -> dict[str, Any]:
    classes = [snapshot.classes[c] for c in found.classes.tolist()]
    best, second = found.best, found.second
    shown = found.order[:most].tolist()
    deciding = found.deciding
    rows = _labeled_rows(snapshot, found.nodes[[*shown, *deciding[:1]]])
    terms = [
        {**row, "term": float(found.terms[i]), "share": float(found.shares[i])}
        for row, i in zip(rows, shown, strict=False)
    ]
    own = snapshot.graph.labels(np.array([node]))[0][0]
    return {
        "id": name,
        "label": None if own < 0 else snapshot.classes[own],
        "class": classes[best],
        "probability": float(found.probabilities[best]),
        "second": None if second is None else classes[second],
        "margin": found.margin,
        "scores": dict(zip(classes, found.scores.tolist(), strict=True)),
        "terms": terms,
        "num_terms": found.nodes.numel(),
        "deciding": {**rows[-1], "then": _named(classes, int(found.without[deciding[0]]))} if deciding else None,
        "num_deciding": len(deciding),
        "features": _features(snapshot, node, best, second, most),
        "neighborhood": neighborhood(snapshot, node),
    }


def _named(classes: Sequence[str], column: int) -> str | None:
    return classes[column] if column >= 0 else None


def _labeled_rows(snapshot: Snapshot, chosen: Tensor) -> list[dict[str, Any]]:
    """Id, label and update of some labeled nodes."""
    nodes = chosen.cpu().numpy()
    classes, _, updates = snapshot.graph.labels(nodes)
    return [
        {"id": name, "label": snapshot.classes[c], "update": int(update) + 1}
        for name, c, update in zip(_names(snapshot, nodes), classes, updates, strict=True)
    ]


def _names(snapshot: Snapshot, nodes: Array) -> list[str]:
    wanted, place = np.unique(nodes, return_inverse=True)
    names = snapshot.graph.names(wanted)
    return [names[i] for i in place]


def _features(snapshot: Snapshot, node: int, best: int, second: int | None, most: int) -> dict[str, Any] | None:
    """The score of the predicted class, and of the second, by distance and by column; None unless it is linear."""
    split = snapshot.learner.split_scores(snapshot.graph, node)  # type: ignore[union-attr]
    if split is None:
        return None
    sums, constant = split
    columns = [best] if second is None else [best, second]
    by_distance, by_feature = sums.sum(1)[:, columns], sums.sum(0)[:, columns]
    names, by_column = _by_column(snapshot, by_feature)
    sizes = (by_column[:, 0] - by_column[:, -1] * (len(columns) - 1)).abs()
    order = torch.argsort(-sizes, stable=True)[:most].tolist()
    return {
        "constant": constant[columns].tolist(),
        "distances": by_distance.tolist(),
        "columns": [{"name": names[i], "terms": by_column[i].tolist()} for i in order if sizes[i] > 0],
        "num_columns": int((sizes > 0).sum()),
    }


def _by_column(snapshot: Snapshot, terms: Tensor) -> tuple[list[str], Tensor]:
    """Names of columns, and the sums of the terms of their features."""
    state = snapshot.version.state
    if not state.get("encoder"):
        names = state.get("feature_names") or [f"feature {i}" for i in range(len(terms))]
        return list(names), terms
    columns = Encoder.from_json(state["encoder"]).columns
    ordered = [c for c in columns if c.kind != "word"] + [c for c in columns if c.kind == "word"]
    widths = torch.tensor([1 if c.kind == "word" else len(c.names) for c in ordered])
    place = torch.repeat_interleave(torch.arange(len(ordered)), widths)
    return [c.name for c in ordered], terms.new_zeros(len(ordered), terms.size(1)).index_add_(0, place, terms)


def neighborhood(snapshot: Snapshot, node: int) -> dict[str, Any]:
    """At most :data:`MOST_DRAWN` nodes within two steps along edges to a node, labeled ones first, and their edges."""
    graph, nodes, hops = snapshot.graph, [node], [0]
    frontier = np.array([node])
    for hop in range(1, DRAWN_HOPS + 1):
        found = np.setdiff1d(graph.neighbors(frontier)[1], nodes)
        frontier = np.sort(found[np.argsort(graph.labels(found)[0] < 0, kind="stable")][: MOST_DRAWN - len(nodes)])
        nodes += frontier.tolist()
        hops += [hop] * len(frontier)
    ordered = np.array(nodes)
    wanted, place = np.unique(ordered, return_inverse=True)
    predicted = snapshot.probabilities(graph, wanted).argmax(1)[place]
    label = graph.labels(ordered)[0]
    row, source, _ = graph.neighbors(wanted)
    position = {number: i for i, number in enumerate(nodes)}
    pairs = {
        tuple(sorted((position[int(u)], position[int(wanted[r])])))
        for r, u in zip(row, source, strict=True)
        if int(u) in position and u != wanted[r]
    }
    names = _names(snapshot, ordered)
    return {
        "nodes": [
            {"id": name, "distance": hop, "labeled": bool(c >= 0), "class": snapshot.classes[c if c >= 0 else k]}
            for name, hop, c, k in zip(names, hops, label, predicted, strict=True)
        ],
        "edges": sorted(map(list, pairs)),
    }


def audit_labels(snapshot: Snapshot, most: int | None = None, plant: float = 0.0) -> dict[str, Any]:
    """Compare every training label with what the others say; those that fit least come first.

    Args:
        snapshot: a version.
        most: labels that are listed; by default all.
        plant: first give this share of the labels another class, at random, in memory only, and say how many are found.
    """
    if not 0 <= plant < 1:
        raise InputError(f"plant is {plant}; it must be a share of the labels, from 0 to below 1")
    effects = _effects(snapshot)
    wrong = None
    if plant:
        effects, wrong = plant_errors(effects, plant)
    found = doubts(effects, _temperature(snapshot))
    order = found.order()
    classes = [snapshot.classes[c] for c in effects.classes.tolist()]
    shown = order[:most].tolist()
    names = _labeled_rows(snapshot, found.nodes[shown])
    given = effects.column.tolist()
    rows = [
        {
            **{**row, "label": classes[given[i]]},
            "probability": float(found.probability[i]),
            "class": classes[int(found.column[i])],
            "class_probability": float(found.best[i]),
            "similar": _labeled_rows(snapshot, found.nodes[effects.most_similar(i, SIMILAR)]),
            **({} if wrong is None else {"planted": bool(wrong[i])}),
        }
        for row, i in zip(names, shown, strict=True)
    ]
    report: dict[str, Any] = {
        "labels": found.nodes.numel(),
        "compared": len(order),
        "doubtful": int((found.column[order] != effects.column[order]).sum()),
        "rows": rows,
    }
    if wrong is not None:
        count = int(wrong.sum())
        report["planted"] = {
            "labels": count,
            "found": int(wrong[order[:count]].sum()),
            "average_precision": average_precision(order, wrong),
        }
    return report


def suggest_nodes(
    snapshot: Snapshot, count: int = 50, among: Sequence[str] | None = None, by: str = "variance"
) -> dict[str, Any]:
    """Choose nodes without a label whose labels would help most, best first.

    Args:
        snapshot: a version.
        count: number of nodes.
        among: candidates; by default all nodes.
        by: a rule of :func:`ergnn.analytic.explain.choose`.
    """
    check_at_least(1, count=count)
    check_choice("by", by, BY)
    effects, graph = _effects(snapshot), snapshot.graph
    nodes = graph.nodes() if among is None else np.unique(find_all(graph, among))
    candidates = nodes[graph.labels(nodes)[0] < 0]
    if not len(candidates):
        where = "the graph" if among is None else "the given nodes"
        raise InputError(f"all {len(nodes):,} nodes of {where} have a label; nothing is left to label")
    of = len(candidates)
    if of > MOST_CANDIDATES:
        candidates = candidates[np.linspace(0, of - 1, MOST_CANDIDATES).astype(np.int64)]
    rows = snapshot.learner.rows(graph, candidates)  # type: ignore[union-attr]
    chosen = choose(effects, rows, count, by, _temperature(snapshot))
    nodes = candidates[chosen]
    wanted, place = np.unique(nodes, return_inverse=True)
    probabilities, variances = snapshot.probabilities(graph, wanted)[place], effects.variances(rows[chosen])
    top = np.sort(probabilities[:, effects.classes.tolist()], 1)[:, ::-1]
    margin = top[:, 0] - (top[:, 1] if top.shape[1] > 1 else 0)
    columns = top[:, 0].tolist(), margin.tolist(), variances.tolist()
    named = zip(_names(snapshot, nodes), probabilities.argmax(1), *columns, strict=True)
    return {
        "by": by,
        "candidates": len(candidates),
        "unlabeled": of,
        "rows": [
            {"id": name, "class": snapshot.classes[c], "probability": best, "margin": gap, "variance": variance}
            for name, c, best, gap, variance in named
        ],
    }


def _effects(snapshot: Snapshot) -> LabelEffects:
    """What the training labels do; an error without any, and without a closed form."""
    learner: Any = snapshot.learner
    if not learner.exact:
        method = f"method {snapshot.settings.config.method!r}"
        raise InputError(
            f"{snapshot.root}: {method} trains a network, and only the closed form can be explained; observe the same "
            "tables in a folder with --method analytic (ergnn init)"
        )
    if not learner.num_tasks:
        raise InputError(f"{snapshot.root}: there are no training labels yet; observe labeled nodes first")

    return _EFFECTS.get(
        [snapshot.graph], lambda: effects_of(learner.labeled_rows(snapshot.graph)), snapshot.version.number
    )


def _temperature(snapshot: Snapshot) -> float:
    learner: Any = snapshot.learner
    return float(learner.head.solution.temperature)
