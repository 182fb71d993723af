"""Run methods × data sets × scenarios × edges × seeds × class orders, with equal memory and equal search.

Each method runs under every condition (data set, scenario and edges) that it supports, in three stages: its memory is
scaled to the budget (:func:`fit_memory`), its hyper-parameters are searched on validation nodes of the first tasks, and
the chosen configuration is run with the reported seeds and class orders. The first two use other seeds, class orders
and splits than the last, and a store of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

import numpy as np

from ergnn.config.errors import ErgnnError, InputError, UnknownNameError
from ergnn.data.datasets import DATASETS
from ergnn.lab.config import SEARCH_SEED, CompareOptions, RunConfig
from ergnn.lab.engines import GridRunner
from ergnn.lab.grid import LARGER_SPLIT, PLANETOID
from ergnn.lab.report.rows import ResultRow
from ergnn.lab.result import StoredRun
from ergnn.lab.run import StreamCache, check_run
from ergnn.learning.metrics import average_accuracy
from ergnn.learning.resolve import default_options, make_method
from ergnn.methods import METHODS
from ergnn.methods.base import Method

SEARCH_SEEDS = 3
SEARCH_MEMBER = (SEARCH_SEED, SEARCH_SEED)
"""The member whose stream decides what is available."""
ROWS = 10
"""The default budget has room for this many dense rows of features (float32), with ids and labels, per class of every
task."""
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
SEARCH = "search.sqlite"
"""File of the store of probes and trials in an output folder."""
MAX_PROBES = 8
"""Sizes to measure at most; bytes are nearly linear in the size, so that two or three are usual."""
FULL = 0.95
"""A memory of this share of the budget is large enough."""


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
        memory: settings found by :func:`fit_memory`.
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
    """Return the configuration of probes and trials, before the memory is fitted.

    Only methods that validate on all tasks keep the best epoch of a preset: validation nodes of the latest task would
    choose one that forgets the others.
    """
    made = make_method(RunConfig(method=method, **given).learner)
    network: dict[str, Any] = {}
    if made.trains_network:
        network["backbone"] = options.backbone
    if made.trains_network and options.network is not None:
        network |= {"network": options.network, "backbone_options": {"hidden": WIDTHS[0]}}
        network |= {"best_epoch": False} if type(made).validation is Method.validation else {}
    settings: dict[str, Any] = {
        "scenario": condition.scenario,
        "edges": condition.edges,
        "method": method,
        "device": options.device,
        "split": options.split or ("seeded" if condition.dataset in PLANETOID else LARGER_SPLIT),
        **network,
        **({} if options.epochs is None else {"epochs": options.epochs}),
        **members(condition.scenario, SEARCH_SEED, SEARCH_SEEDS, 1),
    }
    if (condition.dataset, condition.scenario) == ("pubmed", "class"):
        settings["classes_per_task"] = 1
    return RunConfig(condition.dataset, **settings, **given)


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
    search = {**method.comparison.search, **(TRAINING if options.network is None else TUNED_TRAINING)}
    if options.network is not None and method.trains_network:
        built = config.resolved().learner.backbone_options
        search["backbone_options"] = [{**built, "hidden": width} for width in WIDTHS]
    space = {key: values for key, values in search.items() if key not in {*variant, *unused}}
    row_bytes = 4 * stream.num_features + ID_BYTES
    fixed_memory = method.needs_earlier_graph and "per_class" in known and "per_class" not in unused
    return Entry(
        condition,
        label,
        config,
        budget=options.budget or ROWS * sum(task.num_classes for task in stream) * row_bytes,
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
    """Return the settings to try: the defaults (no settings), then random other points of the space, each once.

    They are ``count``, or fewer if the space is smaller.
    """
    points = [dict(zip(space, values, strict=True)) for values in product(*space.values())] if space else []
    usual = {name: defaults.get(name) for name in space}
    points = [point for point in points if point != usual]
    return [{}, *Random(seed).sample(points, min(count - 1, len(points)))]


def fit_memory(entry: Entry) -> Generator[dict[str, Any], int, dict[str, Any]]:
    """Yield settings to measure and receive their bytes; return those of the largest memory within the budget.

    A method with the option ``budget_bytes`` removes what is too much itself, and is given the largest size. If the
    smallest memory of every mode is above the budget, it is returned nevertheless.

    Bytes must not decrease with the size. The next size is where the line through the last two measurements meets the
    budget, limited to the sizes that are still possible. The search ends early at :data:`FULL` of the budget.
    """
    assert entry.sizes is not None
    (option, largest), budget = entry.sizes, entry.budget
    for mode in entry.modes:
        smallest = yield {**mode, option: 1}
        if smallest > budget:
            continue
        if entry.limits_itself:
            full = {**mode, option: largest, "budget_bytes": budget}
            if (yield full) <= budget:
                return full
        low, low_bytes, high, slope = 1, smallest, largest + 1, max(float(smallest), 1.0)
        for _ in range(MAX_PROBES):
            if high - low <= 1 or low_bytes >= FULL * budget:
                break
            size = min(max(low + int((budget - low_bytes) / slope), low + 1), high - 1)
            measured = yield {**mode, option: size}
            slope = max((measured - low_bytes) / (size - low), 1.0)
            if measured > budget:
                high = size
            else:
                low, low_bytes = size, measured
        return {**mode, option: low}
    return {**entry.modes[-1], option: 1}


def compare(
    options: CompareOptions,
    runner: GridRunner,
    on_planned: Callable[[Sequence[Entry], Mapping[str, str]], None] = lambda entries, left_out: None,
) -> tuple[list[Entry], dict[str, str]]:
    """Run everything that is not finished yet, and return :func:`plan`, with which ``on_planned`` is called before."""
    entries, left_out = plan(options)
    on_planned(entries, left_out)
    for dataset in dict.fromkeys(entry.condition.dataset for entry in entries):
        available = [entry for entry in entries if entry.condition.dataset == dataset and entry.config is not None]
        _fit_all(available, runner)
        _search_all([entry for entry in available if not entry.reason], options, runner)
        _run_all([entry for entry in available if not entry.reason], options, runner)
    return entries, left_out


def _fit_all(entries: Sequence[Entry], runner: GridRunner) -> None:
    """Scale all memories, one probe each at a time; probes train for one epoch."""
    searches = [(entry, fit_memory(entry)) for entry in entries if entry.sizes is not None]
    asked = [(entry, search, next(search)) for entry, search in searches]
    while asked:
        configs = [entry.resolved({**ask, "epochs": 1}) for entry, _, ask in asked]
        again = []
        for (entry, search, _), (reason, runs) in zip(asked, runner("memory probes", configs, SEARCH), strict=True):
            if reason:
                entry.reason = reason
                continue
            try:
                again.append((entry, search, search.send(max(run.buffer_bytes for run in runs))))
            except StopIteration as end:
                entry.memory = end.value
        asked = again


def _search_all(entries: Sequence[Entry], options: CompareOptions, runner: GridRunner) -> None:
    """Score all trials on validation nodes of the first tasks; a single trial is not run."""
    tried = []
    for entry in entries:
        assert entry.config is not None
        points = trial_settings(entry.space, entry.config.resolved().flat(), options.trials, entry.method)
        tried += [(entry, point) for point in points] if len(points) > 1 else []
    first = {"first_tasks": options.search_tasks, "score": "val"}
    configs = [entry.resolved({**entry.memory, **first, **point}) for entry, point in tried]
    for (entry, point), (reason, runs) in zip(tried, runner("trials", configs, SEARCH), strict=True):
        if reason:
            entry.reason = entry.reason or reason
        else:
            entry.trials.append(Trial(point, float(np.mean([average_accuracy(run.matrix) for run in runs]))))


def _run_all(entries: Sequence[Entry], options: CompareOptions, runner: GridRunner) -> None:
    """Run the chosen configurations with the reported seeds and class orders."""
    who = (options.first_seed, options.seeds, options.class_orders)
    configs = [
        entry.resolved({**entry.memory, **entry.chosen, **members(entry.condition.scenario, *who)}) for entry in entries
    ]
    for entry, config, finished in zip(entries, configs, runner("runs", configs), strict=True):
        entry.config, (entry.reason, entry.runs) = config, finished
