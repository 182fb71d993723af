"""Errors of tables name the file, the position in it, the value and what is allowed."""

import datetime
import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from ergnn.config.errors import InputError
from ergnn.data.tables import (
    Columns,
    EdgeTable,
    FormatError,
    Limits,
    NodeTable,
    read_edges,
    read_nodes,
    to_graph,
    write_nodes,
)

NODES = {
    "": "the file is empty",
    "\n\n": "no header; the file has only empty lines",
    "id,a\n": "no nodes",
    "PK\x03\x04...": "a zip archive, as Excel writes them; save the table as CSV",
    "PAR1...": "a Parquet file; its name must end in .parquet",
    "source,target\nx,y\n": "columns are 'source', 'target' (are the files of nodes and edges swapped?)",
    "x,7\ny,8\n": "columns are 'x', '7' (is the header missing? the first line must name the columns)",
    "name,a\nx,1\n": "no column 'id'; columns are 'name', 'a'; name it with --id-column",
    "id;a\nx;1\n": "no column 'id'; columns are 'id;a' (separated by ';'? values are separated by commas",
    "id,a,a\nx,1,2\n": "column 'a' occurs twice, as column 2 and 3",
    "id,Label,label\nx,1,2\n": "columns 'Label', 'label' could all be the label; name it with --label-column",
    ",id,a\n0,x,2\n": "column 1 has no name; if it is the index of a pandas frame, write the file with index=False",
    "id,features,feature_0\nx,1:1,1\n": "features both in 'features' and in 'feature_0'",
    "id,a\nx,1\ny,2\nx,3\n": "row 3: id 'x' occurs again, first in row 1",
    "id,a\n7,1\n7.0,2\n": "row 2: id '7' occurs again, first in row 1",
    "id,a\n,1\n": "row 1: id is missing",
    "id,a\nx,1,2\n": "row 1: Expected 2 columns, got 3: x,1,2; a value with ',' in it needs quotes",
    "id,a\nx,1\n\ny\n": "row 2: Expected 2 columns, got 1: y",
    "id,feature_a,feature_b\nx,1,two\n": "row 1, column 'feature_b': 'two' is not a number; a finite number is "
    "required; if this is not a feature, name the feature columns with --feature-columns, or leave this one out with "
    "--ignore-column",
    "id,feature_a\nx,\n": "row 1, column 'feature_a': the value is missing",
    "id,feature_a\nx,-inf\n": "row 1, column 'feature_a': -inf; a finite number is required",
    "id,feature_a\nx,٣\n": "row 1, column 'feature_a': '٣' is not a number",
    "id,a\nx,0\ny,1e39\n": "row 2, column 'a': 1e+39 does not fit into 32 bits; a finite number is required",
    'id,features\nx,"[1, 2]"\n': "row 1, column 'features': '[1, 2]' is not a number",
    'id,features\nx,0:1\ny,"[1, 2]"\n': "row 2, column 'features': '[1,'; sparse features are index:value pairs",
    "id,features\nx,\ny,3:2 3\n": "row 2, column 'features': '3'; sparse features are index:value pairs",
    "id,features\nx,3:a\n": "row 1, column 'features': 'a' is not a number",
    "id,features\nx,3:1 0:1 3:2\n": "row 1, column 'features': index 3 occurs twice",
    "id,features\nx,1000000:1\n": "row 1, column 'features': index 1000000 is out of range; 0 to 999999 are allowed",
    "id,split\nx,training\n": "row 1: split is 'training'; allowed are train, val, test, or empty",
    "id,time\nx,yesterday\n": "row 1, column 'time': 'yesterday' is neither a number nor a date",
    "id,time\nx,2024\ny,2024-01-01\n": "row 2, column 'time': '2024-01-01' is neither a number nor a date such as",
    'id,label\nx,"a\ny,b\n': "a quote is opened and never closed",
    "id,label\nx,a\0\n": "row 1: label is 'a\\x00'; text must be valid Unicode without NUL",
}


