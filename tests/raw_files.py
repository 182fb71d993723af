"""Small raw files in the layouts that PyG's loaders read, to test reading without the real data."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import scipy.sparse as sp


def write_photo(root: Path, seed: int = 0) -> Path:
    """``amazon/Photo``: 600 nodes, 30 features, 8 classes, in the npz layout of gnn-benchmark."""
    rng = np.random.default_rng(seed)
    adj = sp.random(600, 600, density=0.01, format="csr", random_state=seed)
    attr = sp.random(600, 30, density=0.3, format="csr", random_state=seed)
    file = root / "amazon/Photo/raw/amazon_electronics_photo.npz"
    file.parent.mkdir(parents=True)
    arrays = {
        f"{name}_{part}": getattr(matrix, part)
        for name, matrix in (("adj", adj), ("attr", attr))
        for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(file, **arrays, labels=rng.permutation(600) % 8)
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
