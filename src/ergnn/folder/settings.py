"""Settings of a learner on a growing graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.config.learner_config import TASK_UNKNOWN, LearnerConfig
from ergnn.config.limits import Limits
from ergnn.config.registry import field_options

METHOD_DEFAULTS: dict[str, dict[str, Any]] = {
    name: {"per_class": 50, "scarce": "keep"} for name in ("replay", "er-ace", "logit-adjusted", "continualgnn")
}
"""Options of a method whose defaults differ in a folder."""
CHANGEABLE = ("device", "eval_samples", "keep", "max_edges", "max_features", "max_megabytes", "max_nodes")
"""Settings that can be changed later, as the model does not depend on them."""


@dataclass(frozen=True)
class Settings:
    """The settings of a folder.

    Args:
        learner: backbone, method and training; see :class:`LearnerConfig`. The head is always ``growing``.
        num_features: features per node; by default as many as the first update has.
        columns: kinds of columns that differ from what their values suggest, e.g. ``{"zip": "category"}``: number,
            category, text, date, word or ignore.
        val: share of labeled nodes held out for validation where no split column says so.
        test: share of labeled nodes held out for scores where no split column says so.
        directed: edges lead one way only.
        eval_samples: limit on the held-out nodes of past updates that are scored at each update.
        keep: number of versions to keep.
        max_nodes: limit on the nodes of the whole graph.
        max_edges: limit on the edges of the whole graph.
        max_features: limit on the features per node.
        max_megabytes: limit on the size of any file that is read.
    """

    learner: LearnerConfig = field(default_factory=lambda: LearnerConfig(**TASK_UNKNOWN))
    num_features: int | None = None
    columns: dict[str, str] = field(default_factory=dict)
    val: float = 0.1
    test: float = 0.2
    directed: bool = False
    eval_samples: int = 2000
    keep: int = 5
    max_nodes: int = 10_000_000
    max_edges: int = 200_000_000
    max_features: int = 1_000_000
    max_megabytes: int = 4096

    def __post_init__(self) -> None:
        for option in field_options(Settings):
            option.check(getattr(self, option.name))
        check_at_least(0, val=self.val, test=self.test)
        if not self.val + self.test < 1:
            raise InputError(f"val + test is {self.val + self.test:g}; it must be below 1, so that some are trained on")
        check_at_least(1, keep=self.keep, eval_samples=self.eval_samples, num_features=self.num_features)
        if self.columns:
            from ergnn.data.tables.kinds import KINDS

            for name, kind in self.columns.items():
                check_choice(f"kind of column {name!r}:", kind, KINDS)
        if self.limits.nodes >= 2**31:
            raise InputError(f"max_nodes is {self.max_nodes}; it must be below {2**31}")
        if self.num_features is not None and self.num_features > self.max_features:
            raise InputError(f"num_features is {self.num_features}; the limit is {self.max_features} (--max-features)")
        if self.learner.head != "growing":
            raise InputError(f"head is {self.learner.head!r}; in a folder it must be 'growing'")
        for name in ("backbone", "method"):
            if not isinstance(getattr(self.learner, name), str):
                raise InputError(f"{name} is an object; a folder needs a registered name")

    @property
    def limits(self) -> Limits:
        """What a single file may hold."""
        return Limits(self.max_nodes, self.max_edges, self.max_features, self.max_megabytes)

    @property
    def config(self) -> LearnerConfig:
        """The learner's configuration with the options that differ in a folder."""
        defaults = METHOD_DEFAULTS.get(str(self.learner.method), {})
        return replace(self.learner, method_options={**defaults, **self.learner.method_options})

    @property
    def seed(self) -> int:
        return self.learner.seed

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Settings:
        """The settings of a flat mapping: other names are fields of :class:`LearnerConfig` or options of the method."""
        return cls().with_settings(settings)

    def with_settings(self, settings: Mapping[str, Any]) -> Settings:
        """The same settings with some replaced."""
        names = {f.name for f in fields(self)}
        of_folder = {name: value for name, value in settings.items() if name in names}
        of_learner = {name: value for name, value in settings.items() if name not in names}
        return replace(self, **of_folder, learner=of_folder.get("learner", self.learner).with_settings(of_learner))

    def settings(self) -> dict[str, Any]:
        """The flat mapping, the inverse of :meth:`from_settings`."""
        of_folder = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "learner"}
        return {**self.learner.settings(), **of_folder}
