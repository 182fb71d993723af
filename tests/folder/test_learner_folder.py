"""What a folder takes in, says, forgets and goes back to; and how it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ergnn
from ergnn.config.errors import InputError
from ergnn.data.tables import read_graph
from ergnn.data.tables.node_tables import SPLITS
from ergnn.folder import LearnerFolder
from ergnn.folder.database import FILE, FolderError
from ergnn.folder.graph import MemoryGraph
from folder.growing import IDS, current, edges_of, make_updates, nodes_of, objects, probabilities, quick, tables, x_of


def test_known_classes_compete_alone_as_under_one_softmax(folder: LearnerFolder) -> None:
    everything = probabilities(folder)
    alone = probabilities(folder, classes=["c3", "c1"])
    np.testing.assert_allclose(alone, everything[:, [3, 1]] / everything[:, [3, 1]].sum(1, keepdims=True), rtol=1e-6)
    assert folder.snapshot().classes_of(1) == ["c2", "c3"]


def test_late_labels_are_learned_and_edges_alone_only_grow_the_graph(folder: LearnerFolder) -> None:
    before = folder.snapshot()
    bare = [i for i in range(80) if before.graph.labels(np.array([i]))[0][0] < 0]
    late = nodes_of([f"n{i}" for i in bare[:6]], ["c0"] * 3 + ["late"] * 3)
    record = folder.observe(late)
    unchanged = {"corrected": 0, "changed": 0, "reweighted": 0}
    assert record["counts"] == {"nodes": 0, "edges": 0, "train": 6, "val": 0, "test": 0, **unchanged}
    assert record["classes"] == ["c0", "late"]
    after = folder.snapshot()
    assert [after.classes[c] for c in after.graph.labels(np.array(bare[:6]))[0]] == ["c0"] * 3 + ["late"] * 3
    weights = after.learner.learner.state_dict()["model"]
    record = folder.observe(edges=edges_of(("n1", "n79"), ("n79", "n1"), ("n1", "n1")))
    assert record["task"] is None
    assert record["counts"]["nodes"] == 0
    grown = folder.snapshot()
    assert 79 in grown.graph.neighbors(np.array([1]))[1]
    assert 1 in grown.graph.neighbors(np.array([1]))[1]
    grown_weights = grown.learner.learner.state_dict()["model"]
    assert all(torch.equal(weights[name], grown_weights[name]) for name in weights)
    again = folder.observe(edges=edges_of(("n1", "n79"), ("n2", "n79")))
    assert again["counts"]["edges"] == 2 - 2 * (2 in grown.graph.neighbors(np.array([79]))[1])


def test_a_split_column_is_obeyed_and_otherwise_shares_of_each_class_are_held_out(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d", quick(val=0.1, test=0.2))
    ids = [f"a{i}" for i in range(40)]
    split = ["train", "val", "test", None] * 10
    folder.observe(nodes_of(ids, ["x", "y"] * 20, x_of(40), split=objects(split)))
    snapshot = folder.snapshot()
    for number, part in enumerate(("val", "test"), start=1):
        assert snapshot.members(0, part)[0].tolist() == [i for i in range(40) if i % 4 == number]
    folder.observe(nodes_of([f"b{i}" for i in range(40)], ["x", "y"] * 20, x_of(40)))
    snapshot = folder.snapshot()
    for part, count in (("train", 14), ("val", 2), ("test", 4)):
        assert np.bincount(snapshot.members(1, part)[1]).tolist() == [count, count]


def test_held_out_nodes_are_scored_at_every_update(folder: LearnerFolder) -> None:
    for record, (update, right, of) in folder.evaluate():
        nodes, labels = folder.snapshot().members(update, "test")
        ids = [f"n{i}" for i in nodes]
        names = np.array(["c0", "c1", "c2", "c3"])[probabilities(folder, ids).argmax(1)]
        truth = [folder.snapshot().classes[c] for c in labels]
        assert (right, of) == ((names == truth).sum(), len(nodes))
        assert record["update"] == update
        alone = probabilities(folder, ids, classes=folder.snapshot().classes_of(update))
        names = np.array(folder.snapshot().classes_of(update))[alone.argmax(1)]
        assert folder.evaluate(task_known=True)[update][1] == [update, (names == truth).sum(), len(nodes)]
    last = folder.snapshot().records[1]["scores"]
    assert last == [score for _, score in folder.evaluate()]


def test_nodes_for_one_prediction_are_predicted_as_if_observed_and_not_stored(folder: LearnerFolder) -> None:
    nodes = nodes_of(["new"], None, x_of(1))
    edges = edges_of(("new", "n3"), ("n50", "new"))
    before = folder.inspect()
    p = probabilities(folder, None, nodes=nodes, edges=edges)
    alone = probabilities(folder, None, nodes=nodes)
    assert folder.inspect() == before
    folder.observe(nodes, edges)
    np.testing.assert_array_equal(p, probabilities(folder, ["new"]))
    assert np.abs(alone - p).max() > 1e-6


def test_a_prediction_opens_the_folder_when_it_starts(folder: LearnerFolder) -> None:
    later = folder.predict(["new"])
    folder.observe(nodes_of(["new"], None, x_of(1)))
    folder.purge()  # which an open reader would hinder
    np.testing.assert_array_equal(next(later)[2], probabilities(folder, ["new"]))


def test_a_graph_in_memory_is_the_stored_one_without_a_connection(folder: LearnerFolder) -> None:
    folder.forget(["n3", "n50"])
    with folder.snapshot() as snapshot:
        memory, stored = MemoryGraph(snapshot.graph), snapshot.graph
        nodes, some = stored.nodes(), stored.nodes()[5:60:3]
        calls = [("find", IDS), ("names", some), ("nodes",), ("neighbors", some), ("features", some), ("labels", some)]
        calls += [("split", split) for split in SPLITS]
        expected = [getattr(stored, name)(*given) for name, *given in calls]
    assert len(nodes) == 78
    for (name, *given), values in zip(calls, expected, strict=True):
        found = getattr(memory, name)(*given)
        if name == "features" and not stored.dense:
            found, values = found.toarray(), values.toarray()
        for one, other in zip(found, values, strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_same_update_again_changes_nothing(folder: LearnerFolder) -> None:
    nodes, edges = make_updates(2)[1]
    assert folder.observe(nodes, edges)["again"]
    assert current(folder) == 2


def test_limits_count_what_is_there_and_can_be_raised(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d", quick(max_nodes=100, epochs=1, num_features=12))
    for nodes, edges in make_updates(2, nodes=40):
        folder.observe(nodes, edges)
    folder.forget([f"n{i}" for i in range(78)])
    folder.observe(nodes_of([f"m{i}" for i in range(60)], None, x_of(60)))
    more = nodes_of([f"k{i}" for i in range(39)], None, x_of(39))
    with pytest.raises(InputError, match="101 nodes; at most 100 are allowed"):
        folder.observe(more)
    assert folder.set({"max_nodes": 101, "keep": 2}).keep == 2
    assert folder.settings == quick(max_nodes=101, keep=2, epochs=1, num_features=12)
    folder.observe(more)
    assert len(folder.inspect()["versions"]) == 2
    assert folder.check() == []
    for values, message in (
        ({"epochs": 3}, "epochs cannot be changed in a folder; these can: device, .* max_nodes"),
        ({"keep": 0}, "keep is 0"),
        ({"max_nodes": "many"}, "max_nodes is 'many'; it must be of type int"),
        ({"max_features": 5}, "num_features is 12; the limit is 5"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
    ):
        with pytest.raises(InputError, match=message):
            folder.set(values)
    assert folder.settings == quick(max_nodes=101, keep=2, epochs=1, num_features=12)


def test_rolling_back_and_on_again(folder: LearnerFolder) -> None:
    now = probabilities(folder)
    assert folder.rollback() == 1
    assert len(folder.snapshot().classes) == 2
    nodes, edges = make_updates(2)[1]
    folder.observe(nodes, edges)
    assert current(folder) == 3
    np.testing.assert_array_equal(probabilities(folder), now)
    assert folder.rollback(1) == 1
    assert folder.rollback(3) == 3
    np.testing.assert_array_equal(probabilities(folder), now)
    with pytest.raises(FolderError, match="version 7 is not kept; versions 0, 1, 3 are"):
        folder.rollback(7)


def test_only_so_many_versions_are_kept_and_rows_of_others_are_deleted(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d", quick(keep=2, epochs=1))
    for nodes, edges in make_updates(5, nodes=20):
        folder.observe(nodes, edges)
    assert folder.inspect()["versions"] == [4, 5]
    for table in ("blobs", "remembered"):
        assert {row["version"] for row in tables(folder)[table]} == {4, 5}
    assert all(row["removed"] in (None, 5) for row in tables(folder)["adjacency"])
    folder.rollback(4)
    with pytest.raises(FolderError, match="oldest"):
        folder.rollback()


def test_forgetting_leaves_no_trace_in_the_newest_version_and_says_what_depends(folder: LearnerFolder) -> None:
    before = folder.inspect()
    victim = next(row for row in before["buffer"] if row["update"] == 1)
    held = int(folder.snapshot().members(1, "test")[0][0])
    report = folder.forget([victim["id"], f"n{held}"])
    after = folder.inspect()
    assert report["nodes"] == 2
    assert report["trained_in"] == [1]
    assert report["held_out"] == 1
    assert report["parameters_depend"]
    assert report["older_versions"] == [0, 1, 2]
    assert after["graph"]["nodes"] == 78
    assert after["graph"]["edges"] == before["graph"]["edges"] - report["edges"]
    ids = {row["id"] for row in after["buffer"]}
    assert victim["id"] not in ids
    assert len(after["buffer"]) == len(before["buffer"]) - 1
    with pytest.raises(InputError, match="not in the graph"):
        next(folder.predict([victim["id"]]))
    snapshot = folder.snapshot()
    everybody = snapshot.graph.nodes()
    assert len(everybody) == 78
    assert held not in everybody
    assert held not in snapshot.graph.neighbors(everybody)[1]
    folder.observe(nodes_of([victim["id"]], None, x_of(1)))
    assert int(folder.snapshot().graph.find([victim["id"]])[0]) == 80


def test_an_update_whose_nodes_are_all_forgotten_is_no_task_any_more(folder: LearnerFolder) -> None:
    train = folder.snapshot().members(0, "train")[0]
    assert not folder.forget([f"n{i}" for i in train], retrain=True)["parameters_depend"]
    found = folder.inspect()
    assert [update["task"] for update in found["updates"]] == [None, 0]
    assert {row["update"] for row in found["buffer"]} == {2}
    row = found["buffer"][0]
    assert folder.forget([row["id"]])["trained_in"] == [2]


def test_an_export_is_read_by_others(folder: LearnerFolder, tmp_path: Path) -> None:
    folder.forget(["n7"])
    paths = folder.export(tmp_path / "out", graph=True)
    assert [path.name for path in paths] == ["model.safetensors", "model.json", "graph.npz"]
    model: Any = ergnn.load(paths[0])
    nodes, edges = read_graph(paths[2])
    assert len(nodes) == 79
    place = {name: i for i, name in enumerate(nodes.ids)}
    index = torch.tensor([[place[a], place[b]] for a, b in zip(edges.source, edges.target, strict=True)]).T
    x = nodes.features.toarray() if nodes.is_sparse else nodes.features
    with torch.no_grad():
        own = torch.softmax(model(torch.tensor(np.asarray(x)), index), 1)
    ids = [f"n{i}" for i in range(80) if i != 7]
    columns = [model.classes.index(name) for name in folder.snapshot().classes]
    np.testing.assert_allclose(own[:, columns], probabilities(folder, ids), atol=1e-5)


def test_inspection_adds_up(folder: LearnerFolder) -> None:
    found = folder.inspect()
    snapshot = folder.snapshot()
    assert found["graph"]["nodes"] == 80
    assert len(found["buffer"]) == len(snapshot.learner.buffer) == found["updates"][-1]["remembered"]
    assert found["bytes"]["database"] == (folder.root / FILE).stat().st_size
    assert found["bytes"]["weights"] > 4 * sum(value.numel() for value in snapshot.learner.learner.model.parameters())
    (a,), (b, c) = [[right / of for _, right, of in u["scores"]] for u in found["updates"]]
    right, of = (sum(score[i] for score in found["updates"][1]["scores"]) for i in (1, 2))
    assert found["measures"] == pytest.approx(
        {"pm": (a + c) / 2, "fm": a - b, "aa": (b + c) / 2, "accuracy": right / of}
    )
    assert found["updates"][1]["forgetting"] == pytest.approx(a - b)
    assert [entry["action"] for entry in found["log"]] == ["observe", "observe"]
