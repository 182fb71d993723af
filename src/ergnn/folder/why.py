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
from ergnn.data.partial import Array, LabeledGraph, find_all
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
    state = snapshot.version.state
    if not state.get("encoder"):
        names = state.get("feature_names") or [f"feature {i}" for i in range(len(terms))]
        return list(names), terms
    columns = Encoder.from_json(state["encoder"]).columns
    ordered = [c for c in columns if c.kind != "word"] + [c for c in columns if c.kind == "word"]
    widths = torch.tensor([1 if c.kind == "word" else len(c.names) for c in ordered])
    place = torch.repeat_interleave(torch.arange(len(ordered)), widths)
    return [c.name for c in ordered], terms.new_zeros(len(ordered), terms.size(1)).index_add_(0, place, terms)


def neighborhoods(snapshot: Snapshot, nodes: Sequence[int]) -> list[dict[str, Any]]:
    """At most :data:`MOST_DRAWN` nodes within two steps along edges to each node, labeled first, and their edges."""
    around = [_steps(snapshot.graph, node) for node in nodes]
    wanted = np.unique(np.concatenate([near for near, _ in around]))
    class_of = dict(zip(wanted.tolist(), snapshot.probabilities(snapshot.graph, wanted).argmax(1), strict=True))
    return [_neighborhood(snapshot, near, hops, class_of) for near, hops in around]


def _steps(graph: LabeledGraph, node: int) -> tuple[Array, Array]:
    """Nodes within two steps to a node, and their distances."""
    nodes, hops, frontier = [node], [0], np.array([node])
    for hop in range(1, DRAWN_HOPS + 1):
        further = np.setdiff1d(graph.neighbors(frontier)[1], nodes)
        frontier = np.sort(further[np.argsort(graph.labels(further)[0] < 0, kind="stable")][: MOST_DRAWN - len(nodes)])
        nodes += frontier.tolist()
        hops += [hop] * len(frontier)
    return np.array(nodes), np.array(hops)


def _neighborhood(snapshot: Snapshot, nodes: Array, hops: Array, class_of: dict[int, int]) -> dict[str, Any]:
    """Nodes and edges between them."""
    graph, wanted = snapshot.graph, np.sort(nodes)
    row, source, _ = graph.neighbors(wanted)
    target, label = wanted[row], graph.labels(nodes)[0]
    inside = np.isin(source, nodes) & (source != target)
    position = {number: i for i, number in enumerate(nodes.tolist())}
    pairs = zip(source[inside].tolist(), target[inside].tolist(), strict=True)
    return {
        "nodes": [
            {"id": name, "distance": hop, "labeled": c >= 0, "class": snapshot.classes[c if c >= 0 else class_of[node]]}
            for name, hop, c, node in zip(
                graph.names(nodes), hops.tolist(), label.tolist(), nodes.tolist(), strict=True
            )
        ],
        "edges": sorted(map(list, {tuple(sorted((position[u], position[v]))) for u, v in pairs})),
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
    effects, wrong = _effects(snapshot), None
    if plant:
        effects, wrong = plant_errors(effects, plant)
    found = doubts(effects)
    order, classes = found.order(), [snapshot.classes[c] for c in effects.classes.tolist()]
    shown = order[:most]
    similar = effects.most_similar(shown, SIMILAR)
    nodes = iter(_labeled_rows(snapshot, effects.nodes[torch.cat([shown[:, None], similar], 1).flatten().cpu()]))
    rows = [
        {
            **next(nodes),
            "label": classes[given],
            "probability": probability,
            "class": classes[column],
            "class_probability": best,
            "similar": list(islice(nodes, similar.size(1))),
        }
        for given, probability, column, best in zip(
            *(of[shown].tolist() for of in (effects.column, found.probability, found.column, found.best)), strict=True
        )
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
    chosen = choose(effects, rows, count, by)
    top = torch.softmax(effects.temperature * effects.scores(rows[chosen]), 1).sort(descending=True, stable=True)
    margin = top.values[:, 0] - (top.values[:, 1] if top.values.size(1) > 1 else 0)
    numbers = (effects.classes[top.indices[:, 0]], top.values[:, 0], margin, effects.variances(rows[chosen]))
    columns = zip(graph.names(candidates[chosen]), *(column.tolist() for column in numbers), strict=True)
    return {
        "by": by,
        "candidates": len(candidates),
        "unlabeled": of,
        "rows": [
            {"id": name, "class": snapshot.classes[c], "probability": best, "margin": gap, "variance": variance}
            for name, c, best, gap, variance in columns
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
