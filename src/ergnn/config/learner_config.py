"""The configuration of a learner, shared by ``Learner``, ``ergnn run``, folders and the estimator.

This module does not import torch, so the command line can check its arguments quickly.
:func:`ergnn.learning.resolve.resolve` fills in values that depend on the backbone and the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ergnn.config.errors import InputError, check_at_least, check_between, check_choice
from ergnn.config.registry import field_options

if TYPE_CHECKING:
    from torch import device as torch_device
    from torch import nn

HEADS = ("shared", "per-task", "growing")
OPTIMIZERS = ("adam", "adamw", "sgd")
EDGES = ("all", "seen", "own")
"""Which edges are visible while a task is learned; see :meth:`ergnn.TaskStream.from_classes`."""
LEFTOVERS = ("context", "last")
"""Treatment of classes that do not fill a task."""

PROTOCOLS: dict[str, dict[str, Any]] = {
    "clean": {"edges": "all"},
    "paper": {"edges": "own", "head": "shared", "weight_decay": None},
}
"""Named sets of values: ``edges`` of the stream, and values that differ from the defaults of :class:`LearnerConfig`.

``clean`` is recommended: no leakage, one head per task, and a small L2 factor, chosen on validation nodes. (A larger
one moves weights that the current task does not use to zero, which alone makes a network forget.) ``paper`` is the
interpretation of ER-GNN closest to its published baselines; every backbone uses the L2 factor of its paper.
"""

SCENARIOS: dict[str, dict[str, Any]] = {
    "task": {"head": "per-task"},
    "class": {"head": "growing", "class_order": "seeded", "leftover": "last"},
    "domain": {"head": "growing"},
    "time": {"head": "growing", "edges": "seen"},
    "blurred": {"head": "growing", "class_order": "seeded", "leftover": "last", "scarce": "keep"},
}
"""Settings of a run for each scenario; they override the protocol, and explicit settings override them.

``task``: the task of a node is known at test time. In all others it is unknown, and all classes so far compete.
``class``: every task has new classes. ``domain``, ``time``: tasks are graphs of several domains, or periods; classes
may come again. ``blurred``: class shares drift from task to task, without borders between classes; a class may have
fewer training nodes in a task than a buffer stores (``scarce``, if it is an option of the method).
"""


NETWORKS: dict[str, dict[str, Any]] = {
    "tuned": {
        "backbone": "gcn",
        "lr": 1e-3,
        "best_epoch": True,
        "backbone_options": {"hidden": 256, "layers": 3, "norm": "layer", "residual": True},
    }
}
"""Values that replace missing settings, for networks that are built and trained for accuracy.

