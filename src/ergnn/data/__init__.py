"""Graphs, data sets, splits and task streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ergnn.config.lazy import lazy_names

if TYPE_CHECKING:
    from ergnn.data.datasets import DATASETS, LoadedGraph, PublicSplitUnavailable, load_graph
    from ergnn.data.graph import UNLABELED, Graph, Split
    from ergnn.data.presets import PresetStream, make_stream
    from ergnn.data.stream import Task, TaskStream

__all__ = [
    "DATASETS",
    "UNLABELED",
    "Graph",
    "LoadedGraph",
    "PresetStream",
    "PublicSplitUnavailable",
    "Split",
    "Task",
    "TaskStream",
    "load_graph",
    "make_stream",
]

__getattr__ = lazy_names(
    __name__,
    {
        "ergnn.data.datasets": ("DATASETS", "LoadedGraph", "PublicSplitUnavailable", "load_graph"),
        "ergnn.data.graph": ("UNLABELED", "Graph", "Split"),
        "ergnn.data.presets": ("PresetStream", "make_stream"),
        "ergnn.data.stream": ("Task", "TaskStream"),
    },
)
