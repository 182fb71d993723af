"""Use all folder commands on five updates of realistic tables, then a custom plug-in.

python examples/first_hour.py [FOLDER]

The tables have typical irregularities: ids as text, labels that are integers in one file and floats in the next (as
written by pandas if a label is missing), names with spaces around them, columns in a different order, and a shuffled
frame saved with its index. All of them have the same four classes.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from ergnn.cli.main import main as ergnn

CLASSES, FEATURES, PER_WEEK = 4, 6, 60
PLUGIN = Path(__file__).parent / "plugins" / "one_file.py"


def make_week(week: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Create the papers of a week and their citations; both features and citations depend on the topic."""
    rng = np.random.default_rng(week)
    first = week * PER_WEEK
    topic = rng.integers(0, 2 if week == 0 else CLASSES, PER_WEEK)
    papers = pd.DataFrame({"id": [f"paper {first + i}" for i in range(PER_WEEK)], "label": topic})
    x = np.eye(FEATURES)[topic] + 0.8 * rng.standard_normal((PER_WEEK, FEATURES))
    for i in range(FEATURES):
        papers[f"f{i}"] = x[:, i].round(3)
    by_topic = [np.flatnonzero(topic == c) for c in range(CLASSES)]
    source = np.repeat(np.arange(PER_WEEK), 3)
    target = np.array(
        [rng.choice(by_topic[topic[i]]) if rng.random() < 0.7 else rng.integers(PER_WEEK) for i in source]
    )
    names = papers["id"].to_numpy()
    return papers, pd.DataFrame({"source": names[source], "target": names[target]})


def write_tables(place: Path) -> list[tuple[Path, Path]]:
    """Write five weeks of files, each in a different layout."""
    files = []
    for week in range(5):
        papers, citations = make_week(week)
        nodes, edges = place / f"week {week + 1} papers.csv", place / f"week {week + 1} citations.csv"
        if week == 1:  # some labels are missing: the column becomes 0.0, 1.0, NaN
            papers["label"] = papers["label"].where(np.arange(PER_WEEK) % 5 > 0)
        if week == 2:  # labels with spaces, as typed by hand
            papers["label"] = [f" {label} " if i % 10 else "NA" for i, label in enumerate(papers["label"])]
        if week == 3:  # columns in a different order
            papers = papers[["label", *(f"f{i}" for i in reversed(range(FEATURES))), "id"]]
        if week == 4:  # a shuffled frame, with its index, as Parquet
            nodes = nodes.with_suffix(".parquet")
            papers["label"] = papers["label"].astype(float)
            papers.sample(frac=1, random_state=0).to_parquet(nodes)
        else:
            papers.to_csv(nodes, index=False)
        citations.to_csv(edges, index=False)
        files.append((nodes, edges))
    return files


def command(*words: object, expect: int = 0) -> str:
    """Run a command, show and return its output; ``expect`` is its exit code."""
    line = [str(word) for word in words]
    print(f"\n$ ergnn {shlex.join(line)}")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = ergnn(line)
    shown = (out.getvalue() + err.getvalue()).rstrip()
    print(shown if len(shown) < 4000 else f"{shown[:400]} …")
    assert code == expect, f"exit code {code}"
    return out.getvalue() + (err.getvalue() if expect else "")


def _diagonal(matrix: list[list[int]]) -> list[tuple[int, int]]:
    """Of each class, how many nodes are predicted right, and how many there are."""
    return [(row[i], sum(row)) for i, row in enumerate(matrix)]


