"""From the paper's tables and figures to configurations: one a row, data set and protocol."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ergnn.config import PROTOCOLS
from ergnn.data.datasets import DATASETS
from ergnn.errors import ErgnnError, InputError, UnknownNameError
from ergnn.experiments.config import DEFAULTS, RunConfig
from ergnn.experiments.grid import TABLE_4, Experiment, Row
from ergnn.experiments.run import make_config_stream, make_learner
from ergnn.walks.skipgram import SkipGram

QUICK_SEEDS = 3
QUICK_LEAVES_OUT = (2, 10)
"""Values of e that a quick figure 3 does without."""


@dataclass(frozen=True)
class Options:
    """What ``ergnn reproduce`` takes.

    Args:
        seeds: how many; by default 10, or 3 in a quick run.
        class_orders: more than one are shuffled, each crossed with the seeds, on seeded splits; by default 1 (the
            natural order) under the paper's protocol and 10 under the clean one, or 1 in a quick run; an experiment
            may say otherwise.
        first_seed: the first seed.
        datasets: by default the experiment's own.
        protocol: ``paper`` or ``clean``; by default the experiment's own.
        split: ``auto``, ``public`` or ``seeded``; by default ``seeded`` with several class orders.
        quick: few seeds and epochs, to see that all works; its numbers are not to be quoted.
        device: where to compute.
    """

    seeds: int | None = None
    class_orders: int | None = None
    first_seed: int = 0
    datasets: Sequence[str] | None = None
    protocol: str | None = None
    split: str | None = None
    quick: bool = False
    device: str = "cpu"


@dataclass(frozen=True)
class Cell:
    """A row on one data set under one protocol: a configuration, or the reason why there is none."""

    experiment: str
    row: Row
    dataset: str
    protocol: str
    given: RunConfig | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def config(self) -> RunConfig:
        """The resolved configuration of an available cell."""
        if self.given is None:
            raise InputError(f"{self.row.label} on {self.dataset} is not available: {self.reason}")
        return self.given.resolved()

    @property
    def command(self) -> str:
        """The command that gives this cell alone."""
        return "" if self.given is None else command_of(self.given)


def cells(experiment: Experiment, options: Options) -> list[Cell]:
    """Every row on every data set and protocol, available or not."""
    protocols = (options.protocol,) if options.protocol else experiment.protocols
    found = []
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            raise UnknownNameError("protocol", protocol, PROTOCOLS)
        for dataset in datasets_of(experiment, options):
            splits: dict[str, tuple[str, tuple[str, ...]]] = {}
            for row in _rows(experiment, options):
                found.append(_cell(experiment, row, dataset, protocol, options, splits))
    return found


def _cell(
    experiment: Experiment,
    row: Row,
    dataset: str,
    protocol: str,
    options: Options,
    splits: dict[str, tuple[str, tuple[str, ...]]],
) -> Cell:
    settings = {**experiment.common, **experiment.by_dataset.get(dataset, {}), **row.settings}
    settings |= _members(experiment, protocol, dataset, options)
    if options.quick:
        settings = {**settings, **experiment.quick, **row.quick}
    given = RunConfig(dataset=dataset, protocol=protocol, device=options.device, **settings)
    try:
        config = given.resolved()
        if config.split not in splits:
            splits[config.split] = _split_to_be_had(config)
        split, notes = splits[config.split]
        make_learner(config, 0)
        if config.input != "features":
            SkipGram()  # says so if gensim is not there
    except (ErgnnError, ImportError) as error:
        return Cell(experiment.name, row, dataset, protocol, reason=str(error))
    return Cell(experiment.name, row, dataset, protocol, replace(given, split=split), notes=notes)


def _split_to_be_had(config: RunConfig) -> tuple[str, tuple[str, ...]]:
    """The split that is really used (a store must not take one for the other) and what to know about it."""
    stream = make_config_stream(config, 0, 0)
    return stream.split, stream.notes


def _rows(experiment: Experiment, options: Options) -> Iterator[Row]:
    """All rows; a quick figure 3 has fewer points on its lines."""
    for row in experiment.rows:
        if not (options.quick and row.settings.get("per_class") in QUICK_LEAVES_OUT):
            yield row


def datasets_of(experiment: Experiment, options: Options) -> Sequence[str]:
    """Those asked for that the experiment is about; a data set of a user's own counts as a graph."""
    if options.datasets is None:
        return experiment.quick_datasets if options.quick and experiment.quick_datasets else experiment.datasets
    named = [DATASETS.resolve(name) for name in options.datasets]
    images = experiment is not TABLE_4
    return [name for name in named if (name in TABLE_4.datasets) != images]


def _members(experiment: Experiment, protocol: str, dataset: str, options: Options) -> dict[str, Any]:
    orders = options.class_orders
    if orders is None:
        many = protocol == "clean" and not options.quick and "class_order" not in experiment.common
        orders = 10 if many else 1
    if dataset in TABLE_4.datasets:  # its tasks are permutations, drawn by the seed
        orders = 1
    seeds = options.seeds if options.seeds is not None else (QUICK_SEEDS if options.quick else 10)
    members: dict[str, Any] = {"seeds": seeds, "first_seed": options.first_seed}
    if orders > 1:
        members.update(class_order="shuffled", orders=orders, split="seeded")
    if options.split is not None:
        members["split"] = options.split
    return members


def command_of(config: RunConfig) -> str:
    """``ergnn run …`` with the options that are not at their default; the same text for equal configurations."""
    words = ["ergnn", "run", config.dataset]
    places = {name: place for place, name in enumerate(DEFAULTS)}
    for name, value in sorted(config.flat().items(), key=lambda item: (places.get(item[0], len(places)), item[0])):
        if name == "dataset" or value == DEFAULTS.get(name, ...):
            continue
        if isinstance(value, Mapping):
            value = ",".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in value.items())
        elif isinstance(value, tuple):
            value = ",".join(map(str, value))
        words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    return shlex.join(words)
