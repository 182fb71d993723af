"""Tables with columns of every kind in a folder: exact in any order of updates, and nothing is left of what is gone."""

import csv
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ergnn
from ergnn.cli.main import main
from ergnn.config.errors import FormatError, InputError
from ergnn.data.tables import Columns, EdgeTable, NodeTable, read_edges, read_nodes, to_graph
from ergnn.folder import LearnerFolder, Settings
from ergnn.folder.database import FILE
from folder.growing import edges_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "customers" / "make_files.py"
SPLITS = ("train", "train", "test")
Rows = list[dict[str, Any]]
Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    customers, _ = runpy.run_path(str(EXAMPLE))["make_customers"](160, 0)
    return [row | {"split": SPLITS[i % 3], "week": None} for i, row in enumerate(customers)]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    _, payments = runpy.run_path(str(EXAMPLE))["make_customers"](160, 0)
    return [(a, b) for a, b, _ in payments]


def table(rows: Rows, path: Path) -> NodeTable:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [name for name in rows[0] if name != "week"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return read_nodes(path)


def probabilities(folder: LearnerFolder, ids: list[str]) -> np.ndarray:
    chunks = list(folder.predict(ids))
    order = np.argsort(chunks[0][1])
    return np.concatenate([chunk for _, _, chunk in chunks])[:, order]


def learned(root: Path, updates: list[Rows], pairs: Pairs) -> LearnerFolder:
    folder = LearnerFolder.create(root, Settings())
    known: set[str] = set()
    for number, rows in enumerate(updates):
        before, known = known, known | {row["id"] for row in rows}
        new = [pair for pair in pairs if set(pair) <= known and not set(pair) <= before]
        folder.observe(table(rows, root.parent / f"{root.name}-{number}.csv"), edges_of(*new) if new else None)
    return folder


def test_order_of_updates_corrections_and_deletion_are_exact(rows: Rows, pairs: Pairs, tmp_path: Path) -> None:
    ids = [row["id"] for row in rows]
    whole = learned(tmp_path / "whole", [rows], pairs)
    parts = [list(part) for part in np.array_split(np.array(rows, object), 4)]
    first, other = (learned(tmp_path / name, order, pairs) for name, order in (("a", parts), ("b", parts[::-1])))
    np.testing.assert_allclose(probabilities(first, ids), probabilities(whole, ids), atol=1e-8, rtol=0)
    np.testing.assert_allclose(probabilities(other, ids), probabilities(whole, ids), atol=1e-8, rtol=0)
    past = [{**row, "income": 1, "note": "an old note", "country": "Atlantis"} for row in rows[:30]]
    changed = learned(tmp_path / "changed", [[*past, *rows[30:90]], rows[90:], rows[:40]], pairs)
    np.testing.assert_allclose(probabilities(changed, ids), probabilities(whole, ids), atol=1e-8, rtol=0)
    assert [update["counts"]["changed"] for update in changed.inspect()["updates"]] == [0, 0, 30]
    assert b"Atlantis" in (changed.root / FILE).read_bytes()
    changed.purge()
    assert b"Atlantis" not in (changed.root / FILE).read_bytes()
    assert changed.check() == []
    with pytest.raises(InputError, match="with other features; they cannot change here, observe the change before"):
        next(changed.predict(nodes=table([past[0], {**past[1], "id": "new"}], tmp_path / "past.csv")))
    gone = ids[7:40:3]
    stays = [row for row in rows if row["id"] not in gone]
    first.forget(gone, purge=True)
    without = learned(tmp_path / "without", [stays], [pair for pair in pairs if not {*pair} & {*gone}])
    kept = [row["id"] for row in stays]
    np.testing.assert_allclose(probabilities(first, kept), probabilities(without, kept), atol=1e-8, rtol=0)
    assert first.check() == []


def test_new_values_and_missing_columns(rows: Rows, pairs: Pairs, tmp_path: Path) -> None:
    folder = learned(tmp_path / "f", [rows], pairs)
    new = {**rows[0], "id": "new", "country": "Narnia", "income": "", "note": ""}
    ((_, names, found),) = folder.predict(nodes=table([new], tmp_path / "new.csv"), edges=edges_of(("new", "c1")))
    assert sorted(names) == ["churned", "stays"]
    assert found.sum() == pytest.approx(1)
    turned = table([dict(reversed(new.items()))], tmp_path / "turned.csv")
    np.testing.assert_array_equal(next(folder.predict(nodes=turned, edges=edges_of(("new", "c1"))))[2], found)
    with pytest.raises(FormatError, match="earlier nodes; missing: 'note'"):
        folder.observe(table([{k: v for k, v in new.items() if k != "note"}], tmp_path / "short.csv"))
    with pytest.raises(FormatError, match="unknown: 'mood'; leave out what is unknown with --ignore-column"):
        folder.observe(table([{**new, "mood": "good"}], tmp_path / "long.csv"))
    with pytest.raises(FormatError, match="if column 'churn' holds the labels, use --label-column churn"):
        folder.observe(table([{**new, "churn": "yes"}], tmp_path / "churn.csv"))
    with pytest.raises(FormatError, match=r"row 1, column 'age': 'old'; a number is required"):
        folder.observe(table([{**new, "age": "old"}], tmp_path / "text.csv"))


@pytest.mark.parametrize("wanted", [(), ("id", "label", "age")], ids=["all kinds", "numbers alone"])
def test_an_exported_model_takes_the_table(wanted: tuple[str, ...], rows: Rows, pairs: Pairs, tmp_path: Path) -> None:
    if wanted:
        rows = [{name: row[name] or "40" for name in wanted} for row in rows]
    folder = learned(tmp_path / "f", [rows], pairs)
    ids = [row["id"] for row in rows]
    place = {name: i for i, name in enumerate(ids)}
    edges = torch.tensor([[place[a], place[b]] for a, b in pairs]).T
    module: Any = ergnn.load(folder.root)
    with torch.no_grad():
        logits = module(module.encode(tmp_path / "f-0.csv"), torch.cat([edges, edges.flip(0)], 1))
    found = torch.softmax(logits, 1)[:, np.argsort(module.classes)]
    np.testing.assert_allclose(found.numpy(), probabilities(folder, ids), atol=1e-5)


def test_kinds_can_be_told_and_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE))["write_files"](tmp_path, 200, 0)
    root, files = str(tmp_path / "f"), [str(tmp_path / f"{name}_1.csv") for name in ("nodes", "edges")]
    assert main(["init", root, "--columns", "age=category,note=ignore"]) == 0
    assert main(["observe", root, "--nodes", files[0], "--edges", files[1]]) == 0
    shown = capsys.readouterr().out
    for words in (
        ("age", "category", "as told"),
        ("note", "ignore", "left out"),
        ("signup", "date", "month and weekday"),
    ):
        assert any(all(word in line for word in words) for line in shown.splitlines()), (words, shown)
    with pytest.raises(InputError, match=r"unknown kind of column 'size': 'nmber' \(did you mean 'number'"):
        Settings.from_settings({"columns": {"size": "nmber"}})
    with pytest.raises(InputError, match="no column 'size' to read as number"):
        LearnerFolder.create(tmp_path / "g", Settings.from_settings({"columns": {"size": "number"}})).observe(
            read_nodes(files[0]), read_edges(files[1])
        )


