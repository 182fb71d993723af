"""Stored runs, gathered into the rows that tables and figures show.

A *row* is one configuration over all its seeds and class orders. A *setting* is what rows of one table have in
common: protocol, split, class orders, epochs and whatever else was not left at its default.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from ergnn import metrics
from ergnn.errors import ErgnnError
from ergnn.experiments.config import RunConfig
from ergnn.experiments.keys import canonical_json, member_config
from ergnn.experiments.statistics import measure
from ergnn.experiments.stored_run import StoredRun
from ergnn.metrics import AccuracyMatrix, Summary, summarize
from ergnn.report.paper import PaperResult, paper_result

ROW_FIELDS = ("dataset", "backbone", "method", "selector", "per_class", "selector_options", "backbone_options")
BY_BACKBONE = ("lr", "weight_decay")
"""What may differ between the rows of one setting because each backbone has its own."""
BACKBONE_NAMES = {"gat": "GAT", "gcn": "GCN", "sgc": "SGC", "gin": "GIN", "sage": "GraphSAGE", "mlp": "MLP"}
BACKBONE_NAMES |= {"deepwalk": "DeepWalk", "node2vec": "Node2Vec"}
METHOD_NAMES = {"ewc": "EWC", "gem": "GEM", "agem": "A-GEM", "a-gem": "A-GEM", "joint": "joint training"}
METHOD_NAMES |= {"nearest-mean": "nearest class mean"}
SELECTOR_NAMES = {"random": "Random", "rim": "RIM", "s2-ridge": "S2-ridge", "la-ridge": "LA-ridge"}
PAPER_SELECTORS = ("random", "mf", "mf*", "cm", "cm*", "im")
LEAST_SEEDS = 5
"""Fewer runs than this say little; the page marks them."""


@dataclass(frozen=True)
class Row:
    """One configuration and all its finished runs."""

    config: Mapping[str, Any]
    runs: Sequence[StoredRun]

    @property
    def dataset(self) -> str:
        return self.runs[0].dataset

    @property
    def selector(self) -> str | None:
        return self.runs[0].selector

    @property
    def kind(self) -> str:
        """The selector where there is one, or the method: what decides a row's colour."""
        return self.selector or self.runs[0].method

    @property
    def remembers(self) -> str:
        """Short name for labels inside figures."""
        method = self.runs[0].method
        if self.selector:
            name = SELECTOR_NAMES.get(self.selector, self.selector.upper() if len(self.selector) < 4 else self.selector)
            return name + _options(self.config.get("selector_options"))
        return "no replay" if method == "finetune" else METHOD_NAMES.get(method, method)

    @property
    def name(self) -> str:
        """As the paper names it: ``GAT``, ``ER-GAT · MF*``; with what it does not have in brackets."""
        run = self.runs[0]
        backbone = BACKBONE_NAMES.get(run.backbone, run.backbone) + _options(self.config.get("backbone_options"))
        if run.method == "finetune":
            return backbone
        if run.method == "replay":
            count = "" if run.per_class == 1 else f", e = {run.per_class}"
            return f"ER-{backbone} · {self.remembers}{count}"
        return f"{METHOD_NAMES.get(run.method, run.method)} · {backbone}"

    @cached_property
    def matrices(self) -> list[AccuracyMatrix]:
        return [run.matrix for run in self.runs]

    @cached_property
    def pm(self) -> Summary:
        return summarize([metrics.performance_mean(m) for m in self.matrices])

    @cached_property
    def fm(self) -> Summary:
        return summarize([metrics.forgetting_mean(m) for m in self.matrices])

    @cached_property
    def aa(self) -> Summary:
        return summarize([metrics.average_accuracy(m) for m in self.matrices])

    @cached_property
    def matrix(self) -> AccuracyMatrix:
        return metrics.mean_matrix(self.matrices)

    @cached_property
    def seconds(self) -> Summary:
        """Seconds of one run (one seed and class order)."""
        return summarize([run.seconds for run in self.runs])

    @property
    def memory_mb(self) -> float:
        return max(run.peak_memory_mb for run in self.runs)

    @property
    def paper(self) -> PaperResult | None:
        run = self.runs[0]
        return paper_result(run.dataset, run.backbone, run.method, run.selector, run.per_class)

    @property
    def badges(self) -> list[tuple[str, str]]:
        """Short marks and what they mean, for what must not be quoted as it stands."""
        marks = []
        if any(run.leaky for run in self.runs):
            marks.append(("LEAKY", "the selector saw test labels"))
        if self.config.get("epochs", RunConfig.epochs) < RunConfig.epochs and not self.dataset.startswith("permuted"):
            marks.append(("QUICK", f"{self.config['epochs']} epochs a task in place of {RunConfig.epochs}"))
        if len(self.runs) < LEAST_SEEDS:
            marks.append(("FEW", f"{len(self.runs)} run{'s' * (len(self.runs) > 1)}: the interval says little"))
        if "digits" in self.dataset or any("digits" in note for run in self.runs for note in run.notes):
            marks.append(("DIGITS", "scikit-learn's digits in place of MNIST"))
        return marks

    @cached_property
    def command(self) -> str:
        """The command line that gives this row again."""
        return command_of(self.config, self.runs)

    def by_member(self, name: str) -> dict[tuple[int, int], float]:
        """``pm``, ``fm`` or ``aa`` of each seed and class order."""
        return {(run.seed, run.order): measure(name, run.matrix) for run in self.runs}

    def paired(self, other: Row, name: str = "fm") -> Summary | None:
        """``self − other`` over the seeds and class orders that both have; None where there is none."""
        mine, theirs = self.by_member(name), other.by_member(name)
        common = sorted(mine.keys() & theirs.keys())
        return summarize([mine[key] - theirs[key] for key in common]) if common else None


