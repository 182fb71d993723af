"""Files of an exported model: writing, and reading back as a module."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
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
from ergnn.folder.export.files import EXPORTERS, METADATA
from ergnn.folder.export.module import NodeClassifier, build_module, class_names

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


def export_files(
    path: Path, format: str, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], graph: bytes | None = None
) -> list[Path]:
    """Write a model, and ``graph.npz`` beside it.

    ``safetensors`` are the weights with their description as JSON, in the file's metadata and in a file beside it:
    backbone and its options or feature map, class of each output, class and feature names. For ``onnx`` and ``torch``
    see :mod:`ergnn.folder.export.files`.
    """
    if format in EXPORTERS:
        contents = {path: EXPORTERS[format][1](build_module(metadata, tensors))}
    else:
        text = json.dumps(metadata, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        data = save(dict(tensors), {"format": "pt", METADATA: text})
        contents = {path: data, path.with_suffix(".json"): f"{text}\n".encode()}
    if graph is not None:
        contents[path.with_name("graph.npz")] = graph
    for file, data in contents.items():
        write_file(file, data)
    return list(contents)


def load_file(path: Path) -> nn.Module:
    """The module of an exported ``.safetensors`` or ``.pt2`` file."""
    with wrap_errors(path, "a model of ergnn export"):
        return _load_program(path) if path.suffix == ".pt2" else _load_weights(path)


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
    target, source = graph.neighbors(nodes)
    edges = (np.ones(len(source), np.float32), (np.searchsorted(nodes, source), target))
    adjacency = scipy.sparse.csr_matrix(edges, (len(nodes), len(nodes)))
    features = scipy.sparse.csr_matrix(graph.features(nodes))
    arrays: dict[str, Any] = {
        f"{name}_{part}": np.asarray(getattr(matrix, part))
        for name, matrix in (("adj", adjacency), ("attr", features))
        for part in ("data", "indices", "indptr", "shape")
    }
    names = {"node_names": graph.names(nodes), "class_names": class_names}
    arrays |= {name: np.array(values, dtype=str) for name, values in names.items()}
    data = io.BytesIO()
    np.savez_compressed(data, **arrays, labels=graph.labels(nodes)[0])
    return data.getvalue()
