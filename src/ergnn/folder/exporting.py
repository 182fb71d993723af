"""A model for use elsewhere: weights, what they mean, and the graph if it is wanted."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ergnn import __version__
from ergnn.data.formats.boundary import wrap_errors
from ergnn.errors import InputError, UnknownNameError
from ergnn.export import EXPORTERS, METADATA, NodeClassifier, build_module, class_names
from ergnn.folder import database
from ergnn.folder.database import from_json, to_json
from ergnn.folder.snapshot import Snapshot, open_snapshot
from ergnn.folder.state import load_tensors
from ergnn.folder.versions import get_blob

SAFETENSORS = "safetensors"
FORMATS = (SAFETENSORS, *EXPORTERS)
SUFFIXES = (f".{SAFETENSORS}", *(suffix for suffix, _ in EXPORTERS.values()))


def export_snapshot(snapshot: Snapshot, out: str | Path, graph: bool = False, format: str = SAFETENSORS) -> list[Path]:
    """Write the model (and ``graph.npz``) into a folder, or to a named file and beside it.

    ``safetensors`` are the weights, with their description as JSON in the file's metadata and beside it: the backbone
    with its options or the feature map, the class of each output, class and feature names. For ``onnx`` and ``torch``
    see :mod:`ergnn.export.files`. The npz is in the layout of gnn-benchmark (CSR of adjacency and features, labels),
    with the ids.
    """
    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    if not snapshot.learner.num_tasks:
        raise InputError(f"{snapshot.root}: nothing has been learned yet; there is nothing to export")
    path, suffix = Path(out), EXPORTERS[format][0] if format in EXPORTERS else f".{SAFETENSORS}"
    if path.suffix in SUFFIXES and path.suffix != suffix:
        raise InputError(f"{path}: format {format!r} needs a file that ends with {suffix}, or a folder")
    model = path if path.suffix == suffix else path / f"model{suffix}"
    contents = {model: b""}
    if format in EXPORTERS:
        contents[model] = EXPORTERS[format][1](snapshot_module(snapshot))
    else:
        text = to_json(describe(snapshot))
        contents[model] = save(_weights(snapshot), {"format": "pt", METADATA: text})
        contents[model.with_suffix(".json")] = f"{text}\n".encode()
    if graph:
        contents[model.with_name("graph.npz")] = _graph_npz(snapshot)
    try:
        model.parent.mkdir(parents=True, exist_ok=True)
        for file, data in contents.items():
            _replace(file, data)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return list(contents)


def load(path: str | Path, version: int | None = None) -> nn.Module:
    """The plain PyG module of a learner's folder or of an exported file: ``module(x, edge_index)`` are logits.

    Args:
        path: a folder, or a ``.safetensors`` or ``.pt2`` file of ``ergnn export``.
        version: of a folder, an older version that is kept.

    Returns:
        A module with ``classes``, the name of each column of the logits, and ``metadata``: a
        :class:`~ergnn.export.NodeClassifier`, or for a ``.pt2`` file a ``torch.fx.GraphModule``.
    """
    path = Path(path)
    if path.suffix == ".onnx":
        raise InputError(f"{path}: an ONNX file is read by onnxruntime.InferenceSession")
    if path.is_file():
        with wrap_errors(path, "a model of ergnn export"):
            return _load_program(path) if path.suffix == ".pt2" else _load_weights(path)
    with database.wrap_errors(path), open_snapshot(path, version) as snapshot:
        return snapshot_module(snapshot)


def _load_weights(path: Path) -> NodeClassifier:
    with safe_open(path, "pt") as file:
        metadata = from_json((file.metadata() or {})[METADATA])
        return build_module(metadata, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118


def _load_program(path: Path) -> nn.Module:
    files = {METADATA: ""}
    module: Any = torch.export.load(path, extra_files=files).module()
    module.metadata = from_json(files[METADATA])
    module.classes = class_names(module.metadata)
    return module


def snapshot_module(snapshot: Snapshot) -> NodeClassifier:
    """The module of a snapshot."""
    if not snapshot.learner.num_tasks:
        raise InputError(f"{snapshot.root}: nothing has been learned yet; there is no model")
    return build_module(describe(snapshot), _weights(snapshot))


def _weights(snapshot: Snapshot) -> dict[str, Tensor]:
    return load_tensors(get_blob(snapshot.connection, snapshot.version.number, "weights"))


def describe(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "ergnn": __version__,
        **snapshot.learner.describe(snapshot.classes),
        "num_features": snapshot.version.state["num_features"],
        "feature_names": snapshot.version.state["feature_names"],
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
