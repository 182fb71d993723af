"""A progress bar with the time left, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(name: str, total: int | None, enabled: bool = True) -> Iterator[Callable[[int], None] | None]:
    """Yield a function to call with the number of finished steps; None if no bar is shown.

    A bar needs the package rich and a terminal. Without ``total`` it shows only that something is going on.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    except ModuleNotFoundError:
        enabled = False
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    counted = (TextColumn("{task.percentage:3.0f} %"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        *(counted if total is not None else [TimeElapsedColumn()]),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task(name, total=total)
        yield lambda steps: bar.advance(job, steps)
