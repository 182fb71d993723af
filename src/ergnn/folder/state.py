"""A learner's state as JSON and tensors, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.errors import ErgnnError
from ergnn.folder.files import FolderError
from ergnn.folder.model import make_learner
from ergnn.folder.settings import Settings
from ergnn.folder.tensors import Array
from ergnn.learner import Learner
from ergnn.nn.backbones import BACKBONES

TENSOR = "$tensor"


def pack(value: Any, tensors: dict[str, Array], path: str = "") -> Any:
    """A nested value with every tensor moved to ``tensors``, under the path that leads to it."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().numpy()
        return {TENSOR: path}
    if isinstance(value, dict):
        return {str(key): pack(entry, tensors, f"{path}.{key}" if path else str(key)) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [pack(entry, tensors, f"{path}.{i}" if path else str(i)) for i, entry in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def unpack(value: Any, tensors: dict[str, Array], path: object) -> Any:
    """What :func:`pack` was given."""
    if isinstance(value, dict):
        if set(value) == {TENSOR}:
            name = value[TENSOR]
            if not isinstance(name, str) or name not in tensors:
                raise FolderError(f"{path}: tensor {str(name)[:60]!r} is missing")
            return torch.from_numpy(tensors[name].copy())
        return {key: unpack(entry, tensors, path) for key, entry in value.items()}
    return [unpack(entry, tensors, path) for entry in value] if isinstance(value, list) else value


def pack_learner(learner: Learner) -> tuple[dict[str, Any], dict[str, Array], dict[str, Array]]:
    """JSON, weights and buffer of a learner; times are left out, so that the same learning is the same bytes."""
    state = learner.state_dict()
    weights = {name: value.detach().cpu().numpy() for name, value in state.pop("model").items()}
    for entry in state["history"]:
        entry["train_seconds"] = entry["select_seconds"] = 0.0
    buffer: dict[str, Array] = {}
    state["method"] = pack(state["method"], buffer)
    return pack(state, {}), weights, buffer


def unpack_learner(
    settings: Settings, state: dict[str, Any], weights: dict[str, Array], buffer: dict[str, Array], path: object
) -> Learner:
    """The learner as it was; whatever does not fit is refused before a model of its size is made."""
    try:
        learner = make_learner(settings)
        if weights:
            _check_shapes(settings, state, weights, path)
        full = {**state, "model": {name: torch.from_numpy(value.copy()) for name, value in weights.items()}}
        full["method"] = unpack(state["method"], buffer, path)
        learner.load_state_dict(full)
        _check_buffer(learner, path)
    except ErgnnError as error:
        raise FolderError(f"{path}: the learner's state does not fit: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError, OverflowError) as error:
        raise FolderError(f"{path}: the learner's state does not fit ({type(error).__name__}: {error})") from None
    return learner


def _check_shapes(settings: Settings, state: dict[str, Any], weights: dict[str, Array], path: object) -> None:
    """Hold the encoder that the settings ask for against the weights that are there, without making it."""
    features = state.get("num_features")
    if type(features) is not int or not 1 <= features <= settings.max_features:
        raise FolderError(f"num_features is {str(features)[:30]}")
    with torch.device("meta"):
        model = BACKBONES.create(settings.backbone, in_channels=features, **settings.backbone_options)
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: value.shape for name, value in weights.items() if not name.startswith("heads.")}
    if wanted != found:
        raise FolderError("the weights are not those of this backbone")
    outputs = len({c for classes in state["classes"] for c in classes})
    if outputs > sum(value.size for name, value in weights.items() if name.startswith("heads.")):
        raise FolderError(f"{outputs} classes are more than there are weights for")
    for name, value in weights.items():
        if value.dtype != np.float32 or not np.isfinite(value).all():
            raise FolderError(f"weights {name!r} are not finite 32-bit numbers")


def _check_buffer(learner: Learner, path: object) -> None:
    known = {c for classes in learner.heads.classes for c in classes}
    assert learner.method.buffer is not None
    for part in learner.method.buffer.experiences:
        if not (part.nodes.dim() == 1 and part.nodes.shape == part.labels.shape == part.scores.shape):
            raise FolderError("what is remembered is not one label and one score a node")
        if part.nodes.dtype != torch.int64 or part.labels.dtype != torch.int64 or part.scores.dtype != torch.float32:
            raise FolderError("what is remembered is not of the right type")
        if not set(part.labels.tolist()) <= known or type(part.task) is not int:
            raise FolderError("what is remembered has a class that no update brought")
