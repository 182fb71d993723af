"""Selectors that choose the nodes of a class one after another, each depending on those before it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from ergnn.replay.selectors.base import Selection, SelectionContext, Selector
from ergnn.replay.selectors.spaces import Space, SpaceName

Values = Callable[[list[int]], Tensor]
"""``chosen rows → value of each row as the next one``; called once per choice, with one more row each time."""


class GreedySelector(Selector):
    """Chooses the nodes of each class by the highest value given those already chosen.

    Args:
        space: ``feature`` or ``embedding``.
        normalize: divide each vector by its length first.
    """

    def __init__(self, space: SpaceName = "embedding", normalize: bool = False) -> None:
        self.space = Space(space, "euclidean", normalize)

    @abstractmethod
    def values(self, vectors: Tensor) -> Values:
        """The value of each row of one class as the next choice; ties go to the first row, which is random by seed."""

    @property
    def reads_embeddings(self) -> bool:
        return self.space.space == "embedding"

    def score(self, context: SelectionContext) -> Tensor:
        """The value of every node as the first choice."""
        scores = torch.empty(context.nodes.numel(), dtype=torch.float64, device=context.nodes.device)
        for c in context.task.classes:
            own = context.labels == c
            scores[own] = self.values(self.space.vectors(context, context.nodes[own]))([]).double()
        return scores

    def select(self, context: SelectionContext) -> Selection:
        shuffle = torch.randperm(context.nodes.numel(), generator=context.generator()).to(context.nodes.device)
        nodes, labels = context.nodes[shuffle], context.labels[shuffle]
        chosen: list[Tensor] = []
        scores: list[float] = []
        for c in context.task.classes:
            members, rows = nodes[labels == c], list[int]()
            values = self.values(self.space.vectors(context, members))
            for _ in range(min(context.per_class, members.numel())):
                value = values(rows).double()
                value = value.index_fill(0, torch.tensor(rows, dtype=torch.long, device=value.device), -float("inf"))
                rows.append(int(value.argmax()))
                scores.append(float(value[rows[-1]]))
            chosen.append(members[torch.tensor(rows, dtype=torch.long, device=members.device)])
        return Selection(torch.cat(chosen), torch.tensor(scores))