def test_a_first_update_needs_labels_that_are_classes(rows: Rows, tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "f", Settings())
    numbers = [{**row, "label": 0.5 + i / 7} for i, row in enumerate(rows)]
    with pytest.raises(InputError, match=r"look like numbers to predict \('0.5', .* 160 distinct values of 160\)"):
        folder.observe(table(numbers, tmp_path / "numbers.csv"))
    unlabeled = [{key: value for key, value in row.items() if key != "label"} for row in rows]
    with pytest.raises(InputError, match=r"no node of the first update has a label.*name it with --label-column$"):
        folder.observe(table(unlabeled, tmp_path / "none.csv"))
    for name in ("churn", "Category", "y"):
        path = tmp_path / f"{name}.csv"
        asked = table([{**row, name: i % 2} for i, row in enumerate(unlabeled)], path)
        with pytest.raises(InputError, match=f"if column '{name}' holds the labels, use --label-column {name}"):
            folder.observe(asked)
        with pytest.raises(InputError, match=f"no node has a label; if column '{name}' holds the labels"):
            to_graph(asked, None)
    assert folder.inspect()["updates"] == []
    folder.observe(table([{**row, "category": f"type {i % 3}"} for i, row in enumerate(rows)], tmp_path / "both.csv"))
    new = table([{**unlabeled[0], "id": "new", "category": "type 1"}], tmp_path / "new.csv")
    assert probabilities(folder, ["c0"]).shape == next(folder.predict(nodes=new))[2].shape


