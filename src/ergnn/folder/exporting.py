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
    meaning = describe(snapshot)
    written = [weights, weights.with_suffix(".json")]
    try:
        weights.parent.mkdir(parents=True, exist_ok=True)
        _replace(weights, get_blob(snapshot.connection, snapshot.version.number, "weights") or b"")
        _replace(written[1], (to_json(meaning) + "\n").encode())
        if graph:
            written.append(weights.with_name("graph.npz"))
            _write_graph(snapshot, written[-1])
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return written


def describe(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "ergnn": __version__,
        **snapshot.learner.describe(snapshot.classes),
        "num_features": snapshot.version.state["num_features"],
        "classes": snapshot.classes,
        "version": snapshot.version.number,
        "directed": snapshot.settings.directed,
    }


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(path.name + ".new")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _write_graph(snapshot: Snapshot, path: Path) -> None:
    graph = snapshot.graph
    nodes = graph.nodes()
    target, source = graph.neighbors(nodes)
    origin = np.searchsorted(nodes, source)
    order = np.lexsort((target, origin))
    features = scipy.sparse.csr_matrix(graph.features(nodes))
    arrays = {
        "adj_data": np.ones(len(order), np.float32),
        "adj_indices": target[order],
        "adj_indptr": np.concatenate([[0], np.cumsum(np.bincount(origin, minlength=len(nodes)))]),
        "adj_shape": np.array([len(nodes), len(nodes)]),
        "attr_data": features.data,
        "attr_indices": features.indices,
        "attr_indptr": features.indptr,
        "attr_shape": np.array(features.shape),
        "labels": graph.labels(nodes)[0],
        "node_names": np.array(graph.names(nodes), dtype=str),
        "class_names": np.array(snapshot.classes, dtype=str),
    }
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    _replace(path, data.getvalue())
