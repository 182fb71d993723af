"""What commands write: text files, JSON, progress bars."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ergnn.config.files import replacing


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))


@contextmanager
def output(path: str) -> Iterator[TextIO]:
    """Open a text file that is replaced atomically if no error occurs; - is standard output."""
    if path == "-":
        yield sys.stdout
        return
    with replacing(path) as new, open(new, "w", encoding="utf-8", newline="") as file:
        yield file


def store_path(text: str) -> str:
    """Return the file or URL of a store; for a folder, or a name without a suffix, its ``runs.sqlite``."""
    path = Path(text)
    return str(path / "runs.sqlite") if "://" not in text and (path.is_dir() or not path.suffix) else text


@contextmanager
def progress_bar(name: str, total: int | None, enabled: bool = True) -> Iterator[Callable[[int], None] | None]:
    """Yield a function to call with the number of finished steps; None if no bar is shown, as without a terminal.

    Without ``total`` the bar shows only that something is going on.
    """
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    columns = Progress.get_default_columns()
    columns = (*columns[:2], TimeElapsedColumn()) if total is None else columns  # no share is done, no time is left
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task(name, total=total)
        yield lambda steps: bar.advance(job, steps)


def write_rows(rows: Sequence[Mapping[str, Any]], names: Sequence[str], file: TextIO) -> None:
    """Write columns of rows to a CSV file."""
    writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
