"""A small graph that grows: updates of nodes whose features and links follow their class."""

import csv
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ergnn.data import Graph
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.database import FILE

FEATURES = 12
IDS = [f"n{i}" for i in range(80)]
NETWORK = {"method": "replay", "backbone": "gcn", "backbone_options": {"hidden": 4}, "epochs": 6, "per_class": 3}
QUICK = Settings.from_settings({**NETWORK, "seed": 1, "weight_decay": None, "eval_samples": 200})


def quick(**settings: object) -> Settings:
    """A small network that learns in no time, with some settings replaced."""
    return QUICK.with_settings(settings)


def objects(values: Sequence[object]) -> np.ndarray:
    out = np.empty(len(values), object)
    out[:] = list(values)
    return out


def make_update(
    update: int, classes: Sequence[int], nodes: int = 40, before: int = 0, seed: int = 0, labeled: float = 0.7, links=3
) -> tuple[NodeTable, EdgeTable]:
    """Nodes ``n{before}`` on, with some labels, linked among themselves and to earlier ones."""
    rng = np.random.default_rng([seed, update])
    label = rng.choice(np.asarray(classes), nodes)
    x = (rng.random((nodes, FEATURES)) < 0.15).astype(np.float32)
    x[np.arange(nodes), label % FEATURES] = 1.0
    ids, known, count = [f"n{before + i}" for i in range(nodes)], rng.random(nodes) < labeled, links * nodes
    labels = [f"c{c}" if k else None for c, k in zip(label, known, strict=True)]
    source, far = rng.integers(before, before + nodes, count), rng.random(count) < 0.3
    everyone, new = rng.integers(0, before + nodes, count), rng.integers(before, before + nodes, count)
    pairs = zip(source, np.where(far, everyone, new), strict=True)
    return nodes_of(ids, labels, x), edges_of(*((f"n{a}", f"n{b}") for a, b in pairs))


def make_updates(
    count: int, *, nodes: int = 40, seed: int = 0, labeled: float = 0.7, links: int = 3
) -> list[tuple[NodeTable, EdgeTable]]:
    """Two new classes an update, and from the third update on an old one again."""
    more = {"nodes": nodes, "seed": seed, "labeled": labeled, "links": links}
    return [make_update(i, [2 * i, 2 * i + 1, *[0] * (i >= 2)], before=i * nodes, **more) for i in range(count)]


def write_tables(stem: Path, nodes: NodeTable, edges: EdgeTable) -> tuple[Path, Path]:
    """The tables as CSV files."""
    places = stem.with_name(stem.name + "_nodes.csv"), stem.with_name(stem.name + "_edges.csv")
    with open(places[0], "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label", *(f"f{k}" for k in range(nodes.num_features))])
        for name, label, x in zip(nodes.ids, nodes.labels, nodes.features, strict=True):
            writer.writerow([name, label or "", *(f"{value:g}" for value in x)])
    with open(places[1], "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["source", "target"], *zip(edges.source, edges.target, strict=True)])
    return places


def ids_file(folder: Path, ids: Sequence[str]) -> str:
    """The path of a table of ids."""
    (folder / "ids.csv").write_text("\n".join(["id", *ids]) + "\n")
    return str(folder / "ids.csv")


def nodes_of(ids: list[str], labels: list[str | None] | None = None, x: np.ndarray | None = None, **more) -> NodeTable:
    given = {} if x is None else {"features": x}
    return NodeTable(objects(ids), objects(labels or [None] * len(ids)), **given, **more)


def edges_of(*pairs: tuple[str, str]) -> EdgeTable:
    return EdgeTable(objects([a for a, _ in pairs]), objects([b for _, b in pairs]))


def probabilities(folder: LearnerFolder, ids: list[str] | None = IDS, **more) -> np.ndarray:
    return np.concatenate([p for _, _, p in folder.predict(ids, **more)])


def x_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, FEATURES)).astype(np.float32)


def current(folder: LearnerFolder) -> int:
    """The number of the current version."""
    return folder.inspect()["version"]


def tables(folder: LearnerFolder) -> dict[str, list[dict[str, object]]]:
    """All rows of the database, as another program reads them."""
    connection = sqlite3.connect(folder.root / FILE)
    connection.row_factory = sqlite3.Row
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in names}
    connection.close()
    return found


def own_graph(folder: LearnerFolder) -> Graph:
    """The folder's graph with dense features."""
    with folder.snapshot() as snapshot:
        nodes = snapshot.graph.nodes()
        target, source, _ = snapshot.graph.neighbors(nodes)
        x = snapshot.graph.features(nodes)
        dense = torch.from_numpy(np.array(x if isinstance(x, np.ndarray) else x.toarray()))
        edges = torch.from_numpy(np.stack([np.searchsorted(nodes, source), target]))
        return Graph(dense, edges, torch.zeros(len(nodes), dtype=torch.long))
