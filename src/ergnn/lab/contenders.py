"""What a comparison runs: every method under every condition (data set, scenario and edges) that it supports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

import numpy as np

from ergnn.config.errors import ErgnnError, InputError, UnknownNameError
from ergnn.data import TaskStream
from ergnn.data.datasets import DATASETS
from ergnn.lab.config import RunConfig
from ergnn.lab.grid import LARGER_SPLIT, PLANETOID
from ergnn.lab.options import SEARCH_SEED, CompareOptions
from ergnn.lab.report.rows import ResultRow
from ergnn.lab.result import StoredRun
from ergnn.lab.run import StreamCache, check_run
from ergnn.learning.resolve import default_options, make_method
from ergnn.methods import METHODS
from ergnn.methods.base import Method

SEARCH_SEEDS = 3
SEARCH_MEMBER = (SEARCH_SEED, SEARCH_SEED)
"""The member whose stream decides what is available."""
ROWS = 10
"""The default budget has room for this many rows of features per class of every task."""
IMPORTANCE_NODES = 256
"""Training nodes per task to estimate the importance of parameters from, at most: it takes a gradient per node."""
IMPORTANCE_OPTIONS = ("fisher_samples", "samples")
"""The options that limit it."""
ID_BYTES = 16
"""Bytes of the id and the label of a node."""
SCENARIOS_COMPARED = ("task", "class", "domain")
TRAINING = {"lr": (0.002, 0.005, 0.01, 0.02), "weight_decay": (0.0, 3e-5, 5e-4)}
"""Values to try with every method that trains."""
TUNED_TRAINING = {"lr": (5e-4, 0.001, 0.002, 0.005), "weight_decay": (0.0, 3e-5, 5e-4)}
WIDTHS = (64, 128, 256)
"""The same for a preset of networks, and the units per layer that every method that trains may have."""
QUICK: dict[str, Any] = {"datasets": ("cora", "citeseer"), "seeds": 2, "class_orders": 1, "epochs": 20, "trials": 2}


@dataclass(frozen=True)
class Condition:
    """What methods are compared on."""

    dataset: str
    scenario: str
    edges: str

    def __str__(self) -> str:
        return f"{self.dataset} · {self.scenario}-incremental · edges {self.edges}"


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and the mean accuracy on validation nodes."""

    settings: Mapping[str, Any]
    score: float


@dataclass
class Entry:
    """One method under one condition; each stage fills in more.

    Attributes:
        config: the configuration so far; None if the method does not support the condition, see ``reason``.
        budget: bytes.
        sizes: the option that scales the memory and its largest value, if any.
        limits_itself: whether the method has the option ``budget_bytes``.
        modes: settings to scale the memory with, the first that fits is used.
        needs_graph: whether the method needs the graph of earlier tasks, which no budget counts.
        memory: settings found by :func:`ergnn.lab.compare.fit_memory`.
        trials: results of the search.
        runs: the reported runs.
    """

    condition: Condition
    method: str
    config: RunConfig | None
    reason: str = ""
    budget: int = 0
    sizes: tuple[str, int] | None = None
    limits_itself: bool = False
    modes: Sequence[Mapping[str, Any]] = ({},)
    needs_graph: bool = False
    space: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    runs: list[StoredRun] = field(default_factory=list)

    @property
    def chosen(self) -> Mapping[str, Any]:
        """The settings of the best trial; the earlier one of equal trials."""
        return max(self.trials, key=lambda trial: trial.score).settings if self.trials else {}

    @property
    def result(self) -> ResultRow:
        return ResultRow(self.runs)

    @property
    def nbytes(self) -> float:
        """Mean size of the memory at the end of the stream."""
        return float(np.mean([run.buffer_bytes for run in self.runs]))

    @property
    def seconds(self) -> float:
        """Mean seconds of a run."""
        return float(np.mean([run.seconds for run in self.runs]))

    @property
    def above_budget(self) -> bool:
        return bool(self.runs) and self.nbytes > self.budget

    @property
    def ranked(self) -> bool:
        """Whether the method is part of the ranking at equal bytes."""
        return bool(self.runs) and not self.needs_graph and not self.above_budget

    def resolved(self, settings: Mapping[str, Any]) -> RunConfig:
        """Return the configuration with other settings, resolved."""
        assert self.config is not None
        return self.config.with_settings(**settings).resolved()


