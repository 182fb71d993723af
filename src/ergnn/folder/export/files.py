"""Files of a module that run without ergnn: ONNX, and a program of ``torch.export``."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import ErgnnError
from ergnn.config.lazy import extra
from ergnn.folder.export.module import NodeClassifier

OPSET = 18
"""The first ONNX opset whose scatter operations can sum."""
TOLERANCE = 1e-5
"""Largest difference between ONNX's logits and the module's, relative to the largest logit if that is above 1."""
METADATA = "ergnn"
"""The entry of a file's metadata that describes the model, as JSON."""


def traced(module: NodeClassifier) -> torch.export.ExportedProgram:
    """The module as a graph of operations, for any number of nodes and edges."""
    nodes, edges = torch.export.Dim("nodes", min=1), torch.export.Dim("edges", min=0)
    shapes = {"x": {0: nodes}, "edge_index": {1: edges}}
    with _quiet():
        return torch.export.export(module, _graph(module, 7, 19), dynamic_shapes=shapes, strict=False)


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
    _refuse_races(program.model.graph)
    program.model.metadata_props[METADATA] = json.dumps(module.metadata)
    data: bytes = program.model_proto.SerializeToString()
    _check_onnx(module, data)
    return data


EXPORTERS: dict[str, tuple[str, Callable[[NodeClassifier], bytes]]] = {
    "onnx": (".onnx", onnx_bytes),
    "torch": (".pt2", torch_bytes),
}
"""Format → suffix and writer."""


def _refuse_races(graph: Any) -> None:
    """Refuse sums by ScatterND: ONNX Runtime's threads add to the same element without a lock."""
    for node in graph.all_nodes():
        kind = node.attributes.get("reduction")
        if node.op_type == "ScatterND" and kind is not None and kind.value != "none":
            raise ErgnnError(
                "the model sums by index_add or index_put; ONNX Runtime does so with a data race; use scatter_add"
            )


def _check_onnx(module: NodeClassifier, data: bytes) -> None:
    """Refuse a model whose logits differ from the module's on random graphs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for x, edge_index in _graphs(module):
        with torch.no_grad():
            expected = module(x, edge_index)
        (logits,) = session.run(["logits"], {"x": x.numpy(), "edge_index": edge_index.numpy()})
        error = float((torch.from_numpy(logits) - expected).abs().max()) / max(1.0, float(expected.abs().max()))
        if not error <= TOLERANCE:
            raise ErgnnError(f"logits by ONNX differ by {error:.1g} on a graph of {x.size(0)} nodes")


def _graphs(module: NodeClassifier) -> Iterator[tuple[Tensor, Tensor]]:
    """Graphs of several sizes: with isolated nodes, loops and duplicate edges, and without any edge."""
    for nodes, edges in ((50, 400), (211, 97), (1, 0)):
        x, edge_index = _graph(module, nodes, edges)
        yield x, torch.cat([edge_index, edge_index[:, :10], edge_index[:1, :5].expand(2, -1)], 1)


def _graph(module: NodeClassifier, nodes: int, edges: int) -> tuple[Tensor, Tensor]:
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
