"""A small run store for tests of the page: real runs, with too few epochs and seeds to mean anything."""

from pathlib import Path
from typing import Any

from ergnn.lab.config import RunConfig
from ergnn.lab.run import run_members
from ergnn.lab.store import RunStore

SELECTORS = ("random", "mf", "mf*", "im")


def configurations() -> list[RunConfig]:
    """Baselines, replay with some selectors, two values of e, another backbone, a leaky row, and two protocols."""
    rows: list[dict[str, Any]] = [
        {"method": "finetune"},
        {"method": "joint"},
        {"backbone": "gcn", "method": "finetune"},
    ]
    rows += [{"selector": name} for name in SELECTORS]
    rows += [{"selector": "mf*", "per_class": 2}, {"selector": "mf", "backbone": "sgc"}]
    rows += [{"selector": "im", "selector_options": {"target": "test"}}]
    shared: dict[str, Any] = {"dataset": "cora", "split": "seeded", "epochs": 2, "seeds": 2}
    paper = [RunConfig(**{"backbone": "gat", **shared, **row}, protocol="paper").resolved() for row in rows]
    clean = RunConfig(**shared, selector="mf", protocol="clean", class_order="shuffled", orders=2).resolved()
    return [*paper, clean]


def fill(path: Path) -> Path:
    with RunStore(path) as store:
        for config in configurations():
            for batch in run_members(config):
                for result in batch:
                    store.put_all(config, [result])
    return path
