"""A progress bar with the time left, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ergnn.data.datasets import DATASETS
from ergnn.experiments.config import RunConfig
from ergnn.experiments.run import Progress


@contextmanager
def progress_bar(config: RunConfig, enabled: bool = True) -> Iterator[Progress | None]:
    """What :func:`ergnn.experiments.run.run` reports to; None where nobody would see it."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ModuleNotFoundError:
        enabled = False
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    spec = DATASETS.get(config.dataset)()
    tasks = spec.classes // (config.classes_per_task or spec.classes_per_task)
    epochs = config.seeds * config.orders * tasks * config.epochs
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        name = f"{config.dataset} · {config.backbone} · {config.method}"
        job = bar.add_task(name + (f" {config.selector}" if config.method == "replay" else ""), total=epochs)
        yield lambda done: bar.advance(job, done)
