"""What is wrong with a file of a whole graph is said too; and real files are read."""

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
from torch_geometric.data import HeteroData

from ergnn.data.formats import FormatError, Limits, from_networkx, read_graph, to_graph
from ergnn.errors import InputError

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
    "no adjacency": ({"labels": np.ones(2)}, "no array 'adj_shape'; found are labels"),
    "columns out of range": (CSR | {"adj_indices": np.array([1, 2])}, "row 1 names 2; 0 to 1 are allowed"),
    "negative columns": (CSR | {"adj_indices": np.array([-1, 0])}, "row 0 names -1; 0 to 1 are allowed"),
    "ends do not rise": (CSR | {"adj_indptr": np.array([0, 3, 2])}, "'adj_indptr': must rise from 0 to 2"),
    "ends too few": (CSR | {"adj_indptr": np.array([0, 2])}, "'adj_indptr': 2 values; 3 are needed"),
    "entries too few": (CSR | {"adj_data": np.ones(1)}, "'adj_data': 1 values; 2 are needed"),
    "fractions as columns": (CSR | {"adj_indices": np.array([0.5, 1])}, "holds float64; whole numbers are needed"),
    "shape of three": (CSR | {"adj_shape": np.array([2, 2, 2])}, "'adj_shape': 3 numbers; 2 are needed"),
    "shape negative": (CSR | {"adj_shape": np.array([-2, -2])}, "[-2, -2] is not the shape of a matrix"),
    "two dimensions": (CSR | {"adj_data": np.ones((2, 1))}, "'adj_data': 2 dimensions; 1 are needed"),
    "complex": (CSR | {"adj_data": np.ones(2, complex)}, "is not one of an array of numbers or text"),
    "labels too few": (CSR | {"labels": np.ones(1, int)}, "'labels': 1 values for 2 nodes"),
    "labels fractions": (CSR | {"labels": np.ones(2)}, "'labels': holds float64"),
    "attributes of others": (CSR | ATTR | {"attr_shape": np.array([3, 3])}, "attributes of 3 nodes; the graph has 2"),
    "attribute nan": (CSR | ATTR | {"attr_data": np.array([np.nan])}, "node 0: feature 2 is nan"),
    "weight inf": (CSR | {"adj_data": np.array([1, np.inf])}, "edge 1: weight is inf"),
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
    "no x": ({"edge_index": GOOD["edge_index"]}, "no 'x'; x and edge_index are needed"),
    "a list": ([torch.zeros(2)], "holds a list; a PyG Data or a dict of tensors is needed"),
    "many graphs": (HeteroData(), "names 'torch_geometric.data.hetero_data.HeteroData'"),
    "edge to nowhere": (GOOD | {"edge_index": torch.tensor([[0], [3]])}, "an edge names node 3; nodes are 0 to 2"),
    "edges of floats": (GOOD | {"edge_index": torch.zeros(2, 1)}, "'edge_index': holds torch.float32"),
    "edges of three": (GOOD | {"edge_index": torch.zeros(3, 1).long()}, "shape [3, 1], torch.strided; [2, any] is"),
    "y too short": (GOOD | {"y": torch.zeros(2).long()}, "'y': shape [2], torch.strided; [3] is needed"),
    "y of floats": (GOOD | {"y": torch.zeros(3)}, "'y': holds torch.float32"),
    "y is a number": (GOOD | {"y": 3}, "'y': a int; a tensor is needed"),
    "x is flat": (GOOD | {"x": torch.zeros(3)}, "'x': shape [3]; [nodes, features] is needed"),
    "x complex": (GOOD | {"x": torch.zeros(3, 2, dtype=torch.cfloat)}, "names 'torch.ComplexFloatStorage'"),
    "x nan": (GOOD | {"x": torch.full((3, 2), torch.nan)}, "node 0: feature 0 is nan"),
    "coo to nowhere": (
        GOOD | {"x": torch.sparse_coo_tensor([[0, 3], [0, 1]], [1.0, 2.0], (3, 2), check_invariants=False)},
        "'x': not a sparse matrix that can be read",
    ),
    "coo of rows": (
        GOOD | {"x": torch.sparse_coo_tensor([[0, 2]], torch.ones(2, 2), (3, 2))},
        "rows and columns are needed",
    ),
    "csr to nowhere": (
        GOOD | {"x": torch.sparse_csr_tensor([0, 1, 1, 1], [2], [1.0], (3, 2), check_invariants=False)},
        "'x': not a sparse matrix that can be read",
    ),
    "csr falling": (
        GOOD | {"x": torch.sparse_csr_tensor([0, 2, 1, 2], [0, 1], [1.0, 2.0], (3, 2), check_invariants=False)},
        "'x': not a sparse matrix that can be read",
    ),
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
    ("a.json", "[1]"): "holds a list; an object with 'nodes' and 'edges' is needed",
    ("a.json", "{"): "not JSON that can be read",
    ("a.json", '{"nodes": []}'): "no 'edges'; found are 'nodes'",
    ("a.json", '{"nodes": {}, "edges": []}'): "'nodes': a dict; a list of objects is needed",
    ("a.json", '{"nodes": [{"name": 1}], "edges": []}'): "'nodes', entry 1: {'name': 1}; an object with",
    ("a.json", '{"nodes": [], "edges": []}'): "no nodes",
    ("a.json", '{"nodes": [{"id": null}], "edges": []}'): "id is missing",
    ("a.json", '{"nodes": [{"id": [1]}], "edges": []}'): "node 1: id is [1]; text or a number is needed",
    ("a.json", '{"nodes": [{"id": 1}, {"id": "1"}], "edges": []}'): "id '1' stands there again",
    ("a.json", '{"nodes": [{"id": "\\ud800"}], "edges": []}'): "text must be valid Unicode",
    ("a.json", '{"nodes": [{"id": 1, "a": 1}, {"id": 2}], "edges": []}'): "attribute 'a' is missing; a finite number",
    ("a.json", '{"nodes": [{"id": 1, "a": NaN}], "edges": []}'): "node 1: attribute 'a' is nan; a finite number",
    ("a.json", '{"nodes": [{"id": 1, "a": "x"}], "edges": []}'): "node 1: attribute 'a' is 'x'; a finite number",
    ("a.json", '{"nodes": [{"id": 1, "features": 3}], "edges": []}'): "attribute 'features': 3; a list or sparse text",
    ("a.json", '{"nodes": [{"id": 1, "label": 1.5}], "edges": []}'): "label is 1.5; text or a whole number is needed",
    ("a.graphml", "<graphml><graph><node/></graph></graphml>"): "line 1: <node> has no 'id'; it has []",
    ("a.graphml", "<graphml><graph>\n<edge source='a'/></graph></graphml>"): "line 2: <edge> has no 'target'",
    ("a.graphml", "<graphml><graph><node id='a'/>"): "not XML",
    ("a.graphml", "<graphml/>"): "no graph in it",
    ("a.graphml", "<g><graph><node id='a'><graph/></node></graph></g>"): "a second graph; one is read from a file",
    ("a.graphml", "<g><graph><hyperedge/></graph></g>"): "a hyperedge; nodes and edges between two",
    ("a.edges", "a b\nc\n"): "line 2: 'c' has 1 fields; an edge is a source, a target and perhaps a weight",
    ("a.edges", "a b\na b 1\n"): "line 2: 3 fields; lines before it have 2",
    ("a.txt", "a b x\n"): "line 1, column 'weight': 'x' is not a finite number",
    ("a.edgelist", "# nothing\n"): "no edges",
    ("a.npz.gz", "x"): "not a known graph file; names end in .npz, .pt, .graphml, .json, .edges",
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
    graph = networkx.path_graph(3)
    networkx.set_node_attributes(graph, {i: {"a": 1, "b": 2} for i in graph})
    networkx.write_graphml(graph, tmp_path / "a.graphml")
    (tmp_path / "a.json").write_text(json.dumps(networkx.node_link_data(graph)))
    (tmp_path / "a.edges").write_text("1 2\n2 3\n")
    for path in sorted(tmp_path.iterdir()):
        read_graph(path)
        with pytest.raises(FormatError, match="nodes; at most 1 are allowed"):
            read_graph(path, limits=Limits(nodes=1))
        if path.name != "a.pt":
            with pytest.raises(FormatError, match="2 edges; at most 1 are allowed"):
                read_graph(path, limits=Limits(edges=1))
        if path.name != "a.edges":
            with pytest.raises(FormatError, match=r"[23] features; at most 1 are allowed"):
                read_graph(path, limits=Limits(features=1))
    with pytest.raises(FormatError, match="3 nodes; at most 2 are allowed"):
        from_networkx(graph, limits=Limits(nodes=2))
    with pytest.raises(InputError, match="a dict is not a NetworkX graph"):
        from_networkx({})


def test_json_is_held_to_what_it_takes_in_memory(tmp_path: Path) -> None:
    content = {"nodes": [{"id": i} for i in range(9000)], "edges": []}
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert len(read_graph(tmp_path / "a.json", limits=Limits(megabytes=4))[0]) == 9000
    with pytest.raises(FormatError, match=r"more than 0 MB of text .* \(limit 'megabytes'\)"):
        read_graph(tmp_path / "a.json", limits=Limits(megabytes=1))


def test_a_pickle_inside_a_pickle_of_data_is_found(tmp_path: Path) -> None:
    """The one name that is not allowed stands deep inside an attribute that would not even be read."""
    plain = io.BytesIO()
    torch.save(GOOD | {"extra": [{"deep": torch.nn.ReLU()}]}, plain)
    (tmp_path / "a.pt").write_bytes(plain.getvalue())
    with pytest.raises(FormatError, match=r"names 'torch\.nn\.modules\.activation\.ReLU'"):
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
