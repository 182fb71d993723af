"""What is wrong with a table is said: the file, the place in it, the value and what is allowed."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from ergnn.data.formats import EdgeTable, FormatError, Limits, NodeTable, read_edges, read_nodes, to_graph, write_nodes
from ergnn.errors import InputError

NODES = {
    "": "the file is empty",
    "\n\n": "no header; the file has only empty lines",
    "id,a\n": "a header and no nodes",
    "name,a\nx,1\n": "no column 'id'; columns are 'name', 'a'",
    "id;a\nx;1\n": "no column 'id'; columns are 'id;a': values are separated by commas",
    "id,a,a\nx,1,2\n": "column 'a' stands there twice, as column 2 and 3",
    "id,Label,label\nx,1,2\n": "column 'label' stands there twice, as column 2 and 3",
    "id,,a\nx,1,2\n": "column 2 has no name",
    "id,class\nx,1\n": "column 'class' would be read as a feature, but looks like a label; call it 'label'",
    "id,features,feature_0\nx,1:1,1\n": "both a column 'features' and a column 'feature_0'",
    "id,a\nx,1\ny,2\nx,3\n": "line 4: id 'x' stands there again, first in PATH, line 2",
    "id,a\n,1\n": "line 2: id is empty",
    "id,a\nx,1,2\n": "line 2: 3 fields; the header has 2 columns",
    "id,a\nx,1\n\ny\n": "line 4: 1 fields; the header has 2 columns",
    "id,a,b\nx,1,two\n": "line 2, column 'b': 'two' is not a finite number",
    "id,a\nx,\n": "line 2, column 'a': '' is not a finite number",
    "id,a\nx,nan\n": "line 2, column 'a': 'nan' is not a finite number",
    "id,a\nx,-inf\n": "line 2, column 'a': '-inf' is not a finite number",
    "id,a\nx,1_0\n": "line 2, column 'a': '1_0' is not a finite number",
    "id,a\nx,٣\n": "line 2, column 'a': '٣' is not a finite number",
    "id,a\nx,0\ny,1e39\n": "line 3: feature 0 is inf; features must be finite numbers of 32 bits",
    'id,features\nx,"[1, 2]"\ny,"[1]"\n': "line 3: 1 features; 2 are needed",
    'id,features\nx,"[1, q]"\n': "line 2, column 'features': ' q' is not a finite number",
    'id,features\nx,"[1, 2"\n': "line 2, column 'features': the list '[1, 2' has no closing bracket",
    'id,features\nx,"[1, 2]"\ny,0:1\n': "line 3, column 'features': '0:1'; nodes before it have lists",
    'id,features\nx,0:1\ny,"[1, 2]"\n': "line 3, column 'features': a list; nodes before it have sparse text",
    'id,features\nx,\ny,"[1, 2]"\n': "line 3, column 'features': a list; nodes before it have none",
    "id,features\nx,-1:2\n": "'-1:2'; sparse features are written index:value, with indices from 0",
    "id,features\nx,3:2 3\n": "'3'; sparse features are written index:value",
    "id,features\nx,3:a\n": "'3:a' has no finite number after the colon",
    "id,features\nx,3:1 0:1 3:2\n": "line 2, column 'features': index 3 stands there twice",
    "id,features\nx,1000000:1\n": "line 2, column 'features': index 1000000 is out of range; 0 to 999999 are allowed",
    "id,split\nx,training\n": "line 2: split is 'training'; allowed are train, val, test, or nothing",
    "id,time\nx,yesterday\n": "line 2, column 'time': 'yesterday' is neither a finite number nor a date",
    "id,time\nx,2024-13-01\n": "line 2, column 'time': '2024-13-01' is neither",
    "id,time\nx,2024\ny,2024-01-01\n": "line 3, column 'time': '2024-01-01' is a date; the column began with a number",
    'id,label\nx,"a\ny,b\n': "line 2: a quote is opened and never closed",
    'id,label\nx,a"b"\n': "line 2, field 2: a quote or a carriage return in the middle of a field",
    "id,label\rx,a\r": "line 1, field 2: a quote or a carriage return in the middle of a field",
    "id,label\nx,a\0\n": "line 2: a NUL byte; this is not a text file",
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
    "source,to\na,b\n": "no column 'target'; columns are 'source', 'to'",
    "source,target\na,\n": "line 2: target is empty",
    "source,target,weight\na,b,heavy\n": "line 2, column 'weight': 'heavy' is not a finite number",
    "source,target,weight\na,b,\n": "line 2, column 'weight': '' is not a finite number",
    "source,target,time\na,b,1\na,b,nan\n": "line 3, column 'time': 'nan' is neither",
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
    "id not whole": ({"id": [1.5]}, "row 1, column 'id': 1.5 is neither text nor a whole number"),
    "id of bytes": ({"id": [b"a"]}, "column 'id': values are of type binary; text or whole numbers are needed"),
    "feature missing": ({"id": [1, 2], "a": [1.0, None]}, "row 2, column 'a': nothing; a finite number is needed"),
    "feature text": ({"id": [1], "title": ["x"]}, "column 'title': values are of type string; numbers are needed"),
    "feature nan": ({"id": [1, 2], "a": [0.0, float("nan")]}, "row 2, column 'a': nan; a finite number is needed"),
    "list missing": ({"id": [1, 2], "features": [[1.0], None]}, "row 2, column 'features': no list"),
    "list ragged": ({"id": [1, 2], "features": [[1.0], [1.0, 2.0]]}, "row 2: 2 features; 1 are needed"),
    "list gap": ({"id": [1], "features": [[1.0, None]]}, "row 1, column 'features': nothing at place 2"),
    "time a list": ({"id": [1], "time": [[1]]}, "column 'time': values are of type list"),
    "split unknown": ({"id": [1], "split": ["dev"]}, "row 1: split is 'dev'; allowed are train, val, test"),
}


@pytest.mark.parametrize("name", PARQUET)
def test_a_parquet_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    columns, message = PARQUET[name]
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    with pytest.raises(FormatError) as caught:
        read_nodes(tmp_path / "nodes.parquet")
    assert message in str(caught.value)
    assert "nodes.parquet" in str(caught.value)


def test_files_that_are_not_there_or_not_what_they_say(tmp_path: Path) -> None:
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
    (tmp_path / "text.parquet").write_text("id\n1\n")
    with pytest.raises(FormatError, match=r"text\.parquet: not a Parquet file; it does not begin with PAR1"):
        read_nodes(tmp_path / "text.parquet")
    (tmp_path / "plain.csv.gz").write_text("id\n1\n")
    with pytest.raises(FormatError, match=r"plain\.csv\.gz: cannot be read after 0 bytes \(Not a gzipped file"):
        read_nodes(tmp_path / "plain.csv.gz")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"id\n" + b"12345\n" * 9)[:-9])
    with pytest.raises(FormatError, match=r"cut\.csv\.gz: cannot be read"):
        read_nodes(tmp_path / "cut.csv.gz")
    (tmp_path / "latin.csv").write_bytes("id\nx\nMüller\n".encode("latin-1"))
    with pytest.raises(FormatError, match="line 3: byte 0xfc at place 2 is not UTF-8"):
        read_nodes(tmp_path / "latin.csv")


def test_parquet_needs_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"reading Parquet files needs pyarrow.*pip install 'ergnn\[parquet\]'"):
        read_nodes(tmp_path / "nodes.parquet")


def test_limits_are_named(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("id,a,b\n1,2,3\n2,3,4\n3,4,5\n")
    with pytest.raises(FormatError, match=r"line 4: 3 nodes; at most 2 are allowed \(limit 'nodes'\)"):
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
    long = tmp_path / "long.csv"
    long.write_text("id,label\nx," + "y" * 70_000 + "\n")
    with pytest.raises(FormatError, match=r"line 2: longer than 65,568 bytes, enough for 1 features"):
        read_nodes(long, limits=Limits(features=1))
    with pytest.raises(InputError, match="the limit on nodes is 0; a whole number of at least 1 is needed"):
        Limits(nodes=0)


def test_a_number_of_features_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("id,a,b\n1,2,3\n")
    assert read_nodes(path, num_features=2).features.tolist() == [[2, 3]]
    with pytest.raises(FormatError, match="2 columns of features; 3 are needed"):
        read_nodes(path, num_features=3)
    path.write_text("id\n1\n")
    assert read_nodes(path).features.shape == (1, 0)
    with pytest.raises(FormatError, match="no features; 3 a node are needed"):
        read_nodes(path, num_features=3)
    path.write_text("id,features\n1,0:2 4:1\n2,\n")
    assert read_nodes(path).features.shape == (2, 5)
    assert read_nodes(path, num_features=9).features.toarray().tolist() == [[2, 0, 0, 0, 1, 0, 0, 0, 0], [0] * 9]
    with pytest.raises(FormatError, match="index 4 is out of range; 0 to 3 are allowed"):
        read_nodes(path, num_features=4)


def test_what_columns_mean(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(
        '\ufeffID, Label ,title,feature_b,Feature_a\r\n7,,On graphs,1,2\r\n08,x,"a ""b""",3,4\r\n'.encode()
    )
    nodes = read_nodes(path)
    assert nodes.ids.tolist() == ["7", "08"]
    assert nodes.labels.tolist() == [None, "x"]
    assert nodes.features.tolist() == [[1, 2], [3, 4]]
    assert nodes.feature_names == ("feature_b", "Feature_a")
    path.write_text("id,time\n1,1970-01-02\n2,1970-01-01T00:00:01.5Z\n3,1970-01-01 01:00+01:00\n4,\n")
    time = read_nodes(path).time
    assert time is not None
    np.testing.assert_array_equal(time, [86400, 1.5, 0, np.nan])
    path.write_text("id,time\n1,2010\n2,1964\n")
    assert read_nodes(path).time.dtype == np.int64


