"""The rows of every table and figure: one configuration over its seeds and class orders, and rows of equal settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ergnn.config.errors import ErgnnError
from ergnn.config.learner_config import reveals_labels
from ergnn.lab.config import DEFAULTS, RunConfig, canonical_json, command_of, member_config
from ergnn.lab.grid import GRAPHS, TABLE_4, PaperResult, paper_result
from ergnn.lab.result import Member, StoredRun
from ergnn.lab.statistics import MEASURES
from ergnn.learning import metrics
from ergnn.learning.metrics import AccuracyMatrix, Summary, summarize
from ergnn.pages.figures import look_of

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
NAMES = {
    **{"deepwalk": "DeepWalk", "node2vec": "Node2Vec", "sage": "GraphSAGE", "gin": "GIN", "gcn": "GCN", "sgc": "SGC"},
    **{"gat": "GAT", "mlp": "MLP", "finetune": "finetune", "ewc": "EWC", "gem": "GEM", "agem": "A-GEM"},
    **{"replay": "replay", "nearest-mean": "nearest class mean", "joint": "joint training"},
    **{"random": "Random", "mf": "MF", "mf*": "MF*", "cm": "CM", "cm*": "CM*", "im": "IM"},
    **{"la-ridge": "LA-ridge", "mf-s2": "MF in S²X", "rim": "RIM", "s2-ridge": "S2-ridge"},
}
"""Names of backbones, methods and selectors, in the order of the paper's tables."""
NESTED = ("selector_options", "backbone_options", "method_options", "input_options")
"""Settings that are options themselves; the name of a row has them in parentheses."""
ROW_SETTINGS = ("dataset", "backbone", "method", "input", "selector", "per_class", *NESTED)
"""Settings that may differ between the rows of one table."""
DETERMINING = ("dataset", "scenario", "protocol", "backbone", "method", "input")
"""Settings that others follow from."""
LABEL_SETTINGS = ("scenario", "protocol", "edges", "split", "class_order")
"""Settings that every label of :func:`settings_of` shows."""


@dataclass(frozen=True)
class ResultRow:
    """One configuration and all its finished runs."""

    runs: Sequence[StoredRun]

    @property
    def first(self) -> StoredRun:
        """The first run, from which all others differ in seed, class order and split only."""
        return self.runs[0]

    @property
    def backbone(self) -> str:
        """The network, or the kind of walks if its input is embeddings."""
        source = self.first.config.get("input", DEFAULTS["input"])
        return self.first.backbone if source == DEFAULTS["input"] else str(source)

    @property
    def per_class(self) -> int:
        """e; 1 if the method has no buffer."""
        return self.first.per_class or 1

    @property
    def is_image(self) -> bool:
        return self.first.dataset in TABLE_4.datasets

    @property
    def is_leaky(self) -> bool:
        return any(run.leaky for run in self.runs)

    @property
    def reveals_labels(self) -> bool:
        """Whether the visible edges tell classes apart."""
        return not self.is_image and reveals_labels(self.first.edges, self.first.config.get("scenario"))

    @property
    def is_bound(self) -> bool:
        return self.first.method in ("joint", "nearest-mean")

    @cached_property
    def minimal(self) -> dict[str, Any]:
        """Settings without those that follow from protocol, scenario, backbone and method."""
        base = {name: self.first.config[name] for name in DETERMINING if name in self.first.config}
        try:
            usual = member_config(RunConfig(**base).resolved())
        except ErgnnError:  # such as a data set of a package that is not installed
            return dict(self.first.config)
        return {**base, **{name: value for name, value in self.first.config.items() if value != usual.get(name)}}

    @cached_property
    def special(self) -> dict[str, Any]:
        """Options other than the selector and the nodes per class."""
        options = {k: v for k, v in self.minimal.items() if k not in {*DEFAULTS, *ROW_SETTINGS}}
        for name in NESTED:
            options |= self.minimal.get(name) or {}
        return options

    @property
    def short_name(self) -> str:
        """Short name for labels inside figures."""
        name = self.first.selector or self.first.method
        return ("no replay" if name == "finetune" else NAMES.get(name, name)) + self._options

    @property
    def name(self) -> str:
        """As in the paper: ``GAT``, ``ER-GAT · MF*``; options that the paper does not have in parentheses."""
        backbone, method = NAMES.get(self.backbone, self.backbone), NAMES.get(self.first.method, self.first.method)
        if self.first.method == "replay":
            count = "" if self.per_class == 1 else f", e = {self.per_class}"
            return f"ER-{backbone} · {self.short_name}{count}{' (leaky)' * self.is_leaky}"
        if self.first.method == "finetune":
            return backbone + self._options
        return method + f" · {backbone}" * (self.first.method != "nearest-mean") + self._options

    @property
    def _options(self) -> str:
        return f" ({', '.join(f'{name}={value}' for name, value in self.special.items())})" if self.special else ""

    @property
    def look(self) -> str:
        """Style class in figures, by selector or method; leaky rows are dotted."""
        return look_of(self.first.selector or self.first.method) + (" leaky" if self.is_leaky else "")

    @cached_property
    def matrices(self) -> list[AccuracyMatrix]:
        return [run.matrix for run in self.runs]

    @cached_property
    def matrix(self) -> AccuracyMatrix:
        return metrics.mean_matrix(self.matrices)

    @cached_property
    def after_each_task(self) -> list[Summary]:
        """Mean score over the tasks seen so far, after each task."""
        curves = np.array([metrics.performance_after_each_task(matrix) for matrix in self.matrices])
        return [summarize(values) for values in curves.T]

    @property
    def paper(self) -> PaperResult | None:
        return paper_result(**{**self.first.config, "selector": self.first.selector, "per_class": self.per_class})

    @cached_property
    def command(self) -> str:
        """The ``ergnn run …`` command that reproduces this row."""
        seeds, orders = {run.seed for run in self.runs}, {run.order for run in self.runs}
        first, last = min(seeds), max(seeds)
        count = 1 if self.first.config.get("class_order") == "seeded" else max(orders) + 1
        return command_of(RunConfig(**self.minimal, seeds=last - first + 1, first_seed=first, orders=count))

    def by_member(self, name: str) -> dict[Member, float]:
        """Return a measure of each seed and class order.

        ``micro`` is the accuracy over all test nodes, ``score`` the same, or the area under the ROC curve where stored.
        """
        if name in MEASURES:
            return {(run.seed, run.order): MEASURES[name](run.matrix) for run in self.runs}
        values = {}
        for run in self.runs:
            micro = np.average(run.matrix[-1], weights=[record["test_nodes"] for record in run.history])
            area = run.history[-1].get("roc_auc", micro)
            values[run.seed, run.order] = float(area if name == "score" else micro)
        return values

    def summary(self, name: str) -> Summary:
        """Summarize a measure of :meth:`by_member` over the runs."""
        return summarize(list(self.by_member(name).values()))


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by their keys; groups and items keep their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def result_rows(runs: Iterable[StoredRun]) -> list[ResultRow]:
    """Group runs into one row per configuration, in the order of the paper's tables."""
    groups = grouped(runs, lambda run: canonical_json(run.config))
    return sorted(map(ResultRow, groups.values()), key=_row_order)