@pytest.mark.parametrize("text", NODES)
def test_a_table_of_nodes_that_cannot_be_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(text.encode())
    with pytest.raises(FormatError) as caught:
        read_nodes(path)
    assert NODES[text].replace("PATH", str(path)) in str(caught.value)
    assert str(caught.value).startswith(str(path))


EDGES = {
    "source,to\na,b\n": "no column 'target'; columns are 'source', 'to'; name it with --target-column",
    "source,target\na,\n": "row 1: target is missing",
    "source,target,Weight\na,b,x\n": "row 1, column 'Weight': 'x' is not a number",
    "source,target,weight,Edge_Weight\na,b,1,2\n": "columns 'weight', 'Edge_Weight' could all be the weight",
}


@pytest.mark.parametrize("text", EDGES)
def test_a_table_of_edges_that_cannot_be_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError) as caught:
        read_edges(path)
    assert EDGES[text] in str(caught.value)


PARQUET = {
    "no nodes": ({"id": pa.array([], pa.string())}, "no nodes"),
    "id missing": ({"id": ["a", None]}, "row 2: id is missing"),
    "list of a table": ({"id": [1], "a": [[1]]}, "numbers, text or dates are required; a list per node must be in a"),
    "time of day": ({"id": [1], "a": [datetime.time(1)]}, "values are of type time64[us]; numbers, text or dates are"),
    "id of bytes": ({"id": [b"a"]}, "column 'id': cannot be read as text (values are of type binary"),
    "feature missing": ({"id": [1, 2], "feature_a": [1.0, None]}, "row 2, column 'feature_a': the value is missing"),
    "feature date": (
        {"id": [1], "feature_a": [datetime.date(2024, 1, 1)]},
        "values are of type date32[day]; numbers are",
    ),
    "list missing": ({"id": [1, 2], "features": [[1.0], None]}, "row 2, column 'features': no list"),
    "list ragged": ({"id": [1, 2], "features": [[1.0], [1.0, 2.0]]}, "row 2, column 'features': 2 features; 1 are"),
    "list gap": ({"id": [1, 2], "features": [[1.0, 2.0], [1.0, None]]}, "row 2, column 'features': the value is miss"),
    "struct": ({"id": [1], "features": [{"a": 1.0}]}, "column 'features': cannot be read as lists of numbers"),
    "time a list": ({"id": [1], "time": [[1]]}, "column 'time': cannot be read as times (values are of type list"),
}


@pytest.mark.parametrize("name", PARQUET)
def test_a_parquet_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    columns, message = PARQUET[name]
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    with pytest.raises(FormatError) as caught:
        read_nodes(tmp_path / "nodes.parquet")
    assert message in str(caught.value)
    assert "nodes.parquet" in str(caught.value)


