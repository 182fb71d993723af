"""Small raw files in the layouts that PyG's loaders read, to test reading without the real data."""

import gzip
import json
import pickle
from pathlib import Path

import numpy as np
import scipy.sparse as sp


def write_photo(root: Path, seed: int = 0) -> Path:
    """``amazon/Photo``: 600 nodes, 30 features, 8 classes."""
    return write_npz(root / "amazon/Photo/raw/amazon_electronics_photo.npz", np.arange(600) % 8, seed)


def write_npz(file: Path, labels: np.ndarray, seed: int = 0) -> Path:
    """A graph with 30 features in the npz layout of gnn-benchmark; labels are shuffled."""
    n = len(labels)
    adj = sp.random(n, n, density=0.01, format="csr", random_state=seed)
    attr = sp.random(n, 30, density=0.3, format="csr", random_state=seed)
    file.parent.mkdir(parents=True)
    arrays = {
        f"{name}_{part}": getattr(matrix, part)
        for name, matrix in (("adj", adj), ("attr", attr))
        for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(file, **arrays, labels=np.random.default_rng(seed).permutation(labels))
    return file


def write_cora(root: Path, seed: int = 0) -> Path:
    """``planetoid/Cora``: 140 training, 500 validation and 60 test nodes, 20 features, 7 classes."""
    rng = np.random.default_rng(seed)
    words = sp.csr_matrix((rng.random((700, 20)) < 0.05).astype(np.float32))
    labels = np.eye(7, dtype=np.int32)[np.arange(700) % 7]
    links = {v: [int(u) for u in rng.integers(0, 700, 2)] for v in range(700)}
    both = {v: links[v] + [u for u in links if v in links[u]] for v in links}
    raw = root / "planetoid/Cora/raw"
    raw.mkdir(parents=True)
    parts = {
        "x": words[:140],
        "allx": words[:640],
        "tx": words[640:],
        "y": labels[:140],
        "ally": labels[:640],
        "ty": labels[640:],
        "graph": both,
    }
    for part, value in parts.items():
        (raw / f"ind.cora.{part}").write_bytes(pickle.dumps(value))
    (raw / "ind.cora.test.index").write_text("".join(f"{v}\n" for v in range(640, 700)))
    return raw


def write_reddit(root: Path, seed: int = 0) -> Path:
    """``reddit``: 41 communities of 10 posts, 5 features."""
    rng = np.random.default_rng(seed)
    labels = np.arange(410) % 41
    raw = root / "reddit/raw"
    raw.mkdir(parents=True)
    types = np.repeat([1, 2, 3], [205, 82, 123])  # training, validation, test
    np.savez(raw / "reddit_data.npz", feature=rng.random((410, 5)), label=labels, node_types=types)
    sp.save_npz(raw / "reddit_graph.npz", sp.random(410, 410, density=0.01, format="coo", random_state=seed))
    return raw


def write_wikics(root: Path) -> Path:
    """``wikics``: 60 articles in 10 fields, a self-loop, and 20 splits."""
    rng = np.random.default_rng(0)
    train, stopping, val = (rng.permutation(np.arange(20 * 60) % 3 == k).reshape(20, 60) for k in range(3))
    links = [[(v + 1) % 60, (v + 7) % 60] for v in range(60)]
    links[5].append(5)
    content = {
        "features": rng.normal(size=(60, 4)).tolist(),
        "labels": (np.arange(60) % 10).tolist(),
        "links": links,
        "train_masks": train.tolist(),
        "stopping_masks": stopping.tolist(),
        "val_masks": (val & ~train).tolist(),
        "test_mask": [False] * 60,
    }
    file = root / "wikics/raw/data.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(content))
    return file


def write_heterophilous(file: Path, classes: int) -> Path:
    """A graph of 200 nodes and ten splits in the layout of the heterophilous graphs."""
    rng = np.random.default_rng(0)
    parts = rng.integers(0, 3, (10, 200))
    masks = {f"{part}_masks": parts == k for k, part in enumerate(("train", "val", "test"))}
    edges = rng.integers(0, 200, (500, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    file.parent.mkdir(parents=True)
    features = rng.normal(size=(200, 6)).astype(np.float32)
    np.savez(file, node_features=features, node_labels=np.arange(200) % classes, edges=edges, **masks)
    return file


def write_ogb(root: Path, name: str, split: str, labels: np.ndarray) -> Path:
    """``ogbn_arxiv`` or ``ogbn_products``: five features, and links from each node to the next and to node 0."""
    n, folder = len(labels), root / name
    edges = [(v, v + 1) for v in range(n - 1)] + [(v, 0) for v in range(n)]
    arrays = {
        "raw/edge": edges,
        "raw/node-feat": np.random.default_rng(0).normal(size=(n, 5)).round(3).tolist(),
        "raw/node-label": labels.reshape(-1, 1).tolist(),
        "raw/node_year": [[2000 + v % 20] for v in range(n)],
        "raw/num-node-list": [[n]],
        "raw/num-edge-list": [[len(edges)]],
        **{f"split/{split}/{part}": [[v] for v in range(k, n, 3)] for k, part in enumerate(("train", "valid", "test"))},
    }
    for path, rows in arrays.items():
        file = folder / f"{path}.csv.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(file, "wt") as stream:
            stream.writelines(",".join(map(str, row)) + "\n" for row in rows)
    (folder / "RELEASE_v1.txt").write_text("")
    return folder
