"""Base classes of data sets, where raw files are stored, and whether downloads are allowed.

Files are searched in ``ERGNN_DATA`` (or an explicit root), which is only read, then in the platform's cache folder,
which is the only target of downloads. Nothing is downloaded unless requested with ``ERGNN_DOWNLOAD=1`` or
``ergnn run --download``; ``ERGNN_OFFLINE=1`` forbids downloads in any case.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data import splits
from ergnn.data.graph import UNLABELED, Graph, Split
from ergnn.data.stream import TaskStream

DATA_VARIABLE = "ERGNN_DATA"
DOWNLOAD_VARIABLE = "ERGNN_DOWNLOAD"
OFFLINE_VARIABLE = "ERGNN_OFFLINE"
PROBE_SECONDS = 5


class DataUnavailable(InputError):
    """The files of a data set are missing and cannot be downloaded."""


class NotDownloaded(DataUnavailable):
    """The files of a data set are missing and downloads were not requested."""


class PublicSplitUnavailable(DataUnavailable):
    """The data set is available, but its published split is not."""


class Dataset(ABC):
    """One data set: metadata that can be listed without loading it, and ``load``.

    Attributes:
        name: registered name.
        title: display name.
        nodes, features, classes, edges: counts of the loaded graph; edges are undirected, without self-loops.
        class_names: one name per class, if known.
        bag_of_words: whether features are word counts, which are row-normalized by default.
        public_split: whether a split was published with the data.
        default_split: the split of ``auto``: ``public`` (seeded if there is none) or ``seeded``.
        folder, raw_files: the folder and names of its files.
        tuned_file: file with the split ``tuned``, in the folder ``tuned_splits``.
        classes_per_task, metric: defaults of the preset stream.
        scenarios: the scenarios of :data:`ergnn.config.learner_config.SCENARIOS` that the data set supports; a run
            without a scenario is the first of them, unless it is ``task``.
        unused_options: options of :func:`ergnn.data.make_stream` that its tasks do not depend on.
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
    default_split: ClassVar[str] = "public"
    folder: ClassVar[str] = ""
    raw_files: ClassVar[tuple[str, ...]] = ()
    tuned_file: ClassVar[str] = ""
    classes_per_task: ClassVar[int] = 2
    metric: ClassVar[str] = "accuracy"
    scenarios: ClassVar[tuple[str, ...]] = ("task", "class", "blurred")
    unused_options: ClassVar[tuple[str, ...]] = ()

    def load(self, split: str, root: Path | None = None) -> Graph:
        """Load the graph; its ``public_split`` is set if ``split`` is ``public``.

        Raises:
            PublicSplitUnavailable: ``split`` is ``public``, but only a seeded split is available.
            DataUnavailable: the graph is unavailable.
        """
        if split == "public" and not self.public_split:
            raise PublicSplitUnavailable(f"no split was published with {self.title}")
        return self.read(root)

    def read(self, root: Path | None) -> Graph:
        """Read the graph, with its public split if there is one."""
        raise NotImplementedError

    def find(self, root: Path | None) -> Path | None:
        """Return the folder of the files; None if one is missing."""
        return find(self.folder, self.raw_files, root)

    def find_or_raise(self, root: Path | None) -> Path:
        """Return the folder of the files; an error says where they were searched."""
        raw = self.find(root)
        if raw is None:
            raise DataUnavailable(not_found(self.name, self.folder, self.raw_files, root))
        return raw

    def location(self, root: Path | None = None) -> str:
        """Return the location of the files, as text for ``ergnn datasets``."""
        folder, base = self.find(root), data_root(root)
        if folder is None:
            return "missing"
        if base is None or not folder.is_relative_to(base):
            return "in the cache"
        return f"in {DATA_VARIABLE}" if root is None else f"in {root}"

    @property
    def num_tasks(self) -> int:
        """Number of tasks of the preset stream."""
        return self.classes // self.classes_per_task

    def seeded_split(self, graph: Graph, seed: int) -> Split:
        """Draw 20 training and 30 validation nodes per class; the rest are for testing (Shchur et al., 2018).

        If a class has too few nodes, use :func:`ergnn.data.splits.scaled` instead.
        """
        y = self.labels(graph)
        if int(y[y != UNLABELED].unique(return_counts=True)[1].min()) > 50:
            return splits.per_class(y, train=20, val=30, seed=seed)
        return splits.scaled(y, seed=seed)[0]

    def tuned_split(self, root: Path | None = None) -> Split:
        """Return the split with which tuned networks were published (Luo et al., 2024)."""
        if not self.tuned_file:
            raise PublicSplitUnavailable(f"no split of tuned networks was published for {self.title}")
        where = "tuned_splits", (self.tuned_file,), root
        folder = find(*where)
        if folder is None:
            raise PublicSplitUnavailable(not_found(self.name, *where))
        with np.load(folder / self.tuned_file, allow_pickle=False) as ids:
            return splits.given(ids["train"], ids["valid"], ids["test"], num_nodes=self.nodes)

    def fold_split(self, number: int) -> Split:
        """Return one of several public splits of the graph that was loaded, counted modulo their number."""
        raise PublicSplitUnavailable(f"{self.title} was not published with several splits")

    def labels(self, graph: Graph) -> Tensor:
        """Return the labels of the nodes that a seeded split may draw, -1 for the others."""
        return graph.y


