"""Explanations, audits and suggestions of a folder, after corrections and deletions."""

import json
from pathlib import Path

import numpy as np
import pytest

from ergnn.cli.main import main
from ergnn.config.errors import InputError
from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.snapshot import make_learner
from ergnn.folder.why import audit_labels, explain_nodes, suggest_nodes
from folder.growing import make_updates, nodes_of, quick

CASES = {
    "linear": {"feature_map": "hops", "lam": 0.1, "kernel": "linear", "scale": "rows"},
    "rbf": {"feature_map": "hops", "lam": 0.1, "kernel": "rbf", "scale": "rows"},
    "columns": {"feature_map": "ppr", "scale": "columns", "lam": 0.03, "kernel": "linear"},
}


@pytest.fixture(scope="module", params=CASES)
def changed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LearnerFolder:
    """A folder after three updates, a correction and a deletion."""
    root = tmp_path_factory.mktemp("why") / "folder"
    folder = LearnerFolder.create(root, Settings.from_settings({"method": "analytic", **CASES[request.param]}))
    for nodes, edges in make_updates(3):
        folder.observe(nodes, edges)
    with folder.snapshot() as snapshot:
        train = snapshot.graph.names(snapshot.graph.split("train")[0])
    folder.observe(nodes_of(train[:2], ["c1", "c2"]))
    folder.forget(train[5:8])
    return folder


def test_terms_add_up_to_the_scores_of_the_prediction(changed: LearnerFolder) -> None:
    with changed.snapshot() as snapshot:
        nodes = snapshot.graph.nodes()[::7]
        names = snapshot.graph.names(nodes)
        found = explain_nodes(snapshot, names, most=10_000)
        learner = snapshot.learner
        scores = learner._with_anchors().scores(learner._rows(snapshot.graph, nodes)).numpy()
        probabilities = snapshot.probabilities(snapshot.graph, nodes)
        for name, node, row, chances in zip(names, found, scores, probabilities, strict=True):
            assert node["id"] == name
            expected = {snapshot.classes[c]: score for c, score in zip(snapshot.learner.classes(), row, strict=True)}
            assert node["scores"] == pytest.approx(expected, rel=0, abs=1e-9)
            sums = dict.fromkeys(expected, 0.0)
            for term in node["terms"]:
                sums[term["label"]] += term["term"]
            assert sums == pytest.approx(expected, rel=0, abs=1e-9)
            assert sum(term["share"] for term in node["terms"]) == pytest.approx(1)
            assert node["class"] == snapshot.classes[int(chances.argmax())]
            assert node["probability"] == pytest.approx(chances.max(), abs=1e-9)
            assert (node["features"] is None) == bool(learner.head.solution.kernel.s)
            for k, of in enumerate([] if node["features"] is None else (node["class"], node["second"])):
                by_distance = sum(terms[k] for terms in node["features"]["distances"])
                by_column = sum(row["terms"][k] for row in node["features"]["columns"])
                assert by_distance + node["features"]["constant"][k] == pytest.approx(expected[of], rel=0, abs=1e-9)
                assert by_column == pytest.approx(by_distance, rel=0, abs=1e-9)


def test_the_class_changes_without_the_deciding_label(changed: LearnerFolder) -> None:
    """Solve again without the label of each labeled node, in the same graph, and compare the classes of some nodes."""
    with changed.snapshot() as snapshot:
        graph, nodes = snapshot.graph, snapshot.graph.nodes()[::3]
        found = explain_nodes(snapshot, graph.names(nodes), most=1)
        labeled, train = graph._labeled, graph.split("train")[0]
        before = snapshot.probabilities(graph, nodes).argmax(1)
        changes = np.zeros(len(nodes), int)
        first: dict[int, set[tuple[str, str]]] = {row: set() for row in range(len(nodes))}
        for i, name in enumerate(graph.names(train)):
            learner = make_learner(snapshot.settings)
            graph._labeled = labeled[:, labeled[0] != train[i]]
            learner._version, learner.head.kernels = snapshot.version.number, (snapshot.learner.head.solution.kernel,)
            learner.solve(snapshot)
            out = learner.probabilities(graph, nodes, len(snapshot.classes)).argmax(1)
            for row in np.flatnonzero(out != before):
                changes[row] += 1
                first[row].add((name, snapshot.classes[out[row]]))
        graph._labeled = labeled
    assert changes.any()
    assert [node["num_deciding"] for node in found] == changes.tolist()
    for row, node in enumerate(found):
        deciding = node["deciding"]
        assert (deciding is None) == (not first[row])
        assert deciding is None or (deciding["id"], deciding["then"]) in first[row]


