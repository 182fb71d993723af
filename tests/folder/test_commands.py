"""The commands, end to end, in the words of the documentation."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from ergnn.cli import main
from folder.growing import make_updates, write_tables


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


def ids_file(place: Path, ids: list[str]) -> str:
    (place / "ids.csv").write_text("\n".join(["id", *ids]) + "\n")
    return str(place / "ids.csv")


def test_predictions_are_written_with_probabilities(root: str, tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    assert main(["predict", root, "--nodes", ids_file(tmp_path, ["n3", "n70"]), "-o", str(out)]) == 0
    with open(out, newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["id", "label", "probability", "p(c0)", "p(c1)", "p(c2)", "p(c3)"]
    assert [row[0] for row in rows[1:]] == ["n3", "n70"]
    for row in rows[1:]:
        values = dict(zip(["c0", "c1", "c2", "c3"], map(float, row[3:]), strict=True))
        assert sum(values.values()) == pytest.approx(1, abs=1e-5)
        assert row[1] == max(values, key=values.__getitem__)
        assert float(row[2]) == max(values.values())


def test_a_known_task_and_nodes_that_are_not_stored(root: str, files: list[tuple[str, str]], tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    assert main(["predict", root, "--nodes", ids_file(tmp_path, ["n3"]), "--update", "2", "-o", str(out)]) == 0
    assert out.read_text().startswith("id,label,probability,p(c2),p(c3)\n")
    new, links = tmp_path / "new.csv", tmp_path / "links.csv"
    header = Path(files[0][0]).read_text().splitlines()[0]
    new.write_text(f"{header}\nstranger,," + ",".join("1" * 12) + "\n")
    links.write_text("source,target\nstranger,n1\n")
    assert main(["predict", root, "--nodes", str(new), "--edges", str(links), "-o", str(out)]) == 0
    assert out.read_text().splitlines()[1].startswith("stranger,c")
    assert main(["predict", root, "--nodes", ids_file(tmp_path, ["stranger"])]) == 2


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


def test_evaluate_forget_rollback_and_export(root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", root, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["week 1", "week 2"]
    assert main(["forget", root, "--nodes", ids_file(tmp_path, ["n0", "n1"]), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["nodes"] == 2
    assert main(["rollback", root, "--to", str(report["version"] - 1)]) == 0
    assert main(["export", root, "-o", str(tmp_path / "out" / "model.safetensors")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["model.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["observe", "{root}"], "no files were named"),
        (["observe", "{root}", "--resume", "--nodes", "x.csv"], "--resume goes on with files that are in the folder"),
        (["observe", "{root}", "--graph", "g.npz", "--nodes", "x.csv"], "--graph names one file"),
        (["observe", "{root}", "--nodes", "missing.csv"], "missing.csv"),
        (["predict", "{root}", "--nodes", "missing.csv"], "missing.csv"),
        (["evaluate", "{root}/nowhere"], "there is no such folder"),
        (["evaluate", "{root}", "--threads", "0"], "threads is 0"),
        (["init", "{root}"], "not an empty folder"),
        (["init", "{root}2", "--num-features", "0"], "num_features is 0"),
        (["init", "{root}2", "--backbone", "resnet"], "unknown backbone 'resnet'"),
        (["init", "{root}2", "--method", "replay", "--selector", "best"], "unknown selector 'best'"),
        (["init", "{root}2", "--method", "replay", "--backbone-options", "wings=2"], "wings"),
        (["init", "{root}2", "--val", "0.7", "--test", "0.4"], "it must be below 1"),
        (["init", "{root}2", "--keep", "0"], "keep is 0"),
        (["init", "{root}2", "--max-nodes", "0"], "limit on nodes is 0"),
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
