"""Learners as files: a safetensors file with the tensors of a state, and everything else as JSON in its metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.config.files import replacing, wrap_errors
from ergnn.config.learner_config import LearnerConfig
from ergnn.config.registry import name_of
from ergnn.data.csr import CsrEdges
from ergnn.data.graph import Graph, Split

METADATA = "ergnn.learner"
"""Key of the JSON in the metadata of the file."""
OBJECTS = ("backbone", "method")
"""Settings that may be objects, which are not stored."""


def save_learner(path: str | Path, config: LearnerConfig, state: dict[str, Any], graph: Graph | None) -> None:
    """Write the configuration and the state of a learner, and a graph unless it is None."""
    tensors: dict[str, Tensor] = {}
    settings = dict(vars(config))
    objects = {name: name_of(settings.pop(name)) for name in OBJECTS if not isinstance(settings[name], str)}
    content = {"settings": settings, "state": state, "graph": None}
    if graph is not None:
        split = graph.public_split
        content["graph"] = {**vars(graph), "public_split": None if split is None else dict(vars(split))}
    packed = {name: _pack(value, tensors, name) for name, value in content.items()}
    text = json.dumps({**packed, "objects": objects}, ensure_ascii=False)
    with replacing(path) as new:
        save_file(tensors, new, {"format": "pt", METADATA: text})


def read_learner(path: str | Path, settings: dict[str, Any]) -> tuple[LearnerConfig, dict[str, Any], Graph | None]:
    """Read the configuration, the state, and the graph if the file has one.

    ``settings`` replace the stored ones; those that were objects are required.
    """
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    with wrap_errors(path, "a saved learner"), safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        if METADATA not in metadata:
            raise InputError(f"{path}: was not written by Learner.save (ergnn.load reads exported models)")
        content = json.loads(metadata[METADATA])
        stored, state, graph = (_unpack(content[name], file) for name in ("settings", "state", "graph"))
        if graph is not None:
            split = graph.pop("public_split")
            graph = Graph(**graph, public_split=None if split is None else Split(**split))
    for name, kind in content["objects"].items():
        if name not in settings:
            raise InputError(f"{path}: its {name} was an object; pass one, as in Learner.load(path, {name}={kind}(…))")
    return LearnerConfig(**stored).with_settings(settings), state, graph


def _pack(value: Any, tensors: dict[str, Tensor], where: str) -> Any:
    """Return a value as JSON, and add its tensors to ``tensors``."""
    if isinstance(value, Tensor) and value.layout == torch.sparse_csr:
        csr = value.crow_indices(), value.col_indices(), value.values(), tuple(value.shape)
        return {"csr": [_pack(component, tensors, where) for component in csr]}
    if isinstance(value, Tensor) and value.dim() == 2 and not value.is_contiguous() and value.T.is_contiguous():
        return {"transposed": _pack(value.T, tensors, where)}  # the order in memory decides about roundings
    if isinstance(value, Tensor):
        dense = value.materialize() if isinstance(value, CsrEdges) else value
        name = str(len(tensors))
        tensors[name] = dense.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, _pack(item, tensors, f"{where}, {key}")] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_pack(item, tensors, where) for item in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"{where}: a value of type {type(value).__name__} cannot be saved; use names and numbers")


def _unpack(packed: Any, file: Any) -> Any:
    """Return the value of :func:`_pack`, with tensors from a file."""
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "tensor":
        return file.get_tensor(content)
    if kind == "transposed":
        return _unpack(content, file).T
    if kind == "dict":
        return {key: _unpack(value, file) for key, value in content}
    values = [_unpack(value, file) for value in content]
    if kind == "csr":
        return torch.sparse_csr_tensor(*values, check_invariants=True)
    return values if kind == "list" else tuple(values)
