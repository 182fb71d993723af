"""Drift, calibration and unknown classes of a folder."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ergnn.cli.main import main
from ergnn.data.tables.node_tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder
from ergnn.folder.inspection import fit_unknown
from ergnn.folder.page import folder_page
from ergnn.learning.watch import calibration, drift_test, node_aspects
from ergnn.serve.live import LiveWatch
from folder.growing import nodes_of, objects, own_graph, quick

CLASSES = ("a", "b")


def update(first: int, count: int, *, shift: float = 0.0, kind: int | None = None) -> tuple[NodeTable, EdgeTable]:
    """Labeled nodes of two classes (or of one kind that is neither) with six features, linked within their class."""
    rng = np.random.default_rng(first + 1)
    label = rng.integers(2, size=count) if kind is None else np.full(count, kind)
    x = rng.normal(size=(count, 6)).astype(np.float32) + shift
    x[np.arange(count), label] += 3.0
    names = objects([f"n{first + i}" for i in range(count)])
    pairs = rng.integers(count, size=(2, 4 * count))
    pairs = pairs[:, (label[pairs[0]] == label[pairs[1]]) & (pairs[0] != pairs[1])]
    labels = objects([CLASSES[k] if k < 2 else None for k in label])
    return NodeTable(names, labels, features=x), EdgeTable(names[pairs[0]], names[pairs[1]])


@pytest.fixture(scope="module", params=["analytic", "replay"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LearnerFolder:
    """A folder after an update, another of the same kind, and one that has drifted."""
    settings = {"method": request.param, "val": 0.3, "test": 0.3, "eval_samples": 2000}
    settings |= {"epochs": 20, "backbone_options": {}, "per_class": 20} if request.param == "replay" else {}
    base = quick() if request.param == "replay" else quick(method="analytic", per_class=5)
    folder = LearnerFolder.create(tmp_path_factory.mktemp("watch") / "f", base.with_settings(settings))
    for first, shift in ((0, 0.0), (300, 0.0), (600, 1.5)):
        folder.observe(*update(first, 300, shift=shift))
    return folder


def test_an_update_that_has_drifted_raises_an_alarm(folder: LearnerFolder) -> None:
    first, same, moved = (record["input_drift"] for record in folder.inspect()["updates"])
    assert first is None
    assert not same["alarm"]
    assert set(same["p"]) == {"features", "neighborhoods", "degrees", "predictions"}
    assert moved["alarm"]
    assert moved["p"]["features"] == 0.001
    assert moved["p"]["degrees"] > 0.01


def test_drift_is_that_of_the_held_out_nodes_in_the_graph_and_model_of_the_update(folder: LearnerFolder) -> None:
    with folder.snapshot() as snapshot:
        nodes = snapshot.held_out(snapshot.settings.eval_samples)[0]
        graph = own_graph(folder)
        ids = [f"n{i}" for i in range(900)]
        probabilities = np.concatenate([part[2] for part in folder.predict(ids)])
        sides = []
        for mine in (np.sort(nodes[nodes < 600]), np.sort(nodes[nodes >= 600])):
            sides.append({**node_aspects(graph, mine), "predictions": probabilities[mine]})
        found = drift_test(*sides, seed=snapshot.settings.seed)
    stored = folder.watch()["drift"]
    assert stored["p"] == pytest.approx(found.p, abs=0.005)
    assert (stored["reference"], stored["new"]) == (found.reference, found.new)


def test_calibration_is_that_of_predictions(folder: LearnerFolder) -> None:
    with folder.snapshot() as snapshot:
        parts = []
        for split in ("val", "test"):
            members = [snapshot.members(number, split) for number in range(3)]
            nodes, labels = (np.concatenate([part[i] for part in members]) for i in range(2))
            names = snapshot.graph.names(nodes)
            found = list(folder.predict(names))
            columns = [found[0][1].index(snapshot.classes[c]) for c in labels]
            parts.append((np.concatenate([part[2] for part in found]), np.array(columns)))
    own, stored = calibration(*parts), folder.watch()["calibration"]
    for name in ("temperature", "ece", "ece_calibrated", "val", "test"):
        assert stored[name] == (own[name] and pytest.approx(own[name], rel=1e-4, abs=1e-5))  # None: all are right


def test_requests_are_watched_in_windows(folder: LearnerFolder) -> None:
    with folder.snapshot() as snapshot:
        live = LiveWatch(snapshot, window=90)
        live.add(snapshot, nodes_of([f"n{i}" for i in range(0, 60)]))
        assert live.unknown < 20
        assert live.summary() == {"nodes": 60, "unknown": live.unknown, "windows": 0, "alarms": 0}
        live.add(snapshot, nodes_of([f"n{i}" for i in range(300, 330)]))
        assert live.windows == 1
        known = live.unknown
        live.add(snapshot, *update(5000, 100, shift=6.0, kind=4))
        assert live.nodes == 190
        assert live.unknown - known > 50
        assert live.alarms >= 1
        assert live.drift.alarm


def test_nodes_of_a_new_class_are_called_unknown(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "f", quick(method="analytic", per_class=5, val=0.3))
    folder.observe(*update(0, 300))
    folder.observe(*update(300, 150, kind=4))  # without labels
    of_new = folder.find_unknown(NodeTable(objects([f"n{i}" for i in range(300, 380)])))
    of_known = folder.find_unknown(NodeTable(objects([f"n{i}" for i in range(80)])))
    assert sum(of_new) > 60
    assert sum(of_known) < 10
    found = folder.watch()["unknown"]
    assert found["nodes"] == 150
    assert found["above"] > 100
    assert folder.watch(version=1)["unknown"]["above"] < 30
    with folder.snapshot() as snapshot:
        fitted = fit_unknown(snapshot)
    assert found["threshold"] == fitted.threshold
    folder.forget(["n3", "n350"])
    assert folder.watch()["unknown"]["nodes"] == 149


def test_a_folder_without_labels_has_nothing_to_watch(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "f", quick())
    assert folder.watch() == {"drift": None, "calibration": None, "unknown": None}
    nodes, edges = update(0, 40, kind=4)
    folder.observe(replace(nodes, labels=["only", *[None] * 39]), edges)
    folder.forget(["n0"])
    folder.observe(*update(40, 40, kind=4, shift=5.0))
    found = folder.watch()
    assert found["drift"]["alarm"]
    assert set(found["drift"]["p"]) == {"features", "neighborhoods", "degrees"}
    assert (found["calibration"], found["unknown"]) == (None, None)


def test_inspect_shows_drift_calibration_and_unknown_classes(
    folder: LearnerFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(folder.root)]) == 0
    text = capsys.readouterr().out
    assert "input drift: 1 alarms in 2 updates (false alarms: 1.00 %); newest in update 3: features" in text
    assert "calibration error:" in text
    assert "unknown class:" in text
    assert main(["inspect", str(folder.root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["watch"] == folder.watch()
    page = folder_page(folder.inspect())
    assert "Calibration" in page
    assert "Input drift" in page
