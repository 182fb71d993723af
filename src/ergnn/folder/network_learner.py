"""The network of a folder: how it learns an update, predicts, and is stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from ergnn.callbacks import Callback
from ergnn.data.stream import Task
from ergnn.errors import ErgnnError, InputError
from ergnn.folder.database import MALFORMED, FolderError, from_json, insert, select, to_json, transaction
from ergnn.folder.graph import Array, LocalGraph, StoredGraph, read_subgraph
from ergnn.folder.settings import Settings
from ergnn.folder.state import load_tensors, pack, read_experiences, remembered_rows, unpack
from ergnn.folder.versions import Version, get_blob, put_blob
from ergnn.learner import Learner
from ergnn.methods import LearnerView, Method
from ergnn.methods.base import overrides
from ergnn.methods.memory import MemoryMethod
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.replay.buffer import ExperienceBuffer
from ergnn.training import TaskProgress

if TYPE_CHECKING:
    from ergnn.folder.snapshot import Snapshot

CHUNK = 2048
"""Nodes that are scored at a time."""


def check_method(method: Method, name: str) -> None:
    """Raise an error if a method needs more than a folder stores: a network, tensors, and numbers of nodes."""
    stores_values = isinstance(method, MemoryMethod) and any(
        getattr(type(method), hook) is not getattr(MemoryMethod, hook) for hook in ("values_to_store", "graph_to_store")
    )
    reasons = {
        "it trains no network": not method.trains,
        "its predictions are not the outputs of a network": overrides(method, "logits") or overrides(method, "scores"),
        "it stores nodes outside the buffer": overrides(method, "remap_nodes"),
        "it stores features that forgetting cannot remove": not method.can_forget,
        "its buffer stores more than nodes": stores_values,
    }
    for reason in (reason for reason, applies in reasons.items() if applies):
        raise InputError(f"method {name!r} does not work in a folder: {reason}; use e.g. analytic, replay or finetune")


class Checkpoints(Callback):
    """Checkpoints of the update that is being learned, in the table ``checkpoint``.

    Args:
        connection: the writer's.
        seconds: time between two of them; 0 writes one after every epoch.
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
        """The newest checkpoint; None if there is none, or none that is intact: learning then begins anew."""
        try:
            _, text, data = select(self.connection, "checkpoint")[0]
            state: dict[str, Any] = unpack(from_json(text), load_tensors(data))
            return state
        except (*MALFORMED, FolderError):
            return None


