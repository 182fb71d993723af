"""Configurations of the paper's tables and figures: one per row, data set and protocol."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ergnn.config.errors import ErgnnError, InputError, UnknownNameError
from ergnn.config.learner_config import PROTOCOLS
from ergnn.data.datasets import DATASETS
from ergnn.lab.config import DEFAULTS, RunConfig
from ergnn.lab.grid import TABLE_4, Experiment, Row
from ergnn.lab.run import make_config_stream, make_learner
from ergnn.lab.walks.skipgram import SkipGram

QUICK_SEEDS = 3
QUICK_OMITS = (2, 10)
"""Values of e that a quick figure 3 omits."""


@dataclass(frozen=True)
class Options:
    """Options of ``ergnn reproduce``.

    Args:
        seeds: number of seeds; by default 10, or 3 in a quick run.
        class_orders: number of class orders; more than one are shuffled and crossed with the seeds, on seeded splits.
            By default 1 (the natural order) with the paper protocol and 10 with the clean one, or 1 in a quick run;
            an experiment may have its own.
        first_seed: the first seed.
        datasets: by default those of the experiment.
        protocol: ``paper`` or ``clean``; by default that of the experiment.
        split: ``auto``, ``public`` or ``seeded``; by default ``seeded`` with several class orders.
        quick: few seeds and epochs, as a smoke test; do not quote its numbers.
        device: device to compute on.
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
    """A row on one data set with one protocol: a configuration, or the reason why it is unavailable.

    Attributes:
        data: the data actually used, e.g. ``permuted-digits`` instead of ``permuted-mnist``.
    """

    experiment: str
    row: Row
    dataset: str
    protocol: str
    given: RunConfig | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    data: str = ""

    @property
    def config(self) -> RunConfig:
        """The resolved configuration of an available cell."""
        if self.given is None:
            raise InputError(f"{self.row.label} on {self.dataset} is unavailable: {self.reason}")
        return self.given.resolved()

    @property
    def command(self) -> str:
        """The command that computes this cell alone."""
        return "" if self.given is None else command_of(self.given)


def cells(experiment: Experiment, options: Options) -> list[Cell]:
    """Return every row on every data set and protocol, available or not."""
    protocols = (options.protocol,) if options.protocol else experiment.protocols
    found = []
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            raise UnknownNameError("protocol", protocol, PROTOCOLS)
        for dataset in datasets_of(experiment, options):
            splits: dict[str | None, tuple[str, str, tuple[str, ...]]] = {}
            for row in _rows(experiment, options):
                found.append(_cell(experiment, row, dataset, protocol, options, splits))
    return found


def _cell(
    experiment: Experiment,
    row: Row,
    dataset: str,
    protocol: str,
    options: Options,
    splits: dict[str | None, tuple[str, str, tuple[str, ...]]],
) -> Cell:
    if not row.settings:
        return Cell(experiment.name, row, dataset, protocol, reason="not implemented")
    settings = experiment.settings(row, dataset)
    settings |= _members(experiment, protocol, dataset, options)
    if options.quick:
        settings = {**settings, **experiment.quick, **row.quick}
    try:
        given = RunConfig(dataset=dataset, protocol=protocol, device=options.device, **settings)
        config = given.resolved()
        if config.split not in splits:
            stream, split, notes = make_config_stream(config, 0, 0)
            splits[config.split] = (stream.name, split, notes)
        data, split, notes = splits[config.split]
        make_learner(config, 0)
        if config.input != "features":
            SkipGram()  # raises an error if gensim is missing
    except (ErgnnError, ImportError) as error:
        return Cell(experiment.name, row, dataset, protocol, reason=str(error))
    # the split actually used: stored runs on a public and on a seeded split must not be confused
    return Cell(experiment.name, row, dataset, protocol, replace(given, split=split), notes=notes, data=data)


def _rows(experiment: Experiment, options: Options) -> Iterator[Row]:
    """Return all rows; a quick figure 3 has fewer points."""
    for row in experiment.rows:
        if not (options.quick and row.settings.get("per_class") in QUICK_OMITS):
            yield row


def datasets_of(experiment: Experiment, options: Options) -> Sequence[str]:
    """Return the requested data sets that belong to the experiment; a third-party data set counts as a graph."""
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
    if dataset in TABLE_4.datasets:  # its tasks are permutations, which depend on the seed
        orders = 1
    seeds = options.seeds if options.seeds is not None else (QUICK_SEEDS if options.quick else 10)
    members: dict[str, Any] = {"seeds": seeds, "first_seed": options.first_seed}
    if orders > 1:
        members.update(class_order="shuffled", orders=orders, split="seeded")
    if options.split is not None:
        members["split"] = options.split
    return members


def command_of(config: RunConfig) -> str:
    """Return ``ergnn run …`` with all non-default options; equal configurations give the same text."""
    words = ["ergnn", "run", config.dataset]
    places = {name: place for place, name in enumerate(DEFAULTS)}
    for name, value in sorted(config.given().items(), key=lambda item: (places.get(item[0], len(places)), item[0])):
        if name == "dataset" or value == DEFAULTS.get(name, ...):
            continue
        if isinstance(value, Mapping):
            value = ",".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in value.items())
        elif isinstance(value, tuple):
            value = ",".join(map(str, value))
        words += ["--" + name.replace("_", "-"), str(value).lower() if isinstance(value, bool) else str(value)]
    return shlex.join(words)
