"""Task streams of data sets by name, with the usual settings of each data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ergnn.data import splits
from ergnn.data.datasets import DATASETS, load_graph
from ergnn.data.datasets.base import PublicSplitUnavailable, StreamDataset
from ergnn.data.graph import Split
from ergnn.data.stream import TaskStream
from ergnn.errors import InputError


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
    class_order: str | Sequence[int] = "natural",
    order_seed: int = 0,
    edges: str = "all",
    leftover: str = "context",
    classes_per_task: int | None = None,
    num_tasks: int | None = None,
    normalize: bool | None = None,
    root: str | Path | None = None,
    dataset_options: dict[str, Any] | None = None,
) -> PresetStream:
    """Create the task stream of a data set.

    Args:
        dataset: name of a data set (see ``ergnn datasets``).
        split: ``auto`` (the public split, or a seeded one with a note if it is unavailable), ``public`` (an error if
            unavailable), ``seeded`` (for Planetoid's graphs 20 training nodes per class, 500 validation and 1,000 test
            nodes; for others 20 training and 30 validation nodes per class, the rest for testing), or fractions of each
            class such as ``0.1/0.1/0.8``, also drawn with ``split_seed``; ``validation`` trains on the training and
            test nodes of the public split and scores its validation nodes. For a custom split, pass the graph of
            :func:`load_graph` to :meth:`TaskStream.from_classes`.
        split_seed: seed of the split.
        class_order, order_seed, edges, leftover, num_tasks: see :meth:`TaskStream.from_classes`.
        classes_per_task: by default that of the data set (Cora and Citeseer 2, Reddit 5).
        normalize: divide features by their row sum; by default only bags of words.
        root: folder with the raw files, by default ``ERGNN_DATA``.
        dataset_options: options of the data set, e.g. ``train=500`` images per task for ``permuted-mnist``.
    """
    spec = DATASETS.create(dataset, **(dataset_options or {}))
    if isinstance(spec, StreamDataset):
        if class_order != "natural" or classes_per_task is not None or normalize is not None:
            raise InputError(
                "class_order, classes_per_task and normalize apply to graphs split into tasks by class; the tasks of "
                f"{spec.name} are not"
            )
        if split in ("public", "validation") or "/" in split:
            raise PublicSplitUnavailable(f"{spec.name}: its tasks are sampled by seed; use split='seeded'")
        stream, notes = spec.stream(split_seed, num_tasks, None if root is None else Path(root))
        return PresetStream(stream, "seeded", notes)
    shares = splits.parse_fractions(split)
    wanted = "public" if split == "validation" else split if shares is None else "seeded"
    graph, used, note = load_graph(dataset, split=wanted, root=root, dataset_options=dataset_options)
    drawn = spec.seeded_split(graph, split_seed) if used == "seeded" and shares is None else None
    if shares is not None:
        train, val, test = shares
        used, drawn = split, splits.fractions(graph.y, train=train, val=val, test=test, seed=split_seed)
    if split == "validation" and graph.public_split is not None:
        public, used = graph.public_split, split
        drawn = Split(torch.cat([public.train, public.test]), public.val[:0], public.val)
    if spec.bag_of_words if normalize is None else normalize:
        graph = graph.row_normalized()
    stream = TaskStream.from_classes(
        graph,
        classes_per_task=spec.classes_per_task if classes_per_task is None else classes_per_task,
        num_tasks=num_tasks,
        class_order=class_order,
        order_seed=order_seed,
        split="public" if drawn is None else drawn,
        edges=edges,
        leftover=leftover,
        metric=spec.metric,
    )
    return PresetStream(stream, used, (note,) if note else ())