def test_files_that_are_missing_or_have_the_wrong_suffix(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none\.csv: cannot be read \(No such file"):
        read_nodes(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FormatError, match=r"folder\.csv: not a file, but a folder"):
        read_nodes(tmp_path / "folder.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(FormatError, match=r"pipe\.csv: not a file"):
        read_nodes(tmp_path / "pipe.csv")
    (tmp_path / "nodes.xls").write_text("id\n1\n")
    with pytest.raises(FormatError, match=r"names end in \.csv, \.tsv, \.csv\.gz, \.tsv\.gz, \.parquet"):
        read_nodes(tmp_path / "nodes.xls")
    for name, content in {"text": b"id\n1\n", "cut": b"PAR1" + bytes(9), "claim": b"PAR1\xff\xff\xff\x7fPAR1"}.items():
        (tmp_path / f"{name}.parquet").write_bytes(content)
        with pytest.raises(FormatError, match=rf"{name}\.parquet: cannot be read as a Parquet file .*\(Parquet"):
            read_nodes(tmp_path / f"{name}.parquet")
    (tmp_path / "plain.csv.gz").write_text("id\n1\n")
    with pytest.raises(FormatError, match=r"plain\.csv\.gz: cannot be read as text \(Not a gzipped file"):
        read_nodes(tmp_path / "plain.csv.gz")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"id\n" + b"12345\n" * 9)[:-9])
    with pytest.raises(FormatError, match=r"cut\.csv\.gz: cannot be read"):
        read_nodes(tmp_path / "cut.csv.gz")
    (tmp_path / "latin.csv").write_bytes("id\nx\nMüller\n".encode("latin-1"))
    with pytest.raises(FormatError, match=r"latin\.csv: cannot be read as a table \(.*invalid UTF8 data"):
        read_nodes(tmp_path / "latin.csv")


def test_limits_are_named(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("id,a,b\n1,2,3\n2,3,4\n3,4,5\n")
    with pytest.raises(FormatError, match=r"3 nodes; at most 2 are allowed \(limit 'nodes'\)"):
        read_nodes(path, limits=Limits(nodes=2))
    with pytest.raises(FormatError, match=r"2 features; at most 1 are allowed \(limit 'features'\)"):
        read_nodes(path, limits=Limits(features=1))
    path.write_bytes(b"x" * (1 << 21))
    with pytest.raises(FormatError, match=r"the file has 2 MB; at most 1 are allowed \(limit 'megabytes'\)"):
        read_nodes(path, limits=Limits(megabytes=1))
    edges = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"source": [1, 2], "target": [2, 3]}), edges)
    with pytest.raises(FormatError, match=r"2 edges; at most 1 are allowed \(limit 'edges'\)"):
        read_edges(edges, limits=Limits(edges=1))
    wide = tmp_path / "wide.csv"
    wide.write_text("id," + ",".join(map(str, range(200))) + "\n")
    with pytest.raises(FormatError, match=r"201 columns take 2 MB; at most 1 are allowed \(limit 'megabytes'\)"):
        read_nodes(wide, limits=Limits(megabytes=1))
    many = tmp_path / "many.csv"
    many.write_text("id,a,b\n" + "1,2,3\n" * 100_000)
    with pytest.raises(FormatError, match=r"its values take 3 MB; at most 1 are allowed \(limit 'megabytes'\)"):
        read_nodes(many, limits=Limits(megabytes=1))
    with pytest.raises(InputError, match="the limit on nodes is 0; an integer of at least 1 is required"):
        Limits(nodes=0)