``tuned`` is the network of Luo et al., *Classic GNNs are strong baselines* (2024), who train for 1000 epochs.
"""


def reveals_labels(edges: str | None, scenario: str | None = None) -> bool:
    """Return whether the edges tell classes apart: tasks split by class, and no edges between tasks."""
    return edges == "own" and scenario not in ("domain", "time")


STREAM_DEFAULTS: dict[str, str] = {"split": "auto", "class_order": "natural", "leftover": "context"}
"""Settings of the stream of a run without a scenario."""

TASK_UNKNOWN: dict[str, Any] = {"method": "analytic", "head": "growing"}
"""Defaults of folders and the estimator, where the task of a node is unknown."""


@dataclass(frozen=True)
class LearnerConfig:
    """All settings of a learner.

    Args:
        backbone: name of a network, or a module with ``forward(x, edge_index)``, which is copied; ``auto`` selects the
            method's default (``gat`` for most).
        method: name of a continual-learning method, or an :class:`ergnn.Method`.
        head: set of outputs that compete: ``shared``, ``per-task`` or ``growing``.
        epochs: passes over the training nodes of a task (steps, with full batches).
        lr: learning rate; by default the backbone's.
        weight_decay: L2 factor (decoupled with ``adamw``); None for the backbone's default.
        optimizer: ``adam``, ``adamw`` or ``sgd``; its state is reset for every task.
        batch_size: training nodes per step, plus up to the same number of replayed nodes; by default all.
        fanout: neighbors to sample per node and hop in a batch, e.g. ``25,10``; by default all.
        with_replacement: sample neighbors with replacement.
        best_epoch: keep the parameters of the epoch with the best accuracy on the task's validation nodes; by default
            those of the last epoch.
        network: preset of a network and its training; explicit settings have priority. ``tuned``: 3 layers of 256
            units, layer norm, residual connections, Adam with lr 0.001, best epoch.
        seed: seed of all random choices.
        device: device to compute on, e.g. ``cpu``, ``cuda`` or ``cuda:1``.
        backbone_options: arguments of the backbone, e.g. ``hidden=32``.
        method_options: arguments of the method, e.g. ``per_class=5``.
    """

    backbone: str | nn.Module = "auto"
    method: str | Any = "replay"
    head: str = "per-task"
    epochs: int = 200
    lr: float | None = None
    weight_decay: float | None = 3e-5
    optimizer: str = "adam"
    batch_size: int | None = None
    fanout: tuple[int, ...] | None = None
    with_replacement: bool = False
    best_epoch: bool | None = None
    network: str | None = None
    seed: int = 0
    device: str | torch_device = "cpu"
    backbone_options: Mapping[str, Any] = field(default_factory=dict)
    method_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen; these normalize equivalent values
        set_field(self, "fanout", _fanout(self.fanout))
        set_field(self, "device", str(self.device))
        for name in ("backbone_options", "method_options"):
            value = getattr(self, name)
            if not isinstance(value, Mapping | None):
                raise InputError(f"{name} is {value!r}; it must be a mapping of names to values")
            set_field(self, name, dict(value or {}))
        check_training(self)
        if self.network is not None:
            self._apply_network()
        check_choice("head", self.head, HEADS)
        if not 0 <= self.seed < 2**31:
            raise InputError(f"seed is {self.seed}; it must be 0 to {2**31 - 1}")

    def _apply_network(self) -> None:
        """Replace missing settings by those of the network."""
        check_choice("network", self.network, NETWORKS)
        preset = dict(NETWORKS[str(self.network)])
        options = preset.pop("backbone_options")
        for name, value in preset.items():
            if getattr(self, name) in (None, "auto"):
                object.__setattr__(self, name, value)
        if self.backbone == "gat":
            options = {**options, "heads": 1}  # units are per attention head
        object.__setattr__(self, "backbone_options", {**options, **self.backbone_options})

    @classmethod
    def from_protocol(cls, protocol: str, **settings: Any) -> LearnerConfig:
        """Create the configuration of a protocol, ``clean`` or ``paper``, with overrides."""
        check_choice("protocol", protocol, PROTOCOLS)
        preset = {name: value for name, value in PROTOCOLS[protocol].items() if name != "edges"}
        return cls().with_settings({**preset, **settings})

    def with_settings(self, settings: Mapping[str, Any]) -> LearnerConfig:
        """Return a copy with some settings replaced; names that are not fields are options of the method."""
        names = {f.name for f in fields(self)}
        of_fields = {name: value for name, value in settings.items() if name in names}
        flat = {name: value for name, value in settings.items() if name not in names}
        nested = of_fields.get("method_options", self.method_options) or {}
        twice = sorted(flat.keys() & (of_fields.get("method_options") or {}).keys())
        if twice:
            raise InputError(f"{twice[0]!r} is given both as a setting and in method_options")
        return replace(self, **{**of_fields, "method_options": {**nested, **flat}})

    def settings(self) -> dict[str, Any]:
        """Return flat settings, from which :meth:`with_settings` makes an equal configuration."""
        flat = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "method_options"}
        nested = {name: value for name, value in self.method_options.items() if name in flat}
        flat |= {name: value for name, value in self.method_options.items() if name not in flat}
        return {**flat, "method_options": nested} if nested else flat


def check_training(config: Any) -> None:
    """Check the types of all settings, and the values of those of training."""
    for option in field_options(config.__class__):
        option.check(getattr(config, option.name))
    check_choice("optimizer", config.optimizer, OPTIMIZERS)
    check_at_least(1, epochs=config.epochs, batch_size=config.batch_size)
    check_at_least(0, weight_decay=config.weight_decay)
    check_between(0, float("inf"), lr=config.lr)
    if config.fanout is None and config.with_replacement:
        raise InputError("with_replacement is set, but no neighbors are sampled; set fanout")
    if config.fanout is not None and config.batch_size is None:
        raise InputError(f"fanout is {config.fanout}, but batch_size is not set; neighbors are sampled per batch")


def _fanout(value: Any) -> tuple[int, ...] | None:
    """Parse numbers per hop, from a sequence or from text such as ``25,10``."""
    if value is None:
        return None
    try:
        numbers = value.split(",") if isinstance(value, str) else list(value)
        if any(isinstance(number, float | bool) for number in numbers):
            raise ValueError
        return tuple(int(number) for number in numbers)
    except (TypeError, ValueError):
        raise InputError(f"fanout is {value!r}; give whole numbers, one per hop, as in 25,10") from None
