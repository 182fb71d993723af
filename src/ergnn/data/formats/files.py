"""One file per task: separate graphs, or parts of one that grows."""

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
from ergnn.data.formats.tables import EdgeTable, NodeTable, align_features
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
    """A stream with one task per file.

    Args:
        files: one file for :func:`read_graph` per task, or a pair of files with nodes and edges.
        own_graphs: each file is a separate graph (ids of two files are unrelated); otherwise, a part of one graph: no
            id is in two files, and edges may lead to nodes of any file.
        limits: what each file may hold.
        fractions, seed, undirected, name, metric: as in :func:`cut`.
        inter_task_edges: as in :func:`cut`, for files that are parts of one graph.
    """
    if not files:
        raise InputError("no files; a stream has one task per file")
    tables = _same_features([_read(file, limits) for file in files], files)
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
    nodes, edges = zip(*tables, strict=True)
    features: list[Any] = [part.features for part in nodes]
    sparse = any(part.is_sparse for part in nodes)
    stacked: Any = scipy.sparse.vstack(features, format="csr") if sparse else np.concatenate(features)
    columns = {"ids": None, "labels": None, "time": np.nan, "split": None, "domain": None}
    ends = {"source": None, "target": None, "weight": 1.0, "time": np.nan}
    return (
        NodeTable(**_stacked(nodes, columns), features=stacked, feature_names=nodes[0].feature_names),
        EdgeTable(**_stacked(edges, ends)),
    )


def _stacked(tables: Sequence[Any], columns: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, missing in columns.items():
        parts = [getattr(table, name) for table in tables]
        filled = [np.full(len(t), missing) if part is None else part for t, part in zip(tables, parts, strict=True)]
        out[name] = None if all(part is None for part in parts) else np.concatenate(filled)
    return out


def _read(file: PathName | tuple[PathName, PathName], limits: Limits | None) -> Tables:
    if isinstance(file, tuple):
        return read_nodes(file[0], limits=limits), read_edges(file[1], limits=limits)
    return read_graph(file, limits=limits)


def _name(file: PathName | tuple[PathName, PathName]) -> str:
    return Path(file[0] if isinstance(file, tuple) else file).name


def _same_features(tables: list[Tables], files: Sequence[PathName | tuple[PathName, PathName]]) -> list[Tables]:
    """Features in the order of the first file; sparse ones up to the largest index of any file."""
    names, width = tables[0][0].feature_names, max(nodes.num_features for nodes, _ in tables)
    out = []
    for (nodes, edges), file in zip(tables, files, strict=True):
        nodes = align_features(nodes, names, _name(file))
        if nodes.is_sparse and nodes.num_features < width:
            nodes.features.resize(len(nodes), width)
        if nodes.num_features != width:
            raise FormatError(f"{_name(file)}: {nodes.num_features:,} features; another file has {width:,}")
        out.append((nodes, edges))
    return out
