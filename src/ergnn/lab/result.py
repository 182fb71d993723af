"""Results of runs: one per seed and class order, a stored one, and all results of a configuration, also as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.filesize import decimal

from ergnn.config.learner_config import reveals_labels
from ergnn.config.registry import name_of
from ergnn.data.datasets import DATASETS
from ergnn.lab.config import RunConfig
from ergnn.lab.grid import paper_result
from ergnn.learning import metrics
from ergnn.learning.metrics import AccuracyMatrix, Summary, shown_tasks, summarize
from ergnn.learning.resolve import options_in_effect
from ergnn.pages.table import LEAKY, NOTHING, OWN_EDGES, Table, duration, percent

WIDTH = 80
"""Maximum width of the text of a result, unless a name is longer."""

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


def measure_table(result: Mapping[str, Any]) -> Table:
    """Build a table of PM, FM and AA of one run with their spread, and the paper's if in ``result["paper"]``.

    The title marks leaky results, since the table may be shown without its page.
    """
    names = {
        "pm": "PM performance mean",
        "fm": f"FM forgetting mean (over {result['fm']['denominator']})",
        "aa": "AA average accuracy",
    }
    paper = result["paper"]
    header = ["%", "mean ± std", "95 % interval", *(["paper", "diff"] if paper else [])]
    rows = []
    for key, name in names.items():
        row = [name, *_spread(result[key])]
        if paper:
            ours, theirs = result[key]["mean"], paper.get(key)
            row += [NOTHING] * 2 if theirs is None else [percent(theirs), f"{100 * (ours - theirs):+.2f}"]
        rows.append(row)
    return Table(header, rows, title=LEAKY if result["leaky"] else "")


def run_text(result: Mapping[str, Any]) -> str:
    """Format the output of ``ergnn run`` from the object that ``ergnn run --json`` prints."""
    tasks = result["tasks"] or []
    blocks = [
        _heading(result),
        AccuracyMatrix(result["matrix"], result["metric"]).table().to_text(),
        "\n".join(
            " …" if i is None else _wrapped(f" task {i + 1}", ", ".join(map(str, tasks[i])))
            for i in shown_tasks(len(tasks))
        ),
        measure_table(result).to_text(),
        _cost(result),
        "\n".join(_wrapped("Note", note) for note in result["notes"]),
    ]
    return "\n\n".join(block for block in blocks if block)


def _heading(result: Mapping[str, Any]) -> str:
    what = f"{result['dataset']} · {result['backbone']} · {result['method']}"
    if result["selector"] is not None:
        what += f" · {result['selector']}, {_count(result['per_class'], 'node')} per class"
    how = [
        *([f"scenario {result['scenario']}"] if result["scenario"] else []),
        f"protocol {result['protocol']}",
        f"{result['split']} split",
        f"{result['head']} head",
        f"{result['edges'] or 'no'} edges",
        _count(len(result["seeds"]), "seed"),
    ]
    marks = [*([LEAKY] if result["leaky"] else []), *([OWN_EDGES] if result["reveals_labels"] else [])]
    return "\n".join([what, *textwrap.wrap(" · ".join(how), WIDTH), *marks])


def _cost(result: Mapping[str, Any]) -> str:
    buffer = result["buffer"]
    lines = []
    if buffer["nodes"]:
        lines.append(_wrapped("Buffer", f"{_count(buffer['nodes'], 'node')}, {decimal(buffer['bytes'])}"))
    lines.append(_wrapped("Time", duration(result["seconds"])))
    training, selection = result["train_seconds"], result["select_seconds"]
    if training and selection and buffer["nodes"]:
        lines.append(_wrapped("", f"selection took {100 * selection / training:.0f} % of the training time"))
    lines.append(_wrapped("Memory", f"{result['peak_memory_mb']:,.0f} MB (peak)"))
    return "\n".join(lines)


def _spread(summary: Mapping[str, Any]) -> tuple[str, str]:
    mean, half = summary["mean"], summary["ci95"]
    if half is None:
        return percent(mean), NOTHING
    return f"{percent(mean)} ± {percent(summary['std'])}", f"[{percent(mean - half)}, {percent(mean + half)}]"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _wrapped(label: str, text: str) -> str:
    """Format a label and a text with a hanging indent."""
    return textwrap.fill(text, WIDTH, initial_indent=f"{label:<8} ", subsequent_indent=" " * 9)