def main(place: Path) -> None:
    folder, files = place / "my papers", write_tables(place)

    # a learner in a folder, five updates
    command("init", folder, "--backbone", "gcn", "--epochs", 100, "--method", "replay", "--per-class", 10)
    for week, (nodes, edges) in enumerate(files):
        command("observe", folder, "--nodes", nodes, "--edges", edges, "--task-name", f"week {week + 1}", "--quiet")
    found = json.loads(command("inspect", folder, "--json"))
    assert found["classes"] == ["0", "1", "2", "3"], found["classes"]
    assert len(found["updates"]) == 5
    unlabeled = PER_WEEK // 5 + PER_WEEK // 10  # NaN in the second week, NA in the third
    expected = {"nodes": 5 * PER_WEEK, "labeled": 5 * PER_WEEK - unlabeled, "features": FEATURES}
    assert expected.items() <= found["graph"].items(), found["graph"]

    # invalid input: a feature with an unknown name is rejected, and nothing changes
    strange = pd.read_csv(files[0][0]).rename(columns={"f0": "weight"}).assign(id=lambda frame: "new " + frame["id"])
    strange.to_csv(place / "strange.csv", index=False)
    assert "missing: 'f0'" in command("observe", folder, "--nodes", place / "strange.csv", expect=2)

    # predict, evaluate and inspect
    pd.DataFrame({"id": ["paper 3", "paper 290"]}).to_csv(place / "ids.csv", index=False)
    command("predict", folder, "--nodes", place / "ids.csv", "-o", place / "predictions.csv")
    predictions = pd.read_csv(place / "predictions.csv")
    print(predictions.to_string(index=False))
    assert predictions["id"].tolist() == ["paper 3", "paper 290"]
    scores = json.loads(command("evaluate", folder, "--per-class", "--confusion", "--json"))
    assert [row["name"] for row in scores["updates"]] == [f"week {week + 1}" for week in range(5)]
    assert min(row["recall"] for row in scores["classes"]) > 0.5, scores["classes"]
    right, of = (sum(counts) for counts in zip(*_diagonal(scores["confusion"]["nodes"]), strict=True))
    assert right / of > 0.8, f"{right} of {of}"
    command("evaluate", folder, "--per-class", "--confusion")
    shown = command("inspect", folder)
    assert "true \\ predicted" in shown
    assert "more; --all lists them" in shown
    command("inspect", folder, "-o", place / "page.html")
    assert "Accuracy over nodes" in (place / "page.html").read_text(encoding="utf-8")

    # forget nodes, then roll back
    command("forget", folder, "--nodes", place / "ids.csv")
    assert json.loads(command("inspect", folder, "--json"))["graph"]["nodes"] == 5 * PER_WEEK - 2
    assert "paper 3" in command("predict", folder, "--nodes", place / "ids.csv", expect=2)
    command("rollback", folder)
    command("predict", folder, "--nodes", place / "ids.csv", "-o", place / "again.csv")
    pd.testing.assert_frame_equal(pd.read_csv(place / "again.csv"), predictions)
    assert json.loads(command("inspect", folder, "--json"))["measures"] == found["measures"]
    command("inspect", folder, "--check")

    # the same with default settings
    command("init", place / "defaults")
    for nodes, edges in files:
        command("observe", place / "defaults", "--nodes", nodes, "--edges", edges, "--quiet")
    assert json.loads(command("inspect", place / "defaults", "--json"))["measures"]["aa"] > 0.8

    # a custom plug-in: one file, not installed
    plugin = ["--import", PLUGIN]
    assert "hub" in command("selectors", *plugin)
    assert "--old-weight" in command("methods", "keep-all", *plugin)
    assert "rings" in command("datasets", *plugin)
    quick = ["--epochs", 20, "--seeds", 2, "--quiet", "--store", place / "runs", *plugin]
    command("run", "rings", "--backbone", "graphconv", "--selector", "hub", *quick)
    command("run", "rings", "--backbone", "gcn", "--method", "keep-all", "--old-weight", 2, "--latex", *quick)
    stored = command("runs", "--store", place / "runs")
    assert all(name in stored for name in ("rings", "graphconv", "hub", "keep-all"))
    own = ["--selector", "hub", "--backbone", "gcn", "--per-class", 2]
    command("init", place / "hubs", "--method", "replay", *own, "--epochs", 20, *plugin)
    command("observe", place / "hubs", "--nodes", files[0][0], "--edges", files[0][1], *plugin)
    remembered = json.loads(command("inspect", place / "hubs", "--json", *plugin))["buffer"]
    assert [(row["class"], row["rank"]) for row in remembered] == [("0", 1), ("0", 2), ("1", 1), ("1", 2)]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        chosen = Path(sys.argv[1])
        chosen.mkdir(parents=True, exist_ok=True)
        main(chosen)
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
