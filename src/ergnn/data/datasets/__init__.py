"""Data sets by name: rows of :mod:`~.table`, or classes with one decorator; see :class:`~.base.Dataset`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ergnn.config.errors import check_choice
from ergnn.config.registry import Registry
from ergnn.data.datasets.base import Dataset, DataUnavailable, NotDownloaded, PublicSplitUnavailable
from ergnn.data.graph import Graph

__all__ = [
    "DATASETS",
    "DataUnavailable",
    "Dataset",
    "LoadedGraph",
    "PublicSplitUnavailable",
    "load_graph",
]

DATASETS: Registry[type[Dataset]] = Registry("dataset", "ergnn.data.datasets")


class LoadedGraph(NamedTuple):
    """A graph, the kind of split it was loaded for, and a note to print with the results."""

    graph: Graph
    split: str
    note: str


def load_graph(
    name: str | Dataset,
    *,
    split: str = "auto",
    root: str | Path | None = None,
    dataset_options: dict[str, Any] | None = None,
) -> LoadedGraph:
    """Load a data set by name.

    Args:
        name: a name in ``DATASETS``, or a data set.
        split: ``public`` requires the public split and raises :class:`PublicSplitUnavailable` if it is unavailable;
            ``seeded`` does not need it, so a bundled graph is enough; ``auto`` uses the public split if available, and
            otherwise sets ``note`` (data sets of OGB: the seeded split).
        root: folder with the raw files; by default ``ERGNN_DATA``. It is never written to.
        dataset_options: options of the data set, e.g. ``fold=3`` for ``wikics``.
    """
    dataset = name if isinstance(name, Dataset) else DATASETS.create(name, **(dataset_options or {}))
    check_choice("split", split, ("auto", "public", "seeded"))
    used, folder = dataset.default_split if split == "auto" else split, None if root is None else Path(root)
    try:
        return LoadedGraph(dataset.load(used, folder), used, "")
    except PublicSplitUnavailable as error:
        if split != "auto":
            raise
        reason = str(error)
        if isinstance(error.__cause__, NotDownloaded):  # expected with bundled graphs: one short line is enough
            reason = "the public one is missing (--download gets it)"
        return LoadedGraph(dataset.load("seeded", folder), "seeded", f"using a seeded split: {reason}")
