"""Why a node gets its class, which labels look wrong, and which labels would help, in a version of a folder.

All follow from the closed form (:mod:`ergnn.analytic.explain`); a network has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
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
    explain,
    plant_errors,
)
from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.data.partial import find_all
from ergnn.engine.cache import Cache
from ergnn.folder.graph import StoredGraph
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
    effects, graph = _effects(snapshot), snapshot.graph
    nodes, place = np.unique(find_all(graph, ids), return_inverse=True)
    explanations = explain(effects, snapshot.learner.rows(graph, nodes))  # type: ignore[union-attr]
    around = neighborhoods(snapshot, nodes.tolist())
    answers = [
        {**_explanation(snapshot, node, why, most), "neighborhood": near}
        for node, why, near in zip(nodes.tolist(), explanations, around, strict=True)
    ]
    return [{"id": name, **answers[row]} for name, row in zip(ids, place, strict=True)]


def _explanation(snapshot: Snapshot, node: int, why: Explanation, most: int) -> dict[str, Any]:
    classes = [snapshot.classes[c] for c in why.classes.tolist()]
    best, second, deciding = why.best, why.second, why.deciding
    shown = why.order[:most].tolist()
    rows = _labeled_rows(snapshot, why.nodes[[*shown, *deciding[:1]]])
    then = int(why.without[deciding[0]]) if deciding else -1
    label = snapshot.graph.labels(np.array([node]))[0][0]
    return {
        "label": None if label < 0 else snapshot.classes[label],
        "class": classes[best],
        "probability": float(why.probabilities[best]),
        "second": None if second is None else classes[second],
        "margin": why.margin,
        "scores": dict(zip(classes, why.scores.tolist(), strict=True)),
        "terms": [
            {**row, "term": float(why.terms[i]), "share": float(why.shares[i])}
            for row, i in zip(rows, shown, strict=False)
        ],
        "num_terms": why.nodes.numel(),
        "deciding": {**rows[-1], "then": None if then < 0 else classes[then]} if deciding else None,
        "num_deciding": len(deciding),
        "features": _features(snapshot, node, best, second, most),
    }


def _labeled_rows(snapshot: Snapshot, chosen: Tensor) -> list[dict[str, Any]]:
    """Id, label and update of some labeled nodes."""
    nodes = chosen.cpu().numpy()
    classes, _, updates = snapshot.graph.labels(nodes)
    return [
        {"id": name, "label": snapshot.classes[c], "update": int(update) + 1}
        for name, c, update in zip(snapshot.graph.names(nodes), classes, updates, strict=True)
    ]


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
    encoder, names = snapshot.graph.encoder, snapshot.version.state.get("feature_names")
    if encoder is None:
        return list(names or (f"feature {i}" for i in range(len(terms)))), terms
    ordered = sorted(encoder.columns, key=lambda column: column.kind == "word")
    place = torch.tensor([i for i, column in enumerate(ordered) for _ in column.names])
    return [c.name for c in ordered], terms.new_zeros(len(ordered), terms.size(1)).index_add_(0, place, terms)


def neighborhoods(snapshot: Snapshot, nodes: Sequence[int]) -> list[dict[str, Any]]:
    """At most :data:`MOST_DRAWN` nodes within two steps along edges to each node, labeled first, and their edges."""
    graph, answers = snapshot.graph, []
    around = [_steps(graph, node) for node in nodes]
    wanted = np.unique(np.concatenate([list(hops) for hops in around]))
    predicted = dict(zip(wanted.tolist(), snapshot.probabilities(graph, wanted).argmax(1), strict=True))
    for hops in around:
        near, inside = np.array(list(hops)), np.sort(list(hops))
        row, source, _ = graph.neighbors(inside)
        position = {node: i for i, node in enumerate(hops)}
        ends = zip(source.tolist(), inside[row].tolist(), strict=True)
        edges = {tuple(sorted((position[u], position[v]))) for u, v in ends if u in position and u != v}
        columns = zip(hops.items(), graph.names(near), graph.labels(near)[0].tolist(), strict=True)
        drawn = [
            {
                "id": name,
                "distance": hop,
                "labeled": c >= 0,
                "class": snapshot.classes[c if c >= 0 else predicted[node]],
            }
            for (node, hop), name, c in columns
        ]
        answers.append({"nodes": drawn, "edges": sorted(map(list, edges))})
    return answers


def _steps(graph: StoredGraph, node: int) -> dict[int, int]:
    """Nodes within two steps along edges to a node, and their distances."""
    hops, frontier = {node: 0}, np.array([node])
    for hop in range(1, DRAWN_HOPS + 1):
        further = np.setdiff1d(graph.neighbors(frontier)[1], list(hops))
        frontier = np.sort(further[np.argsort(graph.labels(further)[0] < 0, kind="stable")][: MOST_DRAWN - len(hops)])
        hops.update(dict.fromkeys(frontier.tolist(), hop))
    return hops


def audit_labels(snapshot: Snapshot, most: int | None = None, plant: float = 0.0) -> dict[str, Any]:
    """Compare every training label with what the others say; those that fit least come first.

    Args:
        snapshot: a version.
        most: labels that are listed; by default all.
        plant: first give this share of the labels another class, at random, in memory only, and say how many are found.
    """
    if not 0 <= plant < 1:
        raise InputError(f"plant is {plant}; it must be a share of the labels, from 0 to below 1")
    effects, wrong = _effects(snapshot), None
    if plant:
        effects, wrong = plant_errors(effects, plant)
    found = doubts(effects)
    order, classes = found.order(), [snapshot.classes[c] for c in effects.classes.tolist()]
    shown = order[:most]
    similar = effects.most_similar(shown, SIMILAR)
    nodes = iter(_labeled_rows(snapshot, effects.nodes[torch.cat([shown[:, None], similar], 1).flatten().cpu()]))
    columns = (of[shown].tolist() for of in (effects.column, found.probability, found.column, found.best))
    rows = [
        {
            **next(nodes),
            "label": classes[given],
            "probability": probability,
            "class": classes[column],
            "class_probability": best,
            "similar": list(islice(nodes, similar.size(1))),
        }
        for given, probability, column, best in zip(*columns, strict=True)
    ]
    report: dict[str, Any] = {
        "labels": found.nodes.numel(),
        "compared": len(order),
        "doubtful": int((found.column[order] != effects.column[order]).sum()),
        "rows": rows,
    }
    if wrong is not None:
        count = int(wrong.sum())
        report["rows"] = [{**row, "planted": planted} for row, planted in zip(rows, wrong[shown].tolist(), strict=True)]
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
    check_choice("rule", by, BY)
    effects, graph = _effects(snapshot), snapshot.graph
    nodes = graph.nodes() if among is None else np.unique(find_all(graph, among))
    candidates = nodes[graph.labels(nodes)[0] < 0]
    if not len(candidates):
        where = "the graph" if among is None else "the given nodes"
        raise InputError(f"all {len(nodes):,} nodes of {where} have a label; nothing is left to label")
    unlabeled = len(candidates)
    if unlabeled > MOST_CANDIDATES:
        candidates = candidates[np.linspace(0, unlabeled - 1, MOST_CANDIDATES).astype(np.int64)]
    rows = snapshot.learner.rows(graph, candidates)  # type: ignore[union-attr]
    chosen = choose(effects, rows, count, by)
    probabilities = torch.softmax(effects.temperature * effects.scores(rows[chosen]), 1)
    best, column = probabilities.max(1)
    margin = 2 * best - probabilities.topk(min(2, probabilities.size(1)), 1).values.sum(1)
    numbers = (effects.classes[column], best, margin, effects.variances(rows[chosen]))
    columns = zip(graph.names(candidates[chosen]), *(of.tolist() for of in numbers), strict=True)
    return {
        "by": by,
        "candidates": len(candidates),
        "unlabeled": unlabeled,
        "rows": [
            {"id": name, "class": snapshot.classes[c], "probability": p, "margin": gap, "variance": variance}
            for name, c, p, gap, variance in columns
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
    return _EFFECTS.get([snapshot.graph], lambda: learner.label_effects(snapshot.graph), snapshot.version.number)
