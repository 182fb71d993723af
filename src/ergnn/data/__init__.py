"""Graphs, data sets, splits and task streams."""

from ergnn.data.datasets import DATASETS, PublicSplitUnavailable, load_graph
from ergnn.data.graph import UNLABELED, Graph, Split
from ergnn.data.presets import make_stream
from ergnn.data.stream import Task, TaskStream

__all__ = [
    "DATASETS",
    "UNLABELED",
    "Graph",
    "PublicSplitUnavailable",
    "Split",
    "Task",
    "TaskStream",
    "load_graph",
    "make_stream",
]
