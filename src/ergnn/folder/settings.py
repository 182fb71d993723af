"""How a folder's learner learns: fixed when the folder is made, and read again with suspicion."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ergnn.data.formats.limits import Limits
from ergnn.errors import InputError
from ergnn.folder.files import FolderError


@dataclass(frozen=True)
class Settings:
    """The settings of a folder.

    Args:
        features: attributes a node; None takes as many as the first update has.
        backbone: a registered graph neural network that runs on receptive fields.
        backbone_options: for it.
        selector: a registered way of choosing what is remembered.
        selector_options: for it.
        per_class: e, nodes remembered of each class of an update.
        budget_nodes: nodes remembered in all, at the most.
        budget_bytes: bytes of what is remembered, at the most.
        epochs: passes over an update's training nodes.
        lr: learning rate; by default the backbone's own.
        weight_decay: by default the backbone's own.
        optimizer: adam, adamw or sgd.
        batch_size: training nodes a step; by default all.
        replay_batch: remembered nodes per epoch, in turn; by default as many as are learned, and 0 is all of them.
        loss_scale: how new and remembered nodes are weighed: sum, balanced or mean.
        val: share of labelled nodes held out for validation where no split column says so.
        test: share of labelled nodes held out for scores where no split column says so.
        directed: whether an edge leads one way only.
        checks: held-out nodes of past updates that are scored at each update, at the most.
        keep: versions that are kept.
        seed: decides every random choice.
        max_nodes: nodes of the whole graph, at the most.
        max_edges: edges of the whole graph, at the most.
        max_features: attributes a node, at the most.
        max_megabytes: size of any file that is read, at the most.
    """

    features: int | None = None
    backbone: str = "gat"
    backbone_options: dict[str, Any] = field(default_factory=dict)
    selector: str = "mf*"
    selector_options: dict[str, Any] = field(default_factory=dict)
    per_class: int = 50
    budget_nodes: int | None = None
    budget_bytes: int | None = None
    epochs: int = 200
    lr: float | None = None
    weight_decay: float | None = None
    optimizer: str = "adam"
    batch_size: int | None = None
    replay_batch: int | None = None
    loss_scale: str = "sum"
    val: float = 0.1
    test: float = 0.2
    directed: bool = False
    checks: int = 2000
    keep: int = 5
    seed: int = 0
    max_nodes: int = 10_000_000
    max_edges: int = 200_000_000
    max_features: int = 1_000_000
    max_megabytes: int = 4096

    def __post_init__(self) -> None:
        for name in ("val", "test"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
                raise InputError(f"{name} is {value!r}; it must be a share, 0 or more and below 1")
        if self.val + self.test >= 1:
            raise InputError(f"val + test is {self.val + self.test:g}; something must be left to learn from")
        for name in ("keep", "checks", "features", "budget_nodes", "budget_bytes"):
            value = getattr(self, name)
            if (value is not None or name in ("keep", "checks")) and (type(value) is not int or value < 1):
                raise InputError(f"{name} is {value!r}; it must be a whole number of 1 or more")
        if type(self.directed) is not bool:
            raise InputError(f"directed is {self.directed!r}; it must be true or false")
        if self.features is not None and self.features > self.max_features:
            raise InputError(f"features is {self.features}; the limit is {self.max_features} (--max-features)")
        self.limits  # noqa: B018  # checked

    @property
    def limits(self) -> Limits:
        """What a single file may hold."""
        return Limits(self.max_nodes, self.max_edges, self.max_features, self.max_megabytes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any], path: object) -> Settings:
        """Settings as they were written; anything else is refused."""
        known = {f.name for f in fields(cls)}
        strange = sorted(set(values) ^ known)
        if strange:
            raise FolderError(f"{path}: setting {strange[0][:60]!r} is unknown here, or missing")
        for name in ("backbone_options", "selector_options"):
            if not isinstance(values[name], dict):
                raise FolderError(f"{path}: {name} is {str(values[name])[:60]!r}; a JSON object was expected")
        try:
            return cls(**values)
        except InputError as error:
            raise FolderError(f"{path}: {error}") from None
