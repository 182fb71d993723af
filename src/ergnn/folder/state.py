"""A learner's state as JSON, tensors and rows, and back."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from itertools import count
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from ergnn.folder.database import FolderError, damaged, insert, reading_values, select
from ergnn.folder.versions import Version, get_blob, put_blob
from ergnn.learner import Learner

TENSOR = "$tensor"


def pack(value: Any, tensors: dict[str, Tensor], path: str = "") -> Any:
    """A nested value with every tensor moved to ``tensors``, under the path that leads to it."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().contiguous()
        return {TENSOR: path}
    if isinstance(value, dict):
        return {str(key): pack(entry, tensors, f"{path}.{key}".lstrip(".")) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [pack(entry, tensors, f"{path}.{i}".lstrip(".")) for i, entry in enumerate(value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """What :func:`pack` was given."""
    if isinstance(value, dict):
        if set(value) == {TENSOR}:
            return tensors[value[TENSOR]]
        return {key: unpack(entry, tensors) for key, entry in value.items()}
    return [unpack(entry, tensors) for entry in value] if isinstance(value, list) else value


def load_tensors(data: bytes) -> dict[str, Tensor]:
    try:
        return dict(load(data))
    except Exception as error:  # SafetensorError, and what torch says of shapes
        raise FolderError(f"tensors cannot be read ({str(error)[:200]}): the database is damaged") from None


def write_learner(connection: sqlite3.Connection, learner: Learner, version: int) -> None:
    """Store weights, the method's tensors and what is remembered with a version that is there already."""
    state = learner.state_dict()
    weights = {name: value.cpu().contiguous() for name, value in state["model"].items()}
    put_blob(connection, version, "weights", save(weights, {"format": "pt"}))
    tensors: dict[str, Tensor] = {}
    pack(_without_buffer(state["method"]), tensors)
    if tensors:
        put_blob(connection, version, "method", save(tensors))
    insert(connection, "remembered", _remembered(learner, version))


def _remembered(learner: Learner, version: int) -> Iterator[tuple[Any, ...]]:
    buffer, place = learner.method.buffer, count()
    for part in [] if buffer is None else buffer.experiences:
        columns = (part.nodes, part.labels, part.scores, part.ranks + 1)
        for node, label, score, rank in zip(*(column.tolist() for column in columns), strict=True):
            value = None if math.isnan(score) else score + 0.0  # SQLite has neither NaN nor -0.0
            yield version, next(place), part.task, node, label, value, rank


def learner_state(learner: Learner) -> dict[str, Any]:
    """The rest of a learner, as JSON; times are left out, so that the same learning gives the same text."""
    state = learner.state_dict()
    del state["model"]
    for entry in state["history"]:
        entry["train_seconds"] = entry["select_seconds"] = 0.0
    state["method"] = _without_buffer(state["method"])
    packed: dict[str, Any] = pack(state, {})
    return packed


def _without_buffer(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "buffer"}


def read_learner(connection: sqlite3.Connection, version: Version, learner: Learner) -> None:
    """Give a new learner the state of a version."""
    with reading_values(f"the learner of version {version.number}"):
        state = dict(version.state["learner"])
        weights = load_tensors(get_blob(connection, version.number, "weights") or b"")
        method = get_blob(connection, version.number, "method")
        state["method"] = unpack(state["method"], {} if method is None else load_tensors(method))
        if learner.method.buffer is not None:
            state["method"]["buffer"] = _read_buffer(connection, version, learner.method.buffer.state_dict())
        learner.load_state_dict({**state, "model": weights})


def _read_buffer(connection: sqlite3.Connection, version: Version, empty: dict[str, Any]) -> dict[str, Any]:
    """The state of the buffer, from the rows of what is remembered."""
    rows = select(connection, "remembered", "version = :v ORDER BY place", v=version.number)
    if len(rows) != version.remembered:
        raise damaged("the table remembered")
    classes = {c for task in version.state["learner"]["classes"] for c in task}
    parts: dict[int, list[tuple[int, int, float]]] = {}
    for _, _, task, node, label, score, _ in rows:
        if not 0 <= node < version.next_node or label not in classes:
            raise FolderError(f"node {node} of class {label} cannot be remembered: the database is damaged")
        parts.setdefault(task, []).append((node, label, math.nan if score is None else score))
    experiences = []
    for task, part in parts.items():
        nodes, labels, scores = map(torch.tensor, zip(*part, strict=True))
        experiences.append({"task": task, "nodes": nodes, "labels": labels, "scores": scores.float()})
    return {**empty, "experiences": experiences}
