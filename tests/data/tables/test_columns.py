"""Labels, ids and features mean the same whatever file or frame they come from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ergnn
from ergnn.cli.main import main
from ergnn.config.errors import InputError
from ergnn.data.tables import Columns, EdgeTable, FormatError, Limits, NodeTable, read_edges, read_nodes, read_tables
from ergnn.data.tables.node_tables import canonical
from ergnn.folder import LearnerFolder

FORMS: dict[Any, str | None] = {
    "1": "1",
    "1.0": "1",
    "1.": "1",
    " 1 ": "1",
    "-3.00": "-3",
    "-0.0": "0",
    "1e+16": "10000000000000000",
    "1.5e+3": "1500",
    "12345678901234567890.0": "12345678901234567890",
    "1e5": "1e5",
    "1.25e+1": "1.25e+1",
    "07": "07",
    "07.0": "07.0",
    "1.5": "1.5",
    "TRUE": "True",
    "false": "False",
    "truth": "truth",
    "  ": None,
    2.0: "2",
    1e16: "10000000000000000",
    np.float32(0.1): "0.1",
    np.bool_(False): "False",
    float("nan"): None,
    None: None,
}


@pytest.mark.parametrize("value", FORMS)
def test_canonical_text(value: Any) -> None:
    assert canonical(value) == FORMS[value]
    assert NodeTable(ids=["a"], labels=[value]).labels.tolist() == [FORMS[value]]
    if FORMS[value] is not None:
        assert canonical(FORMS[value]) == FORMS[value]
        assert EdgeTable([value], ["b"]).source.tolist() == [FORMS[value]]


DIGITS = st.text("0123456789", min_size=1, max_size=4) | st.integers(-(10**25), 10**25).map(str)
UNLIKE = st.sampled_from(["+7", "-0", " 7", "7 ", "0x10", "7.0", "1e3", "٣", "a"])


@pytest.mark.parametrize("kind", ["csv", "arrow"])
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(DIGITS, min_size=1, max_size=8), other=st.none() | UNLIKE)
def test_ids_of_digits_keep_their_text(ids: list[str], other: str | None, kind: str, tmp_path: Path) -> None:
    ids = ids if other is None else [*ids, other]
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{v},{v}\n" for v in ids), encoding="utf-8")
    edges = read_edges(tmp_path / "edges.csv" if kind == "csv" else pa.table({"source": ids, "target": ids}))
    assert edges.source.tolist() == edges.target.tolist() == [canonical(v) for v in ids]


def written(frame: pd.DataFrame, kind: str, folder: Path) -> Any:
    path = folder / f"frame.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    elif kind == "pandas":
        return frame
    else:
        return {"polars": pl.from_pandas, "arrow": pa.Table.from_pandas}[kind](frame)
    return path


KINDS = ("csv", "parquet", "pandas", "polars", "arrow")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 1, 1], ["0", "1", "1"]),
        ([0, 1, np.nan], ["0", "1", None]),
        ([True, False, True], ["True", "False", "True"]),
        ([True, None, False], ["True", None, "False"]),
        (["x", None, " y "], ["x", None, "y"]),
        (["NA", "NaN", "null"], [None] * 3),
        (["nan", "None", "n/a"], [None, None, "n/a"]),
        (["x", "<NA>", "<na>"], ["x", None, "<na>"]),
        (pd.Categorical([0.0, 1.0, None]), ["0", "1", None]),
        (pd.array([0, None, 1], dtype="Int64"), ["0", None, "1"]),
        ([2.5, 1e15, 3.0], ["2.5", "1000000000000000", "3"]),
    ],
)
def test_labels_are_the_same_from_everywhere(labels: list[Any], expected: list[Any], kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": [7.0, 8.0, 9.0], "label": labels, "count": [1, 2, 3], "flag": [True, False, True]})
    nodes = read_nodes(written(frame, kind, tmp_path))
    assert nodes.labels.tolist() == expected
    assert nodes.ids.tolist() == ["7", "8", "9"]
    assert nodes.features.tolist() == [[1, 1], [2, 0], [3, 1]]
    assert nodes.feature_names == ("count", "flag")


@pytest.mark.parametrize("kind", KINDS)
def test_columns_can_be_named(kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"name": ["a", "b"], "y": [1, 2], "title": ["t", "u"], "x_1": [1, 2], "x_0": [3, 4], "part": ["train", None]}
    )
    found = written(frame, kind, tmp_path)
    nodes = read_nodes(found, columns=Columns(id="name", label="y", split="part", features=["x_*"]))
    found_columns = nodes.ids.tolist(), nodes.labels.tolist(), nodes.split.tolist()
    assert found_columns == (["a", "b"], ["1", "2"], ["train", None])
    assert (nodes.feature_names, nodes.features.tolist()) == (("x_1", "x_0"), [[1, 3], [2, 4]])
    ignored = Columns(id="name", label="y", ignore=["title", "part", "x_1"])
    assert read_nodes(found, columns=ignored).feature_names == ("x_0",)
    mixed = read_nodes(found, columns=Columns(id="name", label="y"))
    assert mixed.columns is not None
    assert (list(mixed.columns), mixed.num_features) == (["title", "x_1", "x_0", "part"], 0)
    with pytest.raises(FormatError, match="no column 'node'; columns are 'name', 'y'"):
        read_nodes(found, columns=Columns(id="node"))
    with pytest.raises(FormatError, match="no column 'z' that could be a feature"):
        read_nodes(found, columns=Columns(id="name", features=["z"]))
    edges = written(pd.DataFrame({"from": [1, 2], "to": [2.0, 3.0], "note": ["p", "q"]}), kind, tmp_path)
    table = read_edges(edges, columns=Columns(source="from", target="to"))
    assert (table.source.tolist(), table.target.tolist()) == (["1", "2"], ["2", "3"])


def test_an_index_of_pandas_is_not_a_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": ["a", "b", "c"], "f": [1.0, 2.0, 3.0]})
    part = frame[frame.f > 1]
    part.to_parquet(tmp_path / "part.parquet")
    for found in (tmp_path / "part.parquet", part):
        nodes = read_nodes(found)
        assert (nodes.ids.tolist(), nodes.feature_names) == (["b", "c"], ("f",))
    named = frame.set_index("id")
    named.to_parquet(tmp_path / "named.parquet")
    for found in (tmp_path / "named.parquet", named):
        assert read_nodes(found).ids.tolist() == ["a", "b", "c"]
    frame.to_csv(tmp_path / "index.csv")
    with pytest.raises(FormatError, match=r"column 1 has no name; .* index=False"):
        read_nodes(tmp_path / "index.csv")
    assert read_nodes(tmp_path / "index.csv", columns=Columns(ignore=[""])).feature_names == ("f",)
    pd.read_csv(tmp_path / "index.csv").to_csv(tmp_path / "unnamed.csv", index=False)
    part.reset_index().to_csv(tmp_path / "reset.csv", index=False)
    for name, problem in {"unnamed": "has no name", "reset": "is called 'index'"}.items():
        with pytest.raises(FormatError, match=rf"{name}.csv: column 1 {problem}.* index=False"):
            read_nodes(tmp_path / f"{name}.csv")
    assert read_nodes(tmp_path / "reset.csv", columns=Columns(features=["index"])).features.tolist() == [[1], [2]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "bits"), [("float64", 53), ("float32", 24)])
def test_floats_that_lost_digits_are_refused(dtype: str, bits: int, kind: str, tmp_path: Path) -> None:
    if kind == "csv" and dtype == "float32":
        pytest.skip("text has no type; pandas writes the digits of the 32-bit float")
    exact, lost = 2**bits - 1, np.array([2**bits, 2**bits + 1])
    assert len(set(lost.astype(dtype).tolist())) == 1
    for role in ("label", "source", "target"):
        frame = pd.DataFrame({"id": ["a", "b"], "label": ["x", "y"], "source": ["a", "b"], "target": ["b", "a"]})
        read = read_nodes if role == "label" else read_edges
        columns = Columns(ignore=["source", "target"] if role == "label" else [])
        assert len(read(written(frame.assign(**{role: lost}), kind, tmp_path), columns=columns)) == 2  # integers
        fits = frame.assign(**{role: np.array([1, exact], dtype)})
        table = read(written(fits, kind, tmp_path), columns=columns)
        assert getattr(table, "labels" if role == "label" else role).tolist() == ["1", str(exact)]
        rounded = frame.assign(**{role: -lost.astype(dtype)})
        with pytest.raises(
            FormatError, match=rf"column '{role}': '.*' is a float, .* 2\^{bits} .* integers or as text"
        ):
            read(written(rounded, kind, tmp_path), columns=columns)


def test_frames_of_mixed_values_and_other_objects() -> None:
    mixed = pd.DataFrame({"id": [1, "b", 3.0], "label": ["x", 2, None]}, dtype=object, index=[5, 9, 7])
    nodes = read_nodes(mixed)
    assert (nodes.ids.tolist(), nodes.labels.tolist()) == (["1", "b", "3"], ["x", "2", None])
    lists = read_nodes(pd.DataFrame({"id": [1, 2], "features": [np.array([1.0, 2.0]), np.array([3.0, 4.0])]}))
    assert (lists.features.tolist(), lists.feature_names) == ([[1, 2], [3, 4]], None)
    assert read_nodes(nodes) is nodes
    edges = EdgeTable(["a"], ["b"])
    assert read_edges(edges) is edges
    with pytest.raises(InputError, match="nodes: a list; a path, a pandas or polars DataFrame, or an Arrow table"):
        read_nodes([1, 2])


def test_a_folder_remembers_the_names_of_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{'ab'[i % 2]},t{i},{i % 7},{i % 3},u" for i in range(30)]
    for week, half in enumerate((rows[:20], rows[20:]), 1):
        Path(f"n{week}.csv").write_text("\n".join(["paper,y,title,x_0,x_1,z", *half, ""]))
        Path(f"e{week}.csv").write_text("from,to\n" + "".join(f"{row.split(',')[0]},{week}.0\n" for row in half))
    Path("other.csv").write_text("id\n3\n")
    Path("both.csv").write_text("who,paper\n3,30\n")
    assert main(["init", "f", "--id-column", "paper", "--label-column", "y", "--ignore-column", "z"]) == 0
    at_init = {"id": "paper", "label": "y", "ignore": ["z"]}
    assert LearnerFolder("f").columns.told() == at_init
    named = ["--source-column", "from", "--target-column", "to", "--feature-columns", "x_*"]
    assert main(["observe", "f", "--nodes", "n1.csv", "--edges", "e1.csv", *named, "--id-column", "nobody"]) == 2
    assert main(["observe", "f", "--nodes", "n1.csv", "--edges", "e1.csv", *named]) == 0
    told = {**at_init, "source": "from", "target": "to", "features": ["x_*"]}
    assert LearnerFolder("f").columns.told() == told
    assert main(["observe", "f", "--nodes", "n2.csv", "--edges", "e2.csv"]) == 0
    assert LearnerFolder("f").snapshot().records[1]["classes"] == ["a", "b"]
    answers = ["n2.csv", "other.csv", "both.csv --id-column who --ignore-column paper"]  # which may lack the names
    for answer in answers:
        assert main(f"predict f -o out.csv --nodes {answer}".split()) == 0
        assert main(f"explain f -o why.html --nodes {answer}".split()) == 0
    assert next(LearnerFolder("f").predict(nodes="n2.csv"))[0] == [str(i) for i in range(20, 30)]
    assert main(["export", "f", "-o", "m.safetensors"]) == 0
    assert ergnn.load("m.safetensors").encode("n2.csv").size(0) == 10
    assert main(["forget", "f", "--nodes", "other.csv"]) == 0
    assert LearnerFolder("f").columns.told() == told
    assert main(["rollback", "f", "--to", "0"]) == 0
    assert LearnerFolder("f").columns.told() == at_init


def test_what_is_missing_in_both_files_is_said_at_once(tmp_path: Path) -> None:
    frames = pd.DataFrame({"Customer": ["a"], "churn": [1]}), pd.DataFrame({"src": ["a"], "tgt": ["a"], "id": [1]})
    nodes = r"nodes: no column 'id'; columns are 'Customer', 'churn'; name it with --id-column, .*label-column churn"
    edges = r"edges: no columns 'source' and 'target'; .*'src', 'tgt', 'id' \(are the files of .* swapped\?\); name .*"
    with pytest.raises(FormatError, match=f"{nodes}; and {edges}--source-column and --target-column, or "):
        read_tables(*frames, Columns(), Limits())


def test_types_of_edges_are_weights_where_they_are_told(tmp_path: Path) -> None:
    file = tmp_path / "edges.csv"
    file.write_text("source,target,edge_type,weight\na,b,friend,1\nb,c,best friend,0.5\nc,a,friend,3\n")
    told = Columns(type_weights={"friend": 2, "best friend": 0.5, "unused": 1})
    assert read_edges(file, columns=told).weight.tolist() == [2, 0.25, 6]  # type: ignore[union-attr]
    assert read_edges(file, columns=told).ignored == ()
    without = replace(told, ignore=["weight"])
    assert read_edges(file, columns=without).weight.tolist() == [2, 0.5, 2]  # type: ignore[union-attr]
    assert read_edges(file).ignored == ("edge_type",)
    with pytest.raises(FormatError, match=r"edges.csv, column 'edge_type': edges of type 'best friend' have no weight"):
        read_edges(file, columns=Columns(type_weights={"friend": 2}))
    file.write_text("source,target,edge_type\na,b,friend\nb,c,\n")
    with pytest.raises(FormatError, match="an edge has no type"):
        read_edges(file, columns=told)
    with pytest.raises(FormatError, match=r"no column 'kind'.*--type-column"):
        read_edges(file, columns=replace(told, type="kind"))


def test_a_folder_remembers_the_weights_of_types(tmp_path: Path) -> None:
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    nodes.write_text("id,label,age\n" + "".join(f"n{i},{'xy'[i % 2]},{i}\n" for i in range(20)))
    edges.write_text("source,target,type\nn1,n2,friend\nn2,n3,payment\n")
    main(["init", str(tmp_path / "folder"), "--edge-type-weights", "friend=2,payment=0.5"])
    main(["observe", str(tmp_path / "folder"), "--nodes", str(nodes), "--edges", str(edges)])
    with LearnerFolder(tmp_path / "folder").snapshot() as snapshot:
        weights = snapshot.graph.neighbors(snapshot.graph.nodes())[2]
    assert sorted(weights.tolist()) == [0.5, 0.5, 2, 2]