class StreamDataset(Dataset):
    """A data set that builds its own stream, instead of one graph split into tasks by class."""

    scenarios = ("task", "domain")
    unused_options = ("classes_per_task", "class_order", "normalize")

    @abstractmethod
    def stream(self, seed: int, num_tasks: int | None = None, root: Path | None = None) -> TaskStream:
        """Create the stream of a seed; ``num_tasks`` defaults to :attr:`num_tasks`."""


class PartedDataset(Dataset):
    """A graph whose tasks are its ``num_tasks`` parts, domains or periods of time, instead of groups of classes."""

    scenarios = ("domain",)
    unused_options = ("classes_per_task",)
    default_split = "seeded"
    num_tasks = 1
    part_sizes: ClassVar[tuple[int, ...]] = ()
    rotates: ClassVar[bool] = False
    """Whether shuffled orders of the parts are rotations, by as many parts as the seed says."""

    def parts(self) -> Tensor:
        """Return the part of each node of the graph that was loaded, from 0; by default, parts follow one another."""
        return torch.repeat_interleave(torch.arange(self.num_tasks), torch.tensor(self.part_sizes))


def cache_root() -> Path:
    """Return the platform's cache folder."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("ergnn"))


def data_root(root: Path | None) -> Path | None:
    """Return the explicit root, or ``ERGNN_DATA``, or None."""
    value = os.environ.get(DATA_VARIABLE)
    return root or (Path(value).expanduser() if value else None)


def downloads_allowed() -> bool:
    """Return whether downloads were requested and are not forbidden."""
    return is_set(DOWNLOAD_VARIABLE) and not is_set(OFFLINE_VARIABLE)


def is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() not in ("", "0", "false", "no")


def find(folder: str, files: tuple[str, ...], root: Path | None) -> Path | None:
    """Search the data root, then the cache, for a folder with all files."""
    for base in (data_root(root), cache_root()):
        if base is not None and all((base / folder / file).is_file() for file in files):
            return base / folder
    return None


def not_found(name: str, folder: str, files: tuple[str, ...], root: Path | None) -> str:
    """Describe where the files of a data set were searched, for messages."""
    base = data_root(root)
    if base is None:
        where = f"{DATA_VARIABLE} is not set and the cache folder has no {folder}"
    else:
        where = f"neither {base} nor the cache folder has {folder}"
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{name}: {where} ({files[0]}{more})"


def probe(url: str) -> None:
    """Raise an ``OSError`` within seconds if a host is unreachable; PyG's download waits for minutes."""
    with suppress(HTTPError):  # any HTTP response proves that the host is reachable
        urlopen(Request(url, method="HEAD"), timeout=PROBE_SECONDS).close()
