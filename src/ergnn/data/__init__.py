"""Graph in, tasks out."""

from ergnn.data.datasets import DATASETS, LoadedGraph, PublicSplitUnavailable, describe_datasets, load_graph
from ergnn.data.graph import UNLABELLED, Graph, Split
from ergnn.data.presets import PresetStream, make_stream
from ergnn.data.stream import Task, TaskStream

__all__ = [
    "DATASETS",
    "UNLABELLED",
    "Graph",
    "LoadedGraph",
    "PresetStream",
    "PublicSplitUnavailable",
    "Split",
    "Task",
    "TaskStream",
    "describe_datasets",
    "load_graph",
    "make_stream",
]
