"""Written tables are read back, whatever the ids and labels are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ergnn.data.tables import (
    Columns,
    EdgeTable,
    NodeTable,
    read_edges,
    read_graph,
    read_nodes,
    to_graph,
    write_edges,
    write_nodes,
)
from ergnn.data.tables.node_tables import canonical
from ergnn.data.tables.read import NO_LABEL

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
AWKWARD = st.sampled_from(
    ['"', '""', ",", "\t", "\n", "\r", "\r\n", " a", "a ", "#", "None", "nan", "\ufeff", "🙂", "é"]
)
WORD = (TEXT | AWKWARD).map(canonical).filter(lambda word: word is not None and word not in NO_LABEL)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
KINDS = ("csv", "tsv.gz", "parquet")


@st.composite
def node_tables(draw: st.DrawFn) -> NodeTable:
    ids = draw(st.lists(WORD, min_size=1, max_size=6, unique=True))
    n, f = len(ids), draw(st.integers(0, 4))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    dense = np.array(column(st.lists(FINITE | st.just(0.0), min_size=f, max_size=f)), dtype=np.float32).reshape(n, f)
    whole = np.array(column(st.integers(-(2**63), 2**63 - 1)), dtype=np.int64)
    real = np.array(column(st.floats(allow_infinity=False)), dtype=np.float64)
    return NodeTable(
        ids=ids,
        labels=column(st.none() | WORD),
        time=draw(st.sampled_from([None, whole, real])),
        split=draw(st.sampled_from([None, column(st.sampled_from([None, "train", "val", "test"]))])),
        domain=draw(st.sampled_from([None, column(st.none() | WORD)])),
        features=scipy.sparse.csr_matrix(dense) if draw(st.booleans()) and f else dense,
    )


def dense(table: NodeTable) -> np.ndarray:
    return table.features.toarray() if table.is_sparse else table.features


def assert_same(found: NodeTable, table: NodeTable) -> None:
    assert found.ids.tolist() == table.ids.tolist()
    assert found.labels.tolist() == table.labels.tolist()
    for name in ("split", "domain"):
        mine, given = getattr(found, name), getattr(table, name)
        assert (None if mine is None else mine.tolist()) == (None if given is None else given.tolist())
    assert (found.time is None) == (table.time is None)
    if table.time is not None:
        np.testing.assert_array_equal(found.time, table.time)
    np.testing.assert_array_equal(dense(found), dense(table))


@pytest.mark.parametrize("kind", KINDS)
@QUICK
@given(table=node_tables())
def test_nodes(kind: str, table: NodeTable, tmp_path: Path) -> None:
    path = tmp_path / f"nodes.{kind}"
    write_nodes(table, path)
    found = read_nodes(path, num_features=table.num_features)
    assert_same(found, table)
    assert not table.num_features or found.is_sparse == table.is_sparse


EDGES = st.lists(st.tuples(WORD, WORD, FINITE | st.just(1.0)), max_size=6)


@pytest.mark.parametrize("kind", KINDS)
@QUICK
@given(rows=EDGES)
def test_edges(kind: str, rows: list[tuple[str, str, float]], tmp_path: Path) -> None:
    path = tmp_path / f"edges.{kind}"
    source, target, weight = zip(*rows, strict=True) if rows else ((), (), ())
    write_edges(EdgeTable(source, target, weight), path)
    found = read_edges(path)
    assert list(zip(found.source, found.target, strict=True)) == [row[:2] for row in rows]
    np.testing.assert_array_equal(np.ones(len(rows)) if found.weight is None else found.weight, weight)
    assert (found.weight is None) == (set(weight) <= {1.0})
    assert read_edges(path, columns=Columns(ignore=["weight"])).weight is None


@st.composite
def numbered_graphs(draw: st.DrawFn) -> dict[str, np.ndarray]:
    n, f = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    seed = np.random.default_rng(draw(st.integers(0, 10**6)))
    adjacency = scipy.sparse.random(n, n, 0.4, "csr", random_state=seed)
    features = scipy.sparse.random(n, f, 0.5, "csr", dtype=np.float32, random_state=seed)
    out = {"labels": seed.integers(-1, 3, n)}
    for name, matrix in (("adj", adjacency), ("attr", features)):
        parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
        out |= {f"{name}_{part}": np.asarray(value) for part, value in parts.items()}
    return out


@QUICK
@given(arrays=numbered_graphs(), save=st.sampled_from([np.savez, np.savez_compressed]))
def test_npz(save: Any, arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    save(tmp_path / "graph.npz", **arrays)
    nodes, edges = read_graph(tmp_path / "graph.npz")
    n = int(arrays["adj_shape"][0])
    assert nodes.ids.tolist() == [str(i) for i in range(n)]
    assert nodes.labels.tolist() == [None if label < 0 else str(label) for label in arrays["labels"]]
    shapes = [tuple(arrays[f"{m}_shape"]) for m in ("adj", "attr")]
    parts = [tuple(arrays[f"{m}_{part}"] for part in ("data", "indices", "indptr")) for m in ("adj", "attr")]
    adjacency, features = map(scipy.sparse.csr_matrix, parts, shapes)
    np.testing.assert_array_equal(dense(nodes), features.toarray())
    mine = [(int(a), int(b)) for a, b in zip(edges.source, edges.target, strict=True)]
    assert mine == list(zip(*adjacency.nonzero(), strict=True))
    np.testing.assert_array_equal(edges.weight if len(edges) else [], adjacency.data.astype(np.float32))


def test_npz_with_dense_attributes_and_text_labels(tmp_path: Path) -> None:
    csr = {"adj_data": np.ones(1), "adj_indices": [1], "adj_indptr": [0, 1, 1], "adj_shape": [2, 2]}
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.savez(tmp_path / "graph.npz", **csr, attr_matrix=fortran, labels=np.array(["cat", ""]))
    nodes, _ = read_graph(tmp_path / "graph.npz")
    assert nodes.labels.tolist() == ["cat", None]
    assert nodes.features.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_npz_in_another_order(tmp_path: Path) -> None:
    """Unsorted and duplicate columns, and big-endian numbers."""
    csr = {"adj_data": np.ones(2, ">f8"), "adj_indices": np.array([1, 0], ">i4"), "adj_indptr": [0, 2, 2]}
    attr = {"attr_data": np.array([1, 2, 3], ">f4"), "attr_indices": np.array([2, 0, 2]), "attr_indptr": [0, 3, 3]}
    np.savez(tmp_path / "graph.npz", **csr, **attr, adj_shape=[2, 2], attr_shape=[2, 3], labels=np.array([5, 6], ">i2"))
    nodes, edges = read_graph(tmp_path / "graph.npz")
    assert nodes.features.toarray().tolist() == [[2, 0, 4], [0, 0, 0]]
    assert nodes.labels.tolist() == ["5", "6"]
    assert (edges.source.tolist(), edges.target.tolist()) == (["0", "0"], ["1", "0"])
    graph = to_graph(nodes, edges).graph
    assert graph.edge_index.T.tolist() == [[0, 1], [1, 0]]
