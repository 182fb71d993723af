"""Permuted MNIST: the same digits in every task, each task with another permutation of the pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import overload

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.datasets import DATASETS, storage
from ergnn.data.datasets.base import DataUnavailable, Notes, PublicSplitUnavailable, StreamDataset
from ergnn.data.datasets.idx import read_idx
from ergnn.data.graph import Graph, Split
from ergnn.data.stream import Task, TaskStream

FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


@dataclass(frozen=True, eq=False)
class Images:
    """Labeled images, one per row.

    Args:
        pixels: ``[n, pixels]``, values 0 to ``white``.
        labels: ``[n]``.
        num_train: number of training images, which come first; the others are for test.
        white: largest pixel value.
        name: name of the resulting stream.
    """

    pixels: Tensor
    labels: Tensor
    num_train: int
    white: int
    name: str

    def graph(self, images: Tensor, order: Tensor | None = None) -> Graph:
        """Return images with pixels permuted by ``order`` as a graph without edges; features are in [0, 1]."""
        pixels = self.pixels.numpy().take(images.numpy(), axis=0)
        pixels = pixels if order is None else pixels.take(order.numpy(), axis=1)
        x = torch.from_numpy(pixels).float().div_(self.white)
        return Graph(x, torch.empty(2, 0, dtype=torch.long), self.labels[images], name=self.name)


class PermutedStream(TaskStream):
    """Tasks with one graph each, built on access because all of them together would take gigabytes.

    Args:
        images: images of all tasks.
        seed: seed of the permutations and of the samples.
        num_tasks: number of tasks.
        train, val: number of images that each task samples from the training images.
        test: number of test images, the same ones in every task and for every seed.
        device: device of the tasks.
    """

    def __init__(
        self,
        images: Images,
        seed: int,
        num_tasks: int,
        train: int,
        val: int,
        test: int,
        device: torch.device | str = "cpu",
    ) -> None:
        rest = images.labels.numel() - images.num_train
        if train + val > images.num_train or test > rest:
            raise InputError(
                f"{images.name}: {train:,} training, {val:,} validation and {test:,} test images requested; there "
                f"are {images.num_train:,} for training and validation, and {rest:,} for test"
            )
        self.images, self.seed, self.num_tasks = images, seed, num_tasks
        self.sizes, self.device = (train, val, test), torch.device(device)
        self._latest: tuple[int, Task] | None = None
        super().__init__([self._make(0)], name=images.name)  # the other tasks differ only in permutation and sample
        self._latest = (0, self._tasks[0])

    def permutation(self, task: int) -> Tensor:
        """Return the pixel at each position: the identity for the first task, a seeded permutation for the others."""
        count = self.images.pixels.size(1)
        if task == 0:
            return torch.arange(count)
        return torch.randperm(count, generator=_generator(self.seed, task, 41))

    def _make(self, number: int) -> Task:
        (train, val, test), images = self.sizes, self.images
        drawn = torch.randperm(images.num_train, generator=_generator(self.seed, number, 43))[: train + val]
        labels = images.labels[drawn[:train]]
        classes = tuple(images.labels.unique().tolist())
        missing = set(classes) - set(labels.tolist())
        if missing:
            raise InputError(f"{self.images.name}: train is {train}; no image of class {min(missing)} was sampled")
        held = images.num_train + _some(images.labels.numel() - images.num_train, test)
        graph = images.graph(torch.cat([drawn, held]), self.permutation(number)).to(self.device)
        own, checked, tested = torch.arange(graph.num_nodes, device=self.device).split([train, val, test])
        return Task(number, graph, own, checked, tested, classes, own_graph=True)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Task, ...]: ...
    def __getitem__(self, index: int | slice) -> Task | tuple[Task, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(self.num_tasks)[index])
        number = range(self.num_tasks)[index]
        if self._latest is None or self._latest[0] != number:
            self._latest = (number, self._make(number))
        return self._latest[1]

    def __len__(self) -> int:
        return self.num_tasks

    def __iter__(self) -> Iterator[Task]:
        return (self[i] for i in range(self.num_tasks))

    def __repr__(self) -> str:
        return f"PermutedStream({self.name!r}, {self.num_tasks} tasks, seed {self.seed})"

    @property
    def classes(self) -> tuple[int, ...]:
        return self._tasks[0].classes * self.num_tasks

    def to(self, device: torch.device | str) -> TaskStream:
        if torch.device(device) == self.device:
            return self
        return PermutedStream(self.images, self.seed, self.num_tasks, *self.sizes, device)


DIGITS = "permuted-digits"
"""Name of a stream of scikit-learn's digits, the substitute for MNIST if its files are missing."""


