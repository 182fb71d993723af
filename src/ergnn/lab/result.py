"""Results of runs: one per seed and class order, a stored one, and all results of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ergnn.config.learner_config import reveals_labels
from ergnn.config.registry import name_of
from ergnn.data.datasets import DATASETS
from ergnn.lab.config import RunConfig
from ergnn.lab.grid import paper_result
from ergnn.learning import metrics
from ergnn.learning.metrics import AccuracyMatrix, Summary, summarize
from ergnn.learning.resolve import options_in_effect

Member = tuple[int, int]
"""Seed and number of the class order."""


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed and class order.

    Attributes:
        seconds: its share of the time of the batch that it ran in.
        data: name of the stream that was learned.
    """

    seed: int
    order: int
    classes: list[list[int]]
    matrix: AccuracyMatrix
    buffer_ids: list[int]
    buffer_bytes: int
    history: list[dict[str, Any]]
    split: str = "public"
    notes: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None
    leaky: bool = False
    seconds: float = 0.0
    data: str | None = None


COLUMNS = {
    **{"key": "text", "config": "json", "dataset": "text", "backbone": "text", "method": "text", "selector": "text?"},
    **{"per_class": "int?", "protocol": "text", "head": "text", "edges": "text", "seed": "int", "class_order": "int"},
    **{"split": "text", "classes": "json", "class_names": "json?", "matrix": "json", "buffer_ids": "json"},
    **{"buffer_bytes": "int", "history": "json", "leaky": "int", "notes": "json", "seconds": "float"},
    **{"peak_memory_mb": "float", "code_version": "text", "machine": "json", "finished_at": "text"},
    **{"data": "text?", "metric": "text"},
}
"""Columns of the table of stored runs and their types; ``?`` if a value may be missing."""


@dataclass(frozen=True, kw_only=True)
class StoredRun(SeedResult):
    """The result of one seed and class order, with its configuration and origin.

    Attributes:
        key: SHA-256 of the configuration, seed and class order.
        config: the fields of :class:`RunConfig` that determine the results, without seed and class order.
        selector, per_class: None if the method has no buffer.
        history: one object per task: ``classes``, ``trained_on``, ``train_seconds``, ``select_seconds``, ``selection``,
            ``test_nodes``.
        machine: ``host``, ``system``, ``cpu``, ``cores``, ``python``, ``torch``, ``device``.
        finished_at: UTC, ISO 8601.
    """

    key: str
    config: dict[str, Any]
    dataset: str
    backbone: str
    method: str
    selector: str | None
    per_class: int | None
    protocol: str
    head: str
    edges: str
    peak_memory_mb: float
    code_version: str
    machine: dict[str, Any]
    finished_at: str

    def to_dict(self) -> dict[str, Any]:
        """Return the values by column name, ready for JSON."""
        matrix = self.matrix
        values = {**vars(self), "matrix": matrix.to_list(), "metric": matrix.metric, "class_order": self.order}
        return {name: values[name] for name in COLUMNS}


