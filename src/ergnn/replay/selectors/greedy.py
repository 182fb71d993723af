"""Selectors that choose the nodes of a class one after another, each depending on those before it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from ergnn.replay.selectors.base import Selection, SelectionContext, Selector
from ergnn.replay.selectors.spaces import Space, SpaceName

Values = Callable[[Tensor], Tensor]
"""``chosen rows → value of each row as the next one``; called once per choice, with one more row each time.

It should not synchronize with a GPU, as hundreds of nodes may be chosen.
"""


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
        none = context.nodes[:0]
        for c in context.task.classes:
            own = context.labels == c
            scores[own] = self.values(self.space.vectors(context, context.nodes[own]))(none).double()
        return scores

    def select(self, context: SelectionContext) -> Selection:
        shuffle = torch.randperm(context.nodes.numel(), generator=context.generator()).to(context.nodes.device)
        nodes, labels = context.nodes[shuffle], context.labels[shuffle]
        chosen, scores = [], []
        for c in context.task.classes:
            members = nodes[labels == c]
            values = self.values(self.space.vectors(context, members))
            rows = members.new_empty(min(context.per_class, members.numel()))
            best = torch.empty(rows.numel(), dtype=torch.float64, device=rows.device)
            taken = torch.zeros(members.numel(), dtype=torch.bool, device=rows.device)
            for k in range(rows.numel()):
                value = values(rows[:k]).double().masked_fill(taken, -float("inf"))
                best[k : k + 1], row = value.max(0, keepdim=True)
                rows[k : k + 1] = row
                taken.index_fill_(0, row, True)
            chosen.append(members[rows])
            scores.append(best)
        return Selection(torch.cat(chosen), torch.cat(scores).float().cpu())