def test_parquet_types_become_text_and_numbers(tmp_path: Path) -> None:
    import datetime

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
    assert nodes.domain is not None
    assert nodes.domain.tolist() == ["a", "b"]
    assert nodes.features.tolist() == [[1, 7], [0, 9]]


def test_tables_check_what_they_are_built_from() -> None:
    with pytest.raises(FormatError, match="row 3: id 'a' stands there again, first in row 1"):
        NodeTable(ids=np.array(["a", "b", "a"]))
    with pytest.raises(FormatError, match="row 1: id is '\\\\ud800'; text must be valid Unicode"):
        NodeTable(ids=["\ud800"])
    with pytest.raises(FormatError, match=r"labels has shape \[1\]; \[2\] is needed"):
        NodeTable(ids=[1, 2], labels=["x"])
    with pytest.raises(FormatError, match="row 2: feature 1 is nan"):
        NodeTable(ids=[1, 2], features=scipy.sparse.csr_matrix([[0, 0], [1, np.nan]]))
    with pytest.raises(FormatError, match="features have 1 rows; there are 2 nodes"):
        NodeTable(ids=[1, 2], features=np.zeros((1, 3)))
    with pytest.raises(FormatError, match="row 1: weight is inf"):
        EdgeTable(source=["a"], target=["b"], weight=np.array([np.inf]))
    nodes = NodeTable(ids=np.array([5, 3]), labels=np.array([1, 0]))
    assert nodes.ids.tolist() == ["5", "3"]
    assert nodes.labels.tolist() == ["1", "0"]


