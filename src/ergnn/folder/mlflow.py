"""Models of a folder as ``mlflow.pyfunc`` models. Needs the extra ``mlflow``.

The input of a model is ``{"x": features [nodes, num_features], "edge_index": [2, edges]}``, arrays of a graph of any
size; its output is a data frame of probabilities with one row per node and one column per class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from ergnn import __version__
from ergnn.config.errors import InputError
from ergnn.config.lazy import extra
from ergnn.folder import LearnerFolder
from ergnn.folder.export.saving import load


def save_model(folder: str | Path, path: str | Path, *, version: int | None = None, **options: Any) -> None:
    """Save the model of a learner's folder as an MLflow model.

    Args:
        folder: the learner's folder.
        path: a new directory.
        version: an older version of the folder that is kept.
        options: of ``mlflow.pyfunc.save_model``, e.g. ``metadata``.
    """
    with _arguments(folder, version, options) as arguments:
        extra("mlflow.pyfunc", "mlflow", "the MLflow flavor").save_model(str(path), **arguments)


def log_model(folder: str | Path, name: str = "model", *, version: int | None = None, **options: Any) -> Any:
    """Log the model of a learner's folder to MLflow's active run, or to a new one; returns its ``ModelInfo``.

    ``mlflow.pyfunc.load_model(info.model_uri)`` loads it.

    Args:
        folder: the learner's folder.
        name: of the model.
        version: an older version of the folder that is kept.
        options: of ``mlflow.pyfunc.log_model``, e.g. ``registered_model_name``.
    """
    with _arguments(folder, version, options) as arguments:
        return extra("mlflow.pyfunc", "mlflow", "the MLflow flavor").log_model(name=name, **arguments)


@contextmanager
def _arguments(folder: str | Path, version: int | None, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What MLflow needs: the exported file, the module that reads it, and its signature."""
    extra("mlflow.pyfunc", "mlflow", "the MLflow flavor")
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec

    with TemporaryDirectory() as out:
        weights, _ = LearnerFolder(folder).export(out, version=version)
        module: Any = load(weights)
        inputs = [
            TensorSpec(np.dtype(np.float32), (-1, module.num_features), "x"),
            TensorSpec(np.dtype(np.int64), (2, -1), "edge_index"),
        ]
        outputs = [ColSpec("double", name) for name in module.classes]
        defaults = {
            "signature": ModelSignature(Schema(inputs), Schema(outputs)),
            "pip_requirements": [f"ergnn[mlflow]=={__version__}"],
        }
        yield {"loader_module": __name__, "data_path": str(weights), **defaults, **options}


def _load_pyfunc(path: str) -> PyfuncModel:
    """Called by ``mlflow.pyfunc.load_model``."""
    return PyfuncModel(load(path))


class PyfuncModel:
    """What ``mlflow.pyfunc`` calls."""

    def __init__(self, module: nn.Module) -> None:
        self.module: Any = module

    def predict(self, model_input: Mapping[str, Any], params: dict[str, Any] | None = None) -> Any:
        """Probabilities as a data frame."""
        import pandas as pd

        x, edge_index = _tensors(model_input, self.module.num_features)
        with torch.no_grad():
            probabilities = torch.softmax(self.module(x, edge_index).double(), 1)
        return pd.DataFrame(probabilities.numpy(), columns=self.module.classes)


def _tensors(given: Any, num_features: int) -> tuple[Tensor, Tensor]:
    if not isinstance(given, Mapping) or not {"x", "edge_index"} <= given.keys():
        raise InputError("the input must be a mapping with the arrays 'x' and 'edge_index'")
    x, edges = torch.as_tensor(given["x"]).float(), torch.as_tensor(given["edge_index"]).long()
    if x.dim() != 2 or x.size(1) != num_features or not bool(torch.isfinite(x).all()):
        raise InputError(f"x has shape {list(x.shape)}; it must be [nodes, {num_features}], all finite")
    if edges.dim() != 2 or edges.size(0) != 2:
        raise InputError(f"edge_index has shape {list(edges.shape)}; it must be [2, edges]")
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < x.size(0):
        raise InputError(f"edge_index names nodes {int(edges.min())} to {int(edges.max())}; x has {x.size(0)} nodes")
    return x, edges
