"""Learners in the database: weights, remembered nodes, cached rows, and checkpoints of the update in progress."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from ergnn.analytic import FeatureMap, RidgeSolution
from ergnn.config.errors import FolderError
from ergnn.data.partial import Array
from ergnn.engine.training import TaskProgress
from ergnn.folder.analytic import AnalyticLearner
from ergnn.folder.base_snapshot import Version
from ergnn.folder.database import MALFORMED, Row, damaged, from_json, insert, select, to_json, transaction
from ergnn.folder.graph import StoredGraph
from ergnn.folder.network import Checkpoints, NetworkLearner
from ergnn.folder.row_cache import RowCache
from ergnn.folder.versions import get_tensors, load_tensors, put_blob
from ergnn.methods import LearnerView

TENSOR = "$tensor"


class StoredCheckpoints(Checkpoints):
    """Checkpoints of the update that is being learned, in the table ``checkpoint``.

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
        try:
            _, text, data = select(self.connection, "checkpoint")[0]
            state: dict[str, Any] = unpack(from_json(text), load_tensors(data))
            return state
        except (*MALFORMED, FolderError):
            return None


class StoredNetwork(NetworkLearner):
    """A network that is read from and written to the database."""

    def state(self) -> dict[str, Any]:
        """State that is stored as JSON; it has no times, so that the same learning gives the same state."""
        state = self.learner.state_dict()
        del state["model"]
        for entry in state["history"]:
            entry["train_seconds"] = entry["select_seconds"] = 0.0
        packed: dict[str, Any] = pack({**state, "method": self._method({})}, {})
        return packed

    def write(self, connection: sqlite3.Connection, version: int) -> None:
        """Store weights, tensors of the method, and remembered nodes with a version."""
        model, tensors = self.learner.model, dict[str, Tensor]()
        weights = {} if model is None else {k: v.cpu().contiguous() for k, v in model.state_dict().items()}
        put_blob(connection, version, "weights", save(weights, {"format": "pt"}))
        self._method(tensors)
        if tensors:
            put_blob(connection, version, "method", save(tensors))
        rows: list[Row] = []
        for part in self.buffer.experiences:
            columns = (part.nodes, part.labels, part.scores, part.ranks + 1)
            for node, label, score, rank in zip(*(column.tolist() for column in columns), strict=True):
                value = None if math.isnan(score) else score + 0.0  # SQLite has neither NaN nor -0.0
                rows.append((version, len(rows), part.task, node, label, value, rank))
        insert(connection, "remembered", rows)

    def read(self, connection: sqlite3.Connection, version: Version) -> None:
        """Restore the state of a version in a new learner."""
        state, buffer = version.state["learner"], self.learner.method.buffer
        method = unpack(state["method"], get_tensors(connection, version.number, "method"))
        if buffer is not None:
            method["buffer"] = {**buffer.state_dict(), "experiences": _experiences(connection, version)}
        weights = get_tensors(connection, version.number, "weights")
        self.learner.load_state_dict({**state, "method": method, "model": weights})

    def _method(self, tensors: dict[str, Tensor]) -> Any:
        """The state of the method without its buffer, as JSON and ``tensors``."""
        state = self.learner.method.state_dict()
        return pack({name: value for name, value in state.items() if name != "buffer"}, tensors)


class StoredAnalytic(AnalyticLearner):
    """A closed form that is read from and written to the database."""

    _version = 0
    _cache: RowCache | None

    def cached_rows(self, graph: Any, nodes: Array, layout: str, maps: Sequence[FeatureMap]) -> RowCache:
        return RowCache(graph, nodes, self._version, layout, self.settings.directed, maps)

    def write(self, connection: sqlite3.Connection, version: int) -> None:
        """Store the head with a version: W and the class of each column, as safetensors."""
        if self._cache is not None:
            self._cache.write(version)
        if self.solution is not None:
            tensors = {"weight": self.solution.weight.cpu().contiguous(), "classes": self.solution.classes.cpu()}
            put_blob(connection, version, "weights", save(tensors, {k: str(v) for k, v in self.state().items()}))

    def read(self, connection: sqlite3.Connection, version: Version) -> None:
        """Restore the state of a version in a new learner."""
        self._version, self._graph = version.number, StoredGraph(connection, version)
        state = dict(version.state["learner"])
        if not state:
            return
        tensors = get_tensors(connection, version.number, "weights")
        self.chosen, self.sketch = [each.name for each in self.method.maps].index(state.pop("map")), state.pop("sketch")
        width = self.method.maps[self.chosen].num_blocks * (self.sketch or self._graph.num_features) + 1
        weight, classes = tensors["weight"].double().to(self.device), tensors["classes"].to(self.device)
        if weight.shape != (width, classes.numel()) or not bool(torch.isfinite(weight).all()):
            raise FolderError(f"the head of version {version.number} does not fit its features: it is damaged")
        lam, temperature = float(state["lam"]), float(state["temperature"])
        self.solution = RidgeSolution(weight, classes, lam, temperature, weight[:0], state["loo_error"])


def _experiences(connection: sqlite3.Connection, version: Version) -> list[dict[str, Any]]:
    """Experiences of a buffer, from rows of the table ``remembered``."""
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