def test_sparse_features_are_put_in_order() -> None:
    messy = scipy.sparse.csr_matrix(([1.0, 2.0, 3.0], [2, 0, 2], [0, 3]), shape=(1, 3))
    nodes = NodeTable(ids=["a"], features=messy)
    assert nodes.features.indices.tolist() == [0, 2]
    assert nodes.features.toarray().tolist() == [[2, 0, 4]]
    assert messy.indices.tolist() == [2, 0, 2]
    to_graph(nodes, None)


def test_names_that_would_be_read_otherwise_are_not_written(tmp_path: Path) -> None:
    features = np.zeros((1, 2))
    with pytest.raises(InputError, match="would be read as the only ones"):
        write_nodes(
            NodeTable(ids=["a"], features=features, feature_names=("feature_0", "b")),
            tmp_path / "nodes.csv",
        )
    with pytest.raises(FormatError, match="column 'y' would be read as a feature"):
        write_nodes(
            NodeTable(ids=["a"], features=features, feature_names=("a", "y")),
            tmp_path / "nodes.csv",
        )
    with pytest.raises(InputError, match="choose one of: columns, list, sparse"):
        write_nodes(NodeTable(ids=["a"]), tmp_path / "nodes.csv", features="rows")


def test_what_a_parquet_file_claims_is_what_pyarrow_sees(tmp_path: Path) -> None:
    path = tmp_path / "nodes.parquet"
    table = {"id": list("abcde"), "a.b": range(5), "features": [[1.0] * i for i in range(5)]}
    pq.write_table(pa.table(table), path, row_group_size=2)
    claimed = {name: claim.values for name, claim in claims(path, path.stat().st_size).items()}
    metadata = pq.read_metadata(path)
    seen = dict.fromkeys(table, 0)
    for g in range(metadata.num_row_groups):
        for c, name in enumerate(table):
            seen[name] += metadata.row_group(g).column(c).num_values
    assert claimed == {name.encode(): count for name, count in seen.items()}
    assert seen["features"] > 10


@pytest.mark.parametrize(
    ("footer", "message"),
    [
        (b"", "the metadata of the Parquet file is damaged"),
        (b"\x19" * 200, "nested more than 24 deep"),
        (b"\x19\xfc\xff\xff\xff\xff\x0f", "4,294,967,295 values, with 0 bytes left"),
        (b"\x18\xff\xff\xff\x7f", "268,435,455 values, with 0 bytes left"),
        (b"\x16" + b"\xff" * 12, "a number is too long"),
        (b"\x1d\x00", "a value of kind 13"),
    ],
)
def test_a_damaged_footer(footer: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "nodes.parquet"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(FormatError) as caught:
        read_nodes(path)
    assert message in str(caught.value)


def test_a_footer_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "nodes.parquet"
    for content in (b"PAR1" + b"\xff\xff\xff\x7fPAR1", b"PAR1\0\0\0\0\0\0\0\0PARE"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match="not a whole Parquet file; its footer is not at the end"):
            read_nodes(path)