@dataclass(frozen=True)
class RunResult:
    """All seeds and class orders of one configuration.

    Attributes:
        config: the resolved configuration; of a custom stream, its name and the learner.
        members: one result per seed and class order.
        seconds: total time.
        peak_memory_mb: peak memory of the process (or the GPU).
    """

    config: RunConfig
    members: tuple[SeedResult, ...]
    seconds: float
    peak_memory_mb: float

    def __repr__(self) -> str:
        learner = self.config.learner
        names = f"{self.config.dataset} · {name_of(learner.backbone)} · {name_of(learner.method)}"
        measures = {"PM": self.pm, "FM": self.fm, "AA": self.aa}
        values = ", ".join(f"{name} {value.text()} %" for name, value in measures.items())
        return f"RunResult({names}, {len(self.members)} run{'s' * (len(self.members) > 1)}: {values})"

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(member.seed for member in self.members))

    @property
    def matrices(self) -> list[AccuracyMatrix]:
        return [member.matrix for member in self.members]

    @property
    def matrix(self) -> AccuracyMatrix:
        """The mean of all accuracy matrices."""
        return metrics.mean_matrix(self.matrices)

    @property
    def pm(self) -> Summary:
        """Performance mean."""
        return summarize([metrics.performance_mean(matrix) for matrix in self.matrices])

    @property
    def fm(self) -> Summary:
        """Forgetting mean."""
        return summarize([metrics.forgetting_mean(matrix, self.config.denominator) for matrix in self.matrices])

    @property
    def aa(self) -> Summary:
        """Average accuracy."""
        return summarize([metrics.average_accuracy(matrix) for matrix in self.matrices])

    @property
    def leaky(self) -> bool:
        """Whether test labels were used."""
        return self.members[0].leaky

    @property
    def notes(self) -> list[str]:
        """Notes to print with the results."""
        notes, config = list(self.members[0].notes), self.config
        if config.orders > 1 or config.class_order == "shuffled":
            seeds = len(self.seeds)
            notes.append(f"class orders: {config.orders} shuffled × {seeds} seed(s); tasks differ between orders")
        elif config.class_order == "seeded":
            notes.append("class orders: one shuffled per seed; tasks differ between seeds")
        selections = [record["selection"] for member in self.members for record in member.history]
        ties = [selection["tie_rate"] for selection in selections if "tie_rate" in selection]
        if any(ties):
            notes.append(f"ties among candidates, broken by seed: {100 * sum(ties) / len(ties):.0f} % on average")
        return notes

    @property
    def tasks(self) -> list[list[str]] | None:
        """The class names of each task; None if tasks differ between class orders."""
        first = self.members[0]
        if self.config.orders > 1 or self.config.class_order == "seeded":
            return None
        names = first.class_names
        return [[names[c] if names else f"class {c}" for c in classes] for classes in first.classes]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``ergnn run --json`` prints."""
        config, learner, first = self.config, self.config.learner, self.members[0]
        options = dict(options_in_effect(learner))
        history = [record for member in self.members for record in member.history]
        is_custom, paper = config.edges is None, None
        if config.protocol == "paper":  # closest to the paper's own; with others, its numbers are not comparable
            paper = paper_result(**{**config.flat(), **options})
        names = ("dataset", "input", "scenario", "edges", "class_order", "orders")
        values = {name: getattr(config, name) for name in names}
        values |= {name: getattr(learner, name) for name in ("head", "optimizer", "lr", "weight_decay", "epochs")}
        names = ("seeds", "tasks", "leaky", "notes", "seconds", "peak_memory_mb")
        values |= {name: getattr(self, name) for name in names}
        return values | {
            "protocol": None if is_custom else config.protocol,
            "reveals_labels": reveals_labels(config.edges, config.scenario) and DATASETS.get(config.dataset).edges > 0,
            "paper": paper,
            "backbone": name_of(learner.backbone),
            "method": name_of(learner.method),
            "selector": name_of(options.pop("selector", None)),
            "selector_options": options.pop("selector_options", None) or {},
            "per_class": options.pop("per_class", None),
            "method_options": options,
            "split": first.split,
            "metric": first.matrix.metric,
            "pm": vars(self.pm),
            "fm": {**vars(self.fm), "denominator": config.denominator},
            "aa": vars(self.aa),
            "matrix": self.matrix.to_list(),
            "runs": [
                {
                    **{name: getattr(member, name) for name in ("seed", "order", "classes")},
                    "matrix": member.matrix.to_list(),
                    "selection": [record["selection"] for record in member.history],
                }
                for member in self.members
            ],
            "buffer": {
                "nodes": len(first.buffer_ids),
                "bytes": first.buffer_bytes,
                "ids": [member.buffer_ids for member in self.members],
            },
            **{name: sum(record[name] for record in history) for name in ("train_seconds", "select_seconds")},
        }