def contenders(names: Sequence[str] | None) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Map labels (``replay``, ``replay:live``) to a method and the options of its variant; by default all."""
    known: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name in METHODS.names():
        known[name] = (name, {})
        variants = METHODS.get(name).comparison.variants
        known |= {f"{name}:{key}": (name, options) for key, options in variants.items()}
    if names is None:
        return known
    wanted = {}
    for given in names:
        name, separator, variant = given.partition(":")
        label = METHODS.resolve(name) + separator + variant
        if label not in known:
            raise UnknownNameError("variant", given, [key for key in known if key.startswith(label.partition(":")[0])])
        wanted[label] = known[label]
    return wanted


def default_budget(stream: TaskStream) -> int:
    """Return the bytes of :data:`ROWS` dense rows of features (float32), ids and labels per class of every task."""
    return ROWS * sum(task.num_classes for task in stream) * (4 * stream.num_features + ID_BYTES)


def plan(options: CompareOptions) -> tuple[list[Entry], dict[str, str]]:
    """Return every method under every condition, and the reasons of unavailable conditions; nothing is trained."""
    options.check()
    entries, left_out, streams = [], {}, StreamCache()
    for condition in _conditions(options):
        try:
            config = _base(condition, options, "finetune", {})
            (preset,) = streams.get(config, [SEARCH_MEMBER])
            if len(preset.stream) < 2:
                raise InputError("its classes make only one task; a comparison needs two or more")
            if condition.scenario == "task" and min(task.num_classes for task in preset.stream) < 2:
                raise InputError("a task has a single class; if the task is known, there is nothing to predict")
        except ErgnnError as error:
            left_out[str(condition)] = str(error)
            continue
        entries += [_entry(condition, options, label, streams) for label in contenders(options.methods)]
    return entries, left_out


def _conditions(options: CompareOptions) -> Iterator[Condition]:
    """Yield all conditions; domains have no edges between them, so that all kinds of edges are the same."""
    for dataset in map(DATASETS.resolve, options.datasets):
        usual = [name for name in SCENARIOS_COMPARED if name in DATASETS.get(dataset).scenarios]
        for scenario in options.scenarios or usual:
            for edges in options.edges[:1] if scenario == "domain" else options.edges:
                yield Condition(dataset, scenario, edges)


def members(scenario: str, first_seed: int, seeds: int, orders: int) -> dict[str, Any]:
    """Return the settings of seeds and class orders: crossed, or an order of its own for every seed if ``orders`` is 1.

    Periods of time have only one order.
    """
    order = "natural" if scenario == "time" else "shuffled" if orders > 1 else "seeded"
    crossed = orders if order == "shuffled" else 1
    return {"first_seed": first_seed, "seeds": seeds, "class_order": order, "orders": crossed}


def _base(condition: Condition, options: CompareOptions, method: str, given: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of probes and trials, before the memory is fitted."""
    made = make_method(RunConfig(method=method, **given).learner)
    settings: dict[str, Any] = {
        "scenario": condition.scenario,
        "edges": condition.edges,
        "method": method,
        "device": options.device,
        "split": options.split or ("seeded" if condition.dataset in PLANETOID else LARGER_SPLIT),
        **(_network(options, type(made)) if made.trains_network else {}),
        **({} if options.epochs is None else {"epochs": options.epochs}),
        **members(condition.scenario, SEARCH_SEED, SEARCH_SEEDS, 1),
    }
    if (condition.dataset, condition.scenario) == ("pubmed", "class"):
        settings["classes_per_task"] = 1
    return RunConfig(condition.dataset, **settings, **given)


