"""Errors of graph files name the file and the problem; real files are read."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ergnn.data.tables import FormatError, Limits, read_graph, to_graph

CSR: dict[str, Any] = {
    "adj_data": np.ones(2),
    "adj_indices": np.array([1, 0]),
    "adj_indptr": np.array([0, 1, 2]),
    "adj_shape": np.array([2, 2]),
}
ATTR: dict[str, Any] = {
    "attr_data": np.ones(1),
    "attr_indices": np.array([2]),
    "attr_indptr": np.array([0, 1, 1]),
    "attr_shape": np.array([2, 3]),
}
NPZ: dict[str, tuple[dict[str, Any], str]] = {
    "no adjacency": ({"labels": np.ones(2)}, "no array 'adj_shape'; found are 'labels'"),
    "columns out of range": (
        CSR | {"adj_indices": np.array([1, 2])},
        "as a CSR matrix (indices must be < 2)",
    ),
    "ends do not rise": (CSR | {"adj_indptr": np.array([0, 3, 2])}, "(indptr must be a non-decreasing sequence)"),
    "fractions as columns": (CSR | {"adj_indices": np.array([0.5, 1])}, "indices has shape [2] and holds float64"),
    "shape of three": (CSR | {"adj_shape": np.array([2, 2, 2])}, "too many values to unpack (expected 2"),
    "two dimensions": (CSR | {"adj_data": np.ones((2, 1))}, "data has shape [2, 1]"),
    "labels too few": (CSR | {"labels": np.ones(1, int)}, "labels: shape [1] of int64; numbers for each of 2"),
    "attribute nan": (CSR | ATTR | {"attr_data": np.array([np.nan])}, "row 1: feature 2 is nan"),
}


@pytest.mark.parametrize("name", NPZ)
def test_an_npz_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    arrays, message = NPZ[name]
    np.savez(tmp_path / "graph.npz", **arrays)
    with pytest.raises(FormatError) as caught:
        read_graph(tmp_path / "graph.npz")
    assert message in str(caught.value)
    assert "graph.npz" in str(caught.value)


def test_a_member_changed_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    np.savez(path, **CSR)
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        start = raw.index(b"\x93NUMPY", file.getinfo("adj_indices.npy").header_offset)
    raw[start + 128] ^= 1
    path.write_bytes(raw)
    with pytest.raises(FormatError, match="Bad CRC-32"):
        read_graph(path)


def test_limits_and_other_files(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    np.savez(path, **CSR, **ATTR)
    for limit, message in (("nodes", "2 nodes"), ("edges", "2 edges"), ("features", "3 features")):
        with pytest.raises(FormatError, match=rf"{message}; at most 1 are allowed \(limit '{limit}'\)"):
            read_graph(path, limits=Limits(**{limit: 1}))
    with pytest.raises(FormatError, match=r"graph\.json: not a known graph file; names end in \.npz"):
        read_graph(tmp_path / "graph.json")


@pytest.mark.parametrize(
    ("file", "counts"),
    {
        "musae_twitch/DE.npz": (9_498, 3_170, 2, 153_138),
        "citation_full/cora_ml/raw/cora_ml.npz": (2_995, 2_879, 7, 8_158),
    }.items(),
)
def test_real_files(file: str, counts: tuple[int, int, int, int], data_root: Path) -> None:
    """Nodes, features, classes and undirected edges without self-loops are as published."""
    if not (data_root / file).exists():
        pytest.skip(f"ERGNN_DATA has no {file}")
    graph = to_graph(*read_graph(data_root / file)).graph
    assert (graph.num_nodes, graph.num_features, graph.num_classes, graph.num_edges // 2) == counts
