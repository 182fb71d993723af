"""The configuration of a run, shared by the command line, TOML files and Python, and its key in the store; options of
``ergnn reproduce`` and ``ergnn compare``.

Torch is imported only when a configuration is resolved, so usage errors appear at once.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.config.files import wrap_errors
from ergnn.config.learner_config import EDGES, LEFTOVERS, NETWORKS, PROTOCOLS, SCENARIOS, STREAM_DEFAULTS, LearnerConfig
from ergnn.config.registry import field_options

WALK_CLASSIFIER: dict[str, Any] = {
    "backbone": "mlp",
    "backbone_options": {"layers": 0},
    "lr": 0.1,
    "weight_decay": 5e-3,
}
"""Defaults for embeddings of random walks: softmax regression with an L2 term, the classifier of both papers, with
either protocol. (Learning rate and L2 factor were chosen on validation nodes.)
"""

NAMED_SPLITS = ("auto", "public", "seeded", "validation", "folds", "tuned")

KEY_SCHEMA = 2
"""Part of every key. Increment it when the meaning or default of an existing setting or of an option of a method,
selector or backbone changes (keys do not contain defaults). Stores stay readable; their runs are not reused."""

WHICH_MEMBERS = ("seeds", "first_seed", "orders")
NOT_DECIDING = ("denominator", "device")
"""Settings that do not change the results (except for rounding)."""

ALWAYS = (
    *("dataset", "backbone", "method", "protocol", "split", "class_order", "head", "edges", "leftover"),
    *("classes_per_task", "epochs", "lr", "weight_decay", "optimizer", "backbone_options"),
)
"""Settings that are part of the key even at their default, because protocols and backbones set them."""

SEARCH_SEED = 1_000_000
"""The first seed (and class order) of probes and trials; reported ones are below."""


@dataclass(frozen=True, init=False)
class RunConfig:
    """All settings that determine the results of a run: a stream, its seeds, and a :class:`LearnerConfig`.

    Settings of the learner are passed as arguments: ``RunConfig("cora", backbone="gcn", per_class=5, epochs=100)``.
    Missing ones default to the scenario, then to the protocol, to :class:`LearnerConfig` and the method's constructor.

    Args:
        dataset: name of a data set (see ``ergnn datasets``).
        scenario: preset of head, class_order, leftover and edges: task (the task of a node is known at test time), or
            class, domain, time or blurred (all classes so far compete); by default none, or the data set's only one.
        protocol: preset of edges, head and weight_decay: clean or paper.
        seeds: number of seeds, counted from first_seed.
        first_seed: first seed.
        split: auto (the default: public if available, otherwise seeded), public, seeded (drawn for each seed), or
            fractions of each class for training, validation and test, e.g. 0.6/0.2/0.2, or nodes per class, e.g.
            20/30/rest or 20/30/100 (drawn for each seed); validation: training and test nodes of the public split are
            learned, its validation nodes scored; folds: the public split of each seed, of data sets with several;
            tuned: that of published tuned networks.
        class_order: natural (the default), shuffled (by order number), seeded (shuffled for each seed), or a list of
            all classes, e.g. 3,1,0,2; by default the scenario's. If tasks are domains, it is the order of the domains.
        orders: number of shuffled class orders, crossed with the seeds.
        edges: edges visible while a task is learned: all, seen or own (which reveals label information if tasks are
            split by class); by default those of scenario or protocol.
        leftover: what to do with classes that do not fill a task: context (the default) or last (add them to
            the last task); by default the scenario's.
        classes_per_task: classes per task; by default the data set's.
        normalize: divide features by their row sum; by default only bags of words.
        input: input of the network: features, or embeddings of random walks on the graph so far: deepwalk or node2vec.
        denominator: denominator of the forgetting mean, M-1 or M.
        first_tasks: learn only the first N tasks of the stream; by default all.
        score: nodes to score on: test, or val to choose settings.
        dataset_options: options of the data set, e.g. tasks=10 for permuted-mnist.
        input_options: options of the random walks, e.g. walks=80.
        learner: configuration of the learner; its seed is replaced by the seeds of the run.
        explicit: names of the learner's settings that were given. The others follow from protocol, scenario and input,
            also in a copy with another protocol. By default all settings of a given learner.
    """

    dataset: str = "cora"
    scenario: str | None = None
    protocol: str = "clean"
    seeds: int = 10
    first_seed: int = 0
    split: str | None = None
    class_order: str | None = None
    orders: int = 1
    edges: str | None = None
    leftover: str | None = None
    classes_per_task: int | None = None
    normalize: bool | None = None
    input: Literal["features", "deepwalk", "node2vec"] = "features"
    denominator: Literal["M-1", "M"] = "M-1"
    first_tasks: int | None = None
    score: Literal["test", "val"] = "test"
    dataset_options: Mapping[str, Any] = field(default_factory=dict)
    input_options: Mapping[str, Any] = field(default_factory=dict)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    explicit: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __init__(
        self,
        dataset: str = "cora",
        *,
        learner: LearnerConfig | None = None,
        explicit: Collection[str] | None = None,
        **settings: Any,
    ) -> None:
        run = {name: settings.pop(name, option.default) for name, option in RUN_OPTIONS.items() if name != "dataset"}
        implied = set() if explicit is None else LEARNER_OPTIONS.keys() - {*explicit, "method_options"}
        given = {} if learner is None else {k: v for k, v in learner.settings().items() if k not in implied}
        given = {k: v for k, v in {**given, **settings}.items() if k != "seed" and (k, v) != ("backbone", "auto")}
        set_field = object.__setattr__  # the dataclass is frozen
        for name, value in {"dataset": dataset, **run, "explicit": frozenset(given)}.items():
            set_field(self, name, value)
        preset = {name: value for name, value in self._scenario_settings.items() if name == "head"}
        if self.input != "features" and str(given.get("backbone", "mlp")).lower() == "mlp":
            options = {**WALK_CLASSIFIER["backbone_options"], **(given.get("backbone_options") or {})}
            preset, given = {**preset, **WALK_CLASSIFIER}, {**given, "backbone_options": options}
        set_field(self, "learner", LearnerConfig.from_protocol(self.protocol, **{**preset, **given}))

    @property
    def _scenario_settings(self) -> dict[str, Any]:
        return SCENARIOS.get(self.scenario or "", {})

    @property
    def stream_settings(self) -> dict[str, Any]:
        """The settings ``split``, ``class_order``, ``leftover`` and ``edges`` in effect.

        Several class orders are shuffled by number, so they replace the order ``seeded`` of a scenario.
        """
        preset = {**STREAM_DEFAULTS, "edges": PROTOCOLS[self.protocol]["edges"], **self._scenario_settings}
        if self.orders > 1 and preset["class_order"] == "seeded":
            preset["class_order"] = "shuffled"
        return {name: getattr(self, name) or preset[name] for name in ("split", "class_order", "leftover", "edges")}

    def resolved(self) -> RunConfig:
        """Return the same run with full names, all defaults filled in, and all values checked."""
        self.check()
        from ergnn.data.datasets import DATASETS
        from ergnn.data.presets import check_scenario
        from ergnn.data.splits import parse_sizes
        from ergnn.lab.walks import walk_settings
        from ergnn.learning.resolve import default_options, make_method, resolve
        from ergnn.methods import METHODS

        dataset, learner = DATASETS.get(self.dataset), self.learner
        if self.scenario is None and "task" not in dataset.scenarios:
            return replace(self, scenario=dataset.scenarios[0]).resolved()
        check_scenario(dataset, self.scenario)
        options = default_options(METHODS.resolve(learner.method)) if isinstance(learner.method, str) else {}
        unset = options.keys() - learner.method_options.keys()
        full = resolve(learner.with_settings({k: v for k, v in self._scenario_settings.items() if k in unset}))
        method = make_method(full)  # checks its options
        parse_sizes(self.stream_settings["split"])  # checks the numbers
        if not method.trains_network and learner.backbone not in ("auto", method.backbone):
            raise InputError(f"backbone is {learner.backbone!r}, but {full.method} trains no network; omit backbone")
        if self.input != "features":
            walk_settings(self.input, **self.input_options)
        name = DATASETS.resolve(self.dataset)
        return replace(self, dataset=name, **self.stream_settings, learner=full, explicit=frozenset(full.settings()))

    def with_settings(self, **settings: Any) -> RunConfig:
        """Return a copy with some settings of the run or the learner replaced."""
        return replace(self, **settings)

    def flat(self) -> dict[str, Any]:
        """Return all settings of the run and the learner by name; ``RunConfig(**flat)`` is the same configuration."""
        settings = {**{name: getattr(self, name) for name in RUN_OPTIONS}, **self.learner.settings()}
        del settings["seed"]
        return settings

    def given(self) -> dict[str, Any]:
        """Return :meth:`flat` without settings of the learner that follow from protocol, scenario and input."""
        implied = LEARNER_OPTIONS.keys() - {*self.explicit, "method_options"}
        return {name: value for name, value in self.flat().items() if name not in implied}

    def check(self) -> None:
        """Check everything that can be checked without loading data."""
        if self.scenario is not None:
            check_choice("scenario", self.scenario, SCENARIOS)
        for name, option in RUN_OPTIONS.items():
            option.check(getattr(self, name))
        check_at_least(1, seeds=self.seeds, orders=self.orders, first_tasks=self.first_tasks)
        check_at_least(0, first_seed=self.first_seed)
        if self.first_seed + self.seeds > 2**31:
            raise InputError(f"first_seed is {self.first_seed}; seeds must be 0 to {2**31 - 1}")
        stream = self.stream_settings
        check_choice("leftover", stream["leftover"], LEFTOVERS)
        check_choice("edges", stream["edges"], EDGES)
        if "/" not in stream["split"] and stream["split"] not in NAMED_SPLITS:  # sizes are parsed later, with the data
            check_choice("split", stream["split"], (*NAMED_SPLITS, "0.6/0.2/0.2", "20/30/rest"))
        usual = self._scenario_settings.get("leftover", STREAM_DEFAULTS["leftover"])
        if self.scenario in ("domain", "time", "blurred") and stream["leftover"] != usual:
            raise InputError(
                f"leftover is {self.leftover!r}, which has no effect in scenario {self.scenario!r}; omit it"
            )
        order = stream["class_order"]
        if self.orders > 1 and order != "shuffled":
            raise InputError(f"orders is {self.orders}, but class_order is {order!r}; several orders need 'shuffled'")
        if self.input == "features" and self.input_options:
            raise InputError("input_options are options of random walks, but input is 'features'")
        self.parsed_class_order()

    def parsed_class_order(self) -> str | list[int]:
        """Return ``class_order`` as expected by :meth:`TaskStream.from_classes`."""
        order = self.stream_settings["class_order"]
        if order in ("natural", "shuffled", "seeded"):
            return "natural" if order == "natural" else "shuffled"
        try:
            return [int(c) for c in order.split(",")]
        except ValueError:
            raise InputError(
                f"class_order is {order!r}; choose natural, shuffled, seeded, or class numbers as in 3,1,0,2"
            ) from None


RUN_OPTIONS = {o.name: o for o in field_options(RunConfig) if o.name not in ("learner", "explicit")}
LEARNER_OPTIONS = {o.name: o for o in field_options(LearnerConfig) if o.name != "seed"}
DEFAULTS = {name: option.default for name, option in {**RUN_OPTIONS, **LEARNER_OPTIONS}.items()}
"""Flat settings and their defaults, except for the options of methods, whose constructors define them."""


def command_of(config: RunConfig) -> str:
    """Return ``ergnn run …`` with all non-default options; equal configurations give the same text."""
    words = ["ergnn", "run", config.dataset]
    order = {name: number for number, name in enumerate(DEFAULTS)}
    for name, value in sorted(config.given().items(), key=lambda item: (order.get(item[0], len(order)), item[0])):
        if name == "dataset" or value == DEFAULTS.get(name, ...):
            continue
        if isinstance(value, Mapping):
            value = ",".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in value.items())
        elif isinstance(value, tuple):
            value = ",".join(map(str, value))
        words += ["--" + name.replace("_", "-"), str(value).lower() if isinstance(value, bool) else str(value)]
    return shlex.join(words)


def member_config(config: RunConfig) -> dict[str, Any]:
    """Return the settings of a resolved configuration that determine its results, without seed and class order.

    Options of the method, and settings that are not in :data:`ALWAYS`, are omitted if they have their default value, so
    later versions of the package with more settings still find earlier runs.
    """
    return {
        name: value
        for name, value in config.flat().items()
        if name not in (*WHICH_MEMBERS, *NOT_DECIDING) and (name in ALWAYS or value != DEFAULTS.get(name, ...))
    }


def member_key(config: RunConfig, seed: int, order: int) -> str:
    """Return the SHA-256 of the canonical JSON of a member: settings, seed, class order and key schema."""
    member = {"schema": KEY_SCHEMA, "config": member_config(config), "seed": seed, "order": order}
    return hashlib.sha256(canonical_json(member).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """Return the same text for equal values: sorted keys, no spaces, integers without a fraction.

    >>> canonical_json({"b": 1.0, "a": (0.5, None)})
    '{"a":[0.5,null],"b":1}'
    """
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(f"{value!r} cannot be part of a stored configuration; use numbers, strings, lists and mappings")


def read_config(path: str | Path) -> dict[str, Any]:
    """Read flat settings from a TOML file."""
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    with wrap_errors(path, "a TOML file"):
        settings = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    return check_settings(settings, str(path))


def check_settings(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Check the names and types of flat settings; errors name the source."""
    options = {**RUN_OPTIONS, **LEARNER_OPTIONS}
    checked = {}
    for given, value in settings.items():
        name = given.replace("-", "_")
        if name in options:
            options[name].check(value, f"{source}: ")
            checked[name] = float(value) if float in options[name].kinds and value is not None else value
            continue
        from ergnn.methods import METHODS  # imports torch

        if name not in (known := METHODS.option_names()):
            known = {*options, *known}
            raise InputError(f"{source}: unknown key {given!r}; choose among: {', '.join(sorted(known))}")
        checked[name] = value  # checked when the method is built
    return checked


