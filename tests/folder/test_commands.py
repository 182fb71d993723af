"""The commands, end to end, in the words of the documentation."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from ergnn.cli.folder import describe
from ergnn.cli.main import main
from ergnn.data.tables import NodeTable
from ergnn.folder import LearnerFolder
from ergnn.folder.page import folder_page
from folder.growing import ids_file, make_updates, write_tables


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    place = tmp_path_factory.mktemp("files")
    return [
        tuple(map(str, write_tables(place / f"week{i}", *update)))  # type: ignore[misc]
        for i, update in enumerate(make_updates(2))
    ]


@pytest.fixture(scope="module")
def root(files: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("commands") / "learner")
    options = ["--backbone", "gcn", "--backbone-options", "hidden=4", "--epochs", "4", "--per-class", "2"]
    assert main(["init", root, "--method", "replay", *options, "--budget-nodes", "7", "--seed", "3"]) == 0
    for i, (nodes, edges) in enumerate(files):
        assert main(["observe", root, "--nodes", nodes, "--edges", edges, "--task-name", f"week {i + 1}"]) == 0
    return root


def test_predictions_are_written_with_probabilities(root: str, tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    assert main(["predict", root, "--nodes", ids_file(tmp_path, ["n3", "n70"]), "-o", str(out)]) == 0
    with open(out, newline="") as file:
        rows = list(csv.reader(file))
    classes = ["c0", "c1", "c2", "c3"]
    second = ["second_label", "second_probability", "unknown"]
    assert rows[0] == ["id", "label", "probability", *(f"p({name})" for name in classes), *second]
    assert [row[0] for row in rows[1:]] == ["n3", "n70"]
    for row in rows[1:]:
        values = dict(zip(classes, map(float, row[3:7]), strict=True))
        assert sum(values.values()) == pytest.approx(1, abs=1e-5)
        ranked = sorted(values, key=values.__getitem__, reverse=True)
        assert [row[1], row[7]] == ranked[:2]
        assert [float(row[2]), float(row[8])] == [values[name] for name in ranked[:2]]
    args = ["predict", root, "--nodes", ids_file(tmp_path, ["n3"]), "--classes", "c1", "-o", str(out)]
    assert main(args) == 0
    assert out.read_text().splitlines()[1] == "n3,c1,1.000000,1.000000,,,"


def test_a_known_task_and_nodes_that_are_not_stored(root: str, files: list[tuple[str, str]], tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    assert main(["predict", root, "--nodes", ids_file(tmp_path, ["n3"]), "--update", "2", "-o", str(out)]) == 0
    assert out.read_text().startswith("id,label,probability,p(c2),p(c3),second_label,second_probability,unknown\n")
    new, links = tmp_path / "new.csv", tmp_path / "links.csv"
    header = Path(files[0][0]).read_text().splitlines()[0]
    new.write_text(f"{header}\nstranger,," + ",".join("1" * 12) + "\n")
    links.write_text("source,target\nstranger,n1\n")
    assert main(["predict", root, "--nodes", str(new), "--edges", str(links), "-o", str(out)]) == 0
    assert out.read_text().splitlines()[1].startswith("stranger,c")
    assert main(["predict", root, "--nodes", ids_file(tmp_path, ["stranger"])]) == 2


def test_settings_are_changed(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["set", root, "max-nodes=5000", "device=cpu"]) == 0
    assert capsys.readouterr().out == f"{root}: max_nodes is now 5000, device is now cpu\n"
    assert LearnerFolder(root).settings.max_nodes == 5000
    assert main(["set", root, "max_nodes=-1"]) == 2
    assert LearnerFolder(root).settings.max_nodes == 5000


def test_inspect_shows_the_buffer_and_writes_a_page(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", root, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["buffer"]) == 7
    assert [u["name"] for u in found["updates"]] == ["week 1", "week 2"]
    assert main(["inspect", root]) == 0
    text = capsys.readouterr().out
    assert all(row["id"] in text for row in found["buffer"])
    assert main(["inspect", root, "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert all(f">{row['id']}</th>" in page for row in found["buffer"])
    assert "<svg" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_scores_per_class_and_the_confusion_matrix_are_those_of_scikit_learn(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    found = LearnerFolder(root).predict_held_out()
    labels = range(len(found.classes))
    np.testing.assert_array_equal(
        found.confusion(), metrics.confusion_matrix(found.truth, found.predicted, labels=labels)
    )
    precision, recall, f1, nodes = metrics.precision_recall_fscore_support(
        found.truth, found.predicted, labels=labels, zero_division=np.nan
    )
    rows = {row["class"]: row for row in found.per_class()}
    for c, name in enumerate(found.classes):
        if name in rows:
            expected = [nodes[c], recall[c], precision[c], f1[c]]
            mine = [rows[name][key] for key in ("nodes", "recall", "precision", "f1")]
            assert [np.nan if v is None else v for v in mine] == pytest.approx(expected, nan_ok=True)
    assert main(["evaluate", root, "--per-class", "--confusion", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["classes"] == found.per_class()
    assert printed["confusion"] == {"classes": found.classes, "nodes": found.confusion().tolist()}
    assert main(["evaluate", root, "--per-class", "--confusion"]) == 0
    text = capsys.readouterr().out
    assert "recall %" in text
    assert "true \\ predicted" in text
    assert main(["inspect", root]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for name, row in zip(found.classes, found.confusion().tolist(), strict=True):
        assert " ".join([name, "│", *(str(n) if n else "·" for n in row)]) in shown
    shown = LearnerFolder(root).inspect()
    assert shown["per_class"] == found.per_class()
    assert shown["overall"] == printed["overall"] == found.overall() == shown["updates"][-1]["overall"]
    assert shown["warnings"] == printed["warnings"] == found.warnings()
    assert sum(count for _, _, count in shown["confusion"]) == len(found.truth)


def test_of_a_known_task_only_its_classes_have_probabilities(root: str) -> None:
    folder = LearnerFolder(root)
    found = folder.predict_held_out(task_known=True)
    with folder.snapshot() as snapshot:
        names = snapshot.graph.names(snapshot.held_out()[0])
    for update in range(2):
        mine, classes = found.updates == update, folder.snapshot().classes_of(update)
        ids = [name for name, chosen in zip(names, mine, strict=True) if chosen]
        expected = np.full((len(ids), len(found.classes)), np.nan)
        columns = [found.classes.index(name) for name in classes]
        expected[:, columns] = np.concatenate([part[2] for part in folder.predict(ids, classes=classes)])
        np.testing.assert_allclose(found.probabilities[mine], expected, atol=1e-6)


def test_a_closed_form_forgets_nothing(
    files: list[tuple[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "d")
    assert main(["init", root, "--method", "analytic"]) == 0
    for nodes, edges in files:
        assert main(["observe", root, "--nodes", nodes, "--edges", edges, "--quiet"]) == 0
    capsys.readouterr()
    report = LearnerFolder(root).inspect()
    assert main(["inspect", root]) == 0
    text = capsys.readouterr().out
    assert ("why accuracy falls: nothing is forgotten" in text) == (report["measures"]["fm"] > 0)
    assert re.search(r"after the last update \S+ %, drop \S+ %", text)
    assert "forgetting" not in text
    page = folder_page(report)
    assert "FM, mean drop: " in page
    assert "orgetting" not in page


def test_what_accuracy_hides_is_said_by_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, page = str(tmp_path / "d"), tmp_path / "page.html"
    other = (0, 10, 12, 14)  # of one in five training nodes of each class, and of no held-out node
    rows = [f"n{i},{'ab'[i < 10]},{'test' if i % 2 else 'train'},{int(i in other)}" for i in range(40)]
    (tmp_path / "n.csv").write_text("\n".join(["id,label,split,f", *rows]) + "\n")
    main(["init", root])
    assert main(["observe", root, "--nodes", str(tmp_path / "n.csv")]) == 0
    observed = capsys.readouterr()
    warning = "the model predicts one class only: 'a'"
    scores = "75.00 %; majority class 75.00 %, balanced accuracy 50.00 %, macro F1 42.86 %, ROC AUC 0.500"
    assert f"over all 20 held-out nodes scored: {scores}\n" in observed.out
    assert f"ergnn: note: {warning}\n" in observed.err
    for command in ("evaluate", "inspect"):
        assert main([command, root]) == 0
        text = capsys.readouterr().out
        assert f"over all 20 held-out nodes scored: {scores}\n" in text
        assert f"warning: {warning}\n" in text
    assert main(["inspect", root, "-o", str(page)]) == 0
    assert "<li>Warning: the model predicts one class only: &#39;a&#39;</li>" in page.read_text()
    assert "<dt>balanced accuracy</dt><dd>50.00 %</dd>" in page.read_text()
    record = LearnerFolder(root).inspect()["updates"][-1]
    earlier = {key: value for key, value in record.items() if key != "overall"}  # as earlier versions wrote it
    assert describe(record).removeprefix(describe(earlier)).startswith("\nover all 20 held-out nodes")


def test_they_agree_after_an_update_without_held_out_nodes(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = LearnerFolder(shutil.copytree(root, tmp_path / "copy"))
    width = copy.inspect()["graph"]["features"]
    copy.observe(NodeTable(["lonely"], ["one of its kind"], features=np.zeros((1, width))), None)
    scores = [{n: right / of for n, right, of in update["scores"]} for update in copy.inspect()["updates"]]
    learned, now = [scores[0][0], scores[1][1]], list(scores[2].values())
    assert len(now) == 2  # the last update has none of its own
    assert now != learned
    assert main(["evaluate", str(copy.root)]) == 0
    mean = re.search(r"mean over updates: (\S+) %", capsys.readouterr().out)[1]
    assert main(["inspect", str(copy.root)]) == 0
    pattern = r"when learned (\S+) %, after the last update (\S+) %, forgetting (\S+) %"
    shown = re.search(pattern, capsys.readouterr().out).groups()
    assert shown[1] == mean
    expected = [np.mean(learned), np.mean(now), np.mean(learned) - np.mean(now)]
    assert [float(value) for value in shown] == pytest.approx([100 * value for value in expected], abs=0.006)


def test_observe_shows_progress_with_the_time_left_on_a_terminal(
    files: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rich")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def observe(folder: str, *words: str) -> str:
        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        assert main(["observe", str(tmp_path / folder), "--nodes", files[0][0], "--edges", files[0][1], *words]) == 0
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())

    monkeypatch.setenv("TERM", "xterm")
    main(["init", str(tmp_path / "network"), "--method", "replay", "--backbone", "mlp", "--epochs", "3"])
    main(["init", str(tmp_path / "closed")])
    assert re.search(r"learning .*%\s+[0-9-]:[0-9-]{2}:[0-9-]{2}", observe("network"))
    assert "learning" not in observe("network", "--quiet")
    shown = observe("closed")
    assert re.search(r"solving .*\d:\d\d:\d\d", shown), shown
    assert "%" not in shown  # there are no epochs, so that no share of them is done


def test_names_are_text_on_the_page_and_never_code(tmp_path: Path) -> None:
    root = str(tmp_path / "d")
    main(["init", root, "--method", "replay", "--backbone", "mlp", "--epochs", "1", "--per-class", "1"])
    (tmp_path / "n.csv").write_text("id,label,f\n<script>alert(1)</script>,<b>x,1\nb,y,0\n")
    assert main(["observe", root, "--nodes", str(tmp_path / "n.csv"), "--task-name", "<img src=x>"]) == 0
    assert main(["inspect", root, "-o", str(tmp_path / "p.html")]) == 0
    page = (tmp_path / "p.html").read_text()
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["observe", "{root}"], "no input files"),
        (["observe", "{root}", "--resume", "--nodes", "x.csv"], "--resume uses the files already stored in the folder"),
        (["observe", "{root}", "--graph", "g.npz", "--nodes", "x.csv"], "--graph is one file"),
        (["observe", "{root}", "--nodes", "missing.csv"], "missing.csv"),
        (["predict", "{root}", "--nodes", "missing.csv"], "missing.csv"),
        (["evaluate", "{root}/nowhere"], "no such folder"),
        (["init", "{root}"], "not an empty folder"),
        (["init", "{root}2", "--num-features", "0"], "num_features is 0"),
        (["init", "{root}2", "--backbone", "resnet"], "unknown backbone 'resnet'"),
        (["init", "{root}2", "--method", "replay", "--selector", "best"], "unknown selector 'best'"),
        (["init", "{root}2", "--method", "replay", "--backbone-options", "wings=2"], "wings"),
        (["init", "{root}2", "--val", "0.7", "--test", "0.4"], "it must be below 1"),
        (["rollback", "{root}", "--to", "99"], "version 99 is not kept"),
    ],
)
def test_refusals_are_one_line(args: list[str], text: str, root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([arg.replace("{root}", root) for arg in args]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.startswith("ergnn: ")
    assert error.count("\n") == 1
    assert not Path(f"{root}2").exists()


@pytest.mark.parametrize("method", ["analytic", "replay"])
def test_inspect_works_once_all_held_out_nodes_are_forgotten(
    tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "d")
    main(["init", root, "--method", method, *([] if method == "analytic" else ["--epochs", "2"])])
    rows = [f"n{i},{'ab'[i % 2]},{'test' if i < 2 else 'train'},{i % 2},1" for i in range(12)]
    (tmp_path / "n.csv").write_text("\n".join(["id,label,split,f,g", *rows]) + "\n")
    for i in range(2):
        (tmp_path / f"gone{i}.csv").write_text(f"id\nn{i}\n")
    (tmp_path / "more.csv").write_text("id,f,g\nlate,0,1\n")
    assert main(["observe", root, "--nodes", str(tmp_path / "n.csv")]) == 0
    assert main(["forget", root, "--nodes", str(tmp_path / "gone0.csv")]) == 0
    assert main(["observe", root, "--nodes", str(tmp_path / "more.csv")]) == 0
    assert main(["forget", root, "--nodes", str(tmp_path / "gone1.csv")]) == 0
    assert main(["inspect", root]) == 0
    assert main(["inspect", root, "-o", str(tmp_path / "page.html")]) == 0
    assert main(["evaluate", root]) == 0
