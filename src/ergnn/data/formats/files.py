"""One file a task: graphs of their own, or parts of one that grows."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

from ergnn.data.formats.cut import part_of_task, stream_of_parts
from ergnn.data.formats.graph import class_order, to_graph
from ergnn.data.formats.limits import Limits
from ergnn.data.formats.read import read_edges, read_graph, read_nodes
from ergnn.data.formats.tables import EdgeTable, NodeTable
from ergnn.data.stream import Task, TaskStream
from ergnn.errors import FormatError, InputError

PathName = str | PathLike[str]
Tables = tuple[NodeTable, EdgeTable]


def cut_files(
    files: Sequence[PathName | tuple[PathName, PathName]],
    *,
    own_graphs: bool = True,
    limits: Limits | None = None,
    fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    inter_task_edges: str = "seen",
    undirected: bool = True,
    name: str = "graph",
    metric: str = "accuracy",
) -> TaskStream:
    """A stream with one task a file.

    Args:
        files: a file for :func:`read_graph` each, or a pair of files with nodes and edges.
        own_graphs: each file is a graph of its own (ids of two files have nothing to do with each other); or else a
            part of one graph: no id stands in two files, and edges may lead to nodes of any file.
        limits: what each file may hold.
        fractions, seed, undirected, name, metric: as in :func:`cut`.
        inter_task_edges: as in :func:`cut`, for files that are parts of one graph.
    """
    if not files:
        raise InputError("no files; a stream has one task a file")
    tables = _same_width([_read(file, limits) for file in files], files)
    classes = class_order(label for nodes, _ in tables for label in nodes.labels)
    if not own_graphs:
        nodes, edges = concatenate(tables)
        graph = to_graph(nodes, edges, classes=classes, undirected=undirected, name=name).graph
        home = np.repeat(np.arange(len(tables)), [len(part) for part, _ in tables])
        return stream_of_parts(graph, home, fractions, seed, inter_task_edges, metric)
    tasks = []
    for i, (nodes, edges) in enumerate(tables):
        graph = to_graph(nodes, edges, classes=classes, undirected=undirected, name=f"{name}: {_name(files[i])}").graph
        split, present = part_of_task(graph, torch.arange(len(nodes)), fractions, seed, f"task {i + 1}")
        tasks.append(Task(i, graph, split.train, split.val, split.test, present, own_graph=True))
    return TaskStream(tasks, name=name, metric=metric)


def concatenate(tables: Sequence[Tables]) -> Tables:
    """Tables one below the other; a column that some lack is missing there, but features must be as many."""
    nodes = [part for part, _ in tables]
    edges = [part for _, part in tables]
    features = [part.features for part in nodes]
    sparse = any(part.is_sparse for part in nodes)
    stacked: Any = scipy.sparse.vstack(features, format="csr") if sparse else np.concatenate(features)
    weight = None
    if any(part.weight is not None for part in edges):
        weight = np.concatenate([np.ones(len(part)) if part.weight is None else part.weight for part in edges])
    return (
        NodeTable(
            ids=np.concatenate([part.ids for part in nodes]),
            labels=np.concatenate([part.labels for part in nodes]),
            time=_joined([part.time for part in nodes], [len(part) for part in nodes], np.nan),
            split=_joined([part.split for part in nodes], [len(part) for part in nodes], None),
            domain=_joined([part.domain for part in nodes], [len(part) for part in nodes], None),
            features=stacked,
            feature_names=nodes[0].feature_names,
        ),
        EdgeTable(
            source=np.concatenate([part.source for part in edges]),
            target=np.concatenate([part.target for part in edges]),
            weight=weight,
            time=_joined([part.time for part in edges], [len(part) for part in edges], np.nan),
        ),
    )


def _joined(columns: list[np.ndarray | None], sizes: list[int], missing: Any) -> np.ndarray | None:
    if all(column is None for column in columns):
        return None
    return np.concatenate(
        [np.full(n, missing) if column is None else column for column, n in zip(columns, sizes, strict=True)]
    )


def _read(file: PathName | tuple[PathName, PathName], limits: Limits | None) -> Tables:
    if isinstance(file, tuple):
        return read_nodes(file[0], limits=limits), read_edges(file[1], limits=limits)
    return read_graph(file, limits=limits)


def _name(file: PathName | tuple[PathName, PathName]) -> str:
    return Path(file[0] if isinstance(file, tuple) else file).name


def _same_width(tables: list[Tables], files: Sequence[PathName | tuple[PathName, PathName]]) -> list[Tables]:
    """Sparse features up to the largest index of any file; others must be as many, with the same names."""
    width = max(nodes.num_features for nodes, _ in tables)
    first = tables[0][0].feature_names
    for (nodes, _), file in zip(tables, files, strict=True):
        if nodes.is_sparse and nodes.num_features < width:
            nodes.features.resize(len(nodes), width)
        if nodes.num_features != width:
            raise FormatError(f"{_name(file)}: {nodes.num_features:,} features; another file has {width:,}")
        if nodes.feature_names != first:
            raise FormatError(f"{_name(file)}: columns of features differ in name or order from {_name(files[0])}'s")
    return tables
