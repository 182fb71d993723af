"""The rows of every table and figure: one configuration over its seeds and class orders, and rows of equal settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ergnn.config.errors import ErgnnError
from ergnn.config.learner_config import reveals_labels
from ergnn.data.datasets.mnist import DIGITS
from ergnn.lab.config import DEFAULTS, RunConfig, command_of
from ergnn.lab.grid import TABLE_4
from ergnn.lab.keys import canonical_json, member_config
from ergnn.lab.paper import PaperResult, paper_result
from ergnn.lab.published import published_result
from ergnn.lab.result import StoredRun
from ergnn.lab.statistics import measure
from ergnn.learning import metrics
from ergnn.learning.metrics import AccuracyMatrix, Summary, summarize
from ergnn.pages.figures import look_of

BACKBONES = ("deepwalk", "node2vec", "sage", "gin", "gcn", "sgc", "gat", "mlp")
METHODS = ("finetune", "ewc", "gem", "agem", "replay", "nearest-mean", "joint")
SELECTORS = ("random", "mf", "mf*", "cm", "cm*", "im")
"""Selectors in the order of the paper's tables."""
NAMES = {
    **{"gat": "GAT", "gcn": "GCN", "sgc": "SGC", "gin": "GIN", "sage": "GraphSAGE", "mlp": "MLP"},
    **{"deepwalk": "DeepWalk", "node2vec": "Node2Vec", "ewc": "EWC", "gem": "GEM", "agem": "A-GEM"},
    **{"joint": "joint training", "nearest-mean": "nearest class mean"},
    **{"random": "Random", "mf": "MF", "mf*": "MF*", "cm": "CM", "cm*": "CM*", "im": "IM", "rim": "RIM"},
    **{"s2-ridge": "S2-ridge", "la-ridge": "LA-ridge", "mf-s2": "MF in S²X"},
}
NAMED_OPTIONS = ("selector", "per_class", "selector_options")
"""Options of methods that have a place in the name of a row; others follow it in parentheses."""
ROW_SETTINGS = (
    *("dataset", "backbone", "method", "input"),
    *("backbone_options", "method_options", "input_options"),
)
"""Settings that may differ between the rows of one table."""
LABEL_SETTINGS = ("scenario", "protocol", "edges", "split", "class_order")
"""Settings that every label of a :class:`Setting` shows."""
MIN_RUNS = 5
"""Rows with fewer runs are marked on the page."""


