"""Values by column name over HTTP are those of a CSV file."""

import csv
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from ergnn.data.tables import Limits, read_edges, read_nodes
from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.update import tables_digest
from ergnn.serve.app import make_app
from ergnn.serve.model import load_version
from ergnn.serve.requests import Node, node_table
from ergnn.serve.service import Service
from folder.growing import edges_of, tables
from serve.conftest import BASE
from serve.running import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "customers" / "make_files.py"
NEW = {
    "age": 41,
    "income": 51_200.25,
    "country": "DE",
    "plan": "free",
    "newsletter": "no",
    "signup": "2024-03-01",
    "note": 'the "box"\ncame late, again',
}
PAIRS = [("new", "c1"), ("other", "new")]


@pytest.fixture(scope="module")
def customers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder ``learner`` after the first week of the example, and the files of all weeks."""
    place = tmp_path_factory.mktemp("customers")
    runpy.run_path(str(EXAMPLE))["write_files"](place, 200, 0)
    folder = LearnerFolder.create(place / "learner", Settings.from_settings({"method": "analytic"}))
    folder.observe(read_nodes(place / "nodes_1.csv"), read_edges(place / "edges_1.csv"))
    return place


@pytest.fixture(scope="module")
def service(customers: Path) -> Iterator[TestClient]:
    with TestClient(make_app(Service(customers / "learner")), BASE) as client:
        yield client


def body(*rows: dict[str, Any]) -> dict[str, Any]:
    nodes = [{"id": name, "columns": row} for name, row in zip(("new", "other"), rows, strict=False)]
    return {"nodes": nodes, "edges": [{"source": a, "target": b} for a, b in PAIRS[: len(nodes)]]}


@pytest.mark.parametrize(
    "rows",
    [
        [NEW],
        [NEW, {**NEW, "income": None, "note": None, "country": "Narnia", "signup": "2024-03-02"}],
        [{**NEW, "age": "41", "plan": 7, "country": True}, {**NEW, "age": 2.5, "note": "NA", "signup": ""}],
    ],
)
def test_a_node_is_predicted_as_from_a_csv_file(
    rows: list[dict[str, Any]], customers: Path, service: TestClient, tmp_path: Path
) -> None:
    with open(tmp_path / "new.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["id", *NEW])
        writer.writeheader()
        for name, row in zip(("new", "other"), rows, strict=False):
            writer.writerow({"id": name, **{key: "true" if value is True else value for key, value in row.items()}})
    version, edges = load_version(LearnerFolder(customers / "learner")), edges_of(*PAIRS[: len(rows)])
    expected = version.predict(None, read_nodes(tmp_path / "new.csv"), edges)
    nodes = node_table([Node(**node) for node in body(*rows)["nodes"]], Limits())
    np.testing.assert_allclose(version.predict(None, nodes, edges)[2], expected[2], atol=1e-12, rtol=0)
    answer = service.post("/predict", json=body(*rows)).json()
    assert answer["classes"] == expected[1]
    received = np.array([row["probabilities"] for row in answer["predictions"]])
    np.testing.assert_allclose(received, expected[2], atol=1e-6, rtol=0)


def test_a_name_that_is_left_out_is_a_missing_value(service: TestClient) -> None:
    short = {name: value for name, value in NEW.items() if name not in ("income", "note")}
    alone, with_nulls = (
        service.post("/predict", json=body(row)).json() for row in (short, {**NEW, "income": None, "note": None})
    )
    assert alone == with_nulls
    assert alone != service.post("/predict", json=body(NEW)).json()
    both = service.post("/predict", json=body(short, NEW)).json()
    assert both == service.post("/predict", json=body({**short, "income": None, "note": ""}, NEW)).json()


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_an_update_by_name_is_that_of_the_csv_files(kind: str, customers: Path, tmp_path: Path) -> None:
    folders = []
    for name in ("files", "http"):
        folder = LearnerFolder.create(tmp_path / name, Settings.from_settings({"method": "analytic"}))
        folders.append(folder)
    with open(customers / "nodes_1.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    edges = read_edges(customers / "edges_1.csv")
    folders[0].observe(read_nodes(customers / "nodes_1.csv"), edges, name="week 1")
    lines: list[dict[str, Any]] = []
    for row in rows:
        values = {name: value for name, value in row.items() if name not in ("id", "label") and value}
        values |= {name: float(values[name]) for name in ("age", "income") if name in values}
        lines.append({"id": row["id"], "label": row["label"], "columns": values})
    pairs = [{"source": a, "target": b} for a, b in zip(edges.source, edges.target, strict=True)]
    with TestClient(make_app(Service(folders[1].root)), BASE) as client:
        content = json.dumps({"nodes": lines, "edges": pairs})
        if kind != "application/json":
            content = "\n".join(map(json.dumps, [*lines, *pairs]))
        accepted = client.post("/observe", content=content, headers={"content-type": kind}, params={"name": "week 1"})
        assert accepted.status_code == 202, accepted.text
        path = accepted.json()["progress"]
        wait_for(lambda: client.get(path).json()["state"] in ("done", "failed"))
        assert client.get(path).json()["error"] is None
    stored = [tables(folder) for folder in folders]
    for name in ("nodes", "labels", "adjacency"):
        assert stored[0][name] == stored[1][name]
    ids = [row["id"] for row in rows]
    ((_, names, from_files),), ((_, same_names, from_http),) = (folder.predict(ids) for folder in folders)
    assert names == same_names
    np.testing.assert_allclose(from_http, from_files, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mood": "good"}, "feature columns differ from those of earlier nodes; unknown: 'mood'"),
        ({"age": "old"}, "row 1, column 'age': 'old'; a number is required"),
        ({"signup": "yesterday"}, "row 1, column 'signup': 'yesterday'; a date such as 2024-05-31 is required"),
        ({"age": [41]}, "nodes.0.columns.age: a list; text, a number, true, false or null is required"),
        ({"note": "\0"}, "nodes.0.columns.note: text must be valid Unicode without NUL"),
        ({"age": 10**400}, "nodes.0.columns.age: the number is too large, or not finite"),
        ({}, "nodes: no node has a value in any column"),
    ],
)
def test_bad_values_get_one_line(values: dict[str, Any], message: str, service: TestClient) -> None:
    answer = service.post("/predict", json=body(values))
    assert answer.status_code == 422
    assert message in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_updates_in_json_are_checked(service: TestClient) -> None:
    """Columns may have the names of the fields of an edge."""
    for update, message in (
        ({}, "no nodes and no edges"),
        ({"nodes": [{"id": "new", "columns": {"age": [1]}}]}, "nodes.0.columns.age: a list; text, a number"),
        ({"nodes": [{"id": "new", "columns": {"source": "web", "target": "x"}}]}, "unknown: 'source', 'target'"),
        ([1], "body: Input should be an object"),
    ):
        answer = service.post("/observe", json=update)
        assert answer.status_code == 422
        assert message in answer.json()["error"]


def test_columns_and_features_are_not_mixed(service: TestClient) -> None:
    nodes = [{"id": "a", "columns": NEW}, {"id": "b", "features": [1.0]}]
    assert "use one of them" in service.post("/predict", json={"nodes": nodes}).json()["error"]
    assert "node 'b' has no columns" in service.post("/predict", json={"nodes": [nodes[0], {"id": "b"}]}).text


def test_many_names_do_not_fill_the_memory(service: TestClient) -> None:
    nodes = [{"id": f"n{i}", "columns": {f"{i} {j}": 1 for j in range(5)}} for i in range(5_000)]
    assert "25,000 columns take" in service.post("/predict", json={"nodes": nodes}).json()["error"]


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_the_content_type_is_asked_for(kind: str | None, service: TestClient) -> None:
    headers = {} if kind is None else {"content-type": kind}
    answer = service.post("/predict", content=b'{"ids": ["c1"]}', headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"].startswith("send content-type: application/json")


def test_tables_with_other_values_are_other_updates() -> None:
    digests = {
        tables_digest(node_table([Node(id="a", columns=row)], Limits()), None) for row in (NEW, {**NEW, "note": "x"})
    }
    assert len(digests) == 2
