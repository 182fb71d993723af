"""The model of a folder, for use elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.folder.database import wrap_errors
from ergnn.folder.export.module import build_module
from ergnn.folder.export.saving import SAFETENSORS, check_target, export_files, graph_npz, load_file
from ergnn.folder.snapshot import Snapshot, open_snapshot
from ergnn.folder.versions import get_tensors


def export_snapshot(snapshot: Snapshot, out: str | Path, graph: bool = False, format: str = SAFETENSORS) -> list[Path]:
    """Write the model, and the graph if wanted; see :func:`ergnn.folder.export.saving.export_files`."""
    path = check_target(out, format)
    return export_files(path, format, *_model(snapshot), graph_npz(snapshot.graph, snapshot.classes) if graph else None)


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
        return load_file(path)
    with wrap_errors(path), open_snapshot(path, version) as snapshot:
        return build_module(*_model(snapshot))


def _model(snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description of the weights, and the weights."""
    if not snapshot.learner.num_tasks:
        raise InputError(f"{snapshot.root}: nothing has been learned yet; there is no model")
    return snapshot.describe(), get_tensors(snapshot.connection, snapshot.version.number, "weights")