@DATASETS.register("permuted-mnist", aliases=("pmnist",))
class PermutedMNIST(StreamDataset):
    """Handwritten digits, each task with another permutation of the pixels (Kirkpatrick et al., 2017).

    Every task has all ten classes, and all tasks share one output layer: only the domain changes. If MNIST's files are
    missing, scikit-learn's 8 × 8 digits are used instead, as recorded in the stream's name and notes.

    Args:
        tasks: number of tasks.
        train, val: images that each task samples from MNIST's 60,000 (a task never trains on its own validation
            images).
        test: number of MNIST's 10,000 test images, sampled once with a fixed seed (the two halves of the file differ
            in difficulty, so the first images would be biased).
    """

    name = "permuted-mnist"
    title = "Permuted MNIST"
    nodes, features, classes, edges = 70_000, 784, 10, 0
    class_names = tuple(str(digit) for digit in range(10))
    bag_of_words = False
    classes_per_task = 10
    folder = "mnist/MNIST"
    raw_files = FILES

    def __init__(self, tasks: int = 23, train: int = 1_000, val: int = 1_000, test: int = 10_000) -> None:
        for option, value, low, high in (
            ("tasks", tasks, 1, 10_000),
            ("train", train, 10, 59_000),
            ("val", val, 0, 60_000 - train),
            ("test", test, 1, 10_000),
        ):
            if not low <= value <= high:
                raise InputError(f"permuted-mnist: {option} is {value}; it must be {low:,} to {high:,}")
        self.tasks, self.train, self.val, self.test = tasks, train, val, test

    @property
    def num_tasks(self) -> int:
        return self.tasks

    def load(self, split: str, root: Path | None = None) -> Graph:
        """Load all images without permutation, the test images last."""
        if split == "public":
            raise PublicSplitUnavailable(f"{self.name}: tasks sample their training images by seed")
        images = self._images(root)
        if images is None:
            raise DataUnavailable(f"{self._not_found(root)}; download MNIST's four files and put them there")
        return images.graph(torch.arange(images.labels.numel()))

    def location(self, root: Path | None = None) -> str:
        raw = storage.find(f"{self.folder}/raw", self.raw_files, root)
        if raw is None:
            return "missing; uses scikit-learn's digits instead"
        return storage.location(raw, root)

    def seeded_split(self, graph: Graph, seed: int) -> Split:
        """Return the images that the first task of a stream samples, and all test images."""
        drawn = torch.randperm(60_000, generator=_generator(seed, 0, 43))[: self.train + self.val]
        return Split(drawn[: self.train], drawn[self.train :], 60_000 + _some(10_000, self.test))

    def stream(self, seed: int, num_tasks: int | None = None, root: Path | None = None) -> tuple[TaskStream, Notes]:
        tasks = self.tasks if num_tasks is None else num_tasks
        if tasks < 1:
            raise InputError(f"{self.name}: num_tasks is {tasks}; at least 1 is needed")
        images = self._images(root)
        if images is not None:
            return PermutedStream(images, seed, tasks, self.train, self.val, self.test), ()
        images = bundled_digits()
        val = min(self.val, images.num_train // 4)
        train = min(self.train, images.num_train - val)
        test = min(self.test, images.labels.numel() - images.num_train)
        note = (
            f"NOT MNIST: {self._not_found(root)}, so scikit-learn's 8 × 8 digits are used instead ({train} training, "
            f"{val} validation and {test} test images per task)"
        )
        return PermutedStream(images, seed, tasks, train, val, test), (note,)

    def _images(self, root: Path | None) -> Images | None:
        raw = storage.find(f"{self.folder}/raw", self.raw_files, root)
        return None if raw is None else read_mnist(raw)

    def _not_found(self, root: Path | None) -> str:
        base = storage.data_root(root)
        where = f"{storage.DATA_VARIABLE} is not set" if base is None else f"{base} has no {self.folder}/raw"
        return f"{self.name}: {where} ({FILES[0]} and 3 more)"


@lru_cache(maxsize=1)
def read_mnist(raw: Path) -> Images:
    """Read MNIST from its four files; the latest folder is cached, as every seed reads it again."""
    pixels, labels = [], []
    for images, digits in (FILES[:2], FILES[2:]):
        pixels.append(read_idx(raw / images, 3).flatten(1))
        labels.append(read_idx(raw / digits, 1).long())
        if pixels[-1].size(0) != labels[-1].numel():
            raise InputError(f"{raw}: {images} has {pixels[-1].size(0)} images, {digits} {labels[-1].numel()} labels")
    wrong = [int(part.max()) for part in labels if int(part.max()) > 9]
    if wrong or pixels[0].size(1) != pixels[1].size(1):
        raise InputError(f"{raw}: label {wrong[0]} is not a digit" if wrong else f"{raw}: images differ in size")
    return Images(torch.cat(pixels), torch.cat(labels), labels[0].numel(), 255, PermutedMNIST.name)


@lru_cache(maxsize=1)
def bundled_digits() -> Images:
    """Load scikit-learn's 1,797 images of 8 × 8 pixels; the last 500 are for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataUnavailable(
            f"{PermutedMNIST.name}: MNIST's files are missing and scikit-learn, whose digits replace them, is not "
            f"installed; set {storage.DATA_VARIABLE} to a folder with {PermutedMNIST.folder}/raw, or pip install "
            "scikit-learn"
        ) from None
    digits = load_digits()
    pixels = torch.from_numpy(digits.data).to(torch.uint8)
    return Images(pixels, torch.from_numpy(digits.target).long(), len(pixels) - 500, 16, DIGITS)


def _some(count: int, wanted: int) -> Tensor:
    """Return a fixed sorted sample of ``wanted`` numbers below ``count``."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:wanted].sort().values


def _generator(seed: int, task: int, salt: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + task * 7919 + salt) % 2**63)