@dataclass(frozen=True)
class Options:
    """Options of ``ergnn reproduce``.

    Args:
        seeds: number of seeds; by default 10 (tuned: 1 to 10), or 3 in a quick run.
        class_orders: number of class orders; more than one are shuffled and crossed with the seeds, on seeded splits.
            By default 1 (the natural order) with the paper protocol and 10 with the clean one, or 1 in a quick run;
            an experiment may have its own.
        first_seed: the first seed.
        datasets: data sets to run on; by default those of the experiment.
        protocol: ``paper`` or ``clean``; by default that of the experiment (figure 3: both).
        split: ``auto``, ``public`` or ``seeded``; by default ``seeded`` with several class orders.
        quick: few seeds and epochs, as a smoke test; do not quote its numbers.
        device: device to compute on.
    """

    seeds: int | None = None
    class_orders: int | None = None
    first_seed: int = 0
    datasets: tuple[str, ...] | None = None
    protocol: str | None = None
    split: str | None = None
    quick: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_at_least(1, seeds=self.seeds, class_orders=self.class_orders)


@dataclass(frozen=True)
class CompareOptions:
    """Options of ``ergnn compare``.

    Args:
        methods: names of methods, or variants as in ``replay:live``; by default all.
        datasets: data sets, the fastest first.
        scenarios: scenarios; unsupported ones are left out. By default task, class and domain.
        edges: edges, of ``all``, ``seen`` and ``own``.
        seeds: number of reported seeds.
        first_seed: the first reported seed.
        class_orders: number of shuffled class orders, crossed with the seeds.
        backbone: network of all methods that train one; ``auto`` uses each method's default.
        network: preset of this network, e.g. ``tuned``; the search also chooses its width. By default 16 units.
        split: split of all data sets, such as ``0.6/0.2/0.2``; by default Planetoid's sizes or 10/10/80 %.
        epochs: epochs per task; by default 200.
        budget: bytes of memory of each method; by default 10 rows of features per class.
        trials: settings to try per method, the default ones included.
        search_tasks: number of first tasks, on whose validation nodes trials are scored.
        device: device to compute on.
    """

    methods: tuple[str, ...] | None = None
    datasets: tuple[str, ...] = (
        *("cora", "citeseer", "cora-ml", "dblp", "pubmed"),
        *("amazon-photo", "amazon-computers", "coauthor-cs", "twitch"),
    )
    scenarios: tuple[str, ...] | None = None
    edges: tuple[str, ...] = ("all", "own")
    seeds: int = 10
    first_seed: int = 0
    class_orders: int = 5
    backbone: str = "gcn"
    network: str | None = None
    split: str | None = None
    epochs: int | None = None
    budget: int | None = None
    trials: int = 4
    search_tasks: int = 2
    device: str = "cpu"

    def check(self) -> None:
        """Raise an error for an unknown name or a value out of range."""
        from ergnn.data.datasets import DATASETS
        from ergnn.data.splits import parse_sizes
        from ergnn.lab.compare import contenders
        from ergnn.nn.backbones import BACKBONES

        names = ("seeds", "class_orders", "trials", "search_tasks", "budget", "epochs")
        check_at_least(1, **{name: getattr(self, name) for name in names})
        if not 0 <= self.first_seed <= SEARCH_SEED - self.seeds:
            raise InputError(
                f"first_seed is {self.first_seed}; seeds must be 0 to {SEARCH_SEED - 1}, below the search's"
            )
        for name in self.scenarios or ():
            check_choice("scenario", name, SCENARIOS)
        for name in self.edges:
            check_choice("edges", name, EDGES)
        for name in self.datasets:
            DATASETS.resolve(name)
        if self.network is not None:
            check_choice("network", self.network, NETWORKS)
        if self.split is not None:
            parse_sizes(self.split)
        if self.backbone != "auto":
            BACKBONES.resolve(self.backbone)
        contenders(self.methods)