@dataclass(frozen=True)
class ResultRow:
    """One configuration and all its finished runs."""

    config: Mapping[str, Any]
    runs: Sequence[StoredRun]

    @property
    def dataset(self) -> str:
        return self.runs[0].dataset

    @property
    def backbone(self) -> str:
        """The network, or the kind of walks if its input is embeddings."""
        read = self.config.get("input", DEFAULTS["input"])
        return self.runs[0].backbone if read == DEFAULTS["input"] else str(read)

    @property
    def method(self) -> str:
        return self.runs[0].method

    @property
    def selector(self) -> str | None:
        return self.runs[0].selector

    @property
    def per_class(self) -> int:
        """e; 1 if the method has no buffer."""
        return self.runs[0].per_class or 1

    @property
    def is_image(self) -> bool:
        return self.dataset in TABLE_4.datasets

    @property
    def is_leaky(self) -> bool:
        return any(run.leaky for run in self.runs)

    @property
    def reveals_labels(self) -> bool:
        """Whether the visible edges tell classes apart."""
        return not self.is_image and reveals_labels(self.runs[0].edges, self.config.get("scenario"))

    @property
    def is_bound(self) -> bool:
        return self.method in ("joint", "nearest-mean")

    @cached_property
    def minimal(self) -> dict[str, Any]:
        """The fewest settings that give the same runs."""
        return minimal_settings(self.config)

    @cached_property
    def special(self) -> dict[str, Any]:
        """Options that differ from the corresponding row of the paper's tables."""
        rows = [row.settings for row in TABLE_4.rows if self.is_image and row.settings["method"] == self.method]
        usual = next((row for row in rows if row.get("selector") == self.selector), {})
        given = {name: value for name, value in self.minimal.items() if value != usual.get(name)}
        options = {name: value for name, value in given.items() if name not in {*DEFAULTS, *NAMED_OPTIONS}}
        for name in ("selector_options", "backbone_options", "method_options", "input_options"):
            options |= given.get(name) or {}
        return options

    @property
    def short_name(self) -> str:
        """Short name for labels inside figures."""
        if not self.selector and self.method == "finetune":
            return "no replay" + self._options
        return NAMES.get(self.selector or self.method, self.selector or self.method) + self._options

    @property
    def figure_name(self) -> str:
        return f"{NAMES.get(self.selector or '', self.selector)} LEAKY" if self.is_leaky else self.short_name

    @property
    def name(self) -> str:
        """As in the paper: ``GAT``, ``ER-GAT · MF*``; options that the paper does not have in parentheses."""
        backbone = NAMES.get(self.backbone, self.backbone)
        if self.method == "replay":
            count = "" if self.per_class == 1 else f", e = {self.per_class}"
            return f"{'replay' if self.is_image else f'ER-{backbone}'} · {self.short_name}{count}"
        if self.method == "finetune":
            return ("FINETUNE" if self.is_image else backbone) + self._options
        network = "" if self.is_image or self.method == "nearest-mean" else f" · {backbone}"
        return f"{NAMES.get(self.method, self.method)}{network}{self._options}"

    @property
    def _options(self) -> str:
        return f" ({', '.join(f'{key}={value}' for key, value in self.special.items())})" if self.special else ""

    @property
    def look(self) -> str:
        """Style class in figures, by selector or method; leaky rows are dotted."""
        return look_of(self.selector or self.method) + (" leaky" if self.is_leaky else "")

    @cached_property
    def matrices(self) -> list[AccuracyMatrix]:
        return [run.matrix for run in self.runs]

    def summary(self, name: str) -> Summary:
        """Summarize a measure of :meth:`by_member` over the runs."""
        return summarize(list(self.by_member(name).values()))

    @cached_property
    def pm(self) -> Summary:
        return self.summary("pm")

    @cached_property
    def fm(self) -> Summary:
        return self.summary("fm")

    @cached_property
    def after_each_task(self) -> list[Summary]:
        """Mean score over the tasks seen so far, after each task."""
        curves = np.array([metrics.performance_after_each_task(matrix) for matrix in self.matrices])
        return [summarize(curves[:, i]) for i in range(curves.shape[1])]

    @cached_property
    def matrix(self) -> AccuracyMatrix:
        return metrics.mean_matrix(self.matrices)

    @cached_property
    def drops(self) -> list[Summary]:
        """``a_jj − a_Mj`` for each task except the last, over the runs."""
        drops = np.array([np.diagonal(m.values) - m.values[-1] for m in self.matrices])
        return [summarize(drops[:, j]) for j in range(drops.shape[1] - 1)]

    @property
    def paper(self) -> PaperResult | None:
        return published_result(self.config) or paper_result(
            self.dataset, self.backbone, self.method, self.selector, self.per_class, self.config.get("head")
        )

    @property
    def badges(self) -> list[tuple[str, str]]:
        """Short marks and their meaning, for results that need a caveat."""
        marks = []
        if self.is_leaky:
            marks.append(("LEAKY", "the selector used test labels"))
        if self.reveals_labels:
            marks.append(("OWN EDGES", "edges between tasks are left out, which reveals label information"))
        usual, tasks = DEFAULTS["epochs"], self.matrix.num_tasks
        epochs = self.config.get("epochs", usual)
        if epochs < usual and not self.is_image:
            marks.append(("QUICK", f"{epochs} epochs per task instead of {usual}"))
        if self.is_image and (self.config.get("dataset_options") or {}).get("tasks", tasks) < 23:
            marks.append(("QUICK", f"{tasks} tasks instead of 23"))
        if len(self.runs) < MIN_RUNS:
            marks.append(("FEW", f"{len(self.runs)} run{'s' * (len(self.runs) > 1)}: the interval is unreliable"))
        if any(run.data == DIGITS for run in self.runs):
            marks.append(("DIGITS", "scikit-learn's digits instead of MNIST"))
        return marks

    @cached_property
    def command(self) -> str:
        """The shortest ``ergnn run …`` command that reproduces this row."""
        seeds, orders = {run.seed for run in self.runs}, {run.order for run in self.runs}
        first, last = min(seeds), max(seeds)
        count = 1 if self.config.get("class_order") == "seeded" else max(orders) + 1
        return command_of(RunConfig(**self.minimal, seeds=last - first + 1, first_seed=first, orders=count))

    def by_member(self, name: str) -> dict[tuple[int, int], float]:
        """Return a measure of each seed and class order.

        ``micro`` is the accuracy over all test nodes, ``score`` the same, or the area under the ROC curve where stored.
        """
        if name in ("micro", "score"):
            stored = ({} if name == "micro" else run.history[-1] for run in self.runs)
            scores = (one.get("roc_auc", run.micro_accuracy or 0.0) for one, run in zip(stored, self.runs, strict=True))
            return {(run.seed, run.order): float(score) for run, score in zip(self.runs, scores, strict=True)}
        return {(run.seed, run.order): measure(name, run.matrix) for run in self.runs}


