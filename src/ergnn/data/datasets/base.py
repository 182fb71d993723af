"""What a data set says about itself, and how it is loaded."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from ergnn.data import splits
from ergnn.data.graph import UNLABELLED, Graph, Split
from ergnn.data.stream import TaskStream
from ergnn.errors import InputError

SPARSE_BELOW = 0.10
Notes = tuple[str, ...]


class DataUnavailable(InputError):
    """A data set whose files are missing and cannot be downloaded."""


class NotDownloaded(DataUnavailable):
    """A data set whose files are missing, and whose download was not asked for."""


class PublicSplitUnavailable(DataUnavailable):
    """A data set that is available, but not with a published split."""


class Dataset(ABC):
    """One data set: facts that can be listed without loading it, and ``load``.

    Attributes:
        name: as registered.
        title: as people write it.
        nodes, features, classes, edges: counts of the loaded graph; edges are undirected, without self-loops.
        class_names: one name a class, where they are known.
        bag_of_words: whether attributes are counts of words, which are row-normalised by default.
        public_split: whether a split was published with the data.
        classes_per_task, metric: the preset stream.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    nodes: ClassVar[int]
    features: ClassVar[int]
    classes: ClassVar[int]
    edges: ClassVar[int]
    class_names: ClassVar[tuple[str, ...] | None] = None
    bag_of_words: ClassVar[bool] = True
    public_split: ClassVar[bool] = False
    classes_per_task: ClassVar[int] = 2
    metric: ClassVar[str] = "accuracy"

    @abstractmethod
    def load(self, split: str, root: Path | None = None) -> Graph:
        """The graph; with its ``public_split`` set where ``split`` is ``public``.

        Raises:
            PublicSplitUnavailable: ``split`` is ``public`` and only a seeded split is available.
            DataUnavailable: the graph is unavailable.
        """

    @abstractmethod
    def location(self, root: Path | None = None) -> str:
        """Where the files are, in words for a list."""

    @property
    def num_tasks(self) -> int:
        """Tasks of the preset stream."""
        return self.classes // self.classes_per_task

    def seeded_split(self, graph: Graph, seed: int) -> Split:
        """20 training and 30 validation nodes per class, the rest for test (Shchur et al., 2018).

        If a class has too few nodes for that, a split that fits: :func:`ergnn.data.splits.scaled`.
        """
        allowed = self.labelled(graph)
        if int(graph.y[allowed].unique(return_counts=True)[1].min()) > 50:
            return splits.per_class(graph.y, train=20, val=30, seed=seed, nodes=allowed)
        y = torch.full_like(graph.y, UNLABELLED)
        y[allowed] = graph.y[allowed]
        return splits.scaled(y, seed=seed)[0]

    def labelled(self, graph: Graph) -> Tensor:
        """The nodes that a seeded split may draw."""
        return (graph.y != UNLABELLED).nonzero().flatten()


class StreamDataset(Dataset):
    """A data set whose stream is its own, not cut from one graph by class."""

    @abstractmethod
    def stream(self, seed: int, num_tasks: int | None = None, root: Path | None = None) -> tuple[TaskStream, Notes]:
        """The stream of a seed, with notes to show with results; ``num_tasks`` is by default :attr:`num_tasks`."""


def with_compact_x(graph: Graph) -> Graph:
    """Attributes as CSR where fewer than a tenth are not zero, dense otherwise."""
    if graph.is_sparse or torch.count_nonzero(graph.x) >= SPARSE_BELOW * graph.x.numel():
        return graph
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return replace(graph, x=graph.x.to_sparse_csr())
