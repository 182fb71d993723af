"""Permuted MNIST: the same digits in every task, each task with another permutation of the pixels."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.datasets import DATASETS, storage
from ergnn.data.datasets.base import DataUnavailable, Notes, PublicSplitUnavailable, StreamDataset
from ergnn.data.graph import Graph, Split
from ergnn.data.stream import Task, TaskStream, task_generator

FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
DIGITS = "permuted-digits"
"""Name of a stream of scikit-learn's digits, the substitute for MNIST if its files are missing."""
MAX_BYTES = 1 << 28
PIXELS, SAMPLE = 41, 43
"""Salts of the permutations and of the samples."""


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

    def task(self, number: int, seed: int, train: int, val: int, test: int) -> Task:
        """Return a task with its own permutation and sample of training images."""
        drawn = torch.randperm(self.num_train, generator=task_generator(seed, number, SAMPLE))[: train + val]
        classes = tuple(self.labels.unique().tolist())
        missing = set(classes) - set(self.labels[drawn[:train]].tolist())
        if missing:
            raise InputError(f"{self.name}: train is {train}; no image of class {min(missing)} was sampled")
        held_out = self.num_train + _fixed_sample(self.labels.numel() - self.num_train, test)
        graph = self.graph(torch.cat([drawn, held_out]), permutation(seed, number, self.pixels.size(1)))
        train_ids, val_ids, test_ids = torch.arange(graph.num_nodes).split([train, val, test])
        return Task(number, graph, train_ids, val_ids, test_ids, classes, own_graph=True)


def permutation(seed: int, task: int, pixels: int) -> Tensor:
    """Return the pixel at each position: the identity for the first task, a seeded permutation for the others."""
    if task == 0:
        return torch.arange(pixels)
    return torch.randperm(pixels, generator=task_generator(seed, task, PIXELS))