def test_a_number_of_features_can_be_required(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("id,a,b\n1,2,3\n")
    assert read_nodes(path, num_features=2).features.tolist() == [[2, 3]]
    with pytest.raises(FormatError, match="2 feature columns; 3 are required"):
        read_nodes(path, num_features=3)
    path.write_text("id\n1\n")
    assert read_nodes(path).features.shape == (1, 0)
    with pytest.raises(FormatError, match="0 feature columns; 3 are required"):
        read_nodes(path, num_features=3)
    path.write_text("id,features\n1,0:2 4:1\n2,\n")
    assert read_nodes(path).features.shape == (2, 5)
    assert read_nodes(path, num_features=9).features.toarray().tolist() == [[2, 0, 0, 0, 1, 0, 0, 0, 0], [0] * 9]
    with pytest.raises(FormatError, match="index 4 is out of range; 0 to 3 are allowed"):
        read_nodes(path, num_features=4)


def test_a_column_of_edge_weights_is_read_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("source,target,Edge_Weight,year\na,b,2,1999\n")
    weights = [read_edges(path, columns=c).weight for c in (Columns(), Columns(weight="year"))]
    assert [w.tolist() for w in weights if w is not None] == [[2], [1999]]
    edges = read_edges(path, columns=Columns(ignore=["Edge_Weight"]))
    assert (edges.source.tolist(), edges.target.tolist(), edges.weight) == (["a"], ["b"], None)
    path.write_text("source,weight\na,b\n")  # by name, any column may be the target
    assert read_edges(path, columns=Columns(target="weight")).target.tolist() == ["b"]


def test_roles_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(
        '\ufeffID, Label ,title,feature_b,Feature_a\r\n7,,On graphs,1,2\r\n08,x,"a ""b""",3,4\r\n'.encode()
    )
    nodes = read_nodes(path)
    assert nodes.ids.tolist() == ["7", "08"]
    assert nodes.labels.tolist() == [None, "x"]
    assert nodes.features.tolist() == [[1, 2], [3, 4]]
    assert nodes.feature_names == ("feature_b", "Feature_a")
    path.write_text("id,time\n1,1970-01-02T00Z\n2,1970-01-01T00:00:01Z\n3,1970-01-01 01:00+01:00\n4,\n")
    time = read_nodes(path).time
    assert time is not None
    np.testing.assert_array_equal(time, [86400, 1, 0, np.nan])
    path.write_text("id,time\n1,2010\n2,1964\n")
    assert read_nodes(path).time.dtype == np.int64


def test_parquet_types_become_text_and_numbers(tmp_path: Path) -> None:
    day = datetime.datetime(1970, 1, 2, tzinfo=datetime.timezone.utc)
    table = {
        "id": pa.array([3, 1], pa.int32()),
        "label": pa.array([2.0, None]),
        "time": pa.array([day, None], pa.timestamp("ms", "UTC")),
        "domain": pa.array(["a", "b"]).dictionary_encode(),
        "flag": pa.array([True, False]),
        "count": pa.array([7, 9], pa.uint8()),
    }
    pq.write_table(pa.table(table), tmp_path / "nodes.parquet")
    nodes = read_nodes(tmp_path / "nodes.parquet")
    assert (nodes.ids.tolist(), nodes.labels.tolist()) == (["3", "1"], ["2", None])
    np.testing.assert_array_equal(nodes.time, [86400, np.nan])
    assert nodes.domain.tolist() == ["a", "b"]
    assert nodes.features.tolist() == [[1, 7], [0, 9]]


def test_tables_check_what_they_are_built_from() -> None:
    with pytest.raises(FormatError, match="row 3: id 'a' occurs again, first in row 1"):
        NodeTable(ids=np.array(["a", "b", "a"]))
    with pytest.raises(FormatError, match="row 1: id is '\\\\ud800'; text must be valid Unicode"):
        NodeTable(ids=["\ud800"])
    with pytest.raises(FormatError, match=r"labels has shape \[1\]; \[2\] is required"):
        NodeTable(ids=[1, 2], labels=["x"])
    with pytest.raises(FormatError, match="row 2: feature 1 is nan"):
        NodeTable(ids=[1, 2], features=scipy.sparse.csr_matrix([[0, 0], [1, np.nan]]))
    with pytest.raises(FormatError, match=r"features have shape \[1, 3\]; \[2, features\] is required"):
        NodeTable(ids=[1, 2], features=np.zeros((1, 3)))
    with pytest.raises(FormatError, match=r"target has shape \[1\]; \[2\] is required"):
        EdgeTable(source=["a", "b"], target=["b"])
    nodes = NodeTable(ids=np.array([5, 3]), labels=np.array([1, 0]))
    assert nodes.ids.tolist() == ["5", "3"]
    assert nodes.labels.tolist() == ["1", "0"]


def test_sparse_features_are_sorted_and_merged() -> None:
    messy = scipy.sparse.csr_matrix(([1.0, 2.0, 3.0], [2, 0, 2], [0, 3]), shape=(1, 3))
    nodes = NodeTable(ids=["a"], features=messy)
    assert nodes.features.indices.tolist() == [0, 2]
    assert nodes.features.toarray().tolist() == [[2, 0, 4]]
    assert messy.indices.tolist() == [2, 0, 2]
    to_graph(nodes, None)


def test_names_that_would_be_read_otherwise_are_not_written(tmp_path: Path) -> None:
    features = np.zeros((1, 2))
    with pytest.raises(InputError, match="would be read as the only ones"):
        write_nodes(NodeTable(ids=["a"], features=features, feature_names=("feature_0", "b")), tmp_path / "nodes.csv")
