"""Predictions over HTTP are those of the folder, and name their version."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from prometheus_client import generate_latest

from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.why import audit_labels, explain_nodes, suggest_nodes
from ergnn.serve.app import make_app
from ergnn.serve.metrics import Metrics
from ergnn.serve.model import load_version
from ergnn.serve.service import Service
from folder.growing import edges_of, make_updates, nodes_of, quick, x_of
from serve.conftest import BASE
from serve.running import wait_for

IDS = ["n0", "n7", "n41", "n7"]


def rows(answer: dict[str, Any]) -> np.ndarray:
    return np.array([row["probabilities"] for row in answer["predictions"]])


def expected(place: Path, *args: Any, **more: Any) -> tuple[list[str], np.ndarray]:
    parts = list(LearnerFolder(place / "base").predict(*args, **more))
    return parts[0][1], np.concatenate([part[2] for part in parts])


@pytest.mark.parametrize("ids", [["n0"], IDS, [f"n{i % 80}" for i in range(300)]])  # many: in a thread
@pytest.mark.parametrize("classes", [None, ["c3", "c0"]])
def test_known_nodes(ids: list[str], classes: list[str] | None, reader: TestClient, place: Path) -> None:
    answer = reader.post("/predict", json={"ids": ids, "classes": classes}).json()
    names, probabilities = expected(place, ids, classes=classes)
    assert answer["version"] == 2
    assert answer["classes"] == names == (classes or names)
    assert [row["id"] for row in answer["predictions"]] == ids
    assert [row["label"] for row in answer["predictions"]] == [names[k] for k in probabilities.argmax(1)]
    assert np.abs(rows(answer) - probabilities).max() < 2e-6
    assert all(row["probability"] == max(row["probabilities"]) for row in answer["predictions"])


@pytest.mark.parametrize("sparse", [False, True])
def test_new_nodes_with_edges(sparse: bool, reader: TestClient, place: Path) -> None:
    x, pairs = x_of(2), [("new", "n3"), ("other", "new"), ("n5", "other")]
    x[:, 6:] = 0
    features = [{str(i): float(v) for i, v in enumerate(row) if v} if sparse else row.tolist() for row in x]
    body = {
        "nodes": [{"id": name, "features": row} for name, row in zip(("new", "other"), features, strict=True)],
        "edges": [{"source": a, "target": b} for a, b in pairs],
    }
    answer = reader.post("/predict", json=body).json()
    tables = {"nodes": nodes_of(["new", "other"], x=x), "edges": edges_of(*pairs)}
    assert np.abs(rows(answer) - expected(place, **tables)[1]).max() < 2e-6
    some = reader.post("/predict", json={**body, "ids": ["other", "n5"]}).json()
    assert np.abs(rows(some) - expected(place, ["other", "n5"], **tables)[1]).max() < 2e-6
    assert reader.post("/predict", json={"ids": ["new"]}).status_code == 422, "they are there for one answer only"


def test_known_nodes_with_further_edges(reader: TestClient, place: Path) -> None:
    answer = reader.post("/predict", json={"ids": ["n0"], "edges": [{"source": "n0", "target": "n60"}]}).json()
    want = expected(place, nodes=nodes_of(["n0"]), edges=edges_of(("n0", "n60")))[1]
    assert np.abs(rows(answer) - want).max() < 2e-6
    assert np.abs(rows(answer) - expected(place, ["n0"])[1]).max() > 1e-4


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> LearnerFolder:
    """A folder with a closed form after two updates, one node of which was forgotten."""
    folder = LearnerFolder.create(tmp_path_factory.mktemp("solved") / "learner", Settings())
    for nodes, edges in make_updates(2):
        folder.observe(nodes, edges)
    folder.forget(["n3"])
    return folder


def test_the_closed_form(solved: LearnerFolder) -> None:
    version = load_version(solved)
    extra = {"nodes": nodes_of(["new"], x=x_of(1)), "edges": edges_of(("new", "n1"))}
    for ids, tables in ((IDS, {}), (["new", "n9"], extra), (None, extra)):
        (want,) = solved.predict(ids, **tables)
        ids_found, classes, found = version.predict(ids, **tables)
        assert (ids_found, classes) == want[:2]
        assert np.abs(found - want[2]).max() < 1e-6


def test_numbers_are_ids_too(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "learner", quick())
    nodes, edges = make_updates(1)[0]
    numbers = {name: str(i) for i, name in enumerate(nodes.ids)}
    sides = [np.array([numbers[name] for name in side], object) for side in (edges.source, edges.target)]
    folder.observe(type(nodes)(np.array([*numbers.values()], object), nodes.labels, features=nodes.features),
                   type(edges)(*sides))  # fmt: skip
    with TestClient(make_app(Service(folder.root)), BASE) as client:
        answer = client.post("/predict", json={"ids": [7, "7", " 7.0"]}).json()
    assert [row["id"] for row in answer["predictions"]] == ["7"] * 3
    assert len({tuple(row["probabilities"]) for row in answer["predictions"]}) == 1


def test_nothing_learned_yet(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "learner", quick())
    with TestClient(make_app(Service(folder.root)), BASE) as client:
        answer = client.post("/predict", json={"ids": ["n0"]})
        assert (answer.status_code, "nothing has been learned yet" in answer.json()["error"]) == (409, True)
        assert client.get("/").status_code == 200
        assert client.get("/metrics").status_code == 200
        assert client.get("/versions").json()["versions"][0]["nodes"] == 0


def test_health_versions_and_documents(reader: TestClient) -> None:
    assert reader.get("/health").json() == {"status": "ok", "version": 2, "waiting": 0}
    versions = reader.get("/versions").json()
    assert [(row["version"], row["current"]) for row in versions["versions"]] == [(0, False), (1, False), (2, True)]
    assert "<dt>balanced accuracy</dt>" in reader.get("/").text
    paths = reader.get("/openapi.json").json()["paths"]
    named = {"/predict", "/observe", "/forget", "/rollback", "/versions", "/updates/{id}", "/health", "/metrics"}
    assert named <= paths.keys()
    assert "multipart/form-data" in paths["/observe"]["post"]["requestBody"]["content"]
    page = reader.get("/docs").text
    assert all(path in page for path in named)
    assert "http://" not in page.replace("http://localhost", "")
    assert "https://" not in page


def test_new_nodes_of_requests_are_watched(reader: TestClient) -> None:
    """Figures of drift, calibration and unknown classes, of the version and of requests."""

    def value(name: str) -> float | None:
        lines = [line for line in reader.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
        return float(lines[0].split()[1]) if lines else None

    wait_for(lambda: value('ergnn_live{what="nodes"}') is not None)
    before = value('ergnn_live{what="nodes"}')
    assert 0 <= value("ergnn_calibration_error") <= 1
    assert 0 <= value("ergnn_unknown_share") <= 1
    body = {"nodes": [{"id": "new", "features": {"3": 1.0}}], "edges": [{"source": "new", "target": "n1"}]}
    assert reader.post("/predict", json=body).status_code == 200
    wait_for(lambda: value('ergnn_live{what="nodes"}') == before + 1)


def test_figures_are_absent_until_they_are_computed() -> None:
    """A zero before the first inspection would look like a forgotten memory or a perfect calibration."""
    metrics = Metrics()
    assert b"ergnn_remembered_nodes" not in generate_latest(metrics.registry)
    metrics.inspection = {
        "graph": {"nodes": 3, "edges": 2, "labeled": 1, "features": None},
        "buffer": [1, 2],
        "per_class": [],
        "watch": {"drift": None, "calibration": {"ece": 0.25}, "unknown": None},
        "updates": [],
    }
    text = generate_latest(metrics.registry)
    assert b"ergnn_remembered_nodes 2.0" in text
    assert b"ergnn_calibration_error 0.25" in text
    metrics.inspection["watch"]["calibration"] = None
    assert b"ergnn_calibration_error" not in generate_latest(metrics.registry)


def test_explanations_are_those_of_the_folder(solved: LearnerFolder) -> None:
    with solved.snapshot() as snapshot:
        explained, audited = explain_nodes(snapshot, IDS), audit_labels(snapshot, 5)
        suggested = suggest_nodes(snapshot, 4, by="margin")
    with TestClient(make_app(Service(solved.root)), BASE, raise_server_exceptions=False) as client:
        answer = client.get("/explain", params={"id": IDS}).json()
        assert answer["version"] == 3
        for mine, theirs in zip(answer["nodes"], explained, strict=True):
            assert mine.pop("scores") == pytest.approx(theirs.pop("scores"))
            assert [row["id"] for row in mine["terms"]] == [row["id"] for row in theirs["terms"]]
            assert (mine["class"], mine["deciding"]) == (theirs["class"], theirs["deciding"])
        assert [row["id"] for row in client.get("/audit?count=5").json()["rows"]] == [r["id"] for r in audited["rows"]]
        rows = client.get("/suggest?count=4&by=margin").json()["rows"]
        assert [row["id"] for row in rows] == [row["id"] for row in suggested["rows"]]
        for path, message in {
            "/explain?id=nobody": "node 'nobody' is not in the graph",
            "/explain": "id: Field required",
            "/suggest?by=best": "unknown rule 'best'",
        }.items():
            refused = client.get(path)
            assert refused.status_code == 422
            assert message in refused.json()["error"]