def test_versions_and_ratings_are_classes_and_new_ones_are_announced(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = [f"n{i}" for i in range(40)]
    folder = LearnerFolder.create(tmp_path / "f", Settings())
    first = folder.observe(NodeTable(ids, ["gold", "silver", "1.5", "2.5"] * 10, features=rng.random((40, 30))))
    assert first["notes"] == ["there are no edges: nodes are predicted from their columns alone"]
    labels = ["golld", "zinc", "zinc", "3.5", "Silver", None]
    nodes = NodeTable([f"m{i}" for i in range(6)], labels, features=rng.random((6, 30)))
    path = tmp_path / "edges.csv"
    path.write_text("source,target,type,amount\nm0,n1,paid,3\nm1,m2,owes,4\n")
    notes = folder.observe(nodes, read_edges(path, columns=Columns(ignore=["amount"])))["notes"]
    assert [note for note in notes if "cannot be scored" not in note] == [
        "new class: 3.5 (1 node)",
        "new class: Silver (1 node); similar to silver, is it a typo?",
        "new class: golld (1 node); similar to gold, is it a typo?",
        "new class: zinc (2 nodes)",
        "columns of the edges that are not used: type",
    ]
    folder.forget(["m0"], purge=True)
    with folder.snapshot() as snapshot:
        kept = snapshot.records[1]["notes"]
    assert kept == [note for note in notes if "golld" not in note]


def first_update(tmp_path: Path, rows: list[str]) -> dict[str, Any]:
    tmp_path.mkdir()
    (tmp_path / "nodes.csv").write_bytes("\n".join(["id,label,city", *rows]).encode("latin-1"))
    folder = LearnerFolder.create(tmp_path / "new", Settings())
    return folder.observe(read_nodes(tmp_path / "nodes.csv"), EdgeTable(["a0", "a1"], ["a1", "a2"]))


def test_mistakes_in_a_first_update_are_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"nodes\.csv, column 'city': not UTF-8 text; save the file as UTF-8"):
        first_update(tmp_path / "a", [f"a{i},x,Zürich" for i in range(20)])
    with pytest.raises(FormatError, match=r"no column tells nodes apart: city \(one value only\)"):
        first_update(tmp_path / "b", [f"a{i},x,Rom" for i in range(20)])
    cities = [["Rom", "Oslo"][i % 2] for i in range(40)]
    record = first_update(tmp_path / "c", [f"a{i},{['Yes', 'yes', 'no'][i % 3]},{c}" for i, c in enumerate(cities)])
    assert "2 classes differ from 'yes' in case only; are they one?" in record["notes"]
    record = first_update(tmp_path / "d", [f"a{i},yes,{c}" for i, c in enumerate(cities)])
    assert record["notes"] == ["there is one class only, so that every node is predicted to be of it"]
    record = first_update(tmp_path / "e", [f"a{i},k{i},{c}" for i, c in enumerate(cities)])
    only = "40 classes, such as 'k0', have one labeled node; are the labels numbers to predict, or ids?"
    assert record["notes"][0] == only
    labels = ["a;b", "a", "b|c", "[1]", "-1", "R&D, x"]
    record = first_update(tmp_path / "f", [f'a{i},"{labels[i % 6]}",{c}' for i, c in enumerate(cities)])
    assert record["notes"][:2] == [
        "class '-1' is a class like any other; where it means no label, leave the label empty",
        "is '[1]' several classes? a node has one class (docs/not-for.md)",
    ]
    later, folder = tmp_path / "later.csv", LearnerFolder(tmp_path / "e" / "new")
    for city, problem in {"Kiel": "only values that no earlier node has", "": "no values in this update"}.items():
        later.write_text("\n".join(["id,label,city", *(f"b{city}{i},,{city}" for i in range(10))]))
        assert f"column 'city' has {problem}" in folder.observe(later)["notes"]
    later.write_text("id,label,split,age\na,x,test,1\nb,y,val,2\nc,,train,3\n")
    with pytest.raises(InputError, match=r"later\.csv: all labels are held out by the column 'split'; some must be"):
        LearnerFolder.create(tmp_path / "g").observe(later)
    with pytest.raises(InputError, match=r"later\.csv: new nodes need the columns of earlier ones: 'city'"):
        folder.observe(read_nodes(later, columns=Columns(ignore=["age"])))
