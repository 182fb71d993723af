"""Mini-batches of a task's examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from ergnn.data.hashing import stream_key
from ergnn.engine.distributed import ALONE, Ranks
from ergnn.engine.losses import Objective

T = TypeVar("T")
_END = object()


class MiniBatches:
    """The batches of an epoch, determined by the seed and the epoch.

    The first ``task_size`` examples belong to the task. A batch consists of ``size`` of these, each of which is used
    once per epoch in random order, and up to ``size`` of the others, sampled for every batch (except those of weight
    0). With n examples of the task and m others, the loss of the batch is

        n/|batch| Σ_batch weight · loss + m/|sample| Σ_sample weight · loss .

    Its expectation is the full loss, and if both parts have equal weight, they have equal weight in each batch. With
    several ranks (:mod:`ergnn.engine.distributed`), every batch is divided among them.
    """

    def __init__(self, objective: Objective, size: int, task_size: int, seed: int, ranks: Ranks = ALONE) -> None:
        weights = objective.weights
        self.objective = objective
        if objective.sampling is None:
            self.objective = objective.batch(torch.arange(weights.numel(), device=weights.device))
        self.size, self.task_size = size, task_size
        self.others = task_size + weights[task_size:].nonzero().flatten()
        self.seed, self.ranks = seed, ranks

    def __len__(self) -> int:
        return -(-self.task_size // self.size)

    def of_epoch(self, epoch: int) -> Iterator[Objective]:
        """Yield the batches; with sampled neighbors, a thread prepares each batch during the previous step."""
        batches = self._batches(epoch)
        return batches if self.objective.sampling is None else prefetched(batches)

    def _batches(self, epoch: int) -> Iterator[Objective]:
        weights, device = self.objective.weights, self.objective.weights.device
        generator = torch.Generator().manual_seed((self.seed + epoch * 15_485_863) % 2**63)
        count = self.others.numel()
        for i, index in enumerate(torch.randperm(self.task_size, generator=generator).to(device).split(self.size)):
            scaled = weights[index] * (self.task_size / index.numel())
            if count:
                sample = self.others[torch.randperm(count, generator=generator)[: self.size].to(device)]
                index = torch.cat([index, sample])
                scaled = torch.cat([scaled, weights[sample] * (count / sample.numel())])
            yield self.objective.batch(*self.ranks.pick(index, scaled), key=stream_key(self.seed, epoch, i))


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """Yield the items in order, each prepared by a thread while the one before is in use.

    An error is raised at the position of the item that caused it. If the consumer stops early, so does the thread.
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="ergnn-prefetch") as thread:
        future = thread.submit(next, iterator, _END)
        while (item := future.result()) is not _END:
            future = thread.submit(next, iterator, _END)
            yield item  # type: ignore[misc]
