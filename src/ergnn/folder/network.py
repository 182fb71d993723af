"""A network that learns updates of a growing graph, and is stored in the database with checkpoints of its training."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from ergnn.config.errors import ErgnnError, FolderError, InputError
from ergnn.data.partial import Array, PartialGraph, read_subgraph
from ergnn.data.stream import Task
from ergnn.engine.training import TaskProgress
from ergnn.folder.database import (
    MALFORMED,
    Row,
    Version,
    damaged,
    from_json,
    get_tensors,
    insert,
    select,
    to_json,
    transaction,
)
from ergnn.folder.graph import StoredGraph
from ergnn.folder.settings import Settings
from ergnn.learning.callbacks import Callback
from ergnn.learning.learner import Learner
from ergnn.methods import LearnerView
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.replay.buffer import ExperienceBuffer

if TYPE_CHECKING:
    from ergnn.folder.snapshot import Snapshot

CHUNK = 2048
"""Nodes per chunk of predictions."""
TENSOR = "$tensor"
"""Marks a tensor in a nested value that is stored as JSON."""


class NetworkLearner:
    """A graph neural network that learns one update after another, and remembers nodes if its method does.

    It reads only the receptive fields of an update's own nodes and of the remembered ones. Nodes are numbers of the
    whole graph.

    Args:
        settings: of the folder.
        learner: a learner that has observed nothing.

    Attributes:
        exact: whether the model depends on the present graph only, so that nothing of a forgotten node is left in it.
        epochs: epochs per update; None if nothing is trained.
    """

    exact = False
    scales_columns = False

    def __init__(self, settings: Settings, learner: Learner) -> None:
        self.settings, self.learner, self.epochs = settings, learner, settings.learner.epochs
        method, reason = learner.method, learner.method.folder.refused
        if not method.trains_network:
            reason = "it trains no network"
        elif method.needs_earlier_graph and method.buffer is None:
            reason = "it stores nodes outside the buffer"
        elif reason is None and method.buffer is not None and method.buffer.replay != "live":
            reason = f"replay is {method.buffer.replay!r}; in a folder, which stores the graph, it must be 'live'"
        if reason is not None:
            text = f"method {settings.learner.method!r} does not work in a folder: {reason}"
            raise InputError(f"{text}; use e.g. analytic, replay or finetune")
        model = self._layers(2)
        if not isinstance(model, Backbone) or not model.runs_on_fields:
            raise InputError(
                f"backbone {learner.backbone!r} does not run on receptive fields, as a folder needs; give its "
                "layers a LayerForm ('A new convolution' in docs/engine.md), or use a backbone of ergnn, such as gcn"
            )
        self.num_hops = model.num_hops
        self._budgets = {name: getattr(method, name, None) for name in ("budget_nodes", "budget_bytes")}
        vars(method).update(dict.fromkeys(self._budgets))  # trimmed in `learn`: ties are broken by global numbers

    @property
    def num_tasks(self) -> int:
        return self.learner.num_tasks

    @property
    def buffer(self) -> ExperienceBuffer:
        """Remembered nodes; empty for a method that remembers none."""
        return self.learner.method.buffer or ExperienceBuffer()

    def classes(self) -> list[int]:
        return sorted(self.learner.classes().tolist()) if self.num_tasks else []

    def learn(
        self, snapshot: Snapshot, updates: Sequence[int], checkpoints: Checkpoints | None = None
    ) -> dict[str, Any]:
        """Learn the training nodes of some updates as one task; a selector may use their validation nodes.

        Returns ``task``, ``classes`` and ``touched``, for the record of the update.
        """
        train, val = (snapshot.members(updates, split) for split in ("train", "val"))
        if not len(train[0]):
            return {"task": None, "classes": [], "touched": 0}
        count = sum(value.numel() for value in self._layers(snapshot.graph.num_features).parameters())
        self.settings.limits.check_bytes(4 * count, f"backbone {self.learner.backbone!r}", "parameters take")
        remembered = [(e.nodes.cpu().numpy(), e.labels.cpu().numpy()) for e in self.buffer.experiences]
        nodes, labels = map(np.concatenate, zip(train, val, *remembered, strict=True))
        # Training depends on what network and method reach, or a selector that uses more hops.
        selector, hops = getattr(self.learner.method, "selector", None), self.learner.method.folder.extra_hops
        hops = max(self.num_hops + hops, int(getattr(selector, "hops", 0)))
        local = read_subgraph(snapshot.graph, nodes, hops, self.settings.limits, (nodes, labels))
        seen = replace(local.graph, class_names=tuple(snapshot.classes))
        classes = tuple(int(c) for c in np.unique(train[1]))
        none = torch.empty(0, dtype=torch.long)
        task = Task(self.num_tasks, seen, local.local_ids(train[0]), local.local_ids(val[0]), none, classes)
        self.learner.remap_nodes(lambda nodes: local.local_ids(nodes.cpu().numpy()).to(nodes.device))
        self._observe(task, checkpoints)
        self.learner.remap_nodes(lambda nodes: torch.from_numpy(local.nodes[nodes.cpu().numpy()]).to(nodes.device))
        self.buffer.trim(**self._budgets)
        self.learner.set_graph(None)
        return {"task": task.id, "classes": [snapshot.classes[c] for c in classes], "touched": len(local.nodes)}

    def _observe(self, task: Task, checkpoints: Checkpoints | None) -> None:
        resume = None if checkpoints is None else checkpoints.read()
        try:
            self.learner.observe(task, callbacks=[] if checkpoints is None else [checkpoints], resume=resume)
        except Exception as error:
            if resume is None or isinstance(error, ErgnnError):
                raise
            raise FolderError(
                f"the checkpoint does not fit ({type(error).__name__}: {error}); drop the update (observe --discard) "
                "and observe it again"
            ) from None

    def forget(self, snapshot: Snapshot, nodes: Array) -> None:
        """Remove nodes from the buffer; no node takes their place."""
        self.learner.forget_nodes(torch.from_numpy(nodes).to(self.learner.device))

    def probabilities(self, graph: PartialGraph, nodes: Array, num_classes: int) -> Array:
        """Probabilities ``[n, num_classes]`` of some nodes."""
        order = np.argsort(nodes, kind="stable")  # nodes that came together share their neighborhoods
        columns, out = self.learner.classes().cpu().numpy(), np.zeros((len(nodes), num_classes))
        for start in range(0, len(nodes), CHUNK):
            mine = order[start : start + CHUNK]
            local = read_subgraph(graph, nodes[mine], self.num_hops, self.settings.limits)
            with torch.no_grad():
                values = self.learner.predict_proba(local.local_ids(nodes[mine]), graph=local.graph)
            out[mine[:, None], columns] = values.cpu().numpy()
        return out

    def describe(self, classes: list[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What the exported weights mean, and tensors that are not stored: none."""
        place, label = self.learner.heads.columns(None, self.learner.device)
        return {
            "backbone": self.learner.backbone,
            "backbone_options": self.learner.backbone_options,
            "heads": list(getattr(self.learner.model, "head_widths", [])),
            "outputs": [[int(p), classes[int(c)]] for p, c in zip(place, label, strict=True)],
        }, {}

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
        blobs: list[Row] = [(version, "weights", save(weights, {"format": "pt"}))]
        self._method(tensors)
        blobs += [(version, "method", save(tensors))] if tensors else []
        insert(connection, "blobs", blobs, "REPLACE")
        rows: list[Row] = []
        for experience in self.buffer.experiences:
            columns = (experience.nodes, experience.labels, experience.scores, experience.ranks + 1)
            for node, label, score, rank in zip(*(column.tolist() for column in columns), strict=True):
                value = None if math.isnan(score) else score + 0.0  # SQLite has neither NaN nor -0.0
                rows.append((version, len(rows), experience.task, node, label, value, rank))
        insert(connection, "remembered", rows)

    def read(self, connection: sqlite3.Connection, graph: StoredGraph) -> None:
        """Restore the state of the version of a graph in a new learner."""
        version, buffer = graph.version, self.learner.method.buffer
        state = version.state["learner"]
        method = unpack(state["method"], get_tensors(connection, version.number, "method"))
        if buffer is not None:
            method["buffer"] = {**buffer.state_dict(), "experiences": _experiences(connection, version)}
        weights = get_tensors(connection, version.number, "weights")
        self.learner.load_state_dict({**state, "method": method, "model": weights})

    def _method(self, tensors: dict[str, Tensor]) -> Any:
        """The state of the method without its buffer, as JSON and ``tensors``."""
        state = self.learner.method.state_dict()
        return pack({name: value for name, value in state.items() if name != "buffer"}, tensors)

    def _layers(self, num_features: int) -> nn.Module:
        """The network without values of its parameters."""
        name, options = str(self.learner.backbone), self.learner.backbone_options
        try:
            with torch.device("meta"):
                model: nn.Module = BACKBONES.create(name, in_channels=num_features, out_channels=2, **options)
                return model
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            reason = str(error).partition("\n")[0]
            raise InputError(f"backbone {name!r} cannot be created with these options: {reason}") from None


def _experiences(connection: sqlite3.Connection, version: Version) -> list[dict[str, Any]]:
    """Experiences of a buffer, from rows of the table ``remembered``."""
    rows = select(connection, "remembered", "version = :v ORDER BY place", v=version.number)
    if len(rows) != version.remembered:
        raise damaged("the table remembered")
    classes = {c for task in version.state["learner"]["classes"] for c in task}
    experiences = []
    for task, remembered in groupby(rows, key=itemgetter(2)):
        nodes, labels, scores = list(zip(*remembered, strict=True))[3:6]
        if not 0 <= min(nodes) <= max(nodes) < version.next_node or not classes.issuperset(labels):
            raise FolderError(f"a node of task {task} cannot be remembered: the database is damaged")
        values = torch.tensor([math.nan if score is None else score for score in scores])
        columns = {"nodes": torch.tensor(nodes), "labels": torch.tensor(labels), "scores": values.float()}
        experiences.append({"task": task, **columns})
    return experiences


class Checkpoints(Callback):
    """A callback that stores checkpoints of the update that is being learned, and calls ``on_epoch`` after every epoch.

    With ``seconds=0``, there is a checkpoint after every epoch.
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
            state: dict[str, Any] = unpack(from_json(text), load(data))
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
