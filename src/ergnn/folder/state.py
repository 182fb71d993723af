"""States as JSON, tensors and rows, and back."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from itertools import count
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from ergnn.folder.database import FolderError, Row, damaged, select
from ergnn.folder.versions import Version
from ergnn.replay.buffer import ExperienceBuffer

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


def load_tensors(data: bytes | None) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        return dict(load(data or b""))
    except Exception as error:  # SafetensorError, and what torch says of shapes
        raise FolderError(f"tensors cannot be read ({str(error)[:200]}): the database is damaged") from None


def remembered_rows(buffer: ExperienceBuffer, version: int) -> Iterator[Row]:
    """Rows of the table ``remembered``."""
    place = count()
    for part in buffer.experiences:
        columns = (part.nodes, part.labels, part.scores, part.ranks + 1)
        for node, label, score, rank in zip(*(column.tolist() for column in columns), strict=True):
            value = None if math.isnan(score) else score + 0.0  # SQLite has neither NaN nor -0.0
            yield version, next(place), part.task, node, label, value, rank


def read_experiences(connection: sqlite3.Connection, version: Version) -> list[dict[str, Any]]:
    """The experiences of a buffer's state, from the rows of the table ``remembered``."""
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
    return experiences
