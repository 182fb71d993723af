"""Errors of graph files name the file and the problem; real files are read."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.data import HeteroData

from ergnn.config.errors import InputError
from ergnn.data.tables import FormatError, Limits, from_networkx, read_graph, to_graph

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
        "'adj_…': cannot be read as a CSR matrix (indices must be < 2)",
    ),
    "negative columns": (CSR | {"adj_indices": np.array([-1, 0])}, "(indices must be >= 0)"),
    "ends do not rise": (CSR | {"adj_indptr": np.array([0, 3, 2])}, "(indptr must be a non-decreasing sequence)"),
    "ends too few": (CSR | {"adj_indptr": np.array([0, 2])}, "shape is [2, 2], with 2 row ends and 2 entries"),
    "entries too few": (CSR | {"adj_data": np.ones(1)}, "shape is [2, 2], with 3 row ends and 1 entries"),
    "fractions as columns": (CSR | {"adj_indices": np.array([0.5, 1])}, "indices has shape [2] and holds float64"),
    "shape of three": (CSR | {"adj_shape": np.array([2, 2, 2])}, "too many values to unpack (expected 2"),
    "shape negative": (CSR | {"adj_shape": np.array([-2, -2])}, "shape is [-2, -2]"),
    "two dimensions": (CSR | {"adj_data": np.ones((2, 1))}, "data has shape [2, 1]"),
    "complex": (CSR | {"adj_data": np.ones(2, complex)}, "holds complex128"),
    "labels too few": (CSR | {"labels": np.ones(1, int)}, "'y': shape [1] of int64; shape [2] of numbers is required"),
    "attributes of others": (
        CSR | ATTR | {"attr_shape": np.array([3, 3])},
        "shape is [3, 3], with 3 row ends and 1 entries",
    ),
    "attribute nan": (CSR | ATTR | {"attr_data": np.array([np.nan])}, "node 0: feature 2 is nan"),
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


GOOD = {"x": torch.zeros(3, 2), "edge_index": torch.tensor([[0], [1]])}
PT: dict[str, tuple[Any, str]] = {
    "no x": (
        {"edge_index": GOOD["edge_index"]},
        "x of shape [nodes, features] and edge_index are required; found are 'edge_index'",
    ),
    "a list": ([torch.zeros(2)], "holds a list; a PyG Data or a dict of tensors is required"),
    "many graphs": (HeteroData(), "only tensors, dicts and PyG's Data are read"),
    "edge to nowhere": (GOOD | {"edge_index": torch.tensor([[0], [3]])}, "an edge names node 3; nodes are 0 to 2"),
    "edges of floats": (
        GOOD | {"edge_index": torch.zeros(2, 1)},
        "'edge_index': shape [2, 1] of float32; shape [2, 1] of integers is required",
    ),
    "edges of three": (
        GOOD | {"edge_index": torch.zeros(3, 1).long()},
        "'edge_index': shape [3, 1] of int64; shape [2, 1] of integers",
    ),
    "y too short": (GOOD | {"y": torch.zeros(2).long()}, "'y': shape [2] of int64; shape [3] of numbers is required"),
    "y is a number": (GOOD | {"y": 3}, "y is not a dense tensor"),
    "x is flat": (GOOD | {"x": torch.zeros(3)}, "x of shape [nodes, features] and edge_index are required"),
    "x complex": (
        GOOD | {"x": torch.zeros(3, 2, dtype=torch.cfloat)},
        "'x': shape [3, 2] of complex64; shape [3, 2] of numbers is required",
    ),
    "x nan": (GOOD | {"x": torch.full((3, 2), torch.nan)}, "node 0: feature 0 is nan"),
    "x sparse": (GOOD | {"x": torch.zeros(3, 2).to_sparse_csr()}, "x is not a dense tensor"),
    "masks overlap": (
        GOOD | {f"{part}_mask": torch.ones(3).bool() for part in ("train", "test")},
        "'test_mask': node 0 is in train already",
    ),
}


@pytest.mark.parametrize("name", PT)
def test_a_pt_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    content, message = PT[name]
    torch.save(content, tmp_path / "graph.pt")
    with pytest.raises(FormatError) as caught:
        read_graph(tmp_path / "graph.pt")
    assert message in str(caught.value)
    assert "graph.pt" in str(caught.value)


TEXTS: dict[tuple[str, str], str] = {
    ("a.json", "[1]"): "cannot be read as node-link JSON of NetworkX",
    ("a.json", "{"): "cannot be read as node-link JSON of NetworkX",
    ("a.json", '{"nodes": []}'): "cannot be read as node-link JSON of NetworkX",
    ("a.json", '{"nodes": [], "edges": []}'): "no nodes",
    ("a.json", '{"nodes": [{"id": null}], "edges": []}'): "None cannot be a node",
    ("a.json", '{"nodes": [{"id": [1]}], "edges": []}'): "column 'id': cannot be read as text",
    ("a.json", '{"nodes": [{"id": 1}, {"id": "1"}], "edges": []}'): "row 2: id '1' occurs again",
    ("a.json", '{"nodes": [{"id": "\\ud800"}], "edges": []}'): "surrogates not allowed",
    ("a.json", '{"nodes": [{"id": 1, "a": 1}, {"id": 2}], "edges": []}'): "row 2, column 'a': the value is missing",
    ("a.json", '{"nodes": [{"id": 1, "a": NaN}], "edges": []}'): "row 1, column 'a': the value is missing",
    ("a.json", '{"nodes": [{"id": 1, "a": "x"}], "edges": []}'): "row 1, column 'a': 'x' is not a number",
    ("a.graphml", "<graphml><graph><node id='a'/>"): "cannot be read as GraphML",
    ("a.graphml", "<graphml/>"): "cannot be read as GraphML",
    ("a.graphml", "<!DOCTYPE g><graphml/>"): "a document type",
    ("a.npz.gz", "x"): "not a known graph file; names end in .npz, .safetensors, .pt, .graphml, .json",
}


@pytest.mark.parametrize(("name", "text"), TEXTS, ids=range(len(TEXTS)))
def test_a_text_that_cannot_be_read(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(FormatError) as caught:
        read_graph(tmp_path / name)
    assert TEXTS[name, text] in str(caught.value)
    assert name in str(caught.value)


def test_limits_hold_for_every_format(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **CSR, **ATTR)
    torch.save(GOOD, tmp_path / "a.pt")
    save_file(GOOD, tmp_path / "a.safetensors")
    graph = networkx.path_graph(3)
    networkx.set_node_attributes(graph, {i: {"a": 1, "b": 2} for i in graph})
    networkx.write_graphml(graph, tmp_path / "a.graphml")
    (tmp_path / "a.json").write_text(json.dumps(networkx.node_link_data(graph)))
    for path in sorted(tmp_path.iterdir()):
        read_graph(path)
        with pytest.raises(FormatError, match="nodes; at most 1 are allowed"):
            read_graph(path, limits=Limits(nodes=1))
        if path.suffix not in (".pt", ".safetensors"):
            with pytest.raises(FormatError, match="2 edges; at most 1 are allowed"):
                read_graph(path, limits=Limits(edges=1))
        with pytest.raises(FormatError, match=r"[23] features; at most 1 are allowed"):
            read_graph(path, limits=Limits(features=1))
    with pytest.raises(FormatError, match="3 nodes; at most 2 are allowed"):
        from_networkx(graph, limits=Limits(nodes=2))
    with pytest.raises(InputError, match="a dict is not a NetworkX graph"):
        from_networkx({})


def test_json_is_limited_by_its_size_in_memory(tmp_path: Path) -> None:
    content = {"nodes": [{"id": i} for i in range(9000)], "edges": []}
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert len(read_graph(tmp_path / "a.json", limits=Limits(megabytes=4))[0]) == 9000
    with pytest.raises(FormatError, match=r"its objects take 2 MB; at most 1 are allowed \(limit 'megabytes'\)"):
        read_graph(tmp_path / "a.json", limits=Limits(megabytes=1))


def test_a_pickle_inside_a_pickle_of_data_is_found(tmp_path: Path) -> None:
    """The forbidden class is nested in an attribute that would not even be read."""
    plain = io.BytesIO()
    torch.save(GOOD | {"extra": [{"deep": torch.nn.ReLU()}]}, plain)
    (tmp_path / "a.pt").write_bytes(plain.getvalue())
    with pytest.raises(FormatError, match=r"names 'torch\.nn\.modules\.activation"):
        read_graph(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("file", "counts"),
    {
        "musae_twitch/DE.npz": (9_498, 3_170, 2, 153_138),
        "musae_twitch/ENGB.npz": (7_126, 3_170, 2, 35_324),
        "musae_twitch/ES.npz": (4_648, 3_170, 2, 59_382),
        "musae_twitch/FR.npz": (6_549, 3_170, 2, 112_666),
        "musae_twitch/PTBR.npz": (1_912, 3_170, 2, 31_299),
        "musae_twitch/RU.npz": (4_385, 3_170, 2, 37_304),
        "amazon/Computers/raw/amazon_electronics_computers.npz": (13_752, 767, 10, 245_861),
        "amazon/Photo/raw/amazon_electronics_photo.npz": (7_650, 745, 8, 119_081),
        "coauthor/CS/raw/ms_academic_cs.npz": (18_333, 6_805, 15, 81_894),
        "citation_full/dblp/raw/dblp.npz": (17_716, 1_639, 4, 52_867),
        "citation_full/cora_ml/raw/cora_ml.npz": (2_995, 2_879, 7, 8_158),
        "citation_full/citeseer/raw/citeseer.npz": (4_230, 602, 6, 5_337),
    }.items(),
)
def test_real_files(file: str, counts: tuple[int, int, int, int], data_root: Path) -> None:
    """Nodes, features, classes and undirected edges without self-loops are as published."""
    if not (data_root / file).exists():
        pytest.skip(f"ERGNN_DATA has no {file}")
    graph = to_graph(*read_graph(data_root / file)).graph
    assert (graph.num_nodes, graph.num_features, graph.num_classes, graph.num_edges // 2) == counts
    assert graph.is_sparse
