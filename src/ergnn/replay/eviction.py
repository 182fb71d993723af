"""The order in which nodes leave a full buffer, and the size of the buffer after each eviction."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from ergnn.replay.buffer import Experience

Array = NDArray[Any]


def eviction_steps(parts: Sequence[Experience]) -> Tensor:
    """Return the step at which each node is evicted, from 1, over the nodes of all experiences (on the CPU).

    The next node comes from the class with the most nodes, within it from the task with the most nodes, and is the
    worst-ranked one there; a hash of node and task breaks ties. A node is the worst of its class and task when as many
    nodes are left there as its position among them, and likewise in its class. So the order is one sort, by the
    position in the class, then the position in class and task, then rank and hash.
    """
    sizes = [len(part) for part in parts]
    nodes, labels = (torch.cat([getattr(part, key) for part in parts]).cpu().numpy() for key in ("nodes", "labels"))
    part, task = (np.repeat(ids, sizes) for ids in (np.arange(len(parts)), [part.task for part in parts]))
    pairs = zip(nodes.tolist(), task.tolist(), strict=True)
    tie_breaker = np.array([zlib.crc32(f"{node},{task}".encode()) for node, task in pairs])
    place = np.arange(nodes.size)
    rank = _positions([part, labels], [place])
    keys = [rank, tie_breaker, -place]
    keys = [_positions([task, labels], keys), *keys]
    keys = [_positions([labels], keys), *keys]
    steps = np.empty_like(place)
    steps[np.lexsort(keys[::-1])] = place[::-1] + 1
    return torch.from_numpy(steps)


def _positions(groups: list[Array], keys: list[Array]) -> Array:
    """Return the position of each element within its group, sorted by the keys."""
    order = np.lexsort([*keys[::-1], *groups])
    index = np.arange(order.size)
    new = np.any([group[order] != np.roll(group[order], 1) for group in groups], axis=0)
    positions = np.empty_like(index)
    positions[order] = index - np.maximum.accumulate(np.where(new, index, 0))
    return positions


def bytes_after(parts: Sequence[Experience], steps: Sequence[Tensor], hops: int) -> Tensor:
    """Return the size of the experiences in bytes after 0, 1, 2, … evictions, without performing them.

    A row of a copy is kept while a remaining node is within ``hops`` of it, and an edge while both its ends are kept.

    Args:
        steps: the step at which each node is evicted, per experience.
        hops: radius of a stored neighborhood.
    """
    freed = torch.zeros(sum(map(len, parts)) + 1, dtype=torch.long, device=steps[0].device)
    for part, own in zip(parts, steps, strict=True):
        if not len(part):
            continue
        columns = [part.nodes, part.labels, *part.extras.values()]
        _add(freed, own, sum(column.nbytes for column in columns) // len(part))
        if part.copy is None:
            continue
        x, (source, target) = part.copy.x, part.copy.edge_index
        last = own.min().repeat(part.copy.num_nodes)  # a row that is not needed is dropped with the first node
        last[: len(part)] = own
        for _ in range(hops):
            last = last.scatter_reduce(0, source, last[target], "amax")
        _add(freed, torch.minimum(last[source], last[target]), 2 * source.element_size())
        if part.copy.is_sparse:
            start, column, values = x.crow_indices(), x.col_indices(), x.values()
            freed.index_add_(0, last, start.diff().long() * (column.element_size() + values.element_size()))
            _add(freed, last, start.element_size())
            _add(freed, last.max(dim=0, keepdim=True).values, start.element_size())
        else:
            _add(freed, last, x.size(1) * x.element_size())
    return freed.sum() - freed.cumsum(0)


def _add(freed: Tensor, steps: Tensor, size: int) -> None:
    """Add ``size`` at each step."""
    freed.index_add_(0, steps, torch.full_like(steps, size))
