"""One run's configuration: what the command line, a TOML file and Python all fill in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ergnn.data.datasets import DATASETS
from ergnn.data.splits import parse_fractions
from ergnn.data.stream import EDGE_VIEWS, LEFTOVERS
from ergnn.errors import InputError, UnknownNameError
from ergnn.methods import METHODS
from ergnn.nn.backbones import BACKBONES
from ergnn.nn.heads import HEADS
from ergnn.nn.sampling import Sampling
from ergnn.replay.selectors import SELECTORS
from ergnn.training import OPTIMIZERS
from ergnn.walks import KINDS as WALKS
from ergnn.walks import walk_settings

PROTOCOLS: dict[str, dict[str, Any]] = {
    "clean": {"head": "per-task", "edges": "all", "optimizer": "adam", "weight_decay": 3e-5},
    "paper": {"head": "shared", "edges": "own", "optimizer": "adam", "weight_decay": None},
}
"""What a protocol decides where the user does not; a weight decay of None is the backbone's own.

``clean`` is what we recommend: nothing leaks, one head a task, and a light L2 factor (chosen on validation nodes: a
heavier one pulls weights that the current task does not use to zero, which by itself makes a network forget).
``paper`` is the reading of ER-GNN that comes nearest to its published baselines.
"""

WALK_CLASSIFIER: dict[str, Any] = {"backbone_options": {"layers": 0}, "lr": 0.1, "weight_decay": 5e-3}
"""On vectors from walks ``mlp`` is softmax regression with an L2 term, in either protocol, unless the user says
otherwise: what both papers classify with. (Learning rate and L2 factor were chosen on validation nodes.)
"""

FEATURES = ("attributes", *WALKS)
SPLITS = ("auto", "public", "seeded")
DENOMINATORS = ("M-1", "M")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's numbers.

    Args:
        dataset: a name that ``ergnn datasets`` lists.
        backbone: gat, gcn, sage, gin, sgc, mlp; auto is gat, but mlp on vectors from walks, and sgc for nearest-mean
            and analytic.
        method: replay, finetune, joint, ewc, gem, agem, nearest-mean or analytic.
        selector: which nodes replay remembers; a name that ``ergnn selectors`` lists.
        per_class: e, how many nodes of each class are remembered.
        seeds: how many seeds to run, counted from first_seed.
        first_seed: the first seed.
        protocol: clean or paper; decides head, edges, optimizer and weight_decay where they are not given.
        split: auto (public, or seeded where no public split is available), public, seeded (drawn by each seed), or
            fractions of each class for training, validation and test, as in 0.1/0.1/0.8 (drawn by each seed).
        class_order: natural, shuffled (by order number), or every class once, as in 3,1,0,2.
        orders: how many shuffled class orders to cross with the seeds.
        head: shared, per-task or growing.
        edges: which edges between tasks are visible: all, seen or own.
        leftover: classes that fill no task: context or drop.
        features: what the network reads: attributes, or vectors from walks on the graph seen so far, deepwalk or
            node2vec.
        classes_per_task: classes a task; by default the data set's own.
        epochs: passes over a task's training nodes (steps, with full batches).
        batch_size: of a task's training nodes a step, joined by as many remembered ones; by default all of them.
        fanout: how many neighbours stand for all of a node's in a batch, hop by hop, as in 25,10; by default all.
        lr: learning rate; by default the backbone's own.
        weight_decay: L2 factor (decoupled with adamw).
        optimizer: adam, adamw or sgd.
        loss_scale: sum, balanced or mean: the losses that beta mixes.
        beta: a fixed weight of the current task in place of |B| / (|D| + |B|).
        replay: how a remembered node is shown again: live, isolated or ego.
        hops: radius of a stored ego graph.
        replay_batch: how many remembered nodes an epoch replays, in turn; by default 4 e (0 is the whole buffer).
        denominator: of the forgetting mean, M-1 or M.
        device: cpu, cuda, cuda:1, ...
        features_options: of the walks, e.g. walks=80.
        dataset_options: of the data set, e.g. tasks=10 for permuted-mnist.
        method_options: of the method, beyond the settings above, e.g. lam=3 for ewc.
        selector_options: of the selector, e.g. target=test.
        backbone_options: of the backbone, e.g. hidden=32.
    """

    dataset: str = "cora"
    backbone: str = "auto"
    method: str = "replay"
    selector: str = "mf*"
    per_class: int = 1
    seeds: int = 10
    first_seed: int = 0
    protocol: str = "clean"
    split: str = "auto"
    class_order: str = "natural"
    orders: int = 1
    head: str | None = None
    edges: str | None = None
    leftover: str = "context"
    features: str = "attributes"
    classes_per_task: int | None = None
    epochs: int = 200
    batch_size: int | None = None
    fanout: str | None = None
    lr: float | None = None
    weight_decay: float | None = None
    optimizer: str | None = None
    loss_scale: str = "sum"
    beta: float | None = None
    replay: str = "live"
    hops: int = 2
    replay_batch: int | None = None
    denominator: str = "M-1"
    device: str = "cpu"
    features_options: dict[str, Any] = field(default_factory=dict)
    dataset_options: dict[str, Any] = field(default_factory=dict)
    method_options: dict[str, Any] = field(default_factory=dict)
    selector_options: dict[str, Any] = field(default_factory=dict)
    backbone_options: dict[str, Any] = field(default_factory=dict)

    def resolved(self) -> RunConfig:
        """The same run with every name in full, every default filled in, and every value checked."""
        if self.protocol not in PROTOCOLS:
            raise UnknownNameError("protocol", self.protocol, PROTOCOLS)
        method = METHODS.resolve(self.method)
        backbone = BACKBONES.resolve(self._backbone(method))
        preset = PROTOCOLS[self.protocol]
        if self.features != "attributes" and backbone == "mlp":
            preset = {**preset, **WALK_CLASSIFIER}
        decay = preset["weight_decay"] if self.weight_decay is None else self.weight_decay
        lr = preset.get("lr", BACKBONES.get(backbone).lr) if self.lr is None else self.lr
        full = replace(
            self,
            dataset=DATASETS.resolve(self.dataset),
            backbone=backbone,
            method=method,
            selector=SELECTORS.resolve(self.selector),
            head=self.head or preset["head"],
            edges=self.edges or preset["edges"],
            optimizer=self.optimizer or preset["optimizer"],
            weight_decay=BACKBONES.get(backbone).weight_decay if decay is None else decay,
            lr=lr,
            backbone_options={**preset.get("backbone_options", {}), **self.backbone_options},
        )
        full._check()
        return full

    def _backbone(self, method: str) -> str:
        if method in ("nearest-mean", "analytic") and not self.method_options.get("student"):
            if self.backbone not in ("auto", "sgc"):
                raise InputError(f"backbone is {self.backbone!r}; {method} has no network, and takes no other than sgc")
            return "sgc"
        if self.backbone != "auto":
            return self.backbone
        return "gat" if self.features == "attributes" else "mlp"

    def _check(self) -> None:
        for name, choices in (
            ("head", HEADS),
            ("edges", EDGE_VIEWS),
            ("leftover", LEFTOVERS),
            ("features", FEATURES),
            ("denominator", DENOMINATORS),
            ("optimizer", tuple(OPTIMIZERS)),
        ):
            if getattr(self, name) not in choices:
                raise UnknownNameError(name, getattr(self, name), choices)
        if parse_fractions(self.split) is None and self.split not in SPLITS:
            raise UnknownNameError("split", self.split, (*SPLITS, "train/val/test fractions"))
        for name in ("per_class", "seeds", "orders", "epochs", "hops"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"batch_size is {self.batch_size}; it must be 1 or more")
        fanout = self.parsed_fanout()
        if fanout is not None:
            Sampling(fanout)
            if self.batch_size is None:
                raise InputError(f"fanout is {self.fanout!r}; neighbours are drawn for batches: give batch_size")
        if self.first_seed < 0:
            raise InputError(f"first_seed is {self.first_seed}; it must be 0 or more")
        if self.first_seed + self.seeds > 2**31:
            raise InputError(f"first_seed is {self.first_seed}; seeds must be 0 to {2**31 - 1}")
        own = {f.name for f in fields(self)}
        for key in self.method_options:
            if key in own:
                raise InputError(
                    f"method_options names {key!r}, which is an option of its own: --{key.replace('_', '-')}"
                )
        if self.orders > 1 and self.class_order != "shuffled":
            raise InputError(
                f"orders is {self.orders}, but class_order is {self.class_order!r}; only shuffled has several"
            )
        if self.features != "attributes":
            walk_settings(self.features, **self.features_options)
        elif self.features_options:
            raise InputError(f"features_options go with vectors from walks; features is {self.features!r}")
        self.parsed_class_order()

    def parsed_fanout(self) -> tuple[int, ...] | None:
        """``fanout`` as :class:`~ergnn.training.Training` takes it."""
        if self.fanout is None:
            return None
        try:
            return tuple(int(count) for count in self.fanout.split(","))
        except ValueError:
            raise InputError(f"fanout is {self.fanout!r}; give whole numbers, one a hop, as in 25,10") from None

    def parsed_class_order(self) -> str | list[int]:
        """``class_order`` as :meth:`TaskStream.from_classes` takes it."""
        if self.class_order in ("natural", "shuffled"):
            return self.class_order
        try:
            return [int(c) for c in self.class_order.split(",")]
        except ValueError:
            raise InputError(
                f"class_order is {self.class_order!r}; choose natural, shuffled, or class numbers as in 3,1,0,2"
            ) from None


def read_config(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, each a field of :class:`RunConfig`."""
    path = Path(path)
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not a TOML file ({error})") from None
    return check_settings(settings, str(path))


def check_settings(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Settings with known names and values of the right type, or an error that names the source."""
    kinds = {f.name: str(f.type) for f in fields(RunConfig)}
    checked = {}
    for name, value in settings.items():
        key = name.replace("-", "_")
        if key not in kinds:
            raise InputError(f"{source}: unknown key {name!r}; choose among: {', '.join(sorted(kinds))}")
        checked[key] = _typed(value, kinds[key], name, source)
    return checked


def _typed(value: Any, kind: str, name: str, source: str) -> Any:
    base = kind.removesuffix(" | None")
    if base == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    right = {"str": str, "int": int, "float": float}.get(base, dict)
    if not isinstance(value, right) or isinstance(value, bool):
        raise InputError(f"{source}: {name} is {value!r}; it must be of type {right.__name__}")
    return value
