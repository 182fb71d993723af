import json
import shutil
from collections import Counter
from email.message import Message
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch_geometric.datasets.amazon as pyg_amazon

from ergnn.analytic.inputs import ColumnScales
from ergnn.config.errors import InputError
from ergnn.data import DATASETS, Graph, PublicSplitUnavailable, load_graph, make_stream
from ergnn.data.datasets import DataUnavailable, base
from raw_files import write_cora, write_heterophilous, write_npz, write_ogb, write_photo, write_reddit, write_wikics


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with no data at all; returns its cache folder."""
    monkeypatch.delenv("ERGNN_DATA", raising=False)
    monkeypatch.setattr(base, "cache_root", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p.relative_to(root)): (p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*")}


def undirected(graph: Graph) -> set[tuple[int, int]]:
    return {(min(u, v), max(u, v)) for u, v in graph.edge_index.T.tolist()}


# --- bundled graphs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nodes", "features", "classes", "edges", "empty"),
    [("cora", 2708, 1433, 7, 5278, 0), ("citeseer", 3327, 3703, 6, 4552, 15)],
)
def test_the_bundled_graphs_have_the_known_counts(
    bare: Path, name: str, nodes: int, features: int, classes: int, edges: int, empty: int
) -> None:
    graph = load_graph(name, split="seeded").graph
    counts = (graph.num_nodes, graph.num_features, graph.num_classes, len(undirected(graph)))
    assert counts == (nodes, features, classes, edges)
    assert graph.num_edges == 2 * edges
    assert all(u != v for u, v in undirected(graph))
    assert graph.is_sparse
    assert set(graph.x.values().tolist()) == {1.0}
    assert int((graph.x.crow_indices().diff() == 0).sum()) == empty
    assert graph.class_names is not None
    assert len(graph.class_names) == classes
    assert graph.public_split is None


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_a_bundled_graph_is_planetoids(data_root: Path, name: str) -> None:
    """The same features, labels and degrees, and the same edges between nodes of the same features."""
    ours = load_graph(name, split="seeded").graph
    theirs = load_graph(name, split="public", root=data_root).graph

    def rows(graph: Graph) -> list[tuple[int, ...]]:
        ptr, col = graph.x.crow_indices().tolist(), graph.x.col_indices().tolist()
        return [tuple(sorted(col[a:b])) for a, b in pairwise(ptr)]

    def nodes(graph: Graph) -> Counter:
        degree = torch.bincount(graph.edge_index[0], minlength=graph.num_nodes)
        return Counter(zip(rows(graph), graph.y.tolist(), degree.tolist(), strict=True))

    def edges(graph: Graph) -> Counter:
        words = rows(graph)
        return Counter(tuple(sorted((words[u], words[v]))) for u, v in undirected(graph))

    assert nodes(ours) == nodes(theirs)
    assert edges(ours) == edges(theirs)


def test_seeded_splits_never_draw_citeseers_nodes_without_a_label() -> None:
    dataset = DATASETS.get("citeseer")()
    graph = load_graph("citeseer", split="seeded").graph
    empty = set((graph.x.crow_indices().diff() == 0).nonzero().flatten().tolist())
    may = set((dataset.labels(graph) >= 0).nonzero().flatten().tolist())
    assert not may & empty
    assert len(may) == 3312
    for seed in range(20):
        split = dataset.seeded_split(graph, seed)
        assert not empty & set(torch.cat([split.train, split.val, split.test]).tolist())


# --- which split, and where from -------------------------------------------------------------------------


def test_auto_falls_back_on_the_bundled_graph_and_says_why(bare: Path) -> None:
    graph, split, note = load_graph("cora")
    assert (graph.num_nodes, split) == (2708, "seeded")
    assert note == "using a seeded split: the public one is missing (--download gets it)"
    with pytest.raises(PublicSplitUnavailable, match=r"ERGNN_DATA is not set .*; downloads are off \(ERGNN_OFFLINE is"):
        load_graph("cora", split="public")
    assert not bare.exists()


def test_public_reads_planetoids_files(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cora(tmp_path / "data")
    monkeypatch.setenv("ERGNN_DATA", str(tmp_path / "data"))
    graph, split, note = load_graph("Cora")
    assert (split, note) == ("public", "")
    assert graph.num_nodes == 700
    assert graph.public_split.train.tolist() == list(range(140))
    assert graph.public_split.val.tolist() == list(range(140, 640))
    assert graph.public_split.test.tolist() == list(range(640, 700))
    assert graph.is_sparse


def test_an_explicit_root_overrides_the_variable(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_photo(tmp_path / "a", seed=1)
    write_photo(tmp_path / "b", seed=2)
    monkeypatch.setenv("ERGNN_DATA", str(tmp_path / "a"))
    of_variable = load_graph("amazon-photo").graph
    of_root = load_graph("amazon-photo", root=tmp_path / "b").graph
    assert of_variable.y.tolist() != of_root.y.tolist()


def test_the_data_root_is_never_written_to(bare: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_photo(root)
    write_cora(root)
    write_reddit(root)
    before = snapshot(root)
    for name in ("amazon-photo", "cora", "reddit"):
        load_graph(name, root=root)
    assert snapshot(root) == before
    assert not bare.exists()


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed", "cora-ml", "tolokers", "chameleon"])
def test_real_data_sets_are_as_described(data_root: Path, name: str) -> None:
    dataset = DATASETS.get(name)()
    if "missing" in dataset.location(data_root):
        pytest.skip(f"ERGNN_DATA has no {dataset.folder}")
    graph, split, _ = load_graph(name, root=data_root)
    half = graph.edge_index[0] < graph.edge_index[1]
    counts = (graph.num_nodes, graph.num_features, graph.num_classes, int(half.sum()))
    assert counts == (dataset.nodes, dataset.features, dataset.classes, dataset.edges)
    assert split == ("public" if dataset.public_split else "seeded")
    density = torch.count_nonzero(graph.x.values() if graph.is_sparse else graph.x) / graph.x.numel()
    assert graph.is_sparse == bool(density < 0.10)
    assert (graph.public_split is not None) == dataset.public_split
    if dataset.folder.startswith("planetoid"):
        assert graph.public_split.train.numel() == 20 * dataset.classes


BAGS = ("cora", "citeseer", "pubmed", "amazon-computers", "amazon-photo", "coauthor-cs", "cora-ml", "dblp")


@pytest.mark.parametrize("name", BAGS)
def test_no_column_of_a_bag_of_words_is_standardized(data_root: Path, name: str) -> None:
    """Results of the closed form are therefore those of ``scale="rows"``."""
    if "missing" in DATASETS.get(name)().location(data_root) and name not in BAGS[:2]:
        pytest.skip(f"ERGNN_DATA has no {name}")
    graph = load_graph(name, root=data_root).graph
    assert ColumnScales.fit(graph.x) is None
    assert ColumnScales.fit(graph.row_normalized().x) is None


def test_counts_of_words_are_those_of_the_file(bare: Path, tmp_path: Path) -> None:
    file = write_npz(tmp_path / "coauthor/CS/raw/ms_academic_cs.npz", np.arange(600) % 15)
    arrays = dict(np.load(file))
    arrays["attr_data"] = np.arange(1.0, 1 + len(arrays["attr_data"]))
    np.savez(file, **arrays)
    parts = (arrays[f"attr_{name}"] for name in ("data", "indices", "indptr"))
    counts = sp.csr_matrix(tuple(parts), shape=tuple(arrays["attr_shape"])).toarray()
    for dataset, expected in (
        (DATASETS.create("coauthor-cs", counts=True), counts),
        (DATASETS.create("coauthor-cs"), counts > 0),
    ):
        assert (dataset.load("seeded", tmp_path).dense_x().numpy() == expected).all()


# --- Reddit ----------------------------------------------------------------------------------------------


def test_reddit_is_read_with_its_public_split(bare: Path, tmp_path: Path) -> None:
    write_reddit(tmp_path)
    graph, split, note = load_graph("reddit", root=tmp_path)
    assert (split, note) == ("public", "")
    public = graph.public_split
    assert [part.numel() for part in (public.train, public.val, public.test)] == [205, 82, 123]
    adj = sp.load_npz(tmp_path / "reddit/raw/reddit_graph.npz")
    links = zip(adj.row.tolist(), adj.col.tolist(), strict=True)
    assert sorted(graph.edge_index.T.tolist()) == sorted([u, v] for u, v in links if u != v)
    assert graph.csr.col.dtype == torch.int32
    data = np.load(tmp_path / "reddit/raw/reddit_data.npz")
    assert torch.equal(graph.x, torch.from_numpy(data["feature"]).float())
    assert graph.y.tolist() == data["label"].tolist()


def test_reddit_is_not_downloaded_unasked(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERGNN_OFFLINE", "0")
    monkeypatch.setenv("ERGNN_DOWNLOAD", "1")
    monkeypatch.setattr(base, "probe", lambda url: pytest.fail("tried to download"))
    with pytest.raises(DataUnavailable, match=r"reddit\.zip, over 1 GB\) and unpack it, .*reddit/raw") as info:
        load_graph("reddit", root=tmp_path)
    assert str(tmp_path / "reddit" / "raw") in str(info.value)


# --- other collections, in the layout of their archives ----------------------------------------------------


def test_corafull_has_35_tasks_and_splits_small_classes(bare: Path, tmp_path: Path) -> None:
    labels = np.concatenate([np.arange(70), np.repeat(np.arange(70), 9), np.full(30, 3)])
    write_npz(tmp_path / "citation_full/cora/raw/cora.npz", labels)
    stream, split, _ = make_stream("cora-full", root=tmp_path)
    assert (len(stream), stream[34].classes, split) == (35, (68, 69), "seeded")
    assert [nodes.numel() for nodes in (stream[0].train, stream[0].val, stream[0].test)] == [12, 4, 4]


def test_wikics_has_twenty_public_splits(bare: Path, tmp_path: Path) -> None:
    raw = json.loads(write_wikics(tmp_path).read_text())
    raw["test_mask"][0] = True
    (tmp_path / "wikics/raw/data.json").write_text(json.dumps(raw))
    for fold in (0, 19):
        graph, split, _ = load_graph("wikics", root=tmp_path, dataset_options={"fold": fold})
        assert split == "public"
        assert graph.public_split.train.tolist() == np.flatnonzero(raw["train_masks"][fold]).tolist()
        assert graph.public_split.val.tolist() == np.flatnonzero(raw["val_masks"][fold]).tolist()
    links = {(min(u, v), max(u, v)) for v, row in enumerate(raw["links"]) for u in row if u != v}
    assert undirected(graph) == links
    assert graph.num_edges == 2 * len(links)
    with pytest.raises(InputError, match="wikics: fold is 20; it must be 0 to 19"):
        load_graph("wikics", root=tmp_path, dataset_options={"fold": 20})


@pytest.mark.parametrize(
    ("name", "file", "classes"),
    [
        ("roman-empire", "heterophilous/roman_empire/raw/roman_empire.npz", 18),
        ("minesweeper", "heterophilous/minesweeper.npz", 2),
        ("squirrel", "heterophilous/squirrel_filtered.npz", 5),
    ],
)
def test_heterophilous_graphs_have_ten_public_splits(
    bare: Path, tmp_path: Path, name: str, file: str, classes: int
) -> None:
    raw = np.load(write_heterophilous(tmp_path / file, classes))
    graph, split, _ = load_graph(name, root=tmp_path, dataset_options={"fold": 7})
    assert (split, graph.num_classes) == ("public", classes)
    assert torch.equal(graph.x, torch.from_numpy(raw["node_features"]))
    assert undirected(graph) == {(min(u, v), max(u, v)) for u, v in raw["edges"].tolist()}
    assert graph.public_split.test.tolist() == np.flatnonzero(raw["test_masks"][7]).tolist()


@pytest.mark.parametrize(
    ("name", "folder", "split", "classes", "tasks"),
    [("ogbn-arxiv", "ogbn_arxiv", "time", 40, 20), ("ogbn-products", "ogbn_products", "sales_ranking", 47, 23)],
)
def test_ogb_is_read_with_its_split_and_the_streams_of_the_benchmark(
    bare: Path, tmp_path: Path, name: str, folder: str, split: str, classes: int, tasks: int
) -> None:
    labels = np.concatenate([np.arange(classes), np.repeat(np.arange(classes - 1), 9)])  # one node of the last class
    write_ogb(tmp_path, folder, split, labels)
    before = snapshot(tmp_path)
    graph, used, _ = load_graph(name, split="public", root=tmp_path)
    n = len(labels)
    assert graph.y.tolist() == labels.tolist()
    assert undirected(graph) == {(v, v + 1) for v in range(n - 1)} | {(0, v) for v in range(1, n)}
    public = graph.public_split
    assert [nodes.tolist() for nodes in vars(public).values()] == [list(range(k, n, 3)) for k in range(3)]
    assert (graph.csr is not None) == (name == "ogbn-products")
    stream, used, notes = make_stream(name, root=tmp_path)
    assert (len(stream), used, notes) == (tasks, "seeded", ())
    assert [nodes.numel() for nodes in (stream[0].train, stream[0].val, stream[0].test)] == [12, 4, 4]
    assert snapshot(tmp_path) == before


# --- downloads -------------------------------------------------------------------------------------------


@pytest.fixture
def downloads(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A network on which Amazon Photo can be had; the list of what was fetched from it."""
    source = write_photo(tmp_path / "network")
    fetched: list[str] = []

    def download_url(url: str, folder: str) -> None:
        fetched.append(url)
        shutil.copy(source, folder)

    monkeypatch.setenv("ERGNN_OFFLINE", "0")
    monkeypatch.setenv("ERGNN_DOWNLOAD", "1")
    monkeypatch.setattr(base, "probe", lambda url: None)
    monkeypatch.setattr(pyg_amazon, "download_url", download_url)
    return fetched


