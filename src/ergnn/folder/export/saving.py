"""The model of a folder for use elsewhere: files, and reading them back as a module."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ergnn.config.errors import InputError, UnknownNameError
from ergnn.config.files import wrap_errors, write_file
from ergnn.data.partial import LabeledGraph
from ergnn.data.structure import features_of
from ergnn.folder import database
from ergnn.folder.export.files import EXPORTERS, METADATA
from ergnn.folder.export.module import NodeClassifier, build_module, class_names
from ergnn.folder.snapshot import Snapshot, open_snapshot
from ergnn.folder.versions import get_tensors

SAFETENSORS = "safetensors"
SUFFIXES = {SAFETENSORS: f".{SAFETENSORS}", **{name: suffix for name, (suffix, _) in EXPORTERS.items()}}


def check_target(out: str | Path, format: str) -> Path:
    """The file to write: ``out`` if it has the suffix of the format, else ``model`` with this suffix in ``out``."""
    if format not in SUFFIXES:
        raise UnknownNameError("format", format, SUFFIXES)
    path, suffix = Path(out), SUFFIXES[format]
    if path.suffix in SUFFIXES.values() and path.suffix != suffix:
        raise InputError(f"{path}: format {format!r} needs a file that ends with {suffix}, or a folder")
    return path if path.suffix == suffix else path / f"model{suffix}"


def export_snapshot(snapshot: Snapshot, out: str | Path, graph: bool = False, format: str = SAFETENSORS) -> list[Path]:
    """Write the model of a version, and ``graph.npz`` beside it if wanted.

    ``safetensors`` are the weights with their description as JSON, in the file's metadata and in a file beside it:
    backbone and its options or feature map, class of each output, class and feature names. For ``onnx`` and ``torch``
    see :mod:`ergnn.folder.export.files`.
    """
    path = check_target(out, format)
    metadata, tensors = _model(snapshot)
    if format in EXPORTERS:
        contents = {path: EXPORTERS[format][1](build_module(metadata, tensors))}
    else:
        text = json.dumps(metadata, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        data = save(tensors, {"format": "pt", METADATA: text})
        contents = {path: data, path.with_suffix(".json"): f"{text}\n".encode()}
    if graph:
        contents[path.with_name("graph.npz")] = graph_npz(snapshot.graph, snapshot.classes)
    for file, data in contents.items():
        write_file(file, data)
    return list(contents)


def load(path: str | Path, version: int | None = None) -> nn.Module:
    """The plain PyG module of a learner's folder or of an exported file: ``module(x, edge_index)`` returns logits.

    Args:
        path: a folder, or a ``.safetensors`` or ``.pt2`` file of ``ergnn export``.
        version: stored version of a folder; by default the current one.

    Returns:
        A module with ``classes``, the name of each column of the logits, and ``metadata``: a
        :class:`~ergnn.folder.export.NodeClassifier`, or for a ``.pt2`` file a ``torch.fx.GraphModule``.
    """
    path = Path(path)
    if path.suffix == ".onnx":
        raise InputError(f"{path}: to read an ONNX file, use onnxruntime.InferenceSession")
    if path.is_file():
        with wrap_errors(path, "a model of ergnn export"):
            return _load_program(path) if path.suffix == ".pt2" else _load_weights(path)
    with database.wrap_errors(path), open_snapshot(path, version) as snapshot:
        return build_module(*_model(snapshot))


def _model(snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description of the weights, and the weights."""
    if not snapshot.learner.num_tasks:
        raise InputError(f"{snapshot.root}: nothing has been learned yet; there is no model")
    stored = get_tensors(snapshot.connection, snapshot.version.number, "weights")
    return snapshot.describe(), {**stored, **snapshot.learner.more_tensors()}


def _load_weights(path: Path) -> NodeClassifier:
    with safe_open(path, "pt") as file:
        metadata = json.loads((file.metadata() or {})[METADATA])
        return build_module(metadata, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118


def _load_program(path: Path) -> nn.Module:
    files = {METADATA: ""}
    module: Any = torch.export.load(path, extra_files=files).module()
    module.metadata = json.loads(files[METADATA])
    module.classes = class_names(module.metadata)
    return module


def graph_npz(graph: LabeledGraph, class_names: list[str]) -> bytes:
    """A graph in the layout of gnn-benchmark (CSR of adjacency and features, labels), with ids and class names."""
    nodes = graph.nodes()
    target, source, weight = graph.neighbors(nodes)
    edges = (np.ones(len(source), np.float32) if weight is None else weight, (np.searchsorted(nodes, source), target))
    adjacency = scipy.sparse.csr_matrix(edges, (len(nodes), len(nodes)))
    features = scipy.sparse.csr_matrix(features_of(graph, nodes))
    arrays: dict[str, Any] = {
        f"{name}_{field}": np.asarray(getattr(matrix, field))
        for name, matrix in (("adj", adjacency), ("attr", features))
        for field in ("data", "indices", "indptr", "shape")
    }
    names = {"node_names": graph.names(nodes), "class_names": class_names}
    arrays |= {name: np.array(values, dtype=str) for name, values in names.items()}
    data = io.BytesIO()
    np.savez_compressed(data, **arrays, labels=graph.labels(nodes)[0])
    return data.getvalue()
