"""A small graph that grows: updates of nodes whose attributes and links follow their class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.folder import Settings

FEATURES = 12
QUICK = Settings(backbone="gcn", backbone_options={"hidden": 4}, epochs=6, per_class=3, seed=1, checks=200)


def objects(values: Sequence[object]) -> np.ndarray:
    out = np.empty(len(values), object)
    out[:] = list(values)
    return out


def make_update(
    update: int, classes: Sequence[int], *, nodes: int = 40, before: int = 0, seed: int = 0, labelled: float = 0.7
) -> tuple[NodeTable, EdgeTable]:
    """Nodes ``n{before}`` on, with some labels, linked among themselves and to earlier ones."""
    rng = np.random.default_rng([seed, update])
    label = rng.choice(np.asarray(classes), nodes)
    x = (rng.random((nodes, FEATURES)) < 0.15).astype(np.float32)
    x[np.arange(nodes), label % FEATURES] = 1.0
    ids = [f"n{before + i}" for i in range(nodes)]
    known = rng.random(nodes) < labelled
    labels = [f"c{c}" if k else None for c, k in zip(label, known, strict=True)]
    table = NodeTable(objects(ids), objects(labels), features=x)
    source = rng.integers(before, before + nodes, 3 * nodes)
    target = np.where(
        rng.random(3 * nodes) < 0.3,
        rng.integers(0, before + nodes, 3 * nodes),
        rng.integers(before, before + nodes, 3 * nodes),
    )
    names = [[f"n{i}" for i in side] for side in (source, target)]
    return table, EdgeTable(objects(names[0]), objects(names[1]))


def make_updates(count: int, *, nodes: int = 40, seed: int = 0) -> list[tuple[NodeTable, EdgeTable]]:
    """Two new classes an update, and from the third update on an old one again."""
    out = []
    for i in range(count):
        classes = [2 * i, 2 * i + 1] + ([0] if i >= 2 else [])
        out.append(make_update(i, classes, nodes=nodes, before=i * nodes, seed=seed))
    return out
