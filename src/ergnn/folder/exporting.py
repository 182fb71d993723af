"""A model for use elsewhere: weights, what they mean, and the graph if it is wanted."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ergnn import __version__
from ergnn.errors import InputError
from ergnn.folder.database import to_json
from ergnn.folder.snapshot import Snapshot
from ergnn.folder.versions import get_blob


def export_snapshot(snapshot: Snapshot, out: str | Path, graph: bool = False) -> list[Path]:
    """Write ``model.safetensors`` and ``model.json`` (and ``graph.npz``) into a folder, or beside a named file.

    The JSON holds the backbone with its options or the feature map, the class of each output and class names; the npz
    is in the layout of gnn-benchmark (CSR of adjacency and features, labels), with the ids.
    """
    if not snapshot.learner.num_tasks:
        raise InputError(f"{snapshot.root}: nothing has been learned yet; there is nothing to export")
    path = Path(out)
    weights = path if path.suffix == ".safetensors" else path / "model.safetensors"
    meaning = {
        "ergnn": __version__,
        **snapshot.learner.describe(snapshot.classes),
        "num_features": snapshot.version.state["num_features"],
        "classes": snapshot.classes,
        "version": snapshot.version.number,
        "directed": snapshot.settings.directed,
    }
    contents = {
        weights: get_blob(snapshot.connection, snapshot.version.number, "weights") or b"",
        weights.with_suffix(".json"): (to_json(meaning) + "\n").encode(),
    }
    if graph:
        contents[weights.with_name("graph.npz")] = _graph_npz(snapshot)
    try:
        weights.parent.mkdir(parents=True, exist_ok=True)
        for file, data in contents.items():
            _replace(file, data)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return list(contents)


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(path.name + ".new")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _graph_npz(snapshot: Snapshot) -> bytes:
    graph, nodes = snapshot.graph, snapshot.graph.nodes()
    target, source = graph.neighbors(nodes)
    edges = (np.ones(len(source), np.float32), (np.searchsorted(nodes, source), target))
    adjacency = scipy.sparse.csr_matrix(edges, (len(nodes), len(nodes)))
    features = scipy.sparse.csr_matrix(graph.features(nodes))
    arrays: dict[str, Any] = {
        f"{name}_{part}": np.asarray(getattr(matrix, part))
        for name, matrix in (("adj", adjacency), ("attr", features))
        for part in ("data", "indices", "indptr", "shape")
    }
    data = io.BytesIO()
    np.savez_compressed(
        data,
        **arrays,
        labels=graph.labels(nodes)[0],
        node_names=np.array(graph.names(nodes), dtype=str),
        class_names=np.array(snapshot.classes, dtype=str),
    )
    return data.getvalue()
