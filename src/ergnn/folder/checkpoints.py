"""Checkpoints of the update that is being learned, and nested values as JSON and tensors."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from time import monotonic
from typing import Any

from safetensors.torch import save
from torch import Tensor

from ergnn.config.errors import FolderError
from ergnn.engine.training import TaskProgress
from ergnn.folder.database import MALFORMED, from_json, insert, select, to_json, transaction
from ergnn.folder.versions import load_tensors
from ergnn.learning.callbacks import Callback
from ergnn.methods import LearnerView

TENSOR = "$tensor"


class Checkpoints(Callback):
    """A callback that stores checkpoints of the update that is being learned in the table ``checkpoint``.

    Args:
        connection: connection of the writer.
        seconds: seconds between two checkpoints; 0 for one after every epoch.
        on_epoch: called after every epoch.
    """

    def __init__(
        self, connection: sqlite3.Connection, seconds: float, on_epoch: Callable[[], None] | None = None
    ) -> None:
        self.connection, self.seconds, self.on_epoch = connection, seconds, on_epoch
        self._last = monotonic()

    def on_epoch_end(self, learner: LearnerView, progress: TaskProgress) -> None:
        if monotonic() - self._last >= self.seconds:
            tensors: dict[str, Tensor] = {}
            text = to_json(pack(progress.state_dict(), tensors))
            data = save(tensors)
            with transaction(self.connection):
                insert(self.connection, "checkpoint", [(1, text, data)], "REPLACE")
            self._last = monotonic()
        if self.on_epoch is not None:
            self.on_epoch()

    def read(self) -> dict[str, Any] | None:
        """The newest checkpoint; None if there is none that is intact, so that learning starts anew."""
        try:
            _, text, data = select(self.connection, "checkpoint")[0]
            state: dict[str, Any] = unpack(from_json(text), load_tensors(data))
            return state
        except (*MALFORMED, FolderError):
            return None


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
    """The inverse of :func:`pack`."""
    if isinstance(value, dict):
        if set(value) == {TENSOR}:
            return tensors[value[TENSOR]]
        return {key: unpack(entry, tensors) for key, entry in value.items()}
    return [unpack(entry, tensors) for entry in value] if isinstance(value, list) else value
