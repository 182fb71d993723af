"""The tutorial runs as written in an empty folder, and the first update is not forgotten after the fifth."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from doc_blocks import ROOT
from ergnn.config.errors import InputError
from ergnn.folder import LearnerFolder

PAGE = ROOT / "docs" / "tutorial.md"
SCRIPT = ROOT / "examples" / "growing" / "tutorial.py"
FILES = ("after-1.csv", "after-5.csv", "after-5-all.csv", "all.csv")


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "OMP_NUM_THREADS": "1", "ERGNN_OFFLINE": "1", "PATH": path}


def rows(path: Path) -> dict[str, str]:
    with path.open(newline="") as file:
        return {row["id"]: row["label"] for row in csv.DictReader(file)}


def accuracy(folder: Path, name: str) -> float:
    """Percent of the papers without a topic, those of week 1 or all, that a file of predictions has right."""
    truth, found = rows(folder / "truth.csv"), rows(folder / name)
    first = {"Genetic_Algorithms", "Reinforcement_Learning"}
    assert set(found) == {paper for paper, topic in truth.items() if topic in first or name == "all.csv"}
    return 100 * sum(truth[paper] == topic for paper, topic in found.items()) / len(found)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder after the whole page."""
    folder = tmp_path_factory.mktemp("empty")
    ran = subprocess.run([sys.executable, SCRIPT], cwd=folder, env=environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return folder


def test_most_labels_are_missing(done: Path) -> None:
    labels = [label for week in range(1, 6) for label in rows(done / f"nodes-{week}.csv").values()]
    assert len(labels) == 2708
    assert labels.count("") > len(labels) / 2


def test_the_first_update_is_not_forgotten_after_the_fifth(done: Path) -> None:
    then, now = accuracy(done, "after-1.csv"), accuracy(done, "after-5.csv")
    assert then > 90
    assert now > then - 3
    assert accuracy(done, "after-5-all.csv") > 85  # seven classes compete, where there were two
    assert accuracy(done, "all.csv") >= 82


def test_the_page_shows_what_is_measured(done: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^(?:after week|every paper).* ([\d.]+) % of [\d]+$", page, re.MULTILINE)
    assert [float(value) for value in shown] == pytest.approx([accuracy(done, name) for name in FILES], abs=0.3)


def test_output_files(done: Path) -> None:
    folder = LearnerFolder(done / "papers")
    assert [record["name"] for record in folder.inspect()["updates"]][3:] == ["update 4", "week 5, again"]
    with pytest.raises(InputError, match="paper-1832"):
        list(folder.predict(["paper-1832"]))
    learned = [row["id"] for row in folder.inspect()["buffer"]]
    assert len(set(learned)) == 413
    assert "paper-1832" not in learned
    assert "<html" in (done / "papers.html").read_text(encoding="utf-8")
    assert {path.name for path in (done / "model").iterdir()} == {"model.safetensors", "model.json"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "means"),
    [
        ("--method analytic", (96.6, 96.9, 91.0, 84.9)),
        ("--method replay --backbone gcn --per-class 20 --epochs 100", (95.3, 94.3, 89.4, 79.5)),
        ("--method finetune --backbone gcn --epochs 100", (95.3, 80.2, 0.0, 6.3)),
    ],
)
def test_the_table_of_five_runs(options: str, means: tuple[float, ...], tmp_path: Path) -> None:
    """Only the method differs; the page's table is right within two points."""
    page = PAGE.read_text(encoding="utf-8")
    page = page[: page.index("## Predict a new paper")]
    start = "ergnn init papers"
    pages = {seed: page.replace(start, f"{start} {options} --seed {seed}", 1) for seed in range(5)}
    code = (
        "import json, os, pathlib, runpy, sys\n"
        f"run = runpy.run_path({str(SCRIPT)!r})['run']\n"
        "for seed, text in json.load(sys.stdin).items():\n"
        f"    folder = pathlib.Path({str(tmp_path)!r}) / seed\n"
        "    folder.mkdir()\n"
        "    os.chdir(folder)\n"
        "    run(text)\n"
    )
    given = {"input": json.dumps(pages), "env": environment(), "capture_output": True, "text": True}
    subprocess.run([sys.executable, "-c", code], check=True, **given)
    measured = [[accuracy(tmp_path / str(seed), name) for name in FILES] for seed in pages]
    assert [sum(column) / len(measured) for column in zip(*measured, strict=True)] == pytest.approx(means, abs=2)


@pytest.mark.slow
@pytest.mark.parametrize(("stream", "updates", "classes"), [("computers", 5, 10), ("pubmed", 5, 3), ("twitch", 6, 2)])
@pytest.mark.parametrize("learner", ["analytic", "some"])
def test_real_streams_run_through_the_commands(
    stream: str, updates: int, classes: int, learner: str, data_root: Path, tmp_path: Path
) -> None:
    """Everything arrives, and every past update is scored; replay has two epochs instead of docs/growing.md's fifty."""
    here = SCRIPT.parent
    make = [sys.executable, here / "make_files.py", stream, tmp_path / stream]
    run = [sys.executable, here / "run.py", tmp_path / stream, tmp_path / "runs", "--learner", learner, "--epochs", "2"]
    for line in (make, run, [sys.executable, here / "table.py", tmp_path / "runs" / "results.json"]):
        subprocess.run(line, env=environment(), check=True, capture_output=True)
    found = json.loads((tmp_path / "runs" / "results.json").read_text())
    assert [len(row) for row in found["scores"]] == list(range(1, updates + 1))
    folder = LearnerFolder(tmp_path / "runs" / f"{stream}-{learner}-0").inspect()
    given = [rows(tmp_path / stream / f"nodes-{number + 1}.csv") for number in range(updates)]
    assert folder["graph"]["nodes"] == sum(map(len, given))
    assert folder["graph"]["labeled"] == sum(label != "" for part in given for label in part.values())
    assert len(folder["classes"]) == classes