def settings_of(rows: Sequence[ResultRow]) -> dict[str, dict[str, list[ResultRow]]]:
    """Group :func:`result_rows` by the label of their common settings, then by data set: the rows that share a table.

    Settings with the most rows come first, then the paper's protocol before others.
    """
    settings = grouped(rows, _label)

    def place(label: str) -> tuple[int, bool, str]:
        return -len(settings[label]), settings[label][0].first.protocol != "paper", label

    return {label: grouped(settings[label], lambda row: row.first.dataset) for label in sorted(settings, key=place)}


def _label(row: ResultRow) -> str:
    """Format protocol, split and class order, then the settings that the protocol does not determine."""
    scenario, order = row.first.config.get("scenario"), row.first.config.get("class_order", "natural")
    words = [
        *([f"scenario {scenario}"] if scenario else []),
        f"{row.first.protocol} protocol",
        *([] if row.is_image else [f"{row.first.edges} edges{' (reveal labels)' * row.reveals_labels}"]),
        f"{' and '.join(sorted({run.split for run in row.runs}))} split",
        "shuffled class orders" if order in ("shuffled", "seeded") else f"{order} class order",
    ]
    words += [
        f"{name.replace('_', ' ')} "
        + (", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value))
        for name, value in row.minimal.items()
        if value is not None and name in DEFAULTS and name not in (*ROW_SETTINGS, *LABEL_SETTINGS)
    ]
    return " · ".join(words)


def main_backbone(rows: Sequence[ResultRow]) -> str:
    """Return the main backbone of the rows of one data set: GAT if present, otherwise the most frequent."""
    counts = Counter(row.backbone for row in rows if not row.is_bound) or Counter(row.backbone for row in rows)
    return "gat" if "gat" in counts else counts.most_common(1)[0][0]


def base_rows(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows of one data set with the smallest e, and those without replay."""
    fewest = min((row.per_class for row in rows if row.first.per_class), default=1)
    return [row for row in rows if row.first.per_class in (None, fewest)]


def dataset_order(name: str) -> tuple[int, str]:
    """Sort data sets: the paper's graphs first, in the order of its tables."""
    return _place(name, GRAPHS), name


def _row_order(row: ResultRow) -> tuple[Any, ...]:
    """Return the sort key of a row: baselines, ER rows by selector, our selectors, then references such as joint."""
    return (
        dataset_order(row.first.dataset),
        _place(row.first.method),
        row.first.method == "replay" and row.backbone != "gat",
        _place(row.backbone),
        row.per_class,
        _place(row.first.selector),
        row.name,
    )


def _place(name: str | None, order: Sequence[str | None] = (*NAMES,)) -> int:
    return order.index(name) if name in order else len(order)
