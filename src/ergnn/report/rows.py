"""Stored runs, gathered into the rows that tables and figures show: one configuration over its seeds and orders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ergnn import metrics
from ergnn.data.datasets.mnist import DIGITS
from ergnn.errors import ErgnnError
from ergnn.experiments.cells import command_of
from ergnn.experiments.config import DEFAULTS, RunConfig
from ergnn.experiments.grid import TABLE_4
from ergnn.experiments.keys import canonical_json, member_config
from ergnn.experiments.statistics import measure
from ergnn.experiments.stored_run import StoredRun
from ergnn.metrics import AccuracyMatrix, Summary, summarize
from ergnn.report.figures import look_of
from ergnn.report.paper import PaperResult, paper_result

BACKBONES = ("deepwalk", "node2vec", "sage", "gin", "gcn", "sgc", "gat", "mlp")
METHODS = ("finetune", "ewc", "gem", "agem", "replay", "nearest-mean", "joint")
SELECTORS = ("random", "mf", "mf*", "cm", "cm*", "im")
"""Orders of the paper's tables."""
NAMES = {
    **{"gat": "GAT", "gcn": "GCN", "sgc": "SGC", "gin": "GIN", "sage": "GraphSAGE", "mlp": "MLP"},
    **{"deepwalk": "DeepWalk", "node2vec": "Node2Vec", "ewc": "EWC", "gem": "GEM", "agem": "A-GEM"},
    **{"joint": "joint training", "nearest-mean": "nearest class mean"},
    **{"random": "Random", "mf": "MF", "mf*": "MF*", "cm": "CM", "cm*": "CM*", "im": "IM", "rim": "RIM"},
    **{"s2-ridge": "S2-ridge", "la-ridge": "LA-ridge", "mf-s2": "MF in S²X"},
}
OF_THE_ROW = ("selector", "per_class", "selector_options")
"""Options of methods that rows of one table differ in; others are shown in the row's name."""
LEAST_RUNS = 5
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
    def backbone(self) -> str:
        """The network, or where its input comes from for vectors from walks."""
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
        """e; 1 where it has no meaning."""
        return self.runs[0].per_class or 1

    @property
    def is_image(self) -> bool:
        return self.dataset in TABLE_4.datasets

    @property
    def is_leaky(self) -> bool:
        return any(run.leaky for run in self.runs)

    @property
    def is_main(self) -> bool:
        """Whether the paper's figure 2 would show it: GAT (or the image network) with and without replay at e = 1."""
        bound = self.method in ("joint", "nearest-mean")
        return self.per_class == 1 and (bound or self.backbone == ("mlp" if self.is_image else "gat"))

    @cached_property
    def minimal(self) -> dict[str, Any]:
        """As few settings as give the same runs."""
        return minimal_settings(self.config)

    @cached_property
    def special(self) -> dict[str, Any]:
        """Options that the row has and its like in the paper's tables has not."""
        rows = [row.settings for row in TABLE_4.rows if self.is_image and row.settings["method"] == self.method]
        usual = next((row for row in rows if row.get("selector") == self.selector), {})
        given = {name: value for name, value in self.minimal.items() if value != usual.get(name)}
        found = {name: value for name, value in given.items() if name not in {*DEFAULTS, *OF_THE_ROW}}
        for name in ("selector_options", "backbone_options", "method_options", "input_options"):
            found |= given.get(name) or {}
        return found

    @property
    def remembers(self) -> str:
        """Short name for labels inside figures."""
        if not self.selector and self.method == "finetune":
            return "no replay" + self._options
        return NAMES.get(self.selector or self.method, self.selector or self.method) + self._options

    @property
    def figure_name(self) -> str:
        return f"{NAMES.get(self.selector or '', self.selector)} LEAKY" if self.is_leaky else self.remembers

    @property
    def name(self) -> str:
        """As the paper names it: ``GAT``, ``ER-GAT · MF*``; with what it does not have in brackets."""
        backbone = NAMES.get(self.backbone, self.backbone)
        if self.method == "replay":
            count = "" if self.per_class == 1 else f", e = {self.per_class}"
            return f"{'replay' if self.is_image else f'ER-{backbone}'} · {self.remembers}{count}"
        if self.method == "finetune":
            return ("FINETUNE" if self.is_image else backbone) + self._options
        network = "" if self.is_image or self.method == "nearest-mean" else f" · {backbone}"
        return f"{NAMES.get(self.method, self.method)}{network}{self._options}"

    @property
    def _options(self) -> str:
        return f" ({', '.join(f'{key}={value}' for key, value in self.special.items())})" if self.special else ""

    @property
    def look(self) -> str:
        """Style class in figures: by selector where there is one, else by method; leaky rows are dotted."""
        return look_of(self.selector or self.method) + (" leaky" if self.is_leaky else "")

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
    def forgetting_per_task(self) -> list[Summary]:
        """``a_jj − a_Mj`` for each task but the last, over the runs."""
        drops = np.array([np.diagonal(m.values) - m.values[-1] for m in self.matrices])
        return [summarize(drops[:, j]) for j in range(drops.shape[1] - 1)]

    @cached_property
    def seconds(self) -> Summary:
        """Seconds of one run (one seed and class order)."""
        return summarize([run.seconds for run in self.runs])

    @property
    def memory_mb(self) -> float:
        return max(run.peak_memory_mb for run in self.runs)

    @property
    def paper(self) -> PaperResult | None:
        return paper_result(self.dataset, self.backbone, self.method, self.selector, self.per_class)

    @property
    def badges(self) -> list[tuple[str, str]]:
        """Short marks and what they mean, for what must not be quoted as it stands."""
        marks = []
        if self.is_leaky:
            marks.append(("LEAKY", "the selector saw test labels"))
        usual, tasks = DEFAULTS["epochs"], self.matrix.num_tasks
        epochs = self.config.get("epochs", usual)
        if epochs < usual and not self.is_image:
            marks.append(("QUICK", f"{epochs} epochs per task in place of {usual}"))
        if self.is_image and (self.config.get("dataset_options") or {}).get("tasks", tasks) < 23:
            marks.append(("QUICK", f"{tasks} tasks in place of 23"))
        if len(self.runs) < LEAST_RUNS:
            marks.append(("FEW", f"{len(self.runs)} run{'s' * (len(self.runs) > 1)}: the interval says little"))
        if any(run.data == DIGITS for run in self.runs):
            marks.append(("DIGITS", "scikit-learn's digits in place of MNIST"))
        return marks

    @cached_property
    def command(self) -> str:
        """``ergnn run …`` that gives this row again, with as few options as will do."""
        seeds, orders = {run.seed for run in self.runs}, {run.order for run in self.runs}
        first, last = min(seeds), max(seeds)
        return command_of(RunConfig(**self.minimal, seeds=last - first + 1, first_seed=first, orders=max(orders) + 1))

    def by_member(self, name: str) -> dict[tuple[int, int], float]:
        """``pm``, ``fm`` or ``aa`` of each seed and class order."""
        return {(run.seed, run.order): measure(name, run.matrix) for run in self.runs}

    def paired(self, other: Row, name: str = "fm") -> Summary | None:
        """``self − other`` over the seeds and class orders that both have; None where there is none."""
        mine, theirs = self.by_member(name), other.by_member(name)
        common = sorted(mine.keys() & theirs.keys())
        return summarize([mine[key] - theirs[key] for key in common]) if common else None


def gather(runs: Iterable[StoredRun]) -> list[Row]:
    """One row for each configuration, in the order of the paper's tables."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(canonical_json(run.config), []).append(run)
    return sorted((Row(group[0].config, group) for group in groups.values()), key=_row_order)


def minimal_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """As few settings as give the same run: what a protocol or backbone would fill in is left out."""
    given = dict(config)
    for name in [name for name in given if name != "dataset"]:
        fewer = {key: value for key, value in given.items() if key != name}
        if _same_run(fewer, config):
            given = fewer
    return given


def _same_run(given: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    try:
        same = [canonical_json(member_config(RunConfig(**part).resolved())) for part in (given, config)]
        return same[0] == same[1]
    except ErgnnError:  # such as a data set or selector of a package that is not installed here
        return False


def dataset_order(name: str) -> tuple[int, str]:
    """The paper's graphs first, as in its tables."""
    known = ("cora", "citeseer", "reddit")
    return (known.index(name) if name in known else len(known), name)


def _row_order(row: Row) -> tuple[Any, ...]:
    """Baselines, ER rows by selector, then our selectors, then bounds such as joint training."""
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