def _network(options: CompareOptions, method: type[Method]) -> dict[str, Any]:
    """Return the settings of the network of a method that trains one.

    Only methods that validate on all tasks keep the best epoch of a preset: validation nodes of the latest task would
    choose one that forgets the others.
    """
    if options.network is None:
        return {"backbone": options.backbone}
    validates_all = method.validation is not Method.validation
    settings = {"backbone": options.backbone, "network": options.network, "backbone_options": {"hidden": WIDTHS[0]}}
    return settings | ({} if validates_all else {"best_epoch": False})


def _training_space(options: CompareOptions, config: RunConfig, trains_network: bool) -> dict[str, Sequence[Any]]:
    """Return the values to try with every method that trains; with a preset of networks also its widths."""
    if options.network is None:
        return {**TRAINING}
    built = config.resolved().learner.backbone_options
    widths = {"backbone_options": [{**built, "hidden": width} for width in WIDTHS]} if trains_network else {}
    return {**TUNED_TRAINING, **widths}


def _entry(condition: Condition, options: CompareOptions, label: str, streams: StreamCache) -> Entry:
    """Return the entry of a method, with what its memory and its search depend on."""
    name, variant = contenders([label])[label]
    known = default_options(name)
    given = {**variant, **({"scarce": "keep"} if "scarce" in known else {})}
    modes: Sequence[Mapping[str, Any]] = ({},)
    if "replay" in known and "replay" not in variant:
        modes = ({"replay": "ego"}, {"replay": "isolated"})
    try:
        config = _base(condition, options, name, given)
        preset, learner = check_run(config.with_settings(**modes[0]).resolved(), streams, SEARCH_MEMBER)
    except (ErgnnError, ImportError) as error:
        return Entry(condition, label, None, str(error))
    stream, method = preset.stream, learner.method
    limits = [name for name in IMPORTANCE_OPTIONS if name in known and name not in given]
    if limits and max(task.train.numel() for task in stream) > IMPORTANCE_NODES:
        config = config.with_settings(**dict.fromkeys(limits, IMPORTANCE_NODES))
    counts = [int(n) for task in stream for n in task.graph.y[task.train].unique(return_counts=True)[1]]
    size, unused = method.comparison.size_option, method.unused_settings
    largest = known.get(size) if size != "per_class" else max(counts) if "scarce" in known else min(counts)
    scaled = size in known and size not in unused and not method.needs_earlier_graph
    search = {**method.comparison.search, **_training_space(options, config, method.trains_network)}
    space = {key: values for key, values in search.items() if key not in {*variant, *unused}}
    fixed_memory = method.needs_earlier_graph and "per_class" in known and "per_class" not in unused
    return Entry(
        condition,
        label,
        config,
        budget=default_budget(stream) if options.budget is None else options.budget,
        sizes=(size, int(largest or 1)) if scaled else None,
        limits_itself="budget_bytes" in known,
        modes=modes,
        needs_graph=method.needs_earlier_graph and not stream[0].own_graph,
        space=space,
        memory={"per_class": min(ROWS, max(counts))} if fixed_memory else {},
    )


def trial_settings(
    space: Mapping[str, Sequence[Any]], defaults: Mapping[str, Any], count: int, seed: str
) -> list[dict[str, Any]]:
    """Return the settings to try: the defaults (no settings), then random points of the space, each once.

    Args:
        space: values by name.
        defaults: default values; a point that equals them is left out.
        count: number of trials; fewer if the space is smaller.
        seed: the same seed and space give the same points.
    """
    points = [dict(zip(space, values, strict=True)) for values in product(*space.values())] if space else []
    usual = {name: defaults.get(name) for name in space}
    points = [point for point in points if point != usual]
    return [{}, *Random(seed).sample(points, min(count - 1, len(points)))]
