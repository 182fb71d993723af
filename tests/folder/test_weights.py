"""Weights of edges: stored, exact for any history, and refused by networks."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.database import FILE
from ergnn.learning.learner import Learner
from ergnn.serve.model import load_version
from folder.growing import FEATURES, objects, probabilities, tables

NODES = 60
SINGLE, DOUBLE = 1e-6, 1e-8
"""Probabilities of a learner in memory are of single precision."""
IDS = [f"n{i}" for i in range(NODES)]


class History:
    """Updates of nodes and weighted edges, and the graph that they make, in plain dictionaries."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.x = self.rng.random((NODES, FEATURES)).astype(np.float32)
        self.classes = self.rng.integers(0, 3, NODES)
        self.x[np.arange(NODES), self.classes] += 0.1
        self.split = self.rng.choice(["train", "train", "test"], NODES)

    def nodes(self, ids: range | list[int]) -> NodeTable:
        ids = list(ids)
        labels, split = ([values[i] for i in ids] for values in ([f"c{c}" for c in self.classes], self.split))
        return NodeTable(objects([IDS[i] for i in ids]), objects(labels), split=objects(split), features=self.x[ids])

    def edges(self, most: int, weighted: bool, count: int = 60) -> EdgeTable:
        ends = [objects([IDS[i] for i in self.rng.integers(0, most, count)]) for _ in range(2)]
        return EdgeTable(*ends, self.rng.exponential(1, count).astype(np.float32) if weighted else None)

    def expected(self, given: list[EdgeTable], left: list[int]) -> np.ndarray:
        """Probabilities of the closed form that learns the nodes that are left at once, in memory."""
        place, weight = {IDS[i]: k for k, i in enumerate(left)}, dict[tuple[int, int], float]()
        for table in given:
            weights = np.ones(len(table)) if table.weight is None else table.weight
            for a, b, w in zip(table.source, table.target, weights, strict=True):
                if a in place and b in place:
                    for pair in ((place[a], place[b]), (place[b], place[a])):
                        weight[pair] = max(float(w), weight.get(pair, 0.0))
        graph = Graph(
            torch.from_numpy(self.x[left]),
            torch.tensor(list(weight)).T.contiguous(),
            torch.from_numpy(self.classes[left]),
            edge_weight=torch.tensor(list(weight.values())),
        )
        train = torch.from_numpy(np.flatnonzero(self.split[left] == "train"))
        learner = Learner("gcn", "analytic", head="growing", scale="rows")
        none = train[:0]
        learner.observe(Task(0, graph, train, none, none, tuple(range(3))))
        return learner.predict_proba(torch.arange(len(left)), graph=graph).numpy()


@pytest.mark.parametrize("seed", range(3))
def test_any_history_of_weighted_edges_gives_what_learning_at_once_gives(seed: int, tmp_path: Path) -> None:
    made = History(seed)
    folder = LearnerFolder.create(tmp_path / "learner", Settings.from_settings({"scale": "rows"}))
    given = [made.edges(30, weighted=True), made.edges(60, weighted=False), made.edges(60, weighted=True)]
    late = made.edges(60, weighted=True, count=5)
    folder.observe(made.nodes(range(30)), given[0])
    np.testing.assert_allclose(
        probabilities(folder, IDS[:30]), made.expected(given[:1], [*range(30)]), rtol=0, atol=SINGLE
    )
    folder.observe(made.nodes(range(30, NODES)), given[1])
    folder.observe(edges=given[2])  # also known edges, with other weights
    folder.observe(edges=late)
    other = LearnerFolder.create(tmp_path / "other", Settings.from_settings({"scale": "rows"}))
    other.observe(made.nodes(range(NODES)), late)
    for edges in (given[2], given[1], given[0]):
        other.observe(edges=edges)
    np.testing.assert_allclose(probabilities(folder, IDS), probabilities(other, IDS), rtol=0, atol=DOUBLE)
    everything = made.expected([*given, late], [*range(NODES)])
    np.testing.assert_allclose(probabilities(folder, IDS), everything, rtol=0, atol=SINGLE)
    served = load_version(folder).predict(IDS)[2]
    np.testing.assert_allclose(served, everything, rtol=0, atol=SINGLE)

    folder.rollback()
    without_late = made.expected(given, [*range(NODES)])
    np.testing.assert_allclose(probabilities(folder, IDS), without_late, rtol=0, atol=SINGLE)
    assert abs(without_late - everything).max() > SINGLE, "the late edges matter"
    known = {frozenset(pair) for table in given for pair in zip(table.source, table.target, strict=True)}
    new = [i for i, pair in enumerate(zip(late.source, late.target, strict=True)) if frozenset(pair) not in known]
    edges = EdgeTable(late.source[new], late.target[new], late.weight[new])
    here = probabilities(folder, None, nodes=NodeTable(objects(IDS)), edges=edges)
    assert abs(here - without_late).max() > SINGLE, "edges of one prediction count with their weights"

    folder.forget([IDS[i] for i in (2, 31, 44)])
    left = [i for i in range(NODES) if i not in (2, 31, 44)]
    names = [IDS[i] for i in left]
    np.testing.assert_allclose(probabilities(folder, names), made.expected(given, left), rtol=0, atol=SINGLE)
    assert folder.check() == []


def test_the_largest_weight_of_an_edge_counts_and_the_record_says_so(tmp_path: Path) -> None:
    made = History(0)
    folder = LearnerFolder.create(tmp_path / "learner")

    def edges(*weights: float) -> EdgeTable:
        return EdgeTable(objects(["n0"] * len(weights)), objects(["n1"] * len(weights)), np.array(weights))

    folder.observe(made.nodes(range(NODES)), edges(0.25, 0.5))
    assert folder.inspect()["graph"]["weighted"]
    record = folder.observe(edges=edges(2.0))
    assert (record["counts"]["edges"], record["counts"]["reweighted"]) == (0, 2)
    assert "2 known edges (each way counted) have a larger weight now" in record["notes"]
    assert folder.observe(edges=edges(0.1))["counts"]["reweighted"] == 0
    with folder.snapshot() as snapshot:
        assert snapshot.graph.neighbors(np.array([0, 1]))[2].tolist() == [2, 2]
        assert snapshot.graph.num_edges == 2
    with pytest.raises(InputError, match=r"2 edge\(s\) are in the graph with smaller weights"):
        list(folder.predict(nodes=NodeTable(objects(["n0"])), edges=edges(3.0)))
    with pytest.raises(InputError, match="the model reads weights of edges, which an exported module does not"):
        folder.export(tmp_path / "model.pt2", format="torch")
    with pytest.raises(InputError, match="an edge has weight -1; weights must be finite, 0 or more"):
        folder.observe(edges=edges(-1.0))


def test_a_damaged_weight_is_detected(tmp_path: Path) -> None:
    made = History(0)
    folder = LearnerFolder.create(tmp_path / "learner")
    folder.observe(made.nodes(range(NODES)), made.edges(NODES, weighted=True))
    assert any(row["weights"] is not None for row in tables(folder)["adjacency"])
    connection = sqlite3.connect(folder.root / FILE)
    connection.execute("UPDATE adjacency SET weights = NULL WHERE node = 5")
    connection.commit()
    connection.close()
    assert [text for text in folder.check() if "adjacency" in text]