class NetworkLearner:
    """A graph neural network that learns update after update, and remembers nodes if its method does.

    Only what lies within reach of an update's own nodes and of the remembered ones is read.
    """

    exact = False
    """Whether the model depends on the present graph only, so that nothing of a forgotten node is left in it."""
    all_at_once = False
    """Whether many nodes are scored together rather than a chunk at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.learner = Learner(settings.config)
        method = self.learner.method
        check_method(method, str(settings.learner.method))
        self.num_hops = self._num_hops()
        if method.buffer is not None and method.buffer.replay != "live":
            raise InputError(f"replay is {method.buffer.replay!r}; in a folder, whose graph stays, it must be 'live'")
        self._budgets = {name: getattr(method, name, None) for name in ("budget_nodes", "budget_bytes")}
        for name, value in self._budgets.items():
            if value is not None:  # trimmed in `learn`: ties are broken by the numbers of the whole graph
                setattr(method, name, None)

    @property
    def num_tasks(self) -> int:
        return self.learner.num_tasks

    @property
    def buffer(self) -> ExperienceBuffer:
        """What is remembered; empty for a method that remembers nothing."""
        return self.learner.method.buffer or ExperienceBuffer()

    @property
    def reach(self) -> int:
        """How far training sees: the network and the method, or a selector that averages over more hops."""
        selector = getattr(self.learner.method, "selector", None)
        return max(self.num_hops + self.learner.method.extra_hops, int(getattr(selector, "hops", 0)))

    def classes(self) -> list[int]:
        """The classes that were learned."""
        return sorted(self.learner.classes().tolist()) if self.num_tasks else []

    def learn(
        self, snapshot: Snapshot, updates: Sequence[int], checkpoints: Checkpoints | None = None
    ) -> dict[str, Any]:
        """Learn the training nodes of some updates as one task; a selector may look at their validation nodes.

        Returns the number of the task, its classes, the drift and the number of nodes that were read.
        """
        train, val = (snapshot.pooled_members(updates, split) for split in ("train", "val"))
        if not len(train[0]):
            return {"task": None, "classes": [], "drift": None, "touched": 0}
        self._check_size(snapshot.graph.num_features)
        remembered = [(part.nodes.cpu().numpy(), part.labels.cpu().numpy()) for part in self.buffer.experiences]
        nodes, labels = (np.concatenate(part) for part in zip(train, val, *remembered, strict=True))
        local = read_subgraph(snapshot.graph, nodes, self.reach, self.settings.limits, (nodes, labels))
        seen = replace(local.graph, class_names=tuple(snapshot.classes))
        classes = tuple(int(c) for c in np.unique(train[1]))
        none = torch.empty(0, dtype=torch.long)
        task = Task(self.num_tasks, seen, local.places(train[0]), local.places(val[0]), none, classes)
        before = self._encoder()
        self.learner.remap_nodes(lambda nodes: local.places(nodes.cpu().numpy()).to(nodes.device))
        self._observe(task, checkpoints)
        self.learner.remap_nodes(lambda nodes: torch.from_numpy(local.numbers(nodes)).to(nodes.device))
        self.buffer.trim(**self._budgets)
        self.learner.set_graph(None)
        drift, names = _drift(before, self._encoder()), [snapshot.classes[c] for c in classes]
        return {"task": task.id, "classes": names, "drift": drift, "touched": len(local.nodes)}

    def _observe(self, task: Task, checkpoints: Checkpoints | None) -> None:
        resume = None if checkpoints is None else checkpoints.read()
        try:
            self.learner.observe(task, callbacks=[] if checkpoints is None else [checkpoints], resume=resume)
        except MALFORMED as error:
            if resume is None or isinstance(error, ErgnnError):
                raise
            raise FolderError(
                f"the checkpoint does not fit ({type(error).__name__}: {error}); drop the update (observe --discard) "
                "and observe it again"
            ) from None

    def forget(self, snapshot: Snapshot, nodes: Array) -> list[list[Any]]:
        """Take nodes out of the buffer; returns the nodes that take their place."""
        from ergnn.folder.forgetting import replace_remembered

        return replace_remembered(snapshot, self, nodes)

    def probabilities(
        self, graph: StoredGraph, nodes: Array, num_classes: int, chunk: int = CHUNK
    ) -> Iterator[tuple[Array, Array]]:
        """Places in ``nodes`` and probabilities ``[n, num_classes]``, a chunk at a time."""
        order = np.argsort(nodes, kind="stable")  # nodes that came together share their neighborhoods
        columns = self.learner.classes().cpu().numpy()
        for start in range(0, len(nodes), chunk):
            mine = order[start : start + chunk]
            local = self.local(graph, nodes[mine])
            out = np.zeros((len(mine), num_classes))
            with torch.no_grad():
                found = self.learner.predict_proba(local.places(nodes[mine]), graph=local.graph)
            out[:, columns] = found.cpu().numpy()
            yield mine, out

    def local(self, graph: StoredGraph, nodes: Array) -> LocalGraph:
        """What the outputs of some nodes depend on."""
        return read_subgraph(graph, nodes, self.num_hops, self.settings.limits)

    def describe(self, classes: list[str]) -> dict[str, Any]:
        """What the exported weights mean."""
        place, label = self.learner.heads.columns(None, self.learner.device)
        return {
            "backbone": self.learner.backbone,
            "backbone_options": self.learner.backbone_options,
            "heads": list(getattr(self.learner.model, "head_widths", [])),
            "outputs": [[int(p), classes[int(c)]] for p, c in zip(place, label, strict=True)],
        }

    def state(self) -> dict[str, Any]:
        """What is not stored as tensors or rows; without times, so that the same learning gives the same state."""
        state = self.learner.state_dict()
        del state["model"], state["method"]
        for entry in state["history"]:
            entry["train_seconds"] = entry["select_seconds"] = 0.0
        packed: dict[str, Any] = pack(state, {})
        return {**packed, "method": pack(self._method_state(), {})}  # names of tensors as in `write`

    def write(self, connection: sqlite3.Connection, version: int) -> None:
        """Store weights, the method's tensors and what is remembered with an existing version."""
        model, tensors = self.learner.model, dict[str, Tensor]()
        weights = {} if model is None else {k: v.cpu().contiguous() for k, v in model.state_dict().items()}
        put_blob(connection, version, "weights", save(weights, {"format": "pt"}))
        pack(self._method_state(), tensors)
        if tensors:
            put_blob(connection, version, "method", save(tensors))
        insert(connection, "remembered", remembered_rows(self.buffer, version))

    def read(self, connection: sqlite3.Connection, version: Version) -> None:
        """Give a new learner the state of a version."""
        state, buffer = dict(version.state["learner"]), self.learner.method.buffer
        tensors = get_blob(connection, version.number, "method")
        method = unpack(state["method"], {} if tensors is None else load_tensors(tensors))
        if buffer is not None:
            method["buffer"] = {**buffer.state_dict(), "experiences": read_experiences(connection, version)}
        weights = load_tensors(get_blob(connection, version.number, "weights"))
        self.learner.load_state_dict({**state, "method": method, "model": weights})

    def _method_state(self) -> dict[str, Any]:
        return {name: value for name, value in self.learner.method.state_dict().items() if name != "buffer"}

    def _encoder(self) -> dict[str, Tensor]:
        state = {} if self.learner.model is None else self.learner.model.state_dict()
        return {name: value.clone() for name, value in state.items() if not name.startswith("heads.")}

    def _num_hops(self) -> int:
        """How far a node sees: the number of layers that look at neighbors."""
        model = self._layers(2)
        if not isinstance(model, Backbone) or not model.runs_on_fields:
            raise InputError(
                f"backbone {self.learner.backbone!r} does not run on receptive fields, as a folder needs; give its "
                "layers a LayerForm ('A new convolution' in docs/engine.md), or use a backbone of ergnn, such as gcn"
            )
        return model.num_hops

    def _check_size(self, num_features: int) -> None:
        """Refuse a network that is larger than files may be, before it is made."""
        count = sum(value.numel() for value in self._layers(num_features).parameters())
        self.settings.limits.check_bytes(4 * count, f"backbone {self.learner.backbone!r}", "parameters take")

    def _layers(self, num_features: int) -> nn.Module:
        """The network without its numbers."""
        name, options = str(self.learner.backbone), self.learner.backbone_options
        try:
            with torch.device("meta"):
                model: nn.Module = BACKBONES.create(name, in_channels=num_features, out_channels=2, **options)
                return model
        except InputError:
            raise
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"backbone {name!r} cannot be made with these options: {error}") from None


def _drift(before: dict[str, Tensor], after: dict[str, Tensor]) -> float | None:
    """``‖θ' − θ‖ / ‖θ‖`` of the layers before the heads: how far an update moved the network."""
    if not before:
        return None
    moved = sum(float((after[name] - value).double().square().sum()) for name, value in before.items())
    return float((moved / max(sum(float(v.double().square().sum()) for v in before.values()), 1e-300)) ** 0.5)
