"""The model of a folder for use elsewhere: files, of which two run without ergnn, and reading them back."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ergnn.config.errors import ErgnnError, InputError, check_choice
from ergnn.config.files import wrap_errors, write_file
from ergnn.config.lazy import extra
from ergnn.data.partial import LabeledGraph
from ergnn.data.structure import features_of
from ergnn.folder import database
from ergnn.folder.export.module import NodeClassifier, build_module, class_names
from ergnn.folder.snapshot import Snapshot, open_snapshot
from ergnn.folder.versions import get_tensors

SUFFIXES = {"safetensors": ".safetensors", "onnx": ".onnx", "torch": ".pt2"}
METADATA = "ergnn"
"""The entry of a file's metadata that describes the model, as JSON."""
OPSET = 18
"""The first ONNX opset whose scatter operations can sum."""
TOLERANCE = 1e-5
"""Largest difference between ONNX's logits and the module's, relative to the largest logit if that is above 1."""


def traced(module: NodeClassifier) -> torch.export.ExportedProgram:
    """The module as a graph of operations, for any number of nodes and edges."""
    nodes, edges = torch.export.Dim("nodes", min=1), torch.export.Dim("edges", min=0)
    shapes = {"x": {0: nodes}, "edge_index": {1: edges}}
    with _quiet():
        return torch.export.export(module, _random_graph(module, 7, 19), dynamic_shapes=shapes, strict=False)


def torch_bytes(module: NodeClassifier) -> bytes:
    """A program of ``torch.export`` (``.pt2``) with the metadata as an extra file; reading it needs torch only."""
    data = io.BytesIO()
    with _quiet():
        torch.export.save(traced(module), data, extra_files={METADATA: json.dumps(module.metadata)})
    return data.getvalue()


def onnx_bytes(module: NodeClassifier) -> bytes:
    """An ONNX model of inputs ``x`` and ``edge_index`` and output ``logits``, compared with the module before.

    Needs the extra ``onnx``.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        extra(package, "onnx", "ONNX export")
    names: dict[str, Any] = {"input_names": ["x", "edge_index"], "output_names": ["logits"]}
    with _quiet():
        program = torch.onnx.export(
            traced(module), dynamo=True, opset_version=OPSET, external_data=False, verbose=False, **names
        )
    assert program is not None
    for node in program.model.graph.all_nodes():
        kind = node.attributes.get("reduction")
        if node.op_type == "ScatterND" and kind is not None and kind.value != "none":
            raise ErgnnError(
                "the model sums by index_add or index_put; ONNX Runtime does so with a data race; use scatter_add"
            )
    program.model.metadata_props[METADATA] = json.dumps(module.metadata)
    data: bytes = program.model_proto.SerializeToString()
    _check_onnx(module, data)
    return data


def _check_onnx(module: NodeClassifier, data: bytes) -> None:
    """Refuse a model whose logits differ from the module's on random graphs of several sizes, one without edges."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for nodes, edges in ((50, 400), (211, 97), (1, 0)):
        x, edge_index = _random_graph(module, nodes, edges)
        loops = edge_index[:1, :5].expand(2, -1)
        edge_index = torch.cat([edge_index, edge_index[:, :10], loops], 1)
        with torch.no_grad():
            expected = module(x, edge_index)
        (logits,) = session.run(["logits"], {"x": x.numpy(), "edge_index": edge_index.numpy()})
        error = float((torch.from_numpy(logits) - expected).abs().max()) / max(1.0, float(expected.abs().max()))
        if not error <= TOLERANCE:
            raise ErgnnError(f"logits by ONNX differ by {error:.1g} on a graph of {nodes} nodes")


def _random_graph(module: NodeClassifier, nodes: int, edges: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(nodes)
    x = torch.rand(nodes, module.num_features, generator=generator)
    x[::5] = 0.0
    return x, torch.randint(nodes, (2, edges), generator=generator)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings that are about torch's own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


EXPORTERS: dict[str, Callable[[NodeClassifier], bytes]] = {"onnx": onnx_bytes, "torch": torch_bytes}
"""Formats of files that run without ergnn, and their writers."""


def export_snapshot(
    snapshot: Snapshot, out: str | Path, graph: bool = False, format: str = "safetensors"
) -> list[Path]:
    """Write the model of a version, and ``graph.npz`` beside it if wanted; returns the files.

    ``safetensors`` are the weights with their description as JSON, in the file's metadata and in a file beside it:
    backbone and its options or feature map, class of each output, class and feature names. For ``onnx`` and ``torch``
    see :data:`EXPORTERS`.

    Args:
        snapshot: the version.
        out: a file with the suffix of the format, or a folder, for a file ``model`` with this suffix.
        graph: whether to write the graph.
        format: a key of :data:`SUFFIXES`.
    """
    check_choice("format", format, SUFFIXES)
    path, suffix = Path(out), SUFFIXES[format]
    if path.suffix in SUFFIXES.values() and path.suffix != suffix:
        raise InputError(f"{path}: format {format!r} needs a file that ends with {suffix}, or a folder")
    path = path if path.suffix == suffix else path / f"model{suffix}"
    metadata, tensors = _model(snapshot)
    if format in EXPORTERS:
        contents = {path: EXPORTERS[format](build_module(metadata, tensors))}
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
        :class:`~ergnn.folder.export.module.NodeClassifier`, or for a ``.pt2`` file a ``torch.fx.GraphModule``.
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
