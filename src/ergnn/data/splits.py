"""Seeded splits of a graph's labeled nodes into training, validation and test.

Every function draws from its own ``torch.Generator``, so the same seed always gives the same nodes, and the nodes of
one class do not depend on the sizes of the other classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_at_least, truncate
from ergnn.data.graph import UNLABELED, Split


def planetoid_like(y: Tensor, *, per_class: int = 20, num_val: int = 500, num_test: int = 1000, seed: int = 0) -> Split:
    """Draw a split of Planetoid's sizes: ``per_class`` training nodes per class, 500 validation and 1,000 test nodes.

    Validation and test nodes are drawn from *all* labeled nodes, as in Planetoid: in proportion to class sizes, and
    also from classes that no task uses.

    Args:
        y: labels, ``-1`` for none, and for nodes that must not be drawn.
        per_class, num_val, num_test: sizes.
        seed: seed of the draw.
    """
    check_at_least(1, per_class=per_class, num_test=num_test)
    check_at_least(0, num_val=num_val)
    generator = torch.Generator().manual_seed(seed)
    labeled, train = (y != UNLABELED).nonzero().flatten(), []
    for c in _classes(y):
        drawn = _shuffled((y == c).nonzero().flatten(), generator)
        if drawn.numel() < per_class:
            raise InputError(f"class {c} has {drawn.numel()} labeled nodes; {per_class} are required for training")
        train.append(drawn[:per_class])
    taken = _split(train, (), ()).train
    rest = _shuffled(labeled[~torch.isin(labeled, taken)], generator)
    if rest.numel() < num_val + num_test:
        raise InputError(
            f"{rest.numel()} labeled nodes are left after training nodes are drawn; "
            f"{num_val} for validation and {num_test} for test are required"
        )
    return _split(train, [rest[:num_val]], [rest[num_val : num_val + num_test]])


def per_class(y: Tensor, *, train: int = 20, val: int = 30, test: int | None = None, seed: int = 0) -> Split:
    """Draw a fixed number of nodes per class for every part; ``test=None`` takes all remaining nodes.

    The defaults are those of Shchur et al. (2018), "Pitfalls of graph neural network evaluation".
    """
    return Sizes(int(train), int(val), test).draw(y, seed)


def fractions(y: Tensor, *, train: float = 0.6, val: float = 0.2, test: float = 0.2, seed: int = 0) -> Split:
    """Draw fractions of the labeled nodes of each class.

    Sizes are rounded at the cumulative fractions, so that fractions that sum to 1 use every node.
    """
    return Sizes(float(train), float(val), float(test)).draw(y, seed)


def scaled(y: Tensor, *, seed: int = 0) -> tuple[Split, str]:
    """Draw a split adapted to the size of the graph; return it with a description.

    Uses Planetoid's sizes (:func:`planetoid_like`) if the graph is large enough and every class gets test nodes;
    otherwise 60, 20 and 20 % of each class (:func:`sixty_twenty_twenty`).
    """
    try:
        large = planetoid_like(y, seed=seed)
    except InputError:
        large = None
    if large is not None and torch.isin(torch.tensor(_classes(y)), y[large.test]).all():
        return large, "20 training nodes per class, 500 validation and 1,000 test nodes"
    return sixty_twenty_twenty(y, seed=seed), "60 % of each class for training, 20 % for validation, 20 % for test"


def sixty_twenty_twenty(y: Tensor, *, seed: int = 0) -> Split:
    """Draw 60 % of each class for training, 20 % for validation and 20 % for testing.

    Each part has at least one node if there are enough: of two nodes, one is for training and one for testing; a single
    node is for training.
    """

    def ends(count: int) -> list[int]:
        test = max(round(0.2 * count), min(1, count - 1))
        val = max(round(0.2 * count), 1) if count > 2 else 0
        return [0, count - val - test, count - test, count]

    return _draw(y, ends, seed)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the parts of a split: fractions of each class, or numbers of nodes per class (``test=None``: the rest).

    >>> parse_sizes("0.6/0.2/0.2")
    Sizes(train=0.6, val=0.2, test=0.2)
    >>> parse_sizes("20/30/rest")
    Sizes(train=20, val=30, test=None)
    """

    train: float
    val: float
    test: float | None

    def __post_init__(self) -> None:
        if isinstance(self.train, int):
            check_at_least(1, train=self.train, test=self.test)
            check_at_least(0, val=self.val)
            return
        for name, value in vars(self).items():
            if not 0 <= value <= 1:
                raise InputError(f"the {name} fraction is {value}; a fraction is between 0 and 1")
        if (total := sum(vars(self).values())) > 1 + 1e-9:
            raise InputError(
                f"the fractions {self.train}, {self.val} and {self.test} add up to {total:g}; at most 1 is allowed"
            )

    def draw(self, y: Tensor, seed: int) -> Split:
        """Draw a split of these sizes of each class."""
        for c in _classes(y):
            if not self.fit(count := int((y == c).sum())):
                sizes = [("the rest" if size is None else size) for size in vars(self).values()]
                raise InputError(
                    f"class {c} has {count} labeled nodes, too few for {sizes[0]} (training), {sizes[1]} "
                    f"(validation) and {sizes[2]} (test)"
                )
        return _draw(y, self.ends, seed)

    def ends(self, count: int) -> list[int]:
        """Return where each part of ``count`` shuffled nodes begins and ends."""
        if isinstance(self.train, int):
            start = int(self.train + self.val)
            return [0, self.train, start, max(count, start + 1) if self.test is None else int(start + self.test)]
        test = self.test or 0.0
        return [0, *(round(count * end) for end in (self.train, self.train + self.val, self.train + self.val + test))]

    def fit(self, count: int) -> bool:
        """Return whether a class of ``count`` nodes has enough for every part."""
        ends = self.ends(count)
        parts = zip(vars(self).values(), pairwise(ends), strict=True)
        return ends[-1] <= count and all(last > first for size, (first, last) in parts if size != 0)