def permuted_stream(images: Images, seed: int, num_tasks: int, train: int, val: int, test: int) -> TaskStream:
    """Create a stream whose tasks are built on access, because all of them together would take gigabytes.

    Args:
        images: images of all tasks.
        seed: seed of the permutations and of the samples.
        num_tasks: number of tasks.
        train, val: number of images that each task samples from the training images.
        test: number of test images, the same ones in every task and for every seed.
    """
    rest = images.labels.numel() - images.num_train
    if train + val > images.num_train or test > rest:
        raise InputError(
            f"{images.name}: {train:,} training, {val:,} validation and {test:,} test images requested; there "
            f"are {images.num_train:,} for training and validation, and {rest:,} for test"
        )
    return TaskStream.lazy(num_tasks, lambda i: images.task(i, seed, train, val, test), name=images.name)


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
    folder = "mnist/MNIST/raw"

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
        raw = storage.find(self.folder, FILES, root)
        if raw is None:
            missing = storage.not_found(self.name, self.folder, FILES, root)
            raise DataUnavailable(f"{missing}; download MNIST's four files and put them there")
        images = read_mnist(raw)
        return images.graph(torch.arange(images.labels.numel()))

    def location(self, root: Path | None = None) -> str:
        raw = storage.find(self.folder, FILES, root)
        return "missing; uses scikit-learn's digits instead" if raw is None else storage.location(raw, root)

    def seeded_split(self, graph: Graph, seed: int) -> Split:
        """Return the images that the first task of a stream samples, and all test images."""
        drawn = torch.randperm(60_000, generator=task_generator(seed, 0, SAMPLE))[: self.train + self.val]
        return Split(drawn[: self.train], drawn[self.train :], 60_000 + _fixed_sample(10_000, self.test))

    def stream(self, seed: int, num_tasks: int | None = None, root: Path | None = None) -> tuple[TaskStream, Notes]:
        tasks = self.tasks if num_tasks is None else num_tasks
        if tasks < 1:
            raise InputError(f"{self.name}: num_tasks is {tasks}; at least 1 is needed")
        raw = storage.find(self.folder, FILES, root)
        if raw is not None:
            return permuted_stream(read_mnist(raw), seed, tasks, self.train, self.val, self.test), ()
        images = bundled_digits()
        val = min(self.val, images.num_train // 4)
        train = min(self.train, images.num_train - val)
        test = min(self.test, images.labels.numel() - images.num_train)
        note = (
            f"NOT MNIST: {storage.not_found(self.name, self.folder, FILES, root)}, so scikit-learn's 8 × 8 digits are "
            f"used instead ({train} training, {val} validation and {test} test images per task)"
        )
        return permuted_stream(images, seed, tasks, train, val, test), (note,)


@lru_cache(maxsize=1)
def read_mnist(raw: Path) -> Images:
    """Read MNIST from its four files; the latest folder is cached, as every seed reads it again."""
    pixels, labels = [], []
    for images, digits in (FILES[:2], FILES[2:]):
        pixels.append(read_idx(raw / images, 3).flatten(1))
        labels.append(read_idx(raw / digits, 1).long())
        if pixels[-1].size(0) != labels[-1].numel():
            raise InputError(f"{raw}: {images} has {pixels[-1].size(0)} images, {digits} {labels[-1].numel()} labels")
        if int(labels[-1].max()) > 9:
            raise InputError(f"{raw / digits}: label {int(labels[-1].max())} is not a digit")
    if pixels[0].size(1) != pixels[1].size(1):
        raise InputError(f"{raw}: images differ in size")
    return Images(torch.cat(pixels), torch.cat(labels), labels[0].numel(), 255, PermutedMNIST.name)


def read_idx(path: Path, dims: int) -> Tensor:
    """Read a gzipped IDX file of bytes, the format of MNIST, as a uint8 tensor with ``dims`` dimensions.

    The header of big-endian numbers (0, 0, type, dims, then the sizes) gives the number of values; no more than that is
    decompressed.
    """
    start = bytes([0, 0, 8, dims])
    try:
        with gzip.open(path) as file:
            header = file.read(4 + 4 * dims)
            if header[:4] != start:
                raise InputError(
                    f"{path}: starts with {header[:4].hex() or 'nothing'}; an IDX file of bytes in {dims} "
                    f"dimension(s) starts with {start.hex()}"
                )
            if len(header) < 4 + 4 * dims:
                raise InputError(f"{path}: ends within its header")
            sizes = struct.unpack(f">{dims}I", header[4:])
            if not 0 < math.prod(sizes) <= MAX_BYTES:
                raise InputError(f"{path}: its header announces {sizes} values; 1 to {MAX_BYTES:,} can be read")
            body = file.read(math.prod(sizes) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file ({error})") from None
    if len(body) != math.prod(sizes):
        held = "more" if len(body) > math.prod(sizes) else f"only {len(body):,}"
        raise InputError(f"{path}: its header announces {math.prod(sizes):,} bytes, and {held} follow")
    return torch.frombuffer(bytearray(body), dtype=torch.uint8).view(sizes)


@lru_cache(maxsize=1)
def bundled_digits() -> Images:
    """Load scikit-learn's 1,797 images of 8 × 8 pixels; the last 500 are for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataUnavailable(
            f"{PermutedMNIST.name}: MNIST's files are missing and scikit-learn, whose digits replace them, is not "
            f"installed; set {storage.DATA_VARIABLE} to a folder with {PermutedMNIST.folder}, or pip install "
            "scikit-learn"
        ) from None
    digits = load_digits()
    pixels = torch.from_numpy(digits.data).to(torch.uint8)
    return Images(pixels, torch.from_numpy(digits.target).long(), len(pixels) - 500, 16, DIGITS)


def _fixed_sample(count: int, size: int) -> Tensor:
    """Return a fixed sorted sample of ``size`` numbers below ``count``."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:size].sort().values
