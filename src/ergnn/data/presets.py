"""Task streams of data sets by name, with the usual settings of each data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_within
from ergnn.data import splits
from ergnn.data.datasets import DATASETS, LoadedGraph, base, load_graph
from ergnn.data.datasets.base import Dataset, PartedDataset, PublicSplitUnavailable, StreamDataset
from ergnn.data.graph import Split
from ergnn.data.scenarios import SIZES, assigned_stream, blurred_stream
from ergnn.data.stream import TaskStream, ordered

GraphCache = dict[str, tuple[Dataset, LoadedGraph]]
"""The last graph that was read, and the data set that read it, whose parts may depend on it."""

CUT = {
    "class_order": "natural",
    "order_seed": 0,
    "edges": "all",
    "leftover": "context",
    "num_tasks": None,
    "classes_per_task": None,
    "normalize": None,
}
"""Defaults of ``cut`` in :func:`make_stream`; None stands for that of the data set."""


class PresetStream(NamedTuple):
    """A stream, the split it actually uses (``public``, ``seeded`` or fractions), and notes to print with results."""

    stream: TaskStream
    split: str
    notes: tuple[str, ...]


def make_stream(
    dataset: str,
    *,
    split: str = "auto",
    split_seed: int = 0,
    root: str | Path | None = None,
    dataset_options: dict[str, Any] | None = None,
    scenario: str | None = None,
    graphs: GraphCache | None = None,
    **cut: Any,
) -> PresetStream:
    """Create the task stream of a data set.

    Args:
        dataset: name of a data set (see ``ergnn datasets``).
        split: ``auto`` (the public split, or a seeded one with a note if it is unavailable), ``public`` (an error if
            unavailable), ``seeded`` (for Planetoid's graphs 20 training nodes per class, 500 validation and 1,000 test
            nodes; for others 20 training and 30 validation nodes per class, the rest for testing), fractions of each
            class such as ``0.1/0.1/0.8``, or nodes per class such as ``20/30/rest`` or ``20/30/100``, also drawn with
            ``split_seed``; ``validation`` trains on the training and test nodes of the public split, and scores its
            validation nodes; ``folds`` takes public split number ``split_seed`` of several; ``tuned`` is the split with
            which tuned networks were published, for Photo, Computers and Coauthor CS. For a custom split, pass the
            graph of :func:`load_graph` to :meth:`TaskStream.from_classes`. If tasks are domains or periods, the classes
            of each task are split; by default 60, 20 and 20 %.
        split_seed: seed of the split.
        root: folder with the raw files, by default ``ERGNN_DATA``.
        dataset_options: options of the data set, e.g. ``train=500`` images per task for ``permuted-mnist``.
        scenario: one that the data set supports; only ``blurred`` changes the stream
            (:func:`ergnn.data.scenarios.class_shares`).
        graphs: keeps the graph for the next stream of the same data set, instead of reading it again.
        cut: ``normalize`` (divide features by their row sum; by default only bags of words), and ``class_order``,
            ``order_seed``, ``edges``, ``leftover``, ``num_tasks`` and ``classes_per_task`` (by default that of the data
            set: Cora and Citeseer 2, Reddit 5) of :meth:`TaskStream.from_classes`. If tasks are domains,
            ``class_order`` is the order of the domains.
    """
    if unknown := cut.keys() - CUT.keys():
        raise TypeError(f"make_stream() got an unexpected keyword argument {min(unknown)!r}")
    cut = {**CUT, **cut}
    spec = DATASETS.create(dataset, **(dataset_options or {}))
    check_scenario(spec, scenario)
    for option in spec.unused_options:
        if cut[option] != CUT[option]:
            raise InputError(f"{option} is {cut[option]!r}, but {spec.name} is not split by class; omit it")
    sizes, folder = splits.parse_sizes(split), None if root is None else Path(root)
    if isinstance(spec, StreamDataset):
        if split not in ("auto", "seeded"):
            raise PublicSplitUnavailable(f"{spec.name}: its tasks are sampled by seed; use split='seeded'")
        return PresetStream(spec.stream(split_seed, cut["num_tasks"], folder), "seeded", ())
    tuned = spec.tuned_split(folder) if split == "tuned" else None
    loaded_split = "seeded" if sizes or tuned else "public" if split in ("validation", "folds") else split
    normalize = cut.pop("normalize")
    normalize = spec.bag_of_words if normalize is None else normalize
    graphs = {} if graphs is None else graphs
    key = repr((dataset, dataset_options or {}, loaded_split, base.data_root(folder), normalize))
    if key not in graphs:
        graphs.clear()  # one graph at a time
        loaded = load_graph(spec, split=loaded_split, root=folder)
        graphs[key] = spec, loaded._replace(graph=loaded.graph.row_normalized()) if normalize else loaded
    spec, loaded = graphs[key]
    if isinstance(spec, PartedDataset):
        home = _tasks_of_parts(spec, cut["class_order"], cut["order_seed"], cut["num_tasks"])[spec.parts()]
        stream = assigned_stream(loaded.graph, home, sizes or SIZES, split_seed, cut["edges"], spec.metric)
    else:
        per_task = spec.classes_per_task if cut["classes_per_task"] is None else cut["classes_per_task"]
        drawn = tuned or _draw_split(spec, loaded, split, sizes, split_seed)
        cut |= {"classes_per_task": per_task, "split": drawn, "metric": spec.metric}
        if scenario == "blurred":
            del cut["leftover"]
            stream = blurred_stream(loaded.graph, **cut, seed=cut["order_seed"] * 1_000_003 + split_seed)
        else:
            stream = TaskStream.from_classes(loaded.graph, **cut)
    return PresetStream(stream, loaded.split if loaded_split == split else split, (loaded.note,) if loaded.note else ())


def _draw_split(spec: Dataset, loaded: LoadedGraph, split: str, sizes: splits.Sizes | None, seed: int) -> Split:
    """Return the split of a graph that is split by class."""
    if sizes is not None:
        return sizes.draw(loaded.graph.y, seed)
    if split == "folds":
        return spec.fold_split(seed)
    public = loaded.graph.public_split if loaded.split == "public" else None
    if public is None:
        return spec.seeded_split(loaded.graph, seed)
    if split == "validation":
        return Split(torch.cat([public.train, public.test]), public.val[:0], public.val)
    return public


def check_scenario(spec: Dataset | type[Dataset], scenario: str | None) -> None:
    """Raise an error if a data set does not support a scenario."""
    if scenario is not None and scenario not in spec.scenarios:
        raise InputError(
            f"{spec.name} does not support scenario {scenario!r}; choose one of: {', '.join(spec.scenarios)}"
        )


def _tasks_of_parts(spec: PartedDataset, order: str | Sequence[int], seed: int, num_tasks: int | None) -> Tensor:
    """Return the task of each part, -1 for those after the first ``num_tasks``."""
    if "domain" not in spec.scenarios and order != "natural":
        raise InputError(f"class_order is {order!r}; the tasks of {spec.name} are in the order of time, use 'natural'")
    count = spec.num_tasks if num_tasks is None else num_tasks
    check_within(spec.name, 1, spec.num_tasks, num_tasks=count)
    if spec.rotates and order == "shuffled":
        order = [(seed + i) % spec.num_tasks for i in range(spec.num_tasks)]
    task_of_part = torch.tensor(ordered(spec.name, spec.num_tasks, order, seed, "domain")).argsort()
    return torch.where(task_of_part < count, task_of_part, -1)
