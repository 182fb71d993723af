"""Permuted MNIST: the same digits in every task, each task with another permutation of the pixels."""

from __future__ import annotations

import gzip
import struct
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_at_least
from ergnn.config.files import wrap_errors
from ergnn.data.datasets import DATASETS
from ergnn.data.datasets.base import StreamDataset
from ergnn.data.graph import Graph, Split
from ergnn.data.stream import LazyTasks, Task, TaskStream, task_generator

FILES = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
MAX_BYTES = 1 << 28
IDX_BYTES = 0x800
"""An IDX file of bytes begins with this number plus its number of dimensions."""
PIXELS, SAMPLE = 41, 43
"""Salts of the permutations and of the samples."""


class Images(NamedTuple):
    """Labeled images: ``pixels`` of 0 to 255, one row per image, of which the first ``num_train`` are for training and
    the others for test."""

    pixels: Tensor
    labels: Tensor
    num_train: int

    def graph(self, images: Tensor, order: Tensor) -> Graph:
        """Return images with pixels permuted by ``order`` as a graph without edges; features are in [0, 1]."""
        x = self.pixels[images][:, order].float().div_(255)
        return Graph(x, torch.empty(2, 0, dtype=torch.long), self.labels[images], name=PermutedMNIST.name)

    def task(self, number: int, seed: int, train: int, val: int, test: int) -> Task:
        """Return a task with its own permutation and sample of training images."""
        drawn = torch.randperm(self.num_train, generator=task_generator(seed, number, SAMPLE))[: train + val]
        held_out = self.num_train + _fixed_sample(self.labels.numel() - self.num_train, test)
        graph = self.graph(torch.cat([drawn, held_out]), permutation(seed, number, self.pixels.size(1)))
        train_ids, val_ids, test_ids = torch.arange(graph.num_nodes).split([train, val, test])
        classes = tuple(self.labels.unique().tolist())
        return Task(number, graph, train_ids, val_ids, test_ids, classes, own_graph=True)


def permutation(seed: int, task: int, pixels: int) -> Tensor:
    """Return the pixel at each position: the identity for the first task, a seeded permutation for the others."""
    if task == 0:
        return torch.arange(pixels)
    return torch.randperm(pixels, generator=task_generator(seed, task, PIXELS))


@DATASETS.register("permuted-mnist", aliases=("pmnist",))
class PermutedMNIST(StreamDataset):
    """Handwritten digits, each task with another permutation of the pixels (Kirkpatrick et al., 2017).

    Every task has all ten classes, and all tasks share one output layer: only the domain changes.

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
    num_tasks = 23
    folder, raw_files = "mnist/MNIST/raw", FILES

    def __init__(self, tasks: int = 23, train: int = 1_000, val: int = 1_000, test: int = 10_000) -> None:
        check_at_least(1, tasks=tasks, train=train, test=test)
        check_at_least(0, val=val)
        self.num_tasks, self.train, self.val, self.test = tasks, train, val, test

    def read(self, root: Path | None) -> Graph:
        """Read all images without permutation, the test images last."""
        images = read_mnist(self.find_or_raise(root))
        return images.graph(torch.arange(images.labels.numel()), torch.arange(images.pixels.size(1)))

    def seeded_split(self, graph: Graph, seed: int) -> Split:
        """Return the images that the first task of a stream samples, and all test images."""
        drawn = torch.randperm(60_000, generator=task_generator(seed, 0, SAMPLE))[: self.train + self.val]
        return Split(drawn[: self.train], drawn[self.train :], 60_000 + _fixed_sample(10_000, self.test))

    def stream(self, seed: int, num_tasks: int | None = None, root: Path | None = None) -> TaskStream:
        """Create tasks that are built on access, because all of them together would take gigabytes."""
        tasks = self.num_tasks if num_tasks is None else num_tasks
        check_at_least(1, num_tasks=tasks)
        images, train, val, test = read_mnist(self.find_or_raise(root)), self.train, self.val, self.test
        rest = images.labels.numel() - images.num_train
        if train + val > images.num_train or test > rest:
            raise InputError(
                f"{self.name}: {train:,} training, {val:,} validation and {test:,} test images requested; there "
                f"are {images.num_train:,} for training and validation, and {rest:,} for test"
            )
        return TaskStream(LazyTasks(tasks, lambda i: images.task(i, seed, train, val, test)), name=self.name)


@lru_cache(maxsize=1)
def read_mnist(raw: Path) -> Images:
    """Read MNIST from its four files; the latest folder is cached, as every seed reads it again."""
    train_pixels, train_labels, test_pixels, test_labels = (
        read_idx(raw / file, dims) for file, dims in zip(FILES, (3, 1, 3, 1), strict=True)
    )
    with wrap_errors(raw, "MNIST"):
        pixels = torch.cat([train_pixels, test_pixels]).flatten(1)
        labels = torch.cat([train_labels, test_labels]).long()
        if len(train_pixels) != len(train_labels) or len(pixels) != len(labels) or int(labels.max()) > 9:
            raise ValueError(f"{len(pixels)} images, {len(labels)} labels up to {int(labels.max())}")
    return Images(pixels, labels, len(train_labels))


def read_idx(path: Path, dims: int) -> Tensor:
    """Read a gzipped IDX file of bytes, the format of MNIST, as a uint8 tensor with ``dims`` dimensions."""
    with wrap_errors(path, f"a gzipped IDX file of bytes in {dims} dimension(s)"), gzip.open(path) as file:
        data = file.read(MAX_BYTES)
        kind, *sizes = struct.unpack_from(f">{1 + dims}I", data)
        if kind != IDX_BYTES + dims:
            raise ValueError(f"it begins with {kind}")
        return torch.frombuffer(bytearray(data[4 + 4 * dims :]), dtype=torch.uint8).reshape(sizes)


def _fixed_sample(count: int, size: int) -> Tensor:
    """Return a fixed sorted sample of ``size`` numbers below ``count``."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:size].sort().values