@dataclass
class Setting:
    """Rows that may stand in one table, by data set."""

    label: str
    protocol: str
    rows: list[Row] = field(default_factory=list)

    @property
    def id(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.label.lower())

    @property
    def datasets(self) -> list[str]:
        return sorted({row.dataset for row in self.rows}, key=_dataset_order)

    def of(self, dataset: str) -> list[Row]:
        return [row for row in self.rows if row.dataset == dataset]


def gather(runs: Iterable[StoredRun]) -> list[Row]:
    """One row for each configuration, in the order of the paper's tables."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(canonical_json(run.config), []).append(run)
    rows = [Row(group[0].config, group) for group in groups.values()]
    return sorted(rows, key=_row_order)


def settings_of(rows: Sequence[Row]) -> list[Setting]:
    """Rows by what they have in common; the paper's protocol first, then those with the most rows."""
    found: dict[str, Setting] = {}
    for row in rows:
        kept = {key: value for key, value in row.config.items() if key not in ROW_FIELDS + BY_BACKBONE}
        kept |= {key: row.config[key] for key in BY_BACKBONE if _is_set_by_hand(row.config, key)}
        kept["split"] = " and ".join(sorted({run.split for run in row.runs}))
        label = _setting_label(kept, row)
        found.setdefault(label, Setting(label, row.runs[0].protocol)).rows.append(row)
    return sorted(found.values(), key=lambda s: (s.protocol != "paper", -len(s.rows), s.label))


def command_of(config: Mapping[str, Any], runs: Sequence[StoredRun]) -> str:
    """``ergnn run …`` with as few options as give the same configuration."""
    seeds, orders = sorted({run.seed for run in runs}), sorted({run.order for run in runs})
    given = {f.name: config[f.name] for f in fields(RunConfig) if f.name in config}
    for name in [name for name in given if name != "dataset"]:
        fewer = {key: value for key, value in given.items() if key != name}
        if _same_run(fewer, config):
            given = fewer
    options = [f"--{name.replace('_', '-')} {_quoted(value)}" for name, value in given.items() if name != "dataset"]
    options.append(f"--seeds {seeds[-1] - seeds[0] + 1}")
    if seeds[0]:
        options.append(f"--first-seed {seeds[0]}")
    if orders[-1]:
        options.append(f"--orders {orders[-1] + 1}")
    return " ".join(["ergnn run", str(config["dataset"]), *options])


def _same_run(given: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    try:
        return canonical_json(member_config(RunConfig(**given).resolved())) == canonical_json(config)
    except ErgnnError:  # such as a data set or selector of a package that is not installed here
        return False


def _is_set_by_hand(config: Mapping[str, Any], key: str) -> bool:
    given = {f.name: config[f.name] for f in fields(RunConfig) if f.name in config}
    return not _same_run({name: value for name, value in given.items() if name != key}, config)


def _quoted(value: Any) -> str:
    if isinstance(value, Mapping):
        return shlex.quote(",".join(f"{key}={inner}" for key, inner in value.items()))
    return shlex.quote(str(value))


def _setting_label(kept: Mapping[str, Any], row: Row) -> str:
    """Said in words what everybody asks first, and then only what is not the protocol's own."""
    shuffled = kept.get("class_order") == "shuffled"
    parts = [
        f"{kept.get('protocol')} protocol",
        f"{kept['split']} split",
        "shuffled class orders" if shuffled else f"{kept.get('class_order', 'natural')} class order",
    ]
    said = {"protocol", "split", "class_order"}
    for key, value in kept.items():
        usual = RunConfig.__dataclass_fields__[key].default if key in RunConfig.__dataclass_fields__ else None
        if key in said or value == usual or not _is_set_by_hand(row.config, key):
            continue
        parts.append(f"{key.replace('_', ' ')} {value}")
    return " · ".join(parts)


def _options(options: Mapping[str, Any] | None) -> str:
    return f" ({', '.join(f'{key}={value}' for key, value in options.items())})" if options else ""


def _dataset_order(name: str) -> tuple[int, str]:
    known = ("cora", "citeseer", "reddit")
    return (known.index(name) if name in known else len(known), name)


def _row_order(row: Row) -> tuple[Any, ...]:
    """The paper's order: baselines, ER rows by selector; then our selectors, and bounds such as joint training."""
    run = row.runs[0]
    backbones = ("deepwalk", "node2vec", "sage", "gin", "gcn", "sgc", "gat")
    methods = ("finetune", "ewc", "gem", "a-gem", "agem", "replay")
    return (
        _dataset_order(run.dataset),
        methods.index(run.method) if run.method in methods else len(methods),
        backbones.index(run.backbone) if run.backbone in backbones else len(backbones),
        run.per_class or 0,
        PAPER_SELECTORS.index(run.selector) if run.selector in PAPER_SELECTORS else len(PAPER_SELECTORS),
        row.name,
    )


def forgetting_per_task(row: Row) -> list[Summary]:
    """``a_jj − a_Mj`` for each task but the last, over the runs."""
    drops = np.array([np.diagonal(m.values) - m.values[-1] for m in row.matrices])
    return [summarize(drops[:, j]) for j in range(drops.shape[1] - 1)]
