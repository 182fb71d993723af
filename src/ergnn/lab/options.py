"""The options of ``ergnn reproduce`` and ``ergnn compare``; the command line follows from them, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.config.learner_config import EDGES, NETWORKS, SCENARIOS

SEARCH_SEED = 1_000_000
"""The first seed (and class order) of probes and trials; reported ones are below."""


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