def result_rows(runs: Iterable[StoredRun]) -> list[ResultRow]:
    """Group runs into one row per configuration, in the order of the paper's tables."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(canonical_json(run.config), []).append(run)
    return sorted((ResultRow(group[0].config, group) for group in groups.values()), key=_row_order)


@dataclass
class Setting:
    """Rows that may share a table, for each data set."""

    label: str
    protocol: str
    rows: list[ResultRow] = field(default_factory=list)

    @property
    def id(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.label.lower())

    @property
    def datasets(self) -> list[str]:
        return sorted({row.dataset for row in self.rows}, key=dataset_order)

    @property
    def is_image(self) -> bool:
        return self.rows[0].is_image

    @property
    def badges(self) -> list[tuple[str, str]]:
        """Badges that every row of the setting has, shown once in its heading."""
        return [badge for badge in self.rows[0].badges if all(badge in row.badges for row in self.rows)]

    def of(self, dataset: str) -> list[ResultRow]:
        return [row for row in self.rows if row.dataset == dataset]


def settings_of(rows: Sequence[ResultRow]) -> list[Setting]:
    """Group rows by common settings; those with the most rows first, the paper's protocol before others."""
    settings: dict[str, Setting] = {}
    for row in rows:
        label = _label(row)
        settings.setdefault(label, Setting(label, row.runs[0].protocol)).rows.append(row)
    return sorted(settings.values(), key=lambda s: (-len(s.rows), s.protocol != "paper", s.label))


def _label(row: ResultRow) -> str:
    """Format protocol, split and class order, then the settings that the protocol does not determine."""
    given, scenario = row.minimal, row.config.get("scenario")
    order = row.config.get("class_order", "natural")
    edges = [] if row.is_image else [f"{row.runs[0].edges} edges{' (reveal labels)' * row.reveals_labels}"]
    words = [
        *([f"scenario {scenario}"] if scenario else []),
        f"{row.runs[0].protocol} protocol",
        *edges,
        f"{' and '.join(sorted({run.split for run in row.runs}))} split",
        "shuffled class orders" if order in ("shuffled", "seeded") else f"{order} class order",
    ]
    words += [
        f"{name.replace('_', ' ')} "
        + (", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value))
        for name, value in given.items()
        if value is not None and name in DEFAULTS and name not in (*ROW_SETTINGS, *LABEL_SETTINGS)
    ]
    return " · ".join(words)


def main_backbone(rows: Sequence[ResultRow]) -> str:
    """Return the main backbone of the rows of one data set: the paper's if present, otherwise the most frequent."""
    counts = Counter(row.backbone for row in rows if not row.is_bound) or Counter(row.backbone for row in rows)
    paper = "mlp" if rows[0].is_image else "gat"
    return paper if paper in counts else counts.most_common(1)[0][0]


def base_rows(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows of one data set with the smallest e, and those without replay."""
    fewest = min((row.per_class for row in rows if row.runs[0].per_class), default=1)
    return [row for row in rows if row.runs[0].per_class in (None, fewest)]


def main_rows(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows of one data set for figure 2: one backbone, with and without replay, one e."""
    backbone = main_backbone(rows)
    return [row for row in base_rows(rows) if row.is_bound or row.backbone == backbone]


def minimal_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fewest settings that give the same run, without the defaults of its protocol and backbone."""
    given = dict(config)
    for name in [name for name in given if name != "dataset"]:
        fewer = {key: value for key, value in given.items() if key != name}
        if _same_run(fewer, config):
            given = fewer
    return given


def _same_run(given: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    try:
        first, second = (canonical_json(member_config(RunConfig(**one).resolved())) for one in (given, config))
        return first == second
    except ErgnnError:  # such as a data set or selector of a package that is not installed
        return False


def dataset_order(name: str) -> tuple[int, str]:
    """Sort data sets: the paper's graphs first, in the order of its tables."""
    known = ("cora", "citeseer", "reddit")
    return (known.index(name) if name in known else len(known), name)


def _row_order(row: ResultRow) -> tuple[Any, ...]:
    """Return the sort key of a row: baselines, ER rows by selector, our selectors, then references such as joint."""
    return (
        dataset_order(row.dataset),
        _place(row.method, METHODS),
        row.method == "replay" and row.backbone != "gat",
        _place(row.backbone, BACKBONES),
        row.per_class,
        _place(row.selector, SELECTORS),
        row.name,
    )


def _place(name: str | None, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)