def parse_sizes(text: str) -> Sizes | None:
    """Parse ``train/val/test`` as fractions (0.6/0.2/0.2) or nodes per class (20/30/rest); None for any other text."""
    if "/" not in text:
        return None
    kind = float if "." in text else int
    try:
        train, val, test = text.split("/")
        parts = kind(train), kind(val), None if test == "rest" and kind is int else kind(test)
    except ValueError:
        raise InputError(
            f"split is {text!r}; use train/val/test: fractions such as 0.6/0.2/0.2, or nodes per class such as "
            "20/30/rest or 20/30/100"
        ) from None
    return Sizes(*parts)


def given(train: Any, val: Any, test: Any, *, num_nodes: int) -> Split:
    """Create a checked split from node ids or boolean masks (tensors, arrays or lists)."""
    parts = zip(("train", "val", "test"), (train, val, test), strict=True)
    return check_split(Split(*(node_ids(part, num_nodes, name) for name, part in parts)), num_nodes)


def as_tensor(values: Any) -> Tensor:
    """Convert numbers, or lists or arrays of them, to a tensor."""
    return torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values))


def node_ids(nodes: Any, count: int, what: str) -> Tensor:
    """Return checked ids, from a vector of ids or a mask of ``count`` nodes; all of them for None."""
    if nodes is None:
        return torch.arange(count)
    try:
        ids = as_tensor(nodes) if len(nodes) else torch.empty(0, dtype=torch.long)
    except TypeError:  # text, or one number
        ids = torch.empty(())
    if ids.dtype == torch.bool and ids.shape == (count,):
        return ids.nonzero().flatten()
    if ids.dim() != 1 or ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        got = f"{ids.dtype} of shape {tuple(ids.shape)}" if ids.dim() else truncate(nodes)
        raise InputError(f"{what}: nodes must be a vector of node ids, or a mask of {count} entries; got {got}")
    wrong = ids[(ids < 0) | (ids >= count)]
    if wrong.numel():
        raise InputError(f"{what}: nodes contains {int(wrong[0])}; nodes are 0 to {count - 1}")
    return ids.long()


def check_split(split: Split, num_nodes: int, name: str = "split") -> Split:
    """Check that node ids are in range, and that each is in one part, once."""
    for part, ids in vars(split).items():
        if ids.dtype != torch.long:
            raise InputError(f"{name}, {part}: nodes are {ids.dtype}; int64 ids are required")
        node_ids(ids, num_nodes, f"{name}, {part}")
    nodes, count = torch.cat([split.train, split.val, split.test]).unique(return_counts=True)
    for node in nodes[count > 1][:1].tolist():
        parts = [part for part, ids in vars(split).items() for _ in range(int((ids == node).sum()))]
        several = f"node {node} is in {' and '.join(parts)} ({int((count > 1).sum())} such node(s))"
        raise InputError(f"{name}: {several}; a node is in one of them, once")
    return split


def _classes(y: Tensor) -> list[int]:
    return [int(c) for c in y.unique() if int(c) != UNLABELED]


def _shuffled(nodes: Tensor, generator: torch.Generator) -> Tensor:
    return nodes[torch.randperm(nodes.numel(), generator=generator)]


def _draw(y: Tensor, ends: Callable[[int], list[int]], seed: int) -> Split:
    """Shuffle the nodes of each class, and cut them into training, validation and test nodes at the ``ends``."""
    generator = torch.Generator().manual_seed(seed)
    pieces = []
    for c in _classes(y):
        shuffled = _shuffled((y == c).nonzero().flatten(), generator)
        pieces.append([shuffled[first:last] for first, last in pairwise(ends(shuffled.numel()))])
    return _split(*zip(*pieces, strict=True)) if pieces else _split((), (), ())


def _split(*parts: Iterable[Tensor]) -> Split:
    empty = torch.empty(0, dtype=torch.long)
    return Split(*(torch.cat([empty, *part]).sort().values for part in parts))