def test_a_download_goes_to_the_cache_and_happens_once(bare: Path, downloads: list[str], tmp_path: Path) -> None:
    empty = tmp_path / "data"
    empty.mkdir()
    first = load_graph("amazon-photo", root=empty).graph
    again = load_graph("amazon-photo", root=empty).graph
    assert downloads == [DATASETS.create("amazon-photo").url + "amazon_electronics_photo.npz"]
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.edge_index, again.edge_index)
    files = [str(p.relative_to(bare)) for p in bare.rglob("*") if p.is_file()]
    assert files == ["amazon/Photo/raw/amazon_electronics_photo.npz"]
    assert list(empty.iterdir()) == []


def test_a_failed_download_leaves_nothing(bare: Path, downloads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def half(url: str, folder: str) -> None:
        (Path(folder) / "amazon_electronics_photo.npz").write_bytes(b"PK half a file")
        raise ConnectionResetError("gone")

    monkeypatch.setattr(pyg_amazon, "download_url", half)
    with pytest.raises(DataUnavailable, match=r"the download into .*Photo/raw failed \(ConnectionResetError: gone\)"):
        load_graph("amazon-photo")
    assert [p for p in bare.rglob("*") if p.is_file()] == []


def test_no_network_falls_back_like_offline(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(url: str) -> None:
        raise OSError("no route to host")

    monkeypatch.setenv("ERGNN_OFFLINE", "0")
    monkeypatch.setenv("ERGNN_DOWNLOAD", "1")
    monkeypatch.setattr(base, "probe", unreachable)
    graph, split, note = load_graph("citeseer")
    assert (graph.num_nodes, split) == (3327, "seeded")
    assert "no route to host" in note
    with pytest.raises(DataUnavailable, match=r"pubmed: .* no route to host"):
        load_graph("pubmed")


def test_probe_accepts_any_response_and_rejects_a_closed_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Request, timeout: float) -> None:
        raise HTTPError(request.full_url, 403, "forbidden", Message(), None)

    monkeypatch.setattr(base, "urlopen", answer)
    base.probe("http://localhost/file")
    monkeypatch.undo()
    with pytest.raises(OSError, match="refused"):
        base.probe("http://127.0.0.1:9/file")


@pytest.mark.parametrize(
    ("download", "offline", "allowed"),
    [("1", "1", False), ("1", "0", True), ("yes", "", True), ("0", "", False)],
)
def test_downloads_must_be_requested_and_can_be_forbidden(
    monkeypatch: pytest.MonkeyPatch, download: str, offline: str, allowed: bool
) -> None:
    monkeypatch.setenv("ERGNN_DOWNLOAD", download)
    monkeypatch.setenv("ERGNN_OFFLINE", offline)
    assert base.downloads_allowed() is allowed


def test_nothing_is_tried_over_the_network_unless_asked(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ERGNN_OFFLINE", raising=False)
    monkeypatch.delenv("ERGNN_DOWNLOAD", raising=False)
    monkeypatch.setattr(base, "probe", lambda url: pytest.fail("tried to download"))
    assert load_graph("cora").split == "seeded"
    with pytest.raises(DataUnavailable, match=r"set ERGNN_DOWNLOAD=1 .* to download it"):
        load_graph("dblp")


# --- bad input -------------------------------------------------------------------------------------------


def test_a_broken_file_is_named_and_does_not_fall_back(bare: Path, tmp_path: Path) -> None:
    raw = write_cora(tmp_path)
    (raw / "ind.cora.allx").write_bytes(b"not a pickle")
    with pytest.raises(InputError, match=r"cora: .*planetoid/Cora/raw: cannot be read as a folder with ind\.cora\.x"):
        load_graph("cora", root=tmp_path)


def test_invalid_values_keep_their_message(bare: Path, tmp_path: Path) -> None:
    file = write_photo(tmp_path)
    arrays = dict(np.load(file))
    arrays["attr_data"] = np.full_like(arrays["attr_data"], -np.inf)
    np.savez(file, **arrays)
    with pytest.raises(InputError, match="amazon-photo: NaN or infinite features on"):
        load_graph("amazon-photo", root=tmp_path)


# --- the list --------------------------------------------------------------------------------------------


def test_descriptions_say_where_the_files_are(
    bare: Path, downloads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def where(name: str, root: Path | None = None) -> str:
        return DATASETS.create(name).location(root)

    assert where("cora") == "bundled; public split downloaded on first use"
    assert where("reddit") == "missing (reddit.zip, over 1 GB)"
    assert where("amazon-photo") == "downloaded on first use"
    load_graph("amazon-photo")
    assert where("amazon-photo") == "in the cache"
    write_cora(tmp_path / "data")
    assert where("cora", tmp_path / "data") == f"bundled; public split in {tmp_path / 'data'}"
    monkeypatch.setenv("ERGNN_DATA", str(tmp_path / "data"))
    assert where("cora") == "bundled; public split in ERGNN_DATA"
    monkeypatch.setenv("ERGNN_OFFLINE", "1")
    assert where("dblp") == "missing (--download)"