def test_planted_errors_are_found_and_nothing_is_written(changed: LearnerFolder) -> None:
    with changed.snapshot() as snapshot:
        plain, planted = audit_labels(snapshot), audit_labels(snapshot, plant=0.1)
        again = audit_labels(snapshot, most=3)
    count = planted["planted"]["labels"]
    assert planted["planted"]["found"] == sum(row["planted"] for row in planted["rows"][:count])
    assert planted["planted"]["average_precision"] > 3 * count / planted["compared"]
    assert again["rows"] == plain["rows"][:3]
    probabilities = [row["probability"] for row in plain["rows"]]
    assert probabilities == sorted(probabilities)
    assert len(plain["rows"]) == plain["compared"]
    assert plain["doubtful"] == sum(row["class"] != row["label"] for row in plain["rows"])
    assert all(len(row["similar"]) == 3 and row["id"] not in [s["id"] for s in row["similar"]] for row in plain["rows"])


def test_suggestions_have_no_label_and_differ(changed: LearnerFolder) -> None:
    with changed.snapshot() as snapshot:
        graph = snapshot.graph
        nodes = graph.nodes()
        bare = graph.names(nodes[graph.labels(nodes)[0] < 0])
        for by in ("variance", "margin", "random"):
            rows = suggest_nodes(snapshot, 5, by=by)["rows"]
            names = [row["id"] for row in rows]
            assert set(names) <= set(bare)
            assert len(set(names)) == 5
            assert rows == suggest_nodes(snapshot, 5, by=by)["rows"]
        assert [row["id"] for row in suggest_nodes(snapshot, 5, among=bare[:2])["rows"]] != []
        margins = [row["margin"] for row in suggest_nodes(snapshot, 100, by="margin")["rows"]]
        assert margins == pytest.approx(sorted(margins))
        labeled = graph.names(graph.split("train")[0])
        with pytest.raises(InputError, match="nothing is left to label"):
            suggest_nodes(snapshot, 5, among=labeled)


def test_commands_print_the_same_as_text_json_and_files(
    changed: LearnerFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, ids = str(changed.root), tmp_path / "ids.csv"
    ids.write_text("id\nn30\nn31\n")

    def run(*words: str) -> str:
        assert main(list(words)) == 0
        return capsys.readouterr().out

    page = tmp_path / "why.html"
    found = json.loads(run("explain", root, "--nodes", str(ids), "--json", "-o", str(page)))["nodes"]
    assert [node["id"] for node in found] == ["n30", "n31"]
    html = page.read_text()
    figures = 2 if found[0]["features"] is None else 4  # neighborhood, labels, and of a linear head distances, columns
    assert html.count('<svg class="figure"') == 2 * figures
    assert found[1]["terms"][0]["id"] in html
    text = run("explain", root, "--nodes", str(ids))
    assert f"node n30 (its label: {found[0]['label']})" in text or "node n30: class" in text
    assert found[0]["terms"][0]["id"] in text
    report = json.loads(run("audit", root, "--json", "--count", "4"))
    table, out = run("audit", root, "--count", "4"), tmp_path / "audit.csv"
    assert all(row["id"] in table for row in report["rows"])
    assert "planted errors" in run("audit", root, "--plant", "0.1", "-o", str(out))
    assert len(out.read_text().splitlines()) == 1 + report["compared"]
    suggested = json.loads(run("suggest", root, "--json", "--count", "3"))
    run("suggest", root, "--count", "3", "-o", str(out))
    assert [row["id"] for row in suggested["rows"]] == [line.split(",")[0] for line in out.read_text().splitlines()[1:]]


@pytest.mark.parametrize("command", ["explain", "audit", "suggest"])
def test_what_cannot_be_explained_is_said(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = tmp_path / "ids.csv"
    ids.write_text("id\nn0\n")
    more = ["--nodes", str(ids)] if command == "explain" else []

    def error(folder: LearnerFolder, *words: str) -> str:
        assert main([command, str(folder.root), *(words or more)]) == 2
        return capsys.readouterr().err

    network, empty = LearnerFolder.create(tmp_path / "a", quick()), LearnerFolder.create(tmp_path / "b")
    nodes, edges = make_updates(1)[0]
    network.observe(nodes, edges)
    assert "method 'replay' trains a network, and only the closed form can be explained" in error(network)
    assert "no training labels yet" in error(empty)
    full = LearnerFolder.create(tmp_path / "c")
    full.observe(*make_updates(1)[0])
    ids.write_text("id\nnobody\n")
    if command == "audit":
        assert "plant is 1.5; it must be a share" in error(full, "--plant", "1.5")
    else:
        assert "node 'nobody' is not in the graph" in error(
            full, "--among" if command == "suggest" else "--nodes", str(ids)
        )
    if command == "suggest":
        assert "unknown rule 'best'" in error(full, "--by", "best")
