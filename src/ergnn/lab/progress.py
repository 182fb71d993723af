"""A progress bar with the time left, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ergnn.data.datasets import DATASETS
from ergnn.lab.config import RunConfig
from ergnn.lab.run import Progress
from ergnn.learning.resolve import options_in_effect


@contextmanager
def progress_bar(config: RunConfig, enabled: bool = True) -> Iterator[Progress | None]:
    """Yield a progress callback for :func:`ergnn.lab.run.run`; None if disabled or stderr is not a terminal."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ModuleNotFoundError:
        enabled = False
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        learner = config.learner
        selector = options_in_effect(learner).get("selector")
        name = f"{config.dataset} · {learner.backbone} · {learner.method}" + (f" {selector}" if selector else "")
        job = bar.add_task(name, total=total_epochs(config))
        yield lambda done: bar.advance(job, done)


def total_epochs(config: RunConfig) -> int:
    """Return the total number of epochs of all members of a resolved configuration."""
    dataset = DATASETS.create(config.dataset, **config.dataset_options)
    tasks = dataset.num_tasks if not config.classes_per_task else dataset.classes // config.classes_per_task
    return int(config.seeds * config.orders * tasks * config.learner.epochs)
